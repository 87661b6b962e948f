"""An index that gets full within one set: entries are left out, nothing is written twice or taken for damage."""

from __future__ import annotations

import logging

import pytest

from storage.batch import Record, build_batch
from storage.cleaner.plan import CleanerConfig
from storage.config import LogConfig
from storage.errors import StorageError
from storage.log import PartitionLog
from storage.segment import LogSegment
from tests.storage.logs import (
    NOW_MS,
    SIZE,
    all_bytes,
    batch,
    new_file_system,
    offsets_in,
    open_log,
    read_offsets,
)

# Room for 15 entries in the offset index and 10 in the time index, of which one is kept.
TIGHT = LogConfig(segment_index_bytes=120, index_interval_bytes=0)


def fetched(count: int, start_offset: int = 0, *, is_later: bool = True) -> bytes:
    """A set of batches of one record, as a follower fetches it; with `is_later` each has a greater timestamp."""
    step = 1 if is_later else 0
    return b"".join(batch(start_offset + number, timestamp=NOW_MS + number * step) for number in range(count))


def check_like_a_recovered_one(log: PartitionLog, segments: list[LogSegment]) -> None:
    for segment in segments:
        for slot in range(segment.offset_index.entries):
            entry = segment.offset_index.entry(slot)
            assert (entry.offset - segment.base_offset) * SIZE == entry.position
    for offset in range(log.log_end_offset):
        assert offsets_in(log.read(offset, max_size=1).records) == [offset]
        found = log.reads.offset_for_timestamp(NOW_MS + offset)
        assert found is not None and found.offset == offset


@pytest.mark.parametrize("count", [9, 10, 11, 15, 16, 17, 350])
def test_ls1_a_set_with_more_entries_than_an_index_holds_is_written_once(
    count: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)
    file_system = new_file_system()
    log = open_log(file_system, TIGHT)
    log.append_as_follower(fetched(count), leader_epoch=0, now_ms=NOW_MS)
    assert log.log_end_offset == count and all_bytes(log) == fetched(count)
    active = log.local.segments.active
    # The first batch is never indexed; the last slot of the time index stays free for the roll.
    assert (active.offset_index.entries, active.time_index.entries) == (min(count - 1, 15), min(count - 1, 9))
    check_like_a_recovered_one(log, [active])
    # The next set begins a new segment as soon as an index is full, and its time index gets the last entry.
    log.append_as_follower(batch(count, timestamp=NOW_MS + count), leader_epoch=0, now_ms=NOW_MS)
    is_full = count > 9
    assert log.local.segments.base_offsets == ([0, count] if is_full else [0])
    if is_full:
        assert active.time_index.last_entry.timestamp == NOW_MS + count - 1
    check_like_a_recovered_one(log, list(log.local.segments))
    assert not caplog.records, caplog.text
    log.close_handles()
    again = open_log(file_system, TIGHT)
    assert all_bytes(again) == fetched(count) + batch(count, timestamp=NOW_MS + count)
    check_like_a_recovered_one(again, list(again.local.segments))


def test_ls1_a_retry_of_a_set_that_filled_an_index_is_refused_and_writes_nothing() -> None:
    log = open_log(new_file_system(), TIGHT)
    log.append_as_follower(fetched(50), leader_epoch=0, now_ms=NOW_MS)
    before = all_bytes(log)
    with pytest.raises(StorageError, match="below the log end offset 50"):
        log.append_as_follower(fetched(50), leader_epoch=0, now_ms=NOW_MS)
    assert all_bytes(log) == before


def test_ls1_an_offset_index_alone_that_is_full_leaves_the_time_index_as_it_is() -> None:
    log = open_log(new_file_system(), TIGHT)
    log.append_as_follower(fetched(40, is_later=False), leader_epoch=0, now_ms=NOW_MS)
    active = log.local.segments.active
    assert (active.offset_index.entries, active.time_index.entries) == (15, 1)
    assert offsets_in(log.read(39, max_size=1).records) == [39]


@pytest.mark.parametrize(
    ("segments", "is_later"), [(2, True), (3, False)], ids=["time index", "offset index"]
)
def test_cl10_segments_whose_entries_fit_an_index_exactly_are_compacted_into_one(
    caplog: pytest.LogCaptureFixture, segments: int, is_later: bool
) -> None:
    caplog.set_level(logging.ERROR)
    config = LogConfig(segment_index_bytes=120, index_interval_bytes=0, cleanup_policy="compact")
    log, end = open_log(new_file_system(), config), 6 * segments
    times = [NOW_MS + (offset if is_later else 0) for offset in range(end)]
    # Each has five entries. Together they take every slot, and the one segment would have one more for each seam.
    for start in range(0, end, 6):
        data = b"".join(keyed(offset, timestamp=times[offset]) for offset in range(start, start + 6))
        log.append_as_follower(data, leader_epoch=0, now_ms=NOW_MS)
        log.flushes.roll(now_ms=NOW_MS)
    old = list(log.local.segments)[:-1]
    index_bytes = sum((each.time_index if is_later else each.offset_index).size_bytes for each in old)
    assert index_bytes == 120
    log.marks.update_high_watermark(end)
    offsets = log.compactions.cleanable_offsets(None, NOW_MS)
    for work in log.compactions.prepare(offsets, CleanerConfig(dedupe_buffer_bytes=4096), NOW_MS):
        work()
    assert log.local.segments.base_offsets == [0, end]
    assert read_offsets(log) == list(range(end))
    for time in times:
        found = log.reads.offset_for_timestamp(time)
        assert found is not None and found.offset == times.index(time)
    assert not caplog.records, caplog.text


def keyed(offset: int, *, timestamp: int) -> bytes:
    record = Record(offset=offset, timestamp=timestamp, key=b"key-%d" % offset, value=b"value")
    return build_batch([record], base_offset=offset, partition_leader_epoch=0)
