"""Compaction, one step to either side of each rule: CL1 to CL11, CL24 to CL28."""

from __future__ import annotations

import errno
from dataclasses import replace

import pytest

from storage.batch import Compression, Record, build_batch
from storage.cleaner.offset_map import SLOT_BYTES
from storage.cleaner.plan import CleanerConfig, Source, group_segments
from storage.disk.filesystem import read_file
from tests.storage.cleaner.compacted_logs import (
    COMPACTED,
    DAY_MS,
    HUGE,
    CleanedLog,
    bases_of,
    records_of,
    run,
    segments_of,
)
from tests.storage.directory.dirty_logs import DIRTY, Directory, filled
from tests.storage.logs import NOW_MS, batch, open_log

# Which log, and which part of it


def test_cl1_without_a_checkpoint_a_log_is_dirty_from_its_start_on() -> None:
    log = filled(20)
    log.marks.update_high_watermark(20)
    log.marks.maybe_increment_log_start_offset(7)
    found = log.compactions.cleanable_offsets(None, NOW_MS)
    assert found.first_dirty_offset == 7 and not found.is_checkpoint_invalid


@pytest.mark.parametrize(("checkpoint", "valid"), [(9, False), (10, True), (20, True), (21, False)])
def test_cl1_a_checkpoint_counts_from_the_log_start_to_its_end(checkpoint: int, valid: bool) -> None:
    log = filled(20)
    log.marks.update_high_watermark(20)
    log.marks.maybe_increment_log_start_offset(10)
    found = log.compactions.cleanable_offsets(checkpoint, NOW_MS)
    assert found.first_dirty_offset == (checkpoint if valid else 10)
    assert found.is_checkpoint_invalid == (not valid)


def test_cl1_a_checkpoint_outside_the_log_is_rewritten() -> None:
    directory = Directory()
    directory.add("t", 20, checkpoint=99)
    directory.grab()
    assert directory.stored() == {("t", 0): 0}


def test_cl2_undecided_records_the_active_segment_and_clean_offsets_are_not_cleaned() -> None:
    log = CleanedLog(DIRTY)
    log.put(9)
    log.roll()
    log.in_transaction(1, 1)
    log.put(2)
    log.roll()
    # The high watermark is 3.
    assert log.log.compactions.cleanable_offsets(0, NOW_MS).first_uncleanable_offset == 1
    assert log.log.compactions.cleanable_offsets(2, NOW_MS).first_uncleanable_offset == 2


def test_cl2_a_young_segment_below_the_first_dirty_offset_is_ignored() -> None:
    log = CleanedLog(replace(DIRTY, min_compaction_lag_ms=1000))
    # Times need not rise with the offsets.
    for age_ms in (0, 5000, 5000):
        log.now_ms = NOW_MS - age_ms
        log.put(1)
        log.roll()
    assert log.log.compactions.cleanable_offsets(0, NOW_MS).first_uncleanable_offset == 0
    assert log.log.compactions.cleanable_offsets(1, NOW_MS).first_uncleanable_offset == 3


def test_cl2_a_segment_that_lost_its_greatest_timestamp_in_a_cut_is_as_young_as_before() -> None:
    """The time index has a single entry, which is of the record that is cut off."""
    log = CleanedLog(replace(DIRTY, min_compaction_lag_ms=1000))
    for key in (1, 2):
        log.put(key)
    log.now_ms = NOW_MS + 1
    log.put(3)
    log.log.close()
    again = open_log(log.file_system, log.config, clean=True)
    again.truncate_to(2, now_ms=NOW_MS)
    old = build_batch(records_of([4], NOW_MS - 5000))
    again.append_as_leader(old, leader_epoch=0, now_ms=NOW_MS)
    again.flushes.roll(now_ms=NOW_MS)
    again.marks.update_high_watermark(3)
    assert again.compactions.cleanable_offsets(0, NOW_MS + 999).first_uncleanable_offset == 0
    assert again.compactions.cleanable_offsets(0, NOW_MS + 1001).first_uncleanable_offset == 3


def ratio_of(directory: Directory, checkpoint: int) -> float:
    log = directory.logs["t-0"]
    filth = log.compactions.log_to_clean(log.compactions.cleanable_offsets(checkpoint, NOW_MS), NOW_MS)
    assert filth.cleanable_ratio == filth.cleanable_bytes / (filth.clean_bytes + filth.cleanable_bytes)
    return filth.cleanable_ratio


def test_cl4_a_log_as_dirty_as_the_limit_is_not_due() -> None:
    directory = Directory()
    log = directory.add("t", 21, checkpoint=10)
    ratio = ratio_of(directory, 10)
    # Two segments are cleaned, two are not.
    assert ratio == 0.5
    log.update_config(replace(DIRTY, min_cleanable_dirty_ratio=ratio))
    assert directory.grab() is None
    log.update_config(replace(DIRTY, min_cleanable_dirty_ratio=0.499))
    assert directory.grab() == "t"


@pytest.mark.parametrize(("checkpoint", "due"), [(10, True), (20, False)])
def test_cl4_an_overdue_log_is_due_whatever_its_share_but_not_without_dirty_bytes(
    checkpoint: int, due: bool
) -> None:
    directory = Directory()
    log = directory.add("t", 21, checkpoint=checkpoint)
    log.update_config(replace(DIRTY, min_cleanable_dirty_ratio=1.0, max_compaction_lag_ms=1))
    offsets = log.compactions.cleanable_offsets(checkpoint, NOW_MS + 2)
    assert (log.compactions.log_to_clean(offsets, NOW_MS + 2).compaction_delay_ms > 0) == due
    assert (directory.manager.grab_filthiest(NOW_MS + 2) is not None) == due


def test_cl4_an_overdue_log_has_cleanable_bytes() -> None:
    """A log whose dirty segments are all undecided may be overdue and still have nothing to clean."""
    directory = Directory()
    log = directory.add("t", 21)
    log.update_config(replace(DIRTY, min_cleanable_dirty_ratio=1.0, max_compaction_lag_ms=1))
    log.marks.set_high_watermark(log.marks._maybe_resolve(0))
    offsets = log.compactions.cleanable_offsets(None, NOW_MS + 2)
    filth = log.compactions.log_to_clean(offsets, NOW_MS + 2)
    assert filth.compaction_delay_ms > 0 and filth.cleanable_bytes == 0
    assert directory.manager.grab_filthiest(NOW_MS + 2) is None


def test_cl4_an_overdue_log_with_clean_bytes_only_is_not_due() -> None:
    """The dirty segments are not replicated yet: a round would only copy the clean ones."""
    directory = Directory()
    log = directory.add("t", 21, checkpoint=10)
    log.update_config(replace(DIRTY, min_cleanable_dirty_ratio=1.0, max_compaction_lag_ms=1))
    log.marks.update_high_watermark(10)
    filth = log.compactions.log_to_clean(log.compactions.cleanable_offsets(10, NOW_MS + 2), NOW_MS + 2)
    assert filth.compaction_delay_ms > 0 and filth.clean_bytes > 0 and filth.cleanable_bytes == 0
    assert directory.manager.grab_filthiest(NOW_MS + 2) is None
    log.marks.update_high_watermark(21)
    assert directory.manager.grab_filthiest(NOW_MS + 2) is not None


def with_first_times(*times: int) -> CleanedLog:
    """Return a log with a segment for each time; the last segment is active."""
    log = CleanedLog(replace(DIRTY, max_compaction_lag_ms=100))
    for number, time in enumerate(times):
        data = build_batch([Record(0, time, b"%d" % number, b"v")])
        log.append(data)
        if number < len(times) - 1:
            log.roll()
    return log


@pytest.mark.parametrize(
    ("times", "delay_ms"),
    [
        ((5_000, 4_000, 6_000, 9_000), 900),  # the earliest counts
        ((0, 4_500, 9_000), 400),  # a time of zero does not
        ((-1, 4_500, 9_000), 400),
        ((4_999, 3_000), 0),  # nor does the active segment; 100 ms are allowed
        ((4_899, 3_000), 1),
    ],
)
def test_cl5_the_earliest_first_time_of_a_dirty_segment_decides(
    times: tuple[int, ...], delay_ms: int
) -> None:
    log = with_first_times(*times).log
    filth = log.compactions.log_to_clean(log.compactions.cleanable_offsets(0, 5_000), 5_000)
    assert filth.compaction_delay_ms == delay_ms


def test_cl5_a_dirty_segment_without_records_has_no_first_time() -> None:
    log = CleanedLog(replace(COMPACTED, max_compaction_lag_ms=100))
    log.log.flushes.roll(5, now_ms=NOW_MS)
    log.log.append_as_follower(batch(5, timestamp=NOW_MS), leader_epoch=0, now_ms=NOW_MS)
    log.log.marks.update_high_watermark(6)
    log.roll()
    offsets = log.log.compactions.cleanable_offsets(0, NOW_MS)
    assert log.log.local.segments.base_offsets == [0, 5, 6]
    assert log.log.compactions.log_to_clean(offsets, NOW_MS + 130).compaction_delay_ms == 30


# The map


def without_key(log: CleanedLog) -> None:
    """Append a batch that no leader takes for a compacted topic. The next round drops it."""
    log.log.append_as_follower(batch(log.log.log_end_offset), leader_epoch=0, now_ms=NOW_MS)
    log.log.marks.update_high_watermark(log.log.log_end_offset)


def test_cl8_markers_and_records_without_a_key_take_no_room() -> None:
    log = CleanedLog()
    log.in_transaction(1, 5)
    log.commit(1)
    without_key(log)
    log.roll()
    compaction = log.prepare()
    run(compaction)
    assert len(compaction._offsets) == 1 and compaction.end_offset == 3


def test_cl8_at_the_end_of_a_segment_the_map_reaches_up_to_the_next_one() -> None:
    log = CleanedLog()
    log.put_each(1, 2)
    log.roll()
    log.put(3)
    log.roll()
    segments = log.log.local.segments
    # The next segment is said to begin at 9.
    source = log.log.compactions.plan_source(segments.values(0, 1)[0], 9, 0)
    compaction = log.prepare(end=2)
    compaction._log = _OfOneSource(log, source)  # type: ignore[assignment]
    for work in compaction._build_map():
        work()
    assert compaction._offsets.latest_offset == 8


class _OfOneSource:
    def __init__(self, log: CleanedLog, source: Source) -> None:
        self._log, self._source = log.log.compactions, source

    def plan_source(self, *_: object) -> Source:
        return self._source

    def __getattr__(self, name: str) -> object:
        return getattr(self._log, name)


@pytest.mark.parametrize("io_buffer_bytes", [64 << 10, 100])
def test_cl8_a_batch_without_keys_counts_as_read_when_the_next_one_finds_no_room(
    io_buffer_bytes: int,
) -> None:
    """The batches are in one chunk, or each is in a chunk of its own."""
    log = CleanedLog()
    log.put_each(1, 2, 3)
    without_key(log)
    log.put(4)
    log.roll()
    # Three of the slots are used.
    compaction = log.prepare(slots=4, io_buffer_bytes=io_buffer_bytes)
    run(compaction)
    assert compaction.end_offset == 4


def test_cl9_a_round_that_the_map_ended_is_clean_up_to_there_and_no_further() -> None:
    log = CleanedLog()
    log.put_each(1, 2, 3, 4, 5, 6)
    log.roll()
    assert log.clean(slots=4) == 3


def test_cl9_reading_of_the_first_segment_begins_where_its_index_says() -> None:
    log = CleanedLog(replace(COMPACTED, segment_bytes=1 << 20, index_interval_bytes=0))
    log.put_each(*range(20))
    log.roll()
    segment = log.log.local.segments.first
    assert segment is not None
    starts = [log.log.compactions.plan_source(segment, 20, offset).start_position for offset in (0, 7, 19)]
    found = segment.offset_index.lookup(7).position
    assert starts[0] == 0 and starts[1] == found > 0 and starts[2] > found


# Groups, and the new segment


def test_cl10_cleaned_segments_are_copied_again_without_superseded_records() -> None:
    log = CleanedLog()
    log.put_each(1, 2, 3)
    log.roll()
    assert log.clean() == 3
    log.put_each(2, 4)
    log.roll()
    assert log.clean(3) == 5
    assert log.offsets() == [0, 2, 3, 4] and log.log.local.segments.base_offsets == [0, 5]


def test_cl10_index_sizes_may_reach_the_limit() -> None:
    segments = segments_of([4] * 4)
    for segment in segments:
        segment.time_index.truncate()
    size = segments[0].offset_index.size_bytes
    assert size > 0
    assert bases_of(group_segments(segments, HUGE, 2 * size, 40)) == [[0, 10], [20, 30]]


def test_cl11_the_new_segment_is_closed_for_appends_and_synced() -> None:
    log = CleanedLog(replace(COMPACTED, preallocate=True))
    log.put_each(1, 2, 1, 3)
    log.roll()
    log.disk.sync_all()
    log.clean()
    first = log.log.local.segments.first
    assert first is not None
    assert first.time_index.last_entry.timestamp == first.max_timestamp.timestamp == NOW_MS
    paths = [first.path, first.offset_index_path, first.time_index_path]
    assert log.file_system.stat(first.time_index_path).size_bytes == 12
    assert log.file_system.stat(first.path).size_bytes == first.size_bytes < 1024
    for path in paths:
        assert log.disk.durable_bytes(path) == read_file(log.file_system, path)


# Guarantees


def test_cl24_a_tombstone_is_seen_for_its_retention_after_the_first_round() -> None:
    log = CleanedLog()
    log.put_each(1, (1, None), 2)
    log.roll()
    for after_ms, seen in ((0, True), (1, True), (DAY_MS - 1, True), (DAY_MS, False)):
        log.clean(now_ms=NOW_MS + after_ms)
        assert (1 in log.keys()) == seen, after_ms


def test_cl25_neither_the_active_segment_nor_young_ones_are_touched() -> None:
    log = CleanedLog(replace(DIRTY, min_compaction_lag_ms=1000))
    log.put_each(1, 1)
    log.roll()
    log.put_each(1, 1)
    before = [each.tobytes() for each in log.batches()]
    assert log.log.compactions.cleanable_offsets(0, NOW_MS + 999).first_uncleanable_offset == 0
    assert log.log.compactions.cleanable_offsets(0, NOW_MS + 9000).first_uncleanable_offset == 2
    log.clean(end=2, now_ms=NOW_MS + 9000)
    assert [each.tobytes() for each in log.batches()][-2:] == before[-2:]


def test_cl26_a_marker_is_removed_only_after_its_data_and_a_horizon() -> None:
    log = CleanedLog()
    log.in_transaction(1, 1)
    log.abort(1)
    log.in_transaction(1, 2)
    log.commit(1)
    log.roll()
    present = []
    for after_ms in (0, 0, DAY_MS - 1, DAY_MS):
        log.clean(now_ms=NOW_MS + after_ms)
        present.append(1 in [each.last_offset for each in log.batches()])
    assert present == [True, True, True, False]


def test_cl27_the_last_batch_of_a_round_stays_even_without_a_producer_id() -> None:
    log = CleanedLog()
    log.put_each(1, 2)
    without_key(log)
    log.roll()
    log.clean()
    assert [(each.last_offset, each.record_count) for each in log.batches()] == [(0, 1), (1, 1), (2, 0)]
    log.reopen()
    assert log.log.log_end_offset == 3


def test_cl28_a_truncation_lowers_a_checkpoint_and_neither_raises_nor_makes_one() -> None:
    directory = Directory()
    directory.add("t", 20, checkpoint=10)
    directory.add("u", 20)
    for offset, expected in ((15, 10), (10, 10), (4, 4), (0, 0)):
        directory.manager.truncate_checkpoint(("t", 0), offset)
        directory.manager.truncate_checkpoint(("u", 0), offset)
        assert directory.stored() == {("t", 0): expected}


def calls_of_a_round(log: CleanedLog, slice_bytes: int) -> int:
    """Run a round that reads one batch at a time. Returns the number of its calls."""
    log.roll()
    (size_bytes,) = {each.size_bytes for each in log.batches()}
    config = CleanerConfig(
        dedupe_buffer_bytes=100 * SLOT_BYTES,
        io_buffer_bytes=size_bytes,
        max_io_buffer_bytes=size_bytes,
        slice_bytes=slice_bytes,
    )
    offsets = log.log.compactions.cleanable_offsets(None, NOW_MS)
    return sum(1 for work in log.log.compactions.prepare(offsets, config, NOW_MS) if work() is None)


@pytest.mark.parametrize(
    ("slice_bytes", "calls"), [(1, 22), (70, 22), (71, 12), (140, 12), (141, 8), (700, 4), (701, 2)]
)
def test_a_slice_of_a_round_ends_with_the_read_that_reaches_its_limit(slice_bytes: int, calls: int) -> None:
    """Each of the two walks reads ten batches of 70 bytes; the last call of a walk finds its end."""
    log = CleanedLog()
    log.put_each(*range(10))
    assert calls_of_a_round(log, slice_bytes) == calls
    assert log.keys() == list(range(10))


@pytest.mark.parametrize(
    ("slice_bytes", "calls"), [(8000, 10), (8001, 6), (16_000, 6), (32_000, 4), (32_001, 2)]
)
def test_a_record_counts_as_eight_bytes_of_a_slice_at_least(slice_bytes: int, calls: int) -> None:
    """Each of the two walks reads four batches of 1000 records, which take far fewer bytes compressed."""
    log = CleanedLog(replace(COMPACTED, segment_bytes=100_000))
    records = [Record(offset, NOW_MS, b"key", b"v") for offset in range(1000)]
    for _ in range(4):
        log.append(build_batch(records, compression=Compression.GZIP))
    assert calls_of_a_round(log, slice_bytes) == calls


def test_cl3_a_round_without_a_whole_segment_after_the_first_dirty_offset_is_refused() -> None:
    log = CleanedLog()
    log.put_each(*range(5))
    log.roll()
    log.put(5)
    for first_dirty in (6, 7):
        with pytest.raises(ValueError, match="no whole segment is in the range"):
            log.prepare(first_dirty)
    assert log.clean() == 5


@pytest.mark.parametrize("planned", [1, 2, 256])
def test_cl8_a_map_that_is_full_reads_no_later_segment(planned: int) -> None:
    """A marker needs no room in the map. Those before it are not read yet, and the next round must begin with them."""
    log = CleanedLog()
    log.in_transaction(7, 0)
    log.put_each(1, 2, 3)
    log.roll()
    log.commit(7)
    log.put(4)
    log.roll()
    assert log.clean(slots=4, planned_segments=planned) == 3


def test_cl14_the_batch_at_which_the_map_is_full_does_not_end_the_round() -> None:
    """Only the batch that ends the dirty part stays without records, so that its last offset is not lost."""
    log = CleanedLog()
    log.put_each(0, 1)
    log.in_transaction(8, 9)
    log.put(2)
    log.abort(8)
    log.in_transaction(8, 5)
    log.roll()
    assert log.clean(slots=3) == 3
    assert log.last_offsets() == [0, 1, 3, 4, 5]


def test_cl14_the_last_batch_of_each_of_very_many_producers_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("storage.log.compaction.PRODUCERS_IN_STEP", 1)
    log = CleanedLog()
    for producer_id in (7, 8, 9):
        log.put(1, producer_id=producer_id)
    log.put(1)
    log.roll()
    log.clean()
    assert log.last_offsets() == [0, 1, 2, 3] and log.offsets() == [3]


def test_cl10_a_segment_whose_map_was_full_within_it_is_grouped_by_its_last_offset() -> None:
    log = CleanedLog(replace(COMPACTED, segment_bytes=1 << 20))
    log.put(1)
    far = 2**31 - 3
    log.log.flushes.roll(far, now_ms=NOW_MS)
    for offset in range(far, far + 6):
        data = build_batch(
            [Record(offset, NOW_MS, b"%d" % offset, b"v")], base_offset=offset, partition_leader_epoch=0
        )
        log.log.append_as_follower(data, leader_epoch=0, now_ms=NOW_MS)
    log.log.marks.update_high_watermark(far + 6)
    log.roll()
    # There is room for three keys. Only what the round has read would fit the first segment.
    assert log.clean(slots=4) == far + 2
    assert log.log.local.segments.base_offsets == [0, far, far + 6]


def test_cl28_a_checkpoint_for_which_there_was_no_descriptor_is_written_by_the_next_search() -> None:
    directory = Directory()
    directory.add("t", 20, checkpoint=10)
    directory.disk.fail(1, errno.EMFILE)
    directory.manager.truncate_checkpoint(("t", 0), 4)
    directory.disk.disarm()
    assert directory.stored() == {("t", 0): 10}
    directory.manager.find_filthiest(NOW_MS)
    assert directory.stored() == {("t", 0): 4}
