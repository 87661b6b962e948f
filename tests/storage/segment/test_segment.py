"""A segment: append, read, roll and truncate. Kafka: LogSegmentTest; rules LS1 to LS20."""

from __future__ import annotations

import pytest

from storage.config import LogConfig
from storage.draws import Draws
from storage.errors import SegmentOffsetOverflow
from storage.segment import LogSegment
from storage.segment.lookups import find_offset_by_timestamp, has_overflow, read_next_offset
from tests.storage.logs import (
    DIRECTORY,
    NOW_MS,
    SIZE,
    SMALL,
    append_batch,
    batch,
    filled_segment,
    new_file_system,
    offsets_in,
    open_segment,
)

INT_MAX = 2**31 - 1


def offset_entries(segment: LogSegment) -> list[tuple[int, int]]:
    index = segment.offset_index
    return [(index.entry(slot).offset, index.entry(slot).position) for slot in range(index.entries)]


def time_entries(segment: LogSegment) -> list[tuple[int, int]]:
    index = segment.time_index
    return [(index.entry(slot).timestamp, index.entry(slot).offset) for slot in range(index.entries)]


# Append


@pytest.mark.parametrize("offset", [40, 40 + INT_MAX])
def test_ls1_relative_offsets_0_and_the_largest_are_taken(offset: int) -> None:
    segment = open_segment(new_file_system(), 40)
    append_batch(segment, batch(offset))
    assert segment.size_bytes == SIZE


@pytest.mark.covers("LogSegmentTest.testAppendForLogSegmentOffsetOverflowException")
@pytest.mark.parametrize("offset", [39, 40 + INT_MAX + 1])
def test_ls1_an_offset_outside_the_relative_bits_is_refused_before_a_byte_is_written(offset: int) -> None:
    segment = open_segment(new_file_system(), 40)
    with pytest.raises(SegmentOffsetOverflow) as caught:
        append_batch(segment, batch(offset))
    assert (caught.value.base_offset, caught.value.offset) == (40, offset)
    assert segment.size_bytes == 0 and segment.records.read_slice(0, 100) == b""


def test_ls1_an_empty_set_writes_nothing() -> None:
    segment = open_segment(new_file_system())
    segment.append(0, b"")
    assert segment.size_bytes == 0 and segment.max_timestamp.timestamp == -1


def test_ls2_the_first_set_gets_no_index_entry_and_each_later_one_with_interval_0() -> None:
    segment = open_segment(
        new_file_system(), config=LogConfig(index_interval_bytes=0, segment_index_bytes=800)
    )
    for offset in range(3):
        append_batch(segment, batch(offset, timestamp=NOW_MS + offset))
    assert offset_entries(segment) == [(1, SIZE), (2, 2 * SIZE)]
    assert time_entries(segment) == [(NOW_MS + 1, 1), (NOW_MS + 2, 2)]


def test_t1_an_entry_holds_the_last_offset_of_a_batch_and_where_the_batch_starts() -> None:
    """Kafka 4.1 does so. Before, a set of batches had one entry at most, for its last offset and its start."""
    config = LogConfig(index_interval_bytes=SIZE, segment_index_bytes=800)
    segment = open_segment(new_file_system(), config=config)
    append_batch(segment, batch(0))
    data = batch(1) + batch(2, count=2) + batch(4, timestamp=NOW_MS + 7) + batch(5)
    segment.append(5, data)
    assert offset_entries(segment) == [(3, 2 * SIZE), (4, segment.size_bytes - 2 * SIZE)]
    assert time_entries(segment) == [(NOW_MS + 1, 3), (NOW_MS + 7, 4)]


def test_t2_the_interval_counts_bytes_before_the_set_strictly() -> None:
    config = LogConfig(index_interval_bytes=2 * SIZE, segment_index_bytes=800)
    segment = open_segment(new_file_system(), config=config)
    for offset in range(7):
        append_batch(segment, batch(offset))
    # Exactly 2 sets are no reason yet, 3 are.
    assert offset_entries(segment) == [(3, 3 * SIZE), (6, 6 * SIZE)]


def test_t2_the_interval_counter_restarts_on_reopening() -> None:
    file_system = new_file_system()
    config = LogConfig(index_interval_bytes=2 * SIZE, segment_index_bytes=800)
    segment = open_segment(file_system, config=config)
    for offset in range(3):
        append_batch(segment, batch(offset))
    segment.close()
    segment = open_segment(file_system, config=config, file_already_exists=True)
    segment.resize_indexes()
    for offset in range(3, 6):
        append_batch(segment, batch(offset))
    assert offset_entries(segment) == []


def test_ls3_the_greatest_timestamp_comes_from_the_time_index_after_an_orderly_close() -> None:
    file_system = new_file_system()
    segment = filled_segment(file_system, range(3))
    segment.close()
    reopened = open_segment(file_system, file_already_exists=True)
    assert tuple(reopened.max_timestamp) == (NOW_MS + 2, 2)


def test_t3_a_close_of_a_segment_whose_maximum_was_never_asked_adds_no_entry() -> None:
    file_system = new_file_system()
    filled_segment(file_system, range(3)).close()
    before = file_system.stat(f"{DIRECTORY}/{0:020d}.timeindex").size_bytes
    open_segment(file_system, file_already_exists=True).close()
    assert file_system.stat(f"{DIRECTORY}/{0:020d}.timeindex").size_bytes == before


# Roll


def should_roll(
    segment: LogSegment,
    *,
    messages_size: int = 10,
    max_timestamp: int = NOW_MS,
    max_offset: int = 100,
    now_ms: int = NOW_MS,
    max_segment_bytes: int = 2000,
    max_segment_ms: int = 1000,
) -> bool:
    return segment.should_roll(
        messages_size=messages_size,
        max_timestamp=max_timestamp,
        max_offset=max_offset,
        now_ms=now_ms,
        max_segment_bytes=max_segment_bytes,
        max_segment_ms=max_segment_ms,
    )


def test_ls4_rolls_by_size_only_above_it() -> None:
    segment = filled_segment(new_file_system(), range(3))
    assert not should_roll(segment, messages_size=SIZE, max_segment_bytes=4 * SIZE)
    assert should_roll(segment, messages_size=SIZE + 1, max_segment_bytes=4 * SIZE)


def test_ls4_rolls_by_the_time_of_the_messages_strictly_above_it() -> None:
    segment = filled_segment(new_file_system(), range(1))
    assert not should_roll(segment, max_timestamp=NOW_MS + 1000)
    assert should_roll(segment, max_timestamp=NOW_MS + 1001)


def test_ls4_an_empty_segment_does_not_roll_by_time() -> None:
    assert not should_roll(open_segment(new_file_system()), now_ms=NOW_MS + 10_000)


def test_ls4_rolls_when_an_index_is_full() -> None:
    # There is room for 3 offset entries or 1 time entry.
    config = LogConfig(index_interval_bytes=0, segment_index_bytes=24)
    segment = open_segment(new_file_system(), config=config)
    append_batch(segment, batch(0, timestamp=NOW_MS))
    assert not should_roll(segment)
    append_batch(segment, batch(1, timestamp=NOW_MS + 1))
    assert segment.time_index.is_full and should_roll(segment)


def test_ls4_rolls_for_an_offset_that_does_not_fit() -> None:
    segment = open_segment(new_file_system())
    assert not should_roll(segment, max_offset=INT_MAX)
    assert should_roll(segment, max_offset=INT_MAX + 1)


def test_ls5_without_timestamps_the_clock_since_opening_counts() -> None:
    segment = open_segment(new_file_system())
    append_batch(segment, batch(0, timestamp=-1))
    assert segment.time_waited_for_roll(NOW_MS + 7, -1) == 7


@pytest.mark.covers(
    "LogSegmentTest.testGetFirstBatchTimestamp", "UnifiedLogTest.testGetFirstBatchTimestampForSegments"
)
def test_ls5_the_first_batch_timestamp_is_read_from_disk_after_reopening() -> None:
    file_system = new_file_system()
    filled_segment(file_system, range(5)).close()
    reopened = open_segment(file_system, file_already_exists=True)
    assert reopened.time_waited_for_roll(NOW_MS + 99, NOW_MS + 30) == 30


def test_ls6_jitter_is_below_its_bound_and_drawn_from_the_seed() -> None:
    config = LogConfig(segment_jitter_ms=1200, segment_ms=3600)
    file_system = new_file_system()
    jitters = [
        LogSegment.open(file_system, DIRECTORY, base, config, NOW_MS, draws=Draws(5)).roll_jitter_ms
        for base in range(20)
    ]
    assert all(0 <= jitter < 1200 for jitter in jitters) and len(set(jitters)) > 10
    again = LogSegment.open(file_system, DIRECTORY, 3, config, NOW_MS, draws=Draws(5))
    assert again.roll_jitter_ms == jitters[3]


def test_ls14_an_inactive_segment_has_its_last_time_entry_and_trimmed_indexes() -> None:
    file_system = new_file_system()
    segment = filled_segment(file_system, range(3))
    segment.on_become_inactive()
    assert time_entries(segment)[-1] == (NOW_MS + 2, 2)
    assert file_system.stat(segment.offset_index_path).size_bytes == 8 * segment.offset_index.entries
    assert file_system.stat(segment.time_index_path).size_bytes == 12 * segment.time_index.entries


# Read


@pytest.mark.covers("LogSegmentTest.testReadOnEmptySegment", "LogSegmentTest.testReadAfterLast")
def test_ls8_read_of_an_empty_segment_and_beyond_the_end_is_none() -> None:
    segment = open_segment(new_file_system(), 40)
    assert segment.read(40, 300, 1000) is None
    append_batch(segment, batch(50))
    assert segment.read(51, 300, 1000) is None


@pytest.mark.covers("LogSegmentTest.testReadBeforeFirstOffset")
def test_ls8_read_before_the_first_offset_starts_with_the_first_batch() -> None:
    segment = filled_segment(new_file_system(), [50, 51], 40)
    data = segment.read(41, 1000, segment.size_bytes)
    assert data is not None and offsets_in(data.records) == [50, 51]
    # This is the offset of the batch found (T26, as in Kafka 4.1).
    assert data.offset_metadata.offset == 50
    assert (data.offset_metadata.segment_base_offset, data.offset_metadata.position) == (40, 0)


@pytest.mark.covers("LogSegmentTest.testReadFromGap")
def test_ls8_read_from_a_gap_returns_the_next_batch() -> None:
    segment = filled_segment(new_file_system(), [50, 60])
    data = segment.read(55, 1000, segment.size_bytes)
    assert data is not None and offsets_in(data.records) == [60]


def test_ls8_the_size_is_cut_to_the_bound_and_to_the_adjusted_maximum() -> None:
    segment = filled_segment(new_file_system(), range(10))
    # With maximum size 100, maximum position 300 and start at 3 * SIZE, the lesser of both counts from the
    # start.
    start = 3 * SIZE
    data = segment.read(3, 100, 300)
    assert data is not None and len(data.records) == min(300 - start, 100)
    data = segment.read(3, 40, 300)
    assert data is not None and len(data.records) == 40


def test_ls8_maximum_size_100_and_position_300_from_position_250_are_50_bytes() -> None:
    segment = open_segment(new_file_system())
    append_batch(segment, batch(0))
    padding = next(size for size in range(250) if SIZE + len(batch(1, value_bytes=size)) == 250)
    append_batch(segment, batch(1, value_bytes=padding))
    append_batch(segment, batch(2, value_bytes=200))
    data = segment.read(2, 100, 300)
    assert data is not None and data.offset_metadata.position == 250
    assert len(data.records) == 50 and data.first_entry_incomplete


@pytest.mark.covers("LogSegmentTest.testReadWhenNoMaxPosition")
def test_ls8_an_unknown_bound_and_a_size_of_0_return_no_bytes() -> None:
    segment = filled_segment(new_file_system(), range(3))
    data = segment.read(1, 1000, None, True)
    assert data is not None and data.records == b"" and data.offset_metadata.position == SIZE
    data = segment.read(1, 0, segment.size_bytes)
    assert data is not None and data.records == b"" and not data.first_entry_incomplete


def test_ls8_one_whole_batch_is_returned_if_asked_for_even_above_the_maximum() -> None:
    segment = filled_segment(new_file_system(), range(3))
    data = segment.read(1, 1, segment.size_bytes, True)
    assert data is not None and offsets_in(data.records) == [1] and not data.first_entry_incomplete


def test_ls8_an_incomplete_first_entry_is_reported() -> None:
    segment = filled_segment(new_file_system(), range(3))
    data = segment.read(1, SIZE - 1, segment.size_bytes)
    assert data is not None and len(data.records) == SIZE - 1 and data.first_entry_incomplete
    data = segment.read(1, SIZE, segment.size_bytes)
    assert data is not None and not data.first_entry_incomplete


def test_ls8_a_negative_size_raises() -> None:
    segment = filled_segment(new_file_system(), range(3))
    with pytest.raises(ValueError):
        segment.read(1, -1, segment.size_bytes)


def test_ls8_an_offset_inside_a_batch_returns_the_whole_batch() -> None:
    segment = open_segment(new_file_system())
    append_batch(segment, batch(0, 5))
    data = segment.read(3, 1000, segment.size_bytes)
    assert data is not None and offsets_in(data.records) == [0, 1, 2, 3, 4]


def test_ls7_lookup_uses_the_index_from_every_offset() -> None:
    segment = filled_segment(new_file_system(), range(0, 40, 2))
    assert segment.offset_index.entries > 3
    for offset in range(39):
        found = segment.translate_offset(offset)
        assert found is not None and found.offset == offset + offset % 2
        assert found.position == found.offset // 2 * SIZE
    assert segment.translate_offset(39) is None


@pytest.mark.covers("LogSegmentTest.testNextOffsetCalculation")
def test_ls9_next_offset_is_one_above_the_last_and_the_base_when_empty() -> None:
    file_system = new_file_system()
    assert read_next_offset(open_segment(file_system, 7)) == 7
    assert read_next_offset(filled_segment(file_system, range(20, 40), 20)) == 40


@pytest.mark.covers("LogSegmentTest.testFindOffsetByTimestamp")
def test_ls18_find_by_timestamp_returns_the_first_record_at_least_that_late() -> None:
    segment = filled_segment(new_file_system(), range(10, 30), 10)
    for timestamp, offset in [(0, 10), (NOW_MS + 10, 10), (NOW_MS + 17, 17), (NOW_MS + 29, 29)]:
        found = find_offset_by_timestamp(segment, timestamp, 10)
        assert found is not None and found.offset == offset
    assert find_offset_by_timestamp(segment, NOW_MS + 30, 10) is None
    found = find_offset_by_timestamp(segment, NOW_MS + 10, 25)
    assert found is not None and found.offset == 25


def test_ls19_the_largest_timestamp_falls_back_to_the_modification_time() -> None:
    segment = open_segment(new_file_system())
    append_batch(segment, batch(0, timestamp=-1))
    assert segment.largest_timestamp_ms == segment.records.modified_ms()
    append_batch(segment, batch(1, timestamp=5))
    assert segment.largest_timestamp_ms == 5


def test_rt5_a_cut_before_the_greatest_timestamp_is_known_makes_no_record_older() -> None:
    file_system = new_file_system()
    closed = open_segment(file_system)
    for offset, timestamp in enumerate((4000, 0, 5000)):
        append_batch(closed, batch(offset, timestamp=timestamp))
    closed.on_become_inactive()
    closed.close()
    # The only entry of the time index is dropped with the record that it is of.
    segment = open_segment(file_system, file_already_exists=True)
    segment.truncate_to(2, NOW_MS)
    append_batch(segment, batch(2, timestamp=1))
    assert segment.largest_timestamp_ms == 1
    assert segment.kept_until_ms == 5000


@pytest.mark.parametrize("restarts", [False, True])
def test_rt5_a_segment_that_a_cut_emptied_is_as_old_as_its_next_records(restarts: bool) -> None:
    """A record with a time far in the future, cut off again, must not keep what comes later for ever."""
    file_system = new_file_system()
    closed = open_segment(file_system)
    append_batch(closed, batch(0, timestamp=5000))
    closed.on_become_inactive()
    closed.close()
    segment = open_segment(file_system, file_already_exists=True)
    segment.truncate_to(0, NOW_MS)
    if restarts:
        segment.restart(NOW_MS)
    append_batch(segment, batch(0, timestamp=1))
    assert segment.kept_until_ms == 1


def test_ls20_overflow_is_an_offset_beyond_the_relative_bits() -> None:
    file_system = new_file_system()
    assert not has_overflow(filled_segment(file_system, range(3)))
    old = open_segment(file_system, 5)
    old.records.append(batch(5) + batch(5 + INT_MAX + 1))
    assert has_overflow(old)


# Truncate


@pytest.mark.covers("LogSegmentTest.testTruncate")
def test_ls13_truncation_keeps_the_batches_below() -> None:
    segment = filled_segment(new_file_system(), range(10))
    assert segment.truncate_to(6, NOW_MS) == 4 * SIZE
    assert segment.size_bytes == 6 * SIZE and read_next_offset(segment) == 6
    assert segment.read(6, 100, segment.size_bytes) is None
    assert tuple(segment.max_timestamp) == (NOW_MS + 5, 5)
    assert all(
        offset < 6 for offset, _ in offset_entries(segment) + [(e, 0) for _, e in time_entries(segment)]
    )


def test_ls13_the_whole_batch_that_holds_the_offset_is_cut() -> None:
    segment = open_segment(new_file_system())
    append_batch(segment, batch(0, 3))
    append_batch(segment, batch(3, 5))
    removed = segment.truncate_to(5, NOW_MS)
    assert removed == len(batch(3, 5))
    assert read_next_offset(segment) == 3


def test_ls13_beyond_the_end_nothing_is_cut_but_indexes_grow_back_and_the_counter_restarts() -> None:
    file_system = new_file_system()
    segment = filled_segment(file_system, range(10))
    segment.on_become_inactive()
    entries, size = offset_entries(segment), segment.size_bytes
    assert segment.offset_index.length_bytes < SMALL.segment_index_bytes
    assert segment.truncate_to(10, NOW_MS) == 0 and segment.truncate_to(1000, NOW_MS) == 0
    assert segment.size_bytes == size and offset_entries(segment) == entries
    assert segment.offset_index.length_bytes == SMALL.segment_index_bytes
    assert segment.time_index.length_bytes == SMALL.segment_index_bytes
    # The interval is 200 bytes. Only after the third batch are there more: 3 * 79.
    for offset in range(10, 13):
        append_batch(segment, batch(offset))
    assert offset_entries(segment) == entries
    append_batch(segment, batch(13))
    assert offset_entries(segment) == [*entries, (13, 13 * SIZE)]


@pytest.mark.covers("LogSegmentTest.testTruncateFull")
def test_ls13_an_emptied_segment_counts_its_age_from_now() -> None:
    segment = filled_segment(new_file_system(), range(3))
    assert segment.truncate_to(0, NOW_MS + 500) == 3 * SIZE
    assert segment.created_ms == NOW_MS + 500 and segment.first_batch_timestamp is None
    assert segment.offset_index.entries == 0 and segment.time_index.entries == 0


@pytest.mark.covers("LogSegmentTest.shouldTruncateEvenIfOffsetPointsToAGapInTheLog")
def test_ls13_a_gap_truncates_from_the_next_batch_on() -> None:
    segment = filled_segment(new_file_system(), [0, 1, 5, 6])
    assert segment.truncate_to(3, NOW_MS) == 2 * SIZE


def test_ls13_refilled_after_truncation_it_reads_the_same() -> None:
    segment = filled_segment(new_file_system(), range(20))
    before = segment.records.read_slice(0, segment.size_bytes)
    segment.truncate_to(0, NOW_MS)
    for offset in range(20):
        append_batch(segment, batch(offset, timestamp=NOW_MS + offset))
    assert segment.records.read_slice(0, segment.size_bytes) == before


# Files


def test_ls15_close_trims_the_indexes_and_syncs_the_log() -> None:
    file_system = new_file_system()
    segment = filled_segment(file_system, range(10))
    entries = segment.offset_index.entries
    segment.close()
    assert file_system.stat(f"{DIRECTORY}/{0:020d}.index").size_bytes == 8 * entries


def test_ls22_delete_removes_the_files_and_misses_none() -> None:
    file_system = new_file_system()
    segment = filled_segment(file_system, range(3))
    file_system.unlink(segment.time_index_path)
    segment.delete()
    assert file_system.list(DIRECTORY) == []
    assert segment.is_deleted


@pytest.mark.covers(
    "LogSegmentTest.testCreateWithInitFileSizeAppendMessage",
    "LogSegmentTest.testCreateWithInitFileSizeClearShutdown",
)
def test_preallocated_space_holds_no_records_and_is_cut_by_close() -> None:
    file_system = new_file_system()
    config = LogConfig(preallocate=True, segment_bytes=5000, segment_index_bytes=800)
    segment = open_segment(file_system, config=config)
    append_batch(segment, batch(0))
    assert file_system.stat(segment.path).size_bytes == 5000 and segment.size_bytes == SIZE
    segment.close()
    assert file_system.stat(segment.path).size_bytes == SIZE


def test_an_index_that_contradicts_the_log_is_emptied_and_the_append_succeeds() -> None:
    file_system = new_file_system()
    config = LogConfig(index_interval_bytes=1, segment_index_bytes=800)
    segment = open_segment(file_system, config=config)
    append_batch(segment, batch(0))
    segment.offset_index.append(1000, 0)
    append_batch(segment, batch(1))
    assert segment.offset_index.entries == 0
    data = segment.read(1, 1000, segment.size_bytes)
    assert data is not None and offsets_in(data.records) == [1]
