"""Reads up to a bound, and the marks that bound them. Rules RD1 to RD12, AP15, RT1, EP5."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial

import pytest

from storage.errors import OffsetOutOfRange, ReadGoesOn
from storage.log import FetchData, Isolation, LogOffsetMetadata, PartitionLog
from tests.storage.logs import (
    NOW_MS,
    ROOMY,
    SIZE,
    THREE,
    append_each,
    batch,
    filled_log,
    new_file_system,
    offsets_in,
    open_log,
    produced,
    read_offsets,
)

# All in one segment, and no entry in its offset index.
SPARSE = replace(ROOMY, index_interval_bytes=1 << 20)
log_of = partial(filled_log, segment_batches=5)


def read(log: PartitionLog, offset: int, isolation: Isolation, max_size: int = 10_000) -> list[int]:
    return offsets_in(log.read(offset, max_size=max_size, isolation=isolation).records)


@pytest.mark.covers(
    "UnifiedLogTest.testFetchUpToLogEndOffset", "UnifiedLogTest.testAppendAndReadWithSequentialOffsets"
)
def test_rd1_every_offset_below_the_log_end_is_readable_over_segments() -> None:
    log = log_of(23)
    assert len(log.local.segments) == 5
    for offset in range(23):
        assert read(log, offset, Isolation.LOG_END)[0] == offset
    assert read_offsets(log) == list(range(23))


@pytest.mark.covers("UnifiedLogTest.testReadOutOfRange")
def test_rd2_at_the_log_end_nothing_and_beyond_it_out_of_range() -> None:
    log = log_of(7)
    data = log.read(7, max_size=100)
    assert data.records == b"" and data.offset_metadata == log.local.log_end
    with pytest.raises(OffsetOutOfRange) as caught:
        log.read(8, max_size=100)
    assert (caught.value.log_start_offset, caught.value.log_end_offset) == (0, 7)


def test_rd1_below_the_log_start_is_out_of_range() -> None:
    log = log_of(7)
    log.marks.update_high_watermark(7)
    assert log.marks.maybe_increment_log_start_offset(3)
    with pytest.raises(OffsetOutOfRange):
        log.read(2, max_size=100)
    assert read(log, 3, Isolation.LOG_END) == [3, 4]


def test_a_negative_size_raises_whatever_the_offset() -> None:
    log = log_of(3)
    for offset in (0, 3):
        with pytest.raises(ValueError):
            log.read(offset, max_size=-1)


@pytest.mark.covers("UnifiedLogTest.testFetchUpToHighWatermark")
@pytest.mark.parametrize("high_watermark", [0, 3, 5, 7, 10, 12])
def test_rd3_nothing_at_or_above_the_high_watermark_is_served(high_watermark: int) -> None:
    log = log_of(12)
    log.marks.update_high_watermark(high_watermark)
    for offset in range(13):
        found = read(log, offset, Isolation.HIGH_WATERMARK)
        assert all(each < high_watermark for each in found)
        assert bool(found) == (offset < high_watermark)


def test_rd3_the_position_of_the_bound_counts_only_in_its_own_segment() -> None:
    log = log_of(12)
    # The mark is one batch into the second segment, where the position is SIZE.
    log.marks.update_high_watermark(6)
    assert log.marks.high_watermark_metadata == LogOffsetMetadata(6, 5, SIZE)
    # The segment is read whole, though 5 * SIZE is above SIZE.
    assert read(log, 0, Isolation.HIGH_WATERMARK) == [0, 1, 2, 3, 4]
    assert read(log, 5, Isolation.HIGH_WATERMARK) == [5]


def test_rd2_above_the_bound_there_are_no_bytes_but_the_place_of_the_offset() -> None:
    log = log_of(12)
    log.marks.update_high_watermark(2)
    data = log.read(7, max_size=1000, isolation=Isolation.HIGH_WATERMARK)
    assert data.records == b"" and data.offset_metadata == LogOffsetMetadata(7, 5, 2 * SIZE)


def test_t26_the_metadata_holds_the_base_offset_of_the_batch_found() -> None:
    """Kafka 4.1 does the same; 4.0 and 4.2 return the offset that was asked for."""
    log = open_log(new_file_system())
    log.append_as_leader(produced(5), leader_epoch=0, now_ms=NOW_MS)
    data = log.read(3, max_size=1000)
    assert data.offset_metadata == LogOffsetMetadata(0, 0, 0) and offsets_in(data.records) == [0, 1, 2, 3, 4]


@pytest.mark.covers("UnifiedLogTest.testReadWithMinMessage", "UnifiedLogTest.testReadWithTooSmallMaxLength")
def test_rd_at_least_one_batch_is_returned_by_default_and_less_without() -> None:
    log = log_of(3)
    assert offsets_in(log.read(1, max_size=1).records) == [1]
    data = log.read(1, max_size=1, min_one_message=False)
    assert len(data.records) == 1 and data.first_entry_incomplete
    assert log.read(1, max_size=0, min_one_message=False).records == b""


@pytest.mark.covers("UnifiedLogTest.testReadAtLogGap")
def test_rd2_a_gap_is_read_from_the_next_segment() -> None:
    log = log_of(0)
    log.append_as_follower(batch(0), leader_epoch=0, now_ms=NOW_MS)
    log.flushes.roll(now_ms=NOW_MS)
    log.append_as_follower(batch(20), leader_epoch=0, now_ms=NOW_MS)
    assert read(log, 1, Isolation.LOG_END) == [20] and read(log, 19, Isolation.LOG_END) == [20]


def test_rd4_where_no_later_record_is_left_nothing_and_the_log_end() -> None:
    log = open_log(new_file_system())
    log.append_as_leader(produced(5), leader_epoch=0, now_ms=NOW_MS)
    log.append_as_leader(produced(5), leader_epoch=0, now_ms=NOW_MS)
    # The batch 5 to 9 is deleted, and the log ends at 7.
    assert log.truncate_to(7, now_ms=NOW_MS)
    data = log.read(6, max_size=100)
    assert data.records == b"" and data.offset_metadata == log.local.log_end


# High watermark


def test_rd11_the_high_watermark_starts_at_the_log_start_and_stays_within_the_log() -> None:
    log = log_of(6)
    assert log.high_watermark == 0
    assert log.marks.update_high_watermark(4) == 4
    assert log.marks.update_high_watermark(100) == 6
    assert log.marks.high_watermark_metadata == log.local.log_end
    # It may go back.
    assert log.marks.update_high_watermark(2) == 2
    with pytest.raises(AssertionError):
        log.marks.update_high_watermark(-1)


def test_rd11_maybe_increment_moves_forward_only() -> None:
    log = log_of(6)
    assert log.marks.maybe_increment_high_watermark(log.reads.place_of(4))
    assert not log.marks.maybe_increment_high_watermark(log.reads.place_of(4))
    assert not log.marks.maybe_increment_high_watermark(log.reads.place_of(3))
    assert not log.marks.maybe_increment_high_watermark(LogOffsetMetadata(4))
    assert log.marks.maybe_increment_high_watermark(LogOffsetMetadata(5))
    with pytest.raises(AssertionError):
        log.marks.maybe_increment_high_watermark(LogOffsetMetadata(7))


def test_rd11_the_same_offset_on_a_newer_segment_counts_as_forward() -> None:
    log = log_of(3)
    log.marks.update_high_watermark(3)
    old = log.marks.high_watermark_metadata
    # The mark comes from a leader that has not heard of the roll.
    log.marks.set_high_watermark(old)
    log.flushes.roll(now_ms=NOW_MS)
    log.marks.set_high_watermark(old)
    assert log.marks.maybe_increment_high_watermark(log.local.log_end)
    assert log.marks.high_watermark_metadata == LogOffsetMetadata(3, 3, 0)


@pytest.mark.covers("UnifiedLogTest.testHighWatermarkMetadataUpdatedAfterSegmentRoll")
def test_ap15_a_roll_moves_the_place_of_a_high_watermark_at_the_log_end() -> None:
    log = log_of(3)
    log.marks.update_high_watermark(3)
    log.flushes.roll(now_ms=NOW_MS)
    assert log.marks.high_watermark_metadata == log.local.log_end == LogOffsetMetadata(3, 3, 0)
    append_each(log, 1)
    assert read(log, 3, Isolation.HIGH_WATERMARK) == []
    assert read(log, 0, Isolation.HIGH_WATERMARK) == [0, 1, 2]


def test_a_place_is_a_value_and_knows_nothing_of_later_rolls() -> None:
    log = log_of(3)
    before = log.local.log_end
    log.flushes.roll(now_ms=NOW_MS)
    assert before == LogOffsetMetadata(3, 0, 3 * SIZE) and log.local.log_end == LogOffsetMetadata(3, 3, 0)
    with pytest.raises(ValueError):
        log.local.log_end.position_difference(before)


# Log start


@pytest.mark.covers("UnifiedLogTest.testCannotIncrementLogStartOffsetPastHighWatermark")
def test_rt1_the_log_start_moves_forward_up_to_the_high_watermark() -> None:
    log = log_of(10)
    log.marks.update_high_watermark(6)
    with pytest.raises(OffsetOutOfRange):
        log.marks.maybe_increment_log_start_offset(7)
    assert log.marks.maybe_increment_log_start_offset(4) and not log.marks.maybe_increment_log_start_offset(4)
    assert log.log_start_offset == 4 and log.local.recovery_point >= 4
    assert [tuple(entry) for entry in log.epochs.entries] == [(0, 4)]


# Timestamps


def test_rd8_offsets_by_timestamp() -> None:
    log = log_of(0)
    for index in range(12):
        data = produced(timestamp=NOW_MS + 10 * index)
        log.append_as_leader(data, leader_epoch=1 + index // 6, now_ms=NOW_MS)
    found = log.reads.offset_for_timestamp(NOW_MS + 75)
    assert found is not None and (found.timestamp, found.offset, found.leader_epoch) == (NOW_MS + 80, 8, 2)
    assert log.reads.offset_for_timestamp(NOW_MS + 111) is None
    earliest, latest, greatest = (log.reads.offset_for_timestamp(each) for each in (-2, -1, -3))
    assert earliest is not None and (earliest.offset, earliest.leader_epoch) == (0, 1)
    assert latest is not None and (latest.offset, latest.leader_epoch) == (12, 2)
    assert greatest is not None and (greatest.timestamp, greatest.offset) == (NOW_MS + 110, 11)


def test_rd8_an_empty_log_has_no_greatest_timestamp() -> None:
    log = log_of(0)
    assert log.reads.offset_for_timestamp(-3) is None and log.reads.offset_for_timestamp(5) is None


# Epochs


def test_ep5_the_end_of_an_epoch_is_the_start_of_the_next_or_the_log_end() -> None:
    log = log_of(0)
    for epoch in (1, 1, 4, 4, 4, 6):
        append_each(log, 1, epoch=epoch)
    ends = {epoch: log.reads.end_offset_for_epoch(epoch) for epoch in range(8)}
    assert ends[1] == (1, 2) and ends[4] == (4, 5) and ends[6] == (6, 6)
    assert ends[3] == (1, 2) and ends[0] == (0, 0) and ends[7] == (-1, -1)


def test_an_assigned_epoch_begins_at_the_log_end_before_anything_is_written() -> None:
    log = log_of(3)
    log.appends.assign_epoch(9)
    assert log.epochs.latest_epoch == 9 and log.reads.end_offset_for_epoch(0) == (0, 3)


def test_rd7_an_open_transaction_holds_the_last_stable_offset_back() -> None:
    log = log_of(2)
    log.append_as_follower(
        batch(2, producer_id=5, producer_epoch=0, sequence=0, is_transactional=True),
        leader_epoch=0,
        now_ms=NOW_MS,
    )
    log.append_as_follower(batch(3), leader_epoch=0, now_ms=NOW_MS)
    log.marks.update_high_watermark(4)
    assert log.marks.last_stable_offset == 2
    assert read(log, 0, Isolation.TXN_COMMITTED) == [0, 1] and read(log, 2, Isolation.TXN_COMMITTED) == []
    log.marks.update_high_watermark(1)
    assert log.marks.last_stable_offset == 1


def test_rd8_a_search_by_time_learns_of_so_many_segments_in_a_step_and_goes_on_in_the_next() -> None:
    file_system = new_file_system()
    log = open_log(file_system, THREE)
    append_each(log, 15)
    log.close()
    log = open_log(file_system, THREE, clean=True)
    assert len(log.local.segments) == 5
    for known in (2, 4):
        with pytest.raises(ReadGoesOn):
            log.reads.search_for_timestamp(NOW_MS + 1, 2)
        assert [each.is_max_timestamp_known for each in log.local.segments].count(True) == known
    assert log.reads.search_for_timestamp(NOW_MS + 1, 2) is None
    assert log.reads.search_for_timestamp(NOW_MS, 0) is not None


def without_index(batches: int) -> PartitionLog:
    """Return a log of one segment whose offset index is empty, after a start."""
    file_system = new_file_system()
    log = open_log(file_system, SPARSE)
    append_each(log, batches)
    log.close()
    log = open_log(file_system, SPARSE, clean=True)
    assert log.local.segments.active.offset_index.entries == 0
    return log


def steps_of(read: Callable[[], FetchData]) -> tuple[list[int], int]:
    """Return the offsets that are read, and in how many steps."""
    for steps in range(1, 100):
        with suppress(ReadGoesOn):
            return offsets_in(read().records), steps
    raise AssertionError("it never ends")


def test_rd1_a_read_where_the_index_has_no_entry_for_long_goes_on_in_later_steps() -> None:
    log = without_index(40)
    log.local.searched_a_step = 5
    read = partial(log.read, 33, max_size=SIZE, in_step=True)
    assert steps_of(read) == ([33], 7)
    assert steps_of(read) == ([33], 1)
    assert log.online.reason is None


@pytest.mark.parametrize("isolation", [Isolation.HIGH_WATERMARK, Isolation.TXN_COMMITTED])
def test_rd3_so_does_the_search_for_the_place_of_the_bound(isolation: Isolation) -> None:
    log = without_index(40)
    log.local.searched_a_step = 5
    log.marks.update_high_watermark(30)
    read = partial(log.read, 28, max_size=10 * SIZE, isolation=isolation, in_step=True)
    found, steps = steps_of(read)
    assert found == [28, 29] and steps > 1
    log.marks.update_high_watermark(20)
    assert steps_of(partial(log.read, 18, max_size=10 * SIZE, isolation=isolation)) == ([18, 19], 1)


def test_rd3_a_read_that_may_take_long_looks_for_the_bound_at_once() -> None:
    log = without_index(40)
    log.local.searched_a_step = 5
    log.marks.update_high_watermark(30)
    assert read(log, 28, Isolation.HIGH_WATERMARK) == [28, 29]


def test_rd11_a_high_watermark_rises_while_the_search_for_its_place_goes_on() -> None:
    log = without_index(40)
    log.local.searched_a_step = 5
    log.marks.update_high_watermark(30)
    assert not log.marks.maybe_increment_high_watermark(LogOffsetMetadata(30))
    assert log.marks.maybe_increment_high_watermark(log.local.log_end)
    assert log.marks.high_watermark_metadata == log.local.log_end
