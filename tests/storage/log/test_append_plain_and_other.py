"""Each rule of a leader's append, on both ways that a set may take.

One plain batch passes the quick check only, any other set the rules. Either path could lack a rule of AP, LS or LV.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.disk import SimFileSystem
from storage.batch import HEADER_SIZE, Compression, Record, RecordBatch, build_batch, iterate_batches
from storage.config import LogConfig
from storage.disk.filesystem import OpenMode
from storage.errors import (
    CorruptBatch,
    InvalidRecord,
    InvalidTimestamp,
    OffsetsExhausted,
    RecordBatchTooLarge,
    RecordTooLarge,
    StorageError,
)
from storage.log import PartitionLog
from storage.validation.batch import ValidationRules
from storage.validation.plain import PlainBatches
from tests.storage.log.appends import INT_MAX, follow, lead
from tests.storage.logs import DIRECTORY, NOW_MS, all_bytes, batch, new_disk, new_file_system, open_log
from tests.storage.validation.produced_sets import poked

ROOM = LogConfig(segment_index_bytes=1200, index_interval_bytes=1 << 20)
Made = Callable[..., bytes]


def plain(times: tuple[int, ...] = (NOW_MS,), key: bytes | None = b"k", size: int = 100) -> bytes:
    return build_batch([Record(index, timestamp, key, bytes(size)) for index, timestamp in enumerate(times)])


class Idempotent:
    """The next batch of a producer with an id: it passes the quick check, then the check of its producer."""

    sequence = 0

    def __call__(
        self, times: tuple[int, ...] = (NOW_MS,), key: bytes | None = b"k", size: int = 100
    ) -> bytes:
        records = [Record(index, timestamp, key, bytes(size)) for index, timestamp in enumerate(times)]
        made = build_batch(records, producer_id=7, producer_epoch=0, base_sequence=self.sequence)
        self.sequence += len(times)
        return made


def compressed(times: tuple[int, ...] = (NOW_MS,), key: bytes | None = b"k", size: int = 100) -> bytes:
    records = [
        Record(index, timestamp, key, bytes(b % 251 for b in range(index, index + size)))
        for index, timestamp in enumerate(times)
    ]
    return build_batch(records, compression=Compression.GZIP)


@pytest.fixture(params=["short", "half", "long"])
def made(request: pytest.FixtureRequest) -> Made:
    ways: dict[str, Made] = {"short": plain, "half": Idempotent(), "long": compressed}
    return ways[request.param]


def opened(config: LogConfig = ROOM, file_system: SimFileSystem | None = None) -> PartitionLog:
    return open_log(new_file_system() if file_system is None else file_system, config)


def test_ap2_a_refused_batch_is_refused_on_either_way(made: Made) -> None:
    log = opened(replace(ROOM, max_message_bytes=400))
    with pytest.raises(InvalidRecord):
        lead(log, poked(made(), 0, ">q", 1))
    with pytest.raises(RecordTooLarge):
        lead(log, build_batch([Record(0, NOW_MS, b"k", bytes(400))]))
    data = made()
    for place in (HEADER_SIZE + 20, len(data) - 1):
        with pytest.raises(CorruptBatch):
            lead(log, data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
    with pytest.raises(CorruptBatch):
        lead(log, poked(data, 16, ">b", 3))
    # The checksum covers more than the size field says.
    with pytest.raises(CorruptBatch):
        lead(log, poked(data, 8, ">i", len(data) - 13))
    assert log.log_end_offset == 0


def test_ap2_the_limit_itself_is_taken_and_a_byte_more_is_not(made: Made) -> None:
    data = made()
    assert lead(opened(replace(ROOM, max_message_bytes=len(data))), data).batch_count == 1
    with pytest.raises(RecordTooLarge):
        lead(opened(replace(ROOM, max_message_bytes=len(data) - 1)), data)


def test_ap5_ap7_the_reported_values_are_the_stored_ones(made: Made) -> None:
    log = opened()
    lead(log, made((NOW_MS, NOW_MS + 9, NOW_MS + 3)), epoch=3)
    data = made((NOW_MS + 5, NOW_MS + 2))
    info = lead(log, data, epoch=4)
    stored = list(iterate_batches(all_bytes(log)))[-1]
    assert (info.first_offset, info.last_offset, info.batch_count) == (3, 4, 1)
    assert (info.max_timestamp, info.offset_of_max_timestamp) == (NOW_MS + 5, 4)
    assert (info.log_append_time_ms, info.log_start_offset, info.last_leader_epoch) == (-1, 0, 4)
    assert (info.size_bytes, info.is_duplicate, info.has_rolled, info.skipped_bytes) == (
        len(data),
        False,
        False,
        0,
    )
    assert (stored.base_offset, stored.last_offset, stored.partition_leader_epoch) == (3, 4, 4)
    assert stored.max_timestamp == NOW_MS + 5 and stored.size_bytes == len(data)


def test_ap5_without_timestamps_there_is_no_offset_of_the_largest(made: Made) -> None:
    """A compressed batch has its last offset there all the same (LV13, LV24)."""
    info = lead(opened(), made((-1, -1)))
    assert (info.max_timestamp, info.offset_of_max_timestamp) == (-1, 1 if made is compressed else -1)


def test_ap7_the_log_start_is_reported(made: Made) -> None:
    log = opened()
    lead(log, made((NOW_MS,) * 3))
    log.marks.update_high_watermark(3)
    log.marks.maybe_increment_log_start_offset(2)
    assert lead(log, made()).log_start_offset == 2


def test_lv5_lv6_the_counts_and_the_sequence_of_a_client_are_checked(made: Made) -> None:
    data = made((NOW_MS, NOW_MS))
    for position, layout, value in ((23, ">i", 2), (57, ">i", 3), (57, ">i", 0), (21, ">h", 0x20)):
        with pytest.raises(InvalidRecord):
            lead(opened(), poked(data, position, layout, value))
    none = poked(data[:HEADER_SIZE], 8, ">i", HEADER_SIZE - 12)
    with pytest.raises(InvalidRecord):
        lead(opened(), poked(poked(none, 57, ">i", 0), 23, ">i", -1))
    with pytest.raises(InvalidRecord):
        lead(opened(), poked(poked(data, 43, ">q", 5), 53, ">i", -1))


def test_lv8_a_compacted_topic_takes_no_record_without_a_key(made: Made) -> None:
    log = opened(replace(ROOM, cleanup_policy="compact"))
    assert lead(log, made()).batch_count == 1
    # The third batch is checked by its known shape.
    for _ in range(3):
        with pytest.raises(InvalidRecord):
            lead(log, made((NOW_MS,), key=None))
    assert log.log_end_offset == 1


@pytest.mark.parametrize("limit", ["before", "after"])
def test_lv9_timestamps_at_the_limit_pass_and_beyond_it_do_not(made: Made, limit: str) -> None:
    before, after = (
        replace(ROOM, message_timestamp_before_max_ms=1000),
        replace(ROOM, message_timestamp_after_max_ms=1000),
    )
    step, log = (-1, opened(before)) if limit == "before" else (1, opened(after))
    for _ in range(3):
        assert lead(log, made((NOW_MS, NOW_MS + step * 1000)), now_ms=NOW_MS).batch_count == 1
    with pytest.raises(InvalidTimestamp):
        lead(log, made((NOW_MS, NOW_MS + step * 1001)), now_ms=NOW_MS)


def test_lv9_batches_of_one_shape_are_held_to_the_time_of_each(made: Made) -> None:
    log = opened(replace(ROOM, message_timestamp_before_max_ms=1000))
    for _ in range(3):
        lead(log, made((NOW_MS, NOW_MS - 40)), now_ms=NOW_MS + 960)
    with pytest.raises(InvalidTimestamp):
        lead(log, made((NOW_MS, NOW_MS - 41)), now_ms=NOW_MS + 960)


def test_lv11_a_wrong_max_timestamp_is_put_right_and_sealed(made: Made) -> None:
    log = opened()
    for wrong in (0, NOW_MS + 50):
        info = lead(log, poked(made((NOW_MS, NOW_MS + 1)), 35, ">q", wrong))
        assert info.max_timestamp == NOW_MS + 1
    for each in iterate_batches(all_bytes(log)):
        each.check_valid("log")
        assert each.max_timestamp == NOW_MS + 1
    assert log.local.segments.active.max_timestamp == (NOW_MS + 1, 1)


def test_lv11_a_topic_of_append_time_stamps_and_reports_it(made: Made) -> None:
    log = opened(replace(ROOM, message_timestamp_type="LogAppendTime"))
    info = lead(log, made((NOW_MS - 9,)), now_ms=NOW_MS + 5)
    assert (info.max_timestamp, info.log_append_time_ms) == (NOW_MS + 5, NOW_MS + 5)
    assert next(iterate_batches(all_bytes(log))).max_timestamp == NOW_MS + 5


def test_lv10_a_producers_codec_and_no_other_is_kept(made: Made) -> None:
    data = made()
    codec = RecordBatch(data, 0, len(data)).compression
    for name, expected in (
        ("producer", codec),
        ("uncompressed", Compression.NONE),
        ("gzip", Compression.GZIP),
    ):
        log = opened(replace(ROOM, compression_type=name))
        lead(log, data)
        assert next(iterate_batches(all_bytes(log))).compression is expected


def test_ap9_the_epoch_of_each_append_is_noted(made: Made) -> None:
    log = opened()
    for epoch in (2, 2, 5):
        lead(log, made(), epoch=epoch)
    assert log.epochs.entries == [(2, 0), (5, 2)]
    with pytest.raises(InvalidRecord):
        lead(log, made(), epoch=-1)
    assert log.log_end_offset == 3


def test_ap10_a_set_above_segment_bytes_is_refused_on_either_way(made: Made) -> None:
    data = made()
    log = opened(replace(ROOM, segment_bytes=len(data)))
    assert lead(log, data).has_rolled is False
    with pytest.raises(RecordBatchTooLarge):
        lead(opened(replace(ROOM, segment_bytes=len(data) - 1)), data)


def test_ap7_no_offset_beyond_the_last_is_assigned(made: Made) -> None:
    log = opened()
    last = (1 << 63) - 2
    follow(log, batch(last - 1))
    for _ in range(2):
        with pytest.raises(OffsetsExhausted):
            lead(log, made((NOW_MS, NOW_MS)))
    assert lead(log, made()).last_offset == last


def test_ap12_ap15_the_marks_follow_the_bytes(made: Made) -> None:
    log = opened()
    for end in (2, 4):
        lead(log, made((NOW_MS, NOW_MS)))
        segment = log.local.segments.active
        assert (log.log_end_offset, log.producers.map_end_offset) == (end, end)
        assert (log.local.log_end.offset, log.local.log_end.segment_base_offset) == (end, 0)
        assert log.local.log_end.position == segment.size_bytes == len(all_bytes(log))


def test_ap16_a_failed_write_takes_the_log_offline_on_either_way(made: Made) -> None:
    disk = new_disk()
    log = opened(file_system=new_file_system(disk))
    lead(log, made())
    disk.fail(1, verbs={"write_at"}, path_suffix=".log", applied_bytes=30)
    with pytest.raises(StorageError):
        lead(log, made())
    assert (log.log_end_offset, log.producers.map_end_offset) == (1, 1) and log.online.reason
    with pytest.raises(StorageError, match="offline"):
        lead(log, made())


def test_ls1_an_entry_is_due_after_more_bytes_than_the_interval(made: Made) -> None:
    size = len(made())
    config = replace(ROOM, index_interval_bytes=2 * size)
    log = opened(config)
    for later in range(9):
        lead(log, made((NOW_MS + later,)))
    index, times = log.local.segments.active.offset_index, log.local.segments.active.time_index
    assert [index.entry(slot) for slot in range(index.entries)] == [(3, 3 * size), (6, 6 * size)]
    assert [times.entry(slot) for slot in range(times.entries)] == [(NOW_MS + 3, 3), (NOW_MS + 6, 6)]


def test_ls1_the_greatest_timestamp_stays_with_the_first_batch_that_has_it(made: Made) -> None:
    log = opened(replace(ROOM, index_interval_bytes=0))
    for timestamp in (NOW_MS + 5, NOW_MS, NOW_MS + 5, NOW_MS + 6):
        lead(log, made((timestamp,)))
        expected = (NOW_MS + 6, 3) if timestamp == NOW_MS + 6 else (NOW_MS + 5, 0)
        assert log.local.segments.active.max_timestamp == expected
    times = log.local.segments.active.time_index
    assert [times.entry(slot) for slot in range(times.entries)] == [(NOW_MS + 5, 0), (NOW_MS + 6, 3)]


def test_ls3_the_greatest_timestamp_of_before_a_start_counts(made: Made) -> None:
    fs = new_file_system()
    log = opened(file_system=fs)
    lead(log, made((NOW_MS + 50,)))
    log.close()
    log = open_log(fs, ROOM, clean=True, recovery_point=1)
    lead(log, made((NOW_MS,)))
    assert log.local.segments.active.max_timestamp == (NOW_MS + 50, 0)


def rolls_at(log: PartitionLog, data: bytes, now_ms: int = NOW_MS) -> bool:
    info, base = lead(log, data, now_ms=now_ms), log.local.segments.active.base_offset
    assert info.has_rolled == (base == info.first_offset > 0)
    return info.has_rolled


def test_ls4_a_segment_rolls_before_it_gets_too_large(made: Made) -> None:
    size = len(made())
    log = opened(replace(ROOM, segment_bytes=3 * size))
    assert [rolls_at(log, made()) for _ in range(7)] == [False, False, False, True, False, False, True]


def test_ls4_a_segment_rolls_when_it_is_older_than_segment_ms(made: Made) -> None:
    log = opened(replace(ROOM, segment_ms=1000))
    times = (0, 1000, 1001, 1500, 2001, 2002)
    found = [rolls_at(log, made((NOW_MS + each,))) for each in times]
    assert found == [False, False, True, False, False, True]


def test_ls6_the_jitter_makes_a_segment_roll_earlier(made: Made) -> None:
    log = opened(replace(ROOM, segment_ms=1000))
    log.local.segments.active._roll_jitter_ms = 300
    assert [rolls_at(log, made((NOW_MS + each,))) for each in (0, 700, 701)] == [False, False, True]


def test_ls5_a_first_batch_without_a_time_has_the_clock_count(made: Made) -> None:
    log = opened(replace(ROOM, segment_ms=1000))
    lead(log, made((-1,)))
    assert not rolls_at(log, made((NOW_MS + 5000,)), now_ms=NOW_MS + 1000)
    assert rolls_at(log, made((NOW_MS,)), now_ms=NOW_MS + 1001)


@pytest.mark.parametrize(("index_bytes", "entries"), [(8 * 3, 1), (12 * 3, 2)])
def test_ls4_ix3_a_segment_rolls_when_an_index_is_full(made: Made, index_bytes: int, entries: int) -> None:
    """The time index has room for two entries in 24 bytes and for three in 36; one of them is kept free."""
    log = opened(replace(ROOM, segment_index_bytes=index_bytes, index_interval_bytes=0))
    found = [rolls_at(log, made((NOW_MS + each,))) for each in range(entries + 2)]
    assert found == [False] * (entries + 1) + [True]


def test_ls4_a_segment_rolls_when_its_offset_index_alone_is_full(made: Made) -> None:
    log = opened(replace(ROOM, segment_index_bytes=36, index_interval_bytes=0))
    # The first batch has a time entry, the others have none.
    found = [rolls_at(log, made((NOW_MS,))) for _ in range(6)]
    assert found == [False, False, False, False, False, True] and log.local.segments.active.base_offset == 5


def test_ls4_a_segment_rolls_where_an_offset_does_not_fit(made: Made) -> None:
    log = opened()
    follow(log, batch(INT_MAX - 2))
    assert not rolls_at(log, made((NOW_MS, NOW_MS)))
    assert rolls_at(log, made()) and log.local.segments.base_offsets == [0, INT_MAX + 1]


def test_ls4_the_configuration_of_now_counts(made: Made) -> None:
    log, size = opened(), len(made())
    for _ in range(3):
        assert not rolls_at(log, made())
    log.update_config(replace(ROOM, segment_bytes=4 * size))
    assert not rolls_at(log, made())
    assert rolls_at(log, made())
    log.update_config(replace(ROOM, segment_ms=10))
    assert rolls_at(log, made((NOW_MS + 11,)))
    log.update_config(replace(ROOM, max_message_bytes=10))
    with pytest.raises(RecordTooLarge):
        lead(log, made())


def test_ls13_after_a_truncation_the_segments_state_matches_its_batches(made: Made) -> None:
    size = len(made())
    log = opened(replace(ROOM, segment_ms=1000, index_interval_bytes=size))
    for each in (0, 1, 2, 3):
        lead(log, made((NOW_MS + each,)))
    log.truncate_to(2, now_ms=NOW_MS)
    if isinstance(made, Idempotent):
        made.sequence -= 2
    # The interval counts from here.
    lead(log, made((NOW_MS + 7,)))
    assert (
        log.local.segments.active.offset_index.entries == 0
        and log.local.segments.active.max_timestamp
        == (
            NOW_MS + 7,
            2,
        )
    )
    log.truncate_to(0, now_ms=NOW_MS)
    assert not rolls_at(log, made((NOW_MS + 5000,))) and not rolls_at(log, made((NOW_MS + 6000,)))
    assert rolls_at(log, made((NOW_MS + 6001,)))


def test_rd7_an_open_transaction_holds_the_stable_offset_on_either_way(made: Made) -> None:
    log = opened()
    data = build_batch(
        [Record(0, NOW_MS, b"k", b"v")],
        producer_id=9,
        producer_epoch=0,
        base_sequence=0,
        is_transactional=True,
    )
    lead(log, data)
    lead(log, made())
    log.marks.update_high_watermark(2)
    assert (log.marks.last_stable_offset, log.high_watermark) == (0, 2)


def test_rt9_after_a_truncation_over_segments_the_last_one_left_is_written_to(made: Made) -> None:
    log = opened(replace(ROOM, segment_bytes=2 * len(made())))
    for _ in range(5):
        lead(log, made())
    assert log.local.segments.base_offsets == [0, 2, 4]
    log.truncate_to(1, now_ms=NOW_MS)
    if isinstance(made, Idempotent):
        made.sequence -= 4
    lead(log, made())
    assert log.local.segments.base_offsets == [0] and [
        each.base_offset for each in iterate_batches(all_bytes(log))
    ] == [0, 1]


STEPS = st.one_of(
    st.tuples(st.just("lead"), st.integers(1, 3), st.sampled_from([0, 0, 0, 5, 40, -1])),
    st.tuples(st.just("lead"), st.just(1), st.just(0)),
    st.tuples(st.just("follow"), st.integers(0, 3), st.integers(0, 9)),
    st.tuples(st.just("truncate"), st.integers(0, 6), st.just(0)),
    st.tuples(st.just("start at"), st.integers(0, 6), st.just(0)),
    st.tuples(st.just("roll"), st.just(0), st.just(0)),
    st.tuples(st.just("epoch"), st.integers(0, 2), st.just(0)),
    st.tuples(st.just("config"), st.integers(0, 3), st.just(0)),
    st.tuples(st.just("read"), st.integers(0, 6), st.just(0)),
    st.tuples(st.just("retain"), st.integers(0, 6), st.just(0)),
)
INTERVAL = 2 * len(plain())
CONFIGS = [
    LogConfig(segment_bytes=1400, segment_index_bytes=36, index_interval_bytes=INTERVAL, segment_ms=30),
    LogConfig(segment_bytes=600, segment_index_bytes=36, index_interval_bytes=0),
    LogConfig(segment_index_bytes=24, index_interval_bytes=0, message_timestamp_before_max_ms=35),
    LogConfig(segment_index_bytes=1200, index_interval_bytes=INTERVAL, segment_ms=10, max_message_bytes=350),
]


class Twin:
    """A log and its answers. With `is_long` every set takes the long way."""

    def __init__(self, *, is_long: bool) -> None:
        self.file_system, self.is_long = new_file_system(), is_long
        self.log = opened(CONFIGS[0], self.file_system)
        self.epoch, self.now_ms = 0, NOW_MS
        self.configure(CONFIGS[0])

    def configure(self, config: LogConfig) -> None:
        self.log.update_config(config)
        if self.is_long:
            self.log.appends._plain = PlainBatches(
                replace(ValidationRules.from_config(config), max_message_bytes=0)
            )

    def do(self, verb: str, number: int, step_ms: int) -> object:
        log, end = self.log, self.log.log_end_offset
        match verb:
            case "lead":
                self.now_ms += max(step_ms, 0)
                time = -1 if step_ms < 0 else self.now_ms - step_ms
                return lead(log, plain((time,) * number), self.epoch, now_ms=self.now_ms)
            case "follow":
                return follow(log, batch(end + number, 2, epoch=self.epoch, timestamp=self.now_ms + step_ms))
            case "truncate":
                return log.truncate_to(max(end - number, log.log_start_offset), now_ms=NOW_MS)
            case "start at":
                log.truncation.truncate_fully_and_start_at(
                    end + number - 2 if end > 2 else number, now_ms=NOW_MS
                )
            case "roll":
                return log.flushes.roll(now_ms=NOW_MS).base_offset
            case "epoch":
                self.epoch += number
                log.appends.assign_epoch(self.epoch)
            case "config":
                self.configure(CONFIGS[number])
            case "read":
                return log.read(max(end - number, log.log_start_offset), max_size=500).records
            case _:
                log.marks.update_high_watermark(end)
                return log.marks.maybe_increment_log_start_offset(max(end - number, 0))
        return None

    def answer(self, verb: str, number: int, step_ms: int) -> object:
        try:
            return self.do(verb, number, step_ms)
        except StorageError as error:
            return repr(error)

    def state(self) -> object:
        log = self.log
        segments = [
            (each.base_offset, each.size_bytes, each.max_timestamp, each.first_batch_timestamp)
            for each in log.local.segments
        ]
        marks = (
            log.local.log_end,
            log.log_start_offset,
            log.local.recovery_point,
            log.producers.map_end_offset,
        )
        return segments, marks, log.epochs.entries, log.marks.last_stable_offset

    def files(self) -> dict[str, bytes]:
        names = self.file_system.list(DIRECTORY)
        opened_files = {name: self.file_system.open(f"{DIRECTORY}/{name}", OpenMode.READ) for name in names}
        return {name: file.read_at(0, file.size()) for name, file in opened_files.items()}


@settings(max_examples=15, deadline=None)
@given(st.lists(STEPS, min_size=1, max_size=30))
def test_both_ways_leave_the_same_whatever_is_appended_between(steps: list[tuple[str, int, int]]) -> None:
    """The two are compared by answers, errors, marks and, in the end, every byte of every file."""
    short, long = Twin(is_long=False), Twin(is_long=True)
    for step in steps:
        assert short.answer(*step) == long.answer(*step), step
        assert short.state() == long.state(), step
    assert short.files() == long.files()
