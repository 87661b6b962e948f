"""Groups of segments that a round joins, and the new segment in their place.

Kafka: LogCleanerTest; rules CL10, CL11.
"""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

import storage.cleaner.compaction
from storage.cleaner.plan import MOST_IN_GROUP, PLANNED_IN_STEP, group_segments
from storage.disk.filesystem import join, read_file
from tests.storage.cleaner.compacted_logs import COMPACTED, HUGE, CleanedLog, bases_of, segments_of
from tests.storage.logs import DIRECTORY, NOW_MS, batch, new_file_system, open_segment


@pytest.mark.covers("LogCleanerTest.testSegmentGrouping")
def test_cl10_neighbours_are_grouped_up_to_the_size_of_a_segment() -> None:
    segments = segments_of([2] * 7)
    size = segments[0].size_bytes
    assert bases_of(group_segments(segments, HUGE, HUGE, 70)) == [[0, 10, 20, 30, 40, 50, 60]]
    assert bases_of(group_segments(segments, 1, HUGE, 70)) == [[10 * place] for place in range(7)]
    assert bases_of(group_segments(segments, 3 * size, HUGE, 70)) == [[0, 10, 20], [30, 40, 50], [60]]
    assert bases_of(group_segments(segments, 3 * size - 1, HUGE, 70)) == [[0, 10], [20, 30], [40, 50], [60]]


def test_cl10_neighbours_are_grouped_up_to_the_size_of_an_index() -> None:
    segments = segments_of([4] * 5)
    offset_bytes = segments[0].offset_index.size_bytes
    time_bytes = segments[0].time_index.size_bytes
    assert (offset_bytes, time_bytes) == (24, 36)
    assert bases_of(group_segments(segments, HUGE, 1, 50)) == [[0], [10], [20], [30], [40]]
    assert bases_of(group_segments(segments, HUGE, 3 * time_bytes, 50)) == [[0, 10, 20], [30, 40]]
    assert bases_of(group_segments(segments, HUGE, 3 * time_bytes - 1, 50)) == [[0, 10], [20, 30], [40]]
    for segment in segments:
        segment.time_index.truncate()
    assert bases_of(group_segments(segments, HUGE, 3 * offset_bytes - 1, 50)) == [[0, 10], [20, 30], [40]]


@pytest.mark.covers(
    "LogCleanerTest.testSegmentGroupingWithSparseOffsets",
    "LogCleanerTest.testSegmentGroupingFollowingLoadOfZeroIndex",
)
def test_cl10_a_group_spans_at_most_31_bits_of_offsets_by_the_base_that_follows() -> None:
    """The next segment's base bounds what a segment holds: an index that was lost would report too little."""
    file_system = new_file_system()
    bases = [0, 100, 2**31, 2**31 + 100]
    segments = [open_segment(file_system, base) for base in bases]
    for segment in segments:
        segment.append(segment.base_offset, batch(segment.base_offset))
        segment.offset_index.truncate()
    groups = group_segments(segments, HUGE, HUGE, 2**31 + 200)
    # The segment at 100 ends below 2^31. The third one might not.
    assert bases_of(groups) == [[0, 100], [2**31, 2**31 + 100]]
    assert bases_of(group_segments(segments[:3], HUGE, HUGE, 2**31)) == [[0, 100, 2**31]]


@pytest.mark.covers("LogCleanerTest.testSegmentGroupingWithSparseOffsetsAndEmptySegments")
def test_cl10_empty_segments_join_a_group_however_far_apart_they_are() -> None:
    file_system = new_file_system()
    segments = [open_segment(file_system, base) for base in (0, 2**31, 2**32, 2**32 + 2**31)]
    last = segments[-1]
    last.append(last.base_offset, batch(last.base_offset))
    groups = group_segments(segments, HUGE, HUGE, last.base_offset + 1)
    assert bases_of(groups) == [[0, 2**31, 2**32], [last.base_offset]]


def test_t47_clean_segments_are_copied_again_together_with_dirty_ones() -> None:
    log = CleanedLog()
    log.put_each(1, 2, 3)
    log.roll()
    assert log.clean() == 3
    log.put_each(4, 5)
    log.roll()
    log.clean(3)
    assert log.log.local.segments.base_offsets == [0, 5]
    assert log.offsets() == [0, 1, 2, 3, 4]


def test_cl11_the_new_segment_has_the_time_of_the_last_one_it_replaces() -> None:
    """Retention of old formats, and of segments without timestamps, counts on it (T52)."""
    log = CleanedLog()
    log.put(1)
    log.roll()
    log.put(2)
    log.roll()
    first, second, _ = log.log.local.segments
    first.set_modified(NOW_MS - 5000)
    second.set_modified(NOW_MS - 3000)
    log.clean()
    merged = log.log.local.segments.first
    assert merged is not None and merged is not first
    paths = (merged.path, merged.offset_index_path, merged.time_index_path)
    assert [log.file_system.stat(path).modified_ms for path in paths] == [NOW_MS - 3000] * 3


@pytest.mark.covers("LogCleanerTest.testSizeTrimmedForPreallocatedAndCompactedTopic")
def test_kafka_5431_a_preallocated_segment_is_cut_to_its_records() -> None:
    log = CleanedLog(replace(COMPACTED, preallocate=True))
    log.put_each(*range(5), *range(5))
    log.roll()
    log.clean()
    first = log.log.local.segments.first
    assert first is not None
    assert log.file_system.stat(first.path).size_bytes == first.size_bytes < 1024
    assert log.file_system.stat(first.offset_index_path).size_bytes == first.offset_index.size_bytes


def test_cl11_the_new_segment_is_on_the_disk_before_it_is_seen() -> None:
    log = CleanedLog()
    log.put_each(1, 2, 1)
    log.roll()
    pieces = iter(compaction := log.prepare())
    for work in pieces:
        work()
        cleaned = join(DIRECTORY, f"{0:020d}.log.cleaned")
        if log.file_system.exists(cleaned) and compaction.stats.bytes_written:
            file = read_file(log.file_system, cleaned)
            assert len(file) == compaction.stats.bytes_written > 0
    assert compaction.end_offset == 3
    assert not [name for name in log.file_system.list(DIRECTORY) if re.search("cleaned|swap|deleted", name)]


@pytest.mark.covers("LogCleanerTest.testCleanSegmentsWithConcurrentSegmentDeletion")
def test_kafka_7278_a_segment_that_retention_took_meanwhile_is_passed_over() -> None:
    log = CleanedLog()
    for key in (1, 2, 1):
        log.put(key)
        log.roll()
    pieces = iter(log.prepare())
    next(pieces)()
    next(pieces)()
    log.log.marks.maybe_increment_log_start_offset(1)
    log.log.retention.delete_old(NOW_MS)
    assert log.log.local.segments.base_offsets == [1, 2, 3]
    assert list(pieces) == []
    assert log.keys() == [2, 1]


def test_cl11_snapshots_of_merged_segments_are_deleted_with_them() -> None:
    log = CleanedLog()
    for key in (1, 2, 3):
        log.put(key, producer_id=5)
        log.roll()
    assert log.log.producers.snapshots.offsets == [1, 2, 3]
    log.clean()
    assert log.log.producers.snapshots.offsets == [3]


def test_cl10_a_group_has_at_most_so_many_segments_as_one_step_can_swap() -> None:
    segments = segments_of([1] * (MOST_IN_GROUP + 2))
    assert list(map(len, group_segments(segments, HUGE, HUGE, 10 * len(segments)))) == [MOST_IN_GROUP, 2]


def test_cl10_grouping_opens_no_index_that_is_closed() -> None:
    log = CleanedLog()
    log.fill(5, range(1000))
    log.reopen(clean=True)
    segments = log.log.local.segments.non_active_from(0)
    groups = bases_of(group_segments(segments, HUGE, HUGE, log.log.log_end_offset))
    assert groups == [[segment.base_offset for segment in segments]]
    assert not any(segment.indexes.lazy_time.is_open for segment in segments[:-1])


def test_cl10_a_step_of_a_round_plans_few_segments() -> None:
    """A plan of all dirty segments in one step makes the whole node wait."""
    log = CleanedLog(replace(COMPACTED, segment_bytes=100))
    log.fill(PLANNED_IN_STEP * 2 + 3, range(5000))
    planned, most = 0, 0
    compactions = log.log.compactions

    class Counted:
        def plan_source(self, *arguments: object) -> object:
            nonlocal planned
            planned += 1
            return compactions.plan_source(*arguments)  # type: ignore[arg-type]

        def __getattr__(self, name: str) -> object:
            return getattr(compactions, name)

    compaction = log.prepare()
    compaction._log = Counted()  # type: ignore[assignment]
    for work in compaction:
        most, planned = max(most, planned), 0
        work()
    assert 0 < most <= PLANNED_IN_STEP
    assert compaction.end_offset == log.log.local.segments.active.base_offset


def test_cl11_the_worker_looks_for_the_end_of_a_segment_that_is_far_from_its_last_index_entry(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def slices() -> int:
        log = CleanedLog(replace(COMPACTED, segment_bytes=100_000, index_interval_bytes=1 << 20))
        log.put_each(*(number % 3 for number in range(12)))
        log.roll()
        count = sum(1 for work in log.prepare() if work() is None)
        assert log.keys() == [0, 1, 2]
        return count

    in_step = slices()
    monkeypatch.setattr(storage.cleaner.compaction, "LOOKED_AT_IN_STEP_BYTES", 100)
    assert slices() == in_step + 1


def test_cl23_the_snapshot_of_a_segment_that_a_split_took_away_is_deleted_with_it() -> None:
    log = CleanedLog(replace(COMPACTED, segment_bytes=100_000))
    log.put(1, producer_id=5)
    log.roll()
    # A broker before 1.1 wrote such batches. There is none whose offset fits the segment at 1.
    log.log.local.segments.active.records.append(batch(2**31 + 5))
    log.log.local.update_log_end(2**31 + 6)
    log.roll()
    assert log.log.producers.snapshots.offsets == [1, 2**31 + 6]
    log.log.compactions.split_overflowed(1, NOW_MS)
    assert log.log.local.segments.base_offsets == [0, 2**31 + 5, 2**31 + 6]
    assert log.log.producers.snapshots.offsets == [2**31 + 6]
