"""The high watermark and the places of offsets, through appends, rolls and truncations.

Rules RD1 to RD4, RD11, RD12, T9, T25; Kafka: UnifiedLogTest, LocalLogTest.
"""

from __future__ import annotations

from functools import partial

import pytest

from storage.config import LogConfig
from storage.errors import OffsetOutOfRange, StorageError
from storage.log import Isolation, LogOffsetMetadata, PartitionLog
from tests.storage.logs import (
    NOW_MS,
    ROOMY,
    SIZE,
    append_each,
    batch,
    filled_log,
    new_disk,
    new_file_system,
    offsets_in,
    open_log,
    produced,
    read_offsets,
)

log_of = partial(filled_log, segment_batches=100)


def follow(log: PartitionLog, *data: bytes) -> None:
    for each in data:
        log.append_as_follower(each, leader_epoch=0, now_ms=NOW_MS)


# The high watermark


@pytest.mark.covers("UnifiedLogTest.testHighWatermarkMaintenance")
def test_rd11_the_high_watermark_through_the_life_of_a_log() -> None:
    log = log_of(0)

    def assert_at(high_watermark: int) -> None:
        assert log.high_watermark == high_watermark
        place = log.marks.high_watermark_metadata
        assert place.offset == high_watermark and not place.is_message_only

    assert_at(0)
    append_each(log, 3)
    assert_at(0)
    assert log.marks.maybe_increment_high_watermark(log.reads.place_of(1))
    assert_at(1)
    assert log.marks.update_high_watermark(5) == 3
    assert_at(3)
    follow(log, batch(3), batch(4), batch(5))
    assert log.marks.update_high_watermark(6) == 6
    assert_at(6)
    log.truncate_to(3, now_ms=NOW_MS)
    assert_at(3)
    append_each(log, 3)
    assert_at(3)
    log.truncation.truncate_fully_and_start_at(4, now_ms=NOW_MS)
    assert_at(4)
    assert log.log_start_offset == log.log_end_offset == 4


@pytest.mark.covers("UnifiedLogTest.testMaybeUpdateHighWatermarkAsFollower")
def test_rd11_a_follower_adopts_a_high_watermark_up_to_its_end() -> None:
    log = log_of(20)
    assert [log.marks.update_high_watermark(offset) for offset in (19, 19, 20, 21, 3)] == [19, 19, 20, 20, 3]


def test_rd11_a_disk_that_fails_the_look_up_of_a_high_watermark_takes_the_log_offline() -> None:
    disk = new_disk()
    log = open_log(new_file_system(disk), ROOMY)
    append_each(log, 9)
    log.marks.update_high_watermark(5)
    disk.break_directory("logs")
    with pytest.raises(StorageError, match="read failed"):
        log.marks.maybe_increment_high_watermark(log.local.log_end)
    assert log.online.reason is not None


def test_rd11_the_high_watermark_moves_to_the_base_of_the_batch_that_holds_it() -> None:
    """Kafka 4.1 does so when a reader asks for its place. No reader sees the batch either way."""
    log = log_of(0)
    for _ in range(2):
        log.append_as_leader(produced(5), leader_epoch=0, now_ms=NOW_MS)
    log.marks.update_high_watermark(7)
    assert log.high_watermark == 7
    data = log.read(0, max_size=10_000, isolation=Isolation.HIGH_WATERMARK)
    assert offsets_in(data.records) == [0, 1, 2, 3, 4] and log.high_watermark == 5


def test_rd11_across_a_gap_it_moves_up_to_the_next_batch() -> None:
    log = log_of(2)
    follow(log, batch(9))
    log.marks.update_high_watermark(4)
    assert log.marks.high_watermark_metadata == LogOffsetMetadata(9, 0, 2 * SIZE) and log.high_watermark == 9


def test_rd11_a_high_watermark_below_the_log_start_becomes_the_log_start() -> None:
    log = log_of(5)
    log.marks.update_high_watermark(5)
    log.marks.maybe_increment_log_start_offset(3)
    assert log.marks.update_high_watermark(1) == 3


def test_rd11_the_high_watermark_is_never_negative() -> None:
    with pytest.raises(AssertionError):
        log_of(1).marks.update_high_watermark(-1)


def test_kafka_9491_a_full_truncation_moves_it_with_the_log_start() -> None:
    log = log_of(5)
    log.marks.update_high_watermark(2)
    log.truncation.truncate_fully_and_start_at(50, now_ms=NOW_MS)
    assert log.log_start_offset == log.high_watermark == log.log_end_offset == 50


def test_kafka_9196_records_after_a_roll_are_hidden_until_they_are_committed() -> None:
    log = log_of(3)
    log.marks.update_high_watermark(3)
    assert log.marks.high_watermark_metadata == LogOffsetMetadata(3, 0, 3 * SIZE)
    log.flushes.roll(now_ms=NOW_MS)
    append_each(log, 3)
    assert log.marks.high_watermark_metadata == LogOffsetMetadata(3, 3, 0)
    data = log.read(0, max_size=10_000, isolation=Isolation.HIGH_WATERMARK)
    assert offsets_in(data.records) == [0, 1, 2]
    assert log.read(3, max_size=100, isolation=Isolation.HIGH_WATERMARK).records == b""


def test_kafka_2477_a_read_never_passes_the_bound_it_began_with() -> None:
    log = log_of(3)
    bound = log.local.log_end
    append_each(log, 2)
    data = log.local.read(0, 10_000, bound, min_one_message=True)
    assert offsets_in(data.records) == [0, 1, 2]


# Reads


@pytest.mark.covers("UnifiedLogTest.testAppendAndReadWithNonSequentialOffsets")
def test_t25_a_read_begins_with_the_first_batch_that_reaches_the_offset() -> None:
    log = log_of(0, segment_batches=3)
    offsets = [*range(20), *range(20, 200, 7)]
    follow(log, *(batch(offset) for offset in offsets))
    for offset in range(196):
        first = next(each for each in offsets if each >= offset)
        assert offsets_in(log.read(offset, max_size=1).records) == [first]


def test_t25_records_below_the_offset_come_with_their_batch() -> None:
    log = log_of(0)
    log.append_as_leader(produced(5), leader_epoch=0, now_ms=NOW_MS)
    assert offsets_in(log.read(3, max_size=1).records) == [0, 1, 2, 3, 4]


@pytest.mark.covers("LocalLogTest.testWhenFetchOffsetHigherThanMaxOffset")
def test_rd3_an_offset_above_the_bound_returns_its_place_and_no_bytes() -> None:
    log = log_of(5, segment_batches=2)
    assert log.local.segments.base_offsets == [0, 2, 4]
    bound = LogOffsetMetadata(4, 4, 0)
    assert offsets_in(log.local.read(3, 1000, bound, min_one_message=True).records) == [3]
    data = log.local.read(4, 1000, bound, min_one_message=True)
    assert (data.records, data.offset_metadata) == (b"", bound)
    data = log.local.read(5, 1000, bound, min_one_message=True)
    assert (data.records, data.offset_metadata) == (b"", LogOffsetMetadata(5, 4, SIZE))
    for unseen in (LogOffsetMetadata(4), LogOffsetMetadata(4, 0, 40)):
        data = log.local.read(3, 1000, unseen, min_one_message=True)
        assert (data.records, data.offset_metadata) == (b"", LogOffsetMetadata(3, 2, SIZE))


@pytest.mark.covers("UnifiedLogTest.testConvertToOffsetMetadataDoesNotThrowOffsetOutOfRangeError")
def test_rd2_only_the_offset_is_known_of_an_offset_outside_the_log() -> None:
    log = log_of(6, segment_batches=2)
    log.marks.update_high_watermark(6)
    log.marks.maybe_increment_log_start_offset(4)
    log.retention.delete_old(NOW_MS)
    assert log.marks._maybe_resolve(5) == LogOffsetMetadata(5, 4, SIZE)
    assert log.reads.place_of(4) == LogOffsetMetadata(4, 4, 0)
    assert log.reads.place_of(6) == log.local.log_end
    for outside in (3, 7):
        assert log.marks._maybe_resolve(outside) == LogOffsetMetadata(outside)
        with pytest.raises(OffsetOutOfRange):
            log.reads.place_of(outside)


@pytest.mark.covers("UnifiedLogTest.testCompressedMessages")
def test_t25_every_offset_of_a_set_returns_the_whole_set() -> None:
    log = log_of(0, segment_batches=2)
    for _ in range(2):
        log.append_as_leader(produced(2), leader_epoch=0, now_ms=NOW_MS)
    for offset, first in ((0, 0), (1, 0), (2, 2), (3, 2)):
        assert offsets_in(log.read(offset, max_size=1).records)[0] == first


# After a truncation


def test_t9_the_end_is_exactly_the_offset_and_the_next_append_starts_there() -> None:
    log = log_of(0)
    for _ in range(2):
        log.append_as_leader(produced(5), leader_epoch=0, now_ms=NOW_MS)
    log.truncate_to(8, now_ms=NOW_MS)
    assert log.log_end_offset == 8 and read_offsets(log) == [0, 1, 2, 3, 4]
    append_each(log, 1)
    assert read_offsets(log) == [0, 1, 2, 3, 4, 8]


def test_kafka_10706_a_truncation_at_the_end_forgets_an_epoch_that_began_there() -> None:
    log = log_of(5)
    log.appends.assign_epoch(7)
    assert log.epochs.latest_epoch == 7
    assert not log.truncate_to(5, now_ms=NOW_MS)
    assert log.epochs.latest_epoch == 0


def test_kafka_12964_a_snapshot_taken_after_a_truncation_stays() -> None:
    log = log_of(6, segment_batches=2)
    assert log.producers.snapshots.offsets == [2, 4]
    log.truncate_to(3, now_ms=NOW_MS)
    append_each(log, 1)
    log.flushes.roll(now_ms=NOW_MS)
    assert 4 in log.producers.snapshots.offsets
    assert log.local.file_system.exists(f"{log.directory}/{4:020d}.snapshot")


@pytest.mark.covers("LocalLogTest.testLogAppend", "UnifiedLogTest.testAppendInfoFirstOffset")
def test_rd2_an_append_moves_the_end_and_not_the_recovery_point() -> None:
    log = log_of(0)
    first_offsets = [
        log.append_as_leader(produced(3), leader_epoch=0, now_ms=NOW_MS).first_offset for _ in range(2)
    ]
    log.flushes.roll(now_ms=NOW_MS)
    first_offsets.append(log.append_as_leader(produced(3), leader_epoch=0, now_ms=NOW_MS).first_offset)
    assert first_offsets == [0, 3, 6] and log.log_end_offset == 9 and log.local.recovery_point == 6


@pytest.mark.covers("LocalLogTest.testUpdateConfig")
def test_a_new_configuration_holds_from_then_on() -> None:
    log = log_of(2)
    log.update_config(LogConfig(segment_bytes=2 * SIZE, segment_index_bytes=1200))
    append_each(log, 3)
    assert log.local.segments.base_offsets == [0, 2, 4]


def test_ap15_a_truncation_into_a_gap_forgets_the_place_of_the_high_watermark_after_the_gap() -> None:
    log = open_log(new_file_system(), ROOMY)
    log.append_as_follower(batch(0, 3), leader_epoch=0, now_ms=NOW_MS)
    log.marks.update_high_watermark(3)
    # The follower's next batch begins at offset 5.
    log.flushes.roll(5, now_ms=NOW_MS)
    log.append_as_follower(batch(5), leader_epoch=0, now_ms=NOW_MS)
    log.truncate_to(4, now_ms=NOW_MS)
    log.append_as_follower(batch(4), leader_epoch=0, now_ms=NOW_MS)
    committed = log.read(0, max_size=1000, isolation=Isolation.HIGH_WATERMARK)
    assert offsets_in(committed.records) == [0, 1, 2]
