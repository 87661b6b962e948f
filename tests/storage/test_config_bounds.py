"""Every setting of a topic and of a broker, at and beyond its bounds: refused as Kafka refuses it, or it works."""

from __future__ import annotations

from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.disk.life import Life
from storage.cleaner.plan import CleanerConfig
from storage.config import INT_MAX, LONG_MAX, LogConfig
from storage.directory.manager import LogManager
from storage.draws import Draws
from storage.errors import ConfigError, InvalidRecord, RecordBatchTooLarge, RecordTooLarge
from storage.log import PartitionLog
from storage.server_settings import SERVER_NAMES, log_config_of_server
from tests.storage.logs import DIRECTORY, NOW_MS, batch, new_disk, open_log, produced, read_offsets

LONG_MIN = -LONG_MAX - 1
# The least and the greatest value of each number, as Kafka's ConfigDef has them.
NUMBERS: dict[str, tuple[int, int]] = {
    "segment.bytes": (14, INT_MAX),
    "segment.ms": (1, LONG_MAX),
    "segment.jitter.ms": (0, LONG_MAX),
    "segment.index.bytes": (4, INT_MAX),
    "index.interval.bytes": (0, INT_MAX),
    "flush.messages": (1, LONG_MAX),
    "flush.ms": (0, LONG_MAX),
    "max.message.bytes": (0, INT_MAX),
    "retention.bytes": (LONG_MIN, LONG_MAX),
    "retention.ms": (-1, LONG_MAX),
    "delete.retention.ms": (0, LONG_MAX),
    "min.compaction.lag.ms": (0, LONG_MAX),
    "max.compaction.lag.ms": (1, LONG_MAX),
    "file.delete.delay.ms": (0, LONG_MAX),
    "message.timestamp.before.max.ms": (0, LONG_MAX),
    "message.timestamp.after.max.ms": (0, LONG_MAX),
    "min.insync.replicas": (1, INT_MAX),
    "producer.id.expiration.ms": (1, INT_MAX),
    "compression.gzip.level": (1, 9),
    "compression.lz4.level": (1, 17),
    "compression.zstd.level": (-131072, 22),
}
OTHERS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "min.cleanable.dirty.ratio": (
        ("0", "1", "0.0", "1e-300"),
        ("-1e-9", "1.0000001", "nan", "inf", "0_1", ""),
    ),
    "cleanup.policy": (("delete", "compact", "compact,delete"), ("Delete", "none", "compact;delete", ",")),
    "compression.type": (
        ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
        ("none", "GZIP", ""),
    ),
    "message.timestamp.type": (("CreateTime", "LogAppendTime"), ("createtime", "NoTimestampType", "")),
    "unclean.leader.election.enable": (("true", "FALSE"), ("1", "yes", "")),
    "preallocate": (("true", "False"), ("0", "no", "")),
}


# Settings that are compared with the sizes of index entries and batches.
SIZES = {"segment.bytes", "segment.index.bytes", "index.interval.bytes", "max.message.bytes"}


def good_values(name: str) -> list[str]:
    if name in OTHERS:
        return list(OTHERS[name][0])
    least, greatest = NUMBERS[name]
    near = [4, 7, 8, 11, 12, 16, 23, 24, 25, 69, 70, 71, 140, 200] if name in SIZES else []
    values = [least, least + 1, greatest - 1, greatest, *near]
    return [str(value) for value in dict.fromkeys(values) if least <= value <= greatest]


def bad_values(name: str) -> list[str]:
    if name in OTHERS:
        return list(OTHERS[name][1])
    least, greatest = NUMBERS[name]
    texts = [
        str(greatest + 1),
        "9" * 30,
        "9" * 5000,
        "",
        "1.0",
        "1_0",
        "0x10",
        "1e3",
        "seven",
        "-",
        "--1",
        "1 0",
    ]
    return [*texts, str(least - 1)] if least > LONG_MIN else [*texts, str(LONG_MIN - 1)]


def test_the_table_has_every_setting() -> None:
    assert {*NUMBERS, *OTHERS} == set(LogConfig.property_names)


@pytest.mark.parametrize("name", [*NUMBERS, *OTHERS])
def test_a_value_beyond_its_bounds_is_refused_by_its_name(name: str) -> None:
    for value in bad_values(name):
        with pytest.raises(ConfigError, match=name.replace(".", r"\.")):
            LogConfig.from_properties({name: value})
        for server_name in (each for each in SERVER_NAMES.get(name, ()) if each.unit == 1):
            if name == "retention.ms" and value.startswith("-2"):
                continue
            with pytest.raises(ConfigError, match=server_name.name.replace(".", r"\.")):
                log_config_of_server({server_name.name: value}, LogConfig())


def used(config: LogConfig) -> list[int]:
    """Lead, follow, roll, flush, truncate, retain, compact and reopen a log. Returns the offsets that it holds."""
    disk = new_disk()
    file_system = disk.file_system(Life())
    file_system.make_directory(DIRECTORY)
    log = open_log(file_system, config)
    for number in range(6):
        lead(log, number)
        follow(log)
    log.flushes.roll(now_ms=NOW_MS)
    lead(log, 7)
    follow(log)
    log.truncate_to(max(log.log_end_offset - 2, 0), now_ms=NOW_MS)
    lead(log, 8)
    log.flushes.flush()
    log.marks.update_high_watermark(log.log_end_offset)
    compact(log)
    expected = read_offsets(log)
    log.close()
    log = open_log(file_system, config, clean=True)
    assert read_offsets(log) == expected
    log.close_handles()
    log = open_log(file_system, config)
    assert read_offsets(log) == expected
    log.marks.update_high_watermark(log.log_end_offset)
    log.retention.delete_old(NOW_MS)
    lead(log, 9)
    return read_offsets(log)


def lead(log: PartitionLog, number: int) -> None:
    try:
        log.append_as_leader(
            produced(2, timestamp=NOW_MS + number, value_bytes=number), leader_epoch=0, now_ms=NOW_MS
        )
    except (RecordTooLarge, RecordBatchTooLarge):
        assert log.local.config.max_message_bytes < 200 or log.local.config.segment_bytes < 200
    # A compacted topic takes no record without a key.
    except InvalidRecord:
        assert log.local.config.is_compacted or log.local.config.message_timestamp_after_max_ms < 100


def follow(log: PartitionLog) -> None:
    offsets = count(log.log_end_offset, 3)
    data = b"".join(batch(next(offsets), timestamp=NOW_MS + number) for number in range(4))
    log.append_as_follower(data, leader_epoch=0, now_ms=NOW_MS, may_exceed_segment=True)


def compact(log: PartitionLog) -> None:
    if not log.local.config.is_compacted:
        return
    offsets = log.compactions.cleanable_offsets(None, NOW_MS)
    if log.compactions.log_to_clean(offsets, NOW_MS).cleanable_bytes:
        for work in log.compactions.prepare(offsets, CleanerConfig(dedupe_buffer_bytes=4096), NOW_MS):
            work()


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name in (*NUMBERS, *OTHERS) for value in good_values(name)]
)
def test_a_value_within_its_bounds_works(name: str, value: str) -> None:
    assert used(LogConfig.from_properties(properties_with({name: value})))


def properties_with(properties: dict[str, str]) -> dict[str, str]:
    """The compaction lags are checked as a pair: the other one is moved to where both are accepted."""
    if "min.compaction.lag.ms" in properties and "max.compaction.lag.ms" in properties:
        lags = sorted((int(properties["min.compaction.lag.ms"]), int(properties["max.compaction.lag.ms"])))
        return {**properties, "min.compaction.lag.ms": str(lags[0]), "max.compaction.lag.ms": str(lags[1])}
    return properties


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(st.data())
def test_any_settings_within_their_bounds_work_together(data: st.DataObject) -> None:
    names = data.draw(st.lists(st.sampled_from([*NUMBERS, *OTHERS]), min_size=2, max_size=6, unique=True))
    chosen = {name: data.draw(st.sampled_from(good_values(name)), label=name) for name in names}
    assert isinstance(used(LogConfig.from_properties(properties_with(chosen))), list)


@pytest.mark.parametrize("index_bytes", range(4, 30))
def test_s1_indexes_with_room_for_one_entry_or_less_roll_in_time(index_bytes: int) -> None:
    config = LogConfig(segment_index_bytes=index_bytes, index_interval_bytes=0)
    logs = LogManager(new_disk().file_system(Life()), "data", config, NOW_MS, Draws(1))
    logs.load(NOW_MS)
    log = logs.create("bad", 0)
    for number in range(5):
        lead(log, number)
        follow(log)
    assert read_offsets(log) == [
        offset
        for set_ in range(5)
        for offset in (set_ * 12, set_ * 12 + 1, *range(set_ * 12 + 2, set_ * 12 + 12, 3))
    ]


def test_a_retention_of_zero_is_refused_of_a_broker_and_works_for_a_topic() -> None:
    for name in ("log.retention.ms", "log.retention.minutes", "log.retention.hours"):
        with pytest.raises(ConfigError, match="must be at least 1, or -1 for no limit"):
            log_config_of_server({name: "0"}, LogConfig())
        # Any negative one is no limit.
        assert log_config_of_server({name: "-7"}, LogConfig()).retention_ms == -1
    assert LogConfig.from_properties({"retention.ms": "0"}).retention_ms == 0


@pytest.mark.parametrize("name", ["log.roll.hours", "log.retention.hours", "log.retention.minutes"])
def test_hours_and_minutes_have_32_bits(name: str) -> None:
    assert log_config_of_server({name: str(INT_MAX)}, LogConfig())
    for value in (INT_MAX + 1, -INT_MAX - 2):
        with pytest.raises(ConfigError, match=name):
            log_config_of_server({name: str(value)}, LogConfig())


def test_a_topics_settings_may_contradict_those_of_a_broker_that_starts_later() -> None:
    broker = LogConfig(max_compaction_lag_ms=100)
    config = broker.overridden_by({"min.compaction.lag.ms": "200", "cleanup.policy": "compact"})
    assert (config.min_compaction_lag_ms, config.max_compaction_lag_ms) == (200, 100)
    assert used(config)
    with pytest.raises(ConfigError, match=r"max\.compaction\.lag\.ms=100: must be at least"):
        config.check_pairs()
