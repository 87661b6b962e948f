"""Bugs of Kafka's compaction by ticket, and logs of old formats. Kafka: LogCleanerParameterizedIntegrationTest."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from sim.disk.faults import Applied
from sim.disk.life import Dead
from storage.batch import Compression, Record, build_batch
from storage.batch.legacy.builder import build_message_set
from storage.directory.cleaners import CleanerManager
from storage.log import PartitionLog
from tests.storage.cleaner.compacted_logs import COMPACTED, DAY_MS, CleanedLog
from tests.storage.logs import NOW_MS, new_file_system, open_log

LOGS = "logs"


# Checkpoints outside the log


def first_dirty(log: PartitionLog, checkpoint: int | None) -> int:
    return log.compactions.cleanable_offsets(checkpoint, NOW_MS).first_dirty_offset


def log_from(start: int, end: int) -> CleanedLog:
    """Return a log of small segments: it may begin at `start`, and its active segment is far above that."""
    log = CleanedLog(replace(COMPACTED, segment_bytes=200))
    log.put_each(*range(end))
    if start:
        log.log.marks.maybe_increment_log_start_offset(start)
        log.log.retention.delete_old(NOW_MS)
    return log


def test_kafka_1373_a_log_that_was_never_cleaned_is_dirty_from_its_start_on() -> None:
    assert first_dirty(log_from(0, 12).log, None) == 0
    log = log_from(6, 12).log
    assert log.log_start_offset == 6 and first_dirty(log, None) == 6


@pytest.mark.parametrize("checkpoint", [0, 5, 13, 1_000])
def test_kafka_1641_a_checkpoint_below_or_above_the_log_counts_as_its_start(checkpoint: int) -> None:
    log = log_from(6, 12).log
    offsets = log.compactions.cleanable_offsets(checkpoint, NOW_MS)
    assert (offsets.first_dirty_offset, offsets.is_checkpoint_invalid) == (6, True)
    offsets = log.compactions.cleanable_offsets(7, NOW_MS)
    assert (offsets.first_dirty_offset, offsets.is_checkpoint_invalid) == (7, False)


@pytest.mark.parametrize("checkpoint", [None, 0, 3])
def test_kafka_9133_a_log_start_in_the_active_segment_leaves_nothing_to_clean(checkpoint: int | None) -> None:
    log = CleanedLog()
    log.put_each(*range(5))
    log.log.marks.maybe_increment_log_start_offset(2)
    manager = CleanerManager(log.file_system, LOGS, {"topic-0": log.log})
    if checkpoint is not None:
        manager._update(("topic", 0), checkpoint)
    assert log.log.local.segments.active.base_offset == 0
    assert manager.grab_filthiest(NOW_MS) is None and manager.uncleanable == frozenset()


# More keys than the map has room for


@pytest.mark.parametrize("slots", [2, 3, 5, 8])
def test_kafka_2235_and_3587_a_segment_of_more_keys_than_the_map_holds_is_cleaned_in_rounds(
    slots: int,
) -> None:
    log = CleanedLog(replace(COMPACTED, segment_bytes=1 << 20))
    log.put_each(*range(10), *range(10))
    expected = log.last_values()
    log.roll()
    dirty, rounds = 0, 0
    while dirty < 20:
        end = log.clean(dirty, slots=slots)
        assert dirty < end <= 20
        dirty, rounds = end, rounds + 1
        assert log.last_values() == expected
    assert rounds > 2 and log.keys() == list(range(10))


def test_kafka_3587_one_batch_of_more_keys_than_the_map_holds_is_cleaned_too() -> None:
    log = CleanedLog()
    log.put(*range(12), *range(12))
    log.roll()
    dirty = 0
    while dirty < 24:
        end = log.clean(dirty, slots=4)
        assert end > dirty
        dirty = end
    assert log.keys() == list(range(12))


# When tombstones go


def with_tombstone(timestamp: int) -> CleanedLog:
    log = CleanedLog()
    log.append(build_batch([Record(0, timestamp, b"1", b"value")]))
    log.append(build_batch([Record(0, timestamp, b"1", None)]))
    log.append(build_batch([Record(0, timestamp, b"2", b"value")]))
    log.roll()
    return log


def tombstones(log: CleanedLog) -> int:
    return sum(1 for record in log.records() if record.key is not None and record.value is None)


@pytest.mark.parametrize("age_ms", [0, 30 * DAY_MS, NOW_MS])
def test_kafka_4529_a_tombstone_stays_its_time_however_old_its_timestamp_is(age_ms: int) -> None:
    log = with_tombstone(NOW_MS - age_ms)
    log.clean()
    assert tombstones(log) == 1
    log.clean(now_ms=NOW_MS + DAY_MS - 1)
    assert tombstones(log) == 1


def test_kafka_8522_a_tombstone_is_removed_at_its_own_horizon_though_its_segment_is_rewritten() -> None:
    """The segment's file is never older than the last round, so a horizon by the file's time would never come."""
    log = with_tombstone(NOW_MS)
    for day in range(4):
        log.now_ms = NOW_MS + day * DAY_MS // 2
        log.clean()
        log.put(10 + day)
        log.roll()
        assert tombstones(log) == (1 if day < 2 else 0), day


# A crash within the swap


@pytest.mark.slow
@pytest.mark.parametrize("applied", [Applied.NOTHING, Applied.ALL])
def test_kafka_2118_a_crash_at_any_renaming_of_a_swap_leaves_the_last_value_of_every_key(
    applied: Applied,
) -> None:
    log = CleanedLog(replace(COMPACTED, segment_bytes=300))
    log.put_each(*range(6), *range(6))
    log.roll()
    log.log.flushes.flush()
    expected = log.last_values()
    died = 0
    for call in range(1, 200):
        twin = CleanedLog(log.config)
        twin.disk = log.disk.snapshot()
        twin.file_system = new_file_system(twin.disk)
        twin.log = open_log(twin.file_system, log.config)
        twin.log.marks.update_high_watermark(12)
        twin.disk.arm_crash(call, applied=applied, verbs={"rename", "unlink"})
        try:
            twin.clean()
        except Dead:
            died += 1
        else:
            break
        twin.file_system = new_file_system(twin.disk)
        twin.log = open_log(twin.file_system, log.config)
        assert (twin.last_values(), twin.log.log_end_offset) == (expected, 12), call
        left = twin.file_system.list(twin.log.directory)
        assert not [name for name in left if name.endswith((".cleaned", ".swap", ".deleted"))], call
    assert died > 10


# Old formats


def put_old(
    log: CleanedLog, magic: int, keys: range, turn: int, codec: Compression = Compression.NONE
) -> None:
    """Append one set of `keys` as a follower does. The values name the turn."""
    first = log.log.log_end_offset
    records = [
        Record(first + place, NOW_MS, b"%d" % key, b"%d of %d" % (key, turn))
        for place, key in enumerate(keys)
    ]
    base_offset = first if magic else 0
    data = build_message_set(records, magic=magic, base_offset=base_offset, compression=codec)
    log.log.append_as_follower(data, leader_epoch=0, now_ms=NOW_MS)
    log.log.marks.update_high_watermark(log.log.log_end_offset)


def clean_all(log: CleanedLog) -> None:
    """Clean, and check that only the last value of each key is left and that the log reads as before."""
    expected = log.last_values()
    log.roll()
    log.clean()
    assert log.last_values() == expected and sorted(log.keys()) == sorted(set(log.keys()))
    log.reopen()
    assert log.last_values() == expected


@pytest.mark.covers("LogCleanerParameterizedIntegrationTest.testCleanerWithMessageFormatV0")
@pytest.mark.parametrize("codec", [Compression.NONE, Compression.GZIP, Compression.SNAPPY, Compression.LZ4])
def test_cl18_messages_of_all_formats_are_cleaned_one_after_the_other(codec: Compression) -> None:
    # A follower takes larger ones.
    log = CleanedLog(replace(COMPACTED, max_message_bytes=700))
    for turn in range(3):
        put_old(log, 0, range(12), turn, codec)
    big = Record(log.log.log_end_offset, NOW_MS, b"99", random.Random(1).randbytes(800))
    log.log.append_as_follower(
        build_message_set([big], magic=0, compression=codec), leader_epoch=0, now_ms=NOW_MS
    )
    log.log.marks.update_high_watermark(log.log.log_end_offset)
    before = log.log.local.segments.size_bytes
    clean_all(log)
    assert log.log.local.segments.size_bytes < before and {each.magic for each in log.batches()} == {0}
    for turn in range(2):
        put_old(log, 0, range(6), 10 + turn, codec)
        put_old(log, 1, range(4, 9), 10 + turn, codec)
        log.put(*((key, f"new {turn}") for key in range(8, 12)))
    clean_all(log)
    assert {each.magic for each in log.batches()} == {0, 1, 2}


@pytest.mark.covers("LogCleanerParameterizedIntegrationTest.testCleaningNestedMessagesWithV0AndV1")
@pytest.mark.parametrize("codec", [Compression.GZIP, Compression.SNAPPY, Compression.LZ4])
def test_cl18_wrapped_messages_of_both_old_formats_are_cleaned_from_within(codec: Compression) -> None:
    log = CleanedLog(replace(COMPACTED, segment_bytes=256, max_message_bytes=192))
    for magic in (0, 1):
        for turn in range(2):
            put_old(log, magic, range(2 * turn, 2 * turn + 5), 2 * magic + turn, codec)
            put_old(log, magic, range(5, 15, 3), 2 * magic + turn, codec)
    count = len(log.records())
    clean_all(log)
    assert len(log.records()) < count and {each.compression for each in log.batches()} == {codec}
    kept = log.offsets()
    assert kept == sorted(kept) and len(kept) == len(set(log.keys()))


# Snapshots of producers


@pytest.mark.covers("UnifiedLogTest.testCompactionDeletesProducerStateSnapshots")
def test_cl28_snapshots_are_those_of_the_segments_that_are_left() -> None:
    log = CleanedLog()
    for turn in range(3):
        log.put((1, str(turn)), producer_id=1)
        log.roll()
    log.put((2, "x"), producer_id=1)
    assert snapshots(log) == log.log.local.segments.base_offsets[1:] == [1, 2, 3]
    log.clean()
    assert len(log.log.local.segments) < 4
    assert snapshots(log) == log.log.local.segments.base_offsets[1:]


def snapshots(log: CleanedLog) -> list[int]:
    names = log.file_system.list(log.log.directory)
    return [int(name.partition(".")[0]) for name in names if name.endswith(".snapshot")]
