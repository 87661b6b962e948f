"""The order of retention's steps, and cases at a boundary. Rules RT3, RT4, RT11, RD2."""

from __future__ import annotations

from dataclasses import replace

import pytest

from storage.log import LogOffsetMetadata, PartitionLog
from storage.segment import LogSegment
from storage.segment.fetch_data import Isolation
from tests.storage.disk.recorded_calls import recorded
from tests.storage.logs import (
    NOW_MS,
    SIZE,
    SMALL,
    THREE,
    append_each,
    new_file_system,
    open_log,
    produced,
    read_offsets,
)


def test_rt3_the_log_start_moves_before_a_segment_is_deleted() -> None:
    """A reader, with the other order, would be sent to offsets that no segment has (KAFKA-16073)."""
    log = open_log(new_file_system(), replace(THREE, retention_ms=1000))
    append_each(log, 12)
    log.marks.update_high_watermark(12)
    starts: list[int] = []

    def note(segment: LogSegment) -> None:
        starts.append(log.log_start_offset)
        segment.delete()

    log.retention.delete_files_with(note)
    assert log.retention.delete_old(NOW_MS + 5000) == 4
    assert starts == [12, 12, 12, 12]


def of_times(*times: int) -> PartitionLog:
    """Return a log with a segment for each time, and an empty active one."""
    config = replace(SMALL, retention_ms=1000, retention_bytes=2 * SIZE)
    log = open_log(new_file_system(), config)
    for time in times:
        log.append_as_leader(produced(timestamp=time), leader_epoch=0, now_ms=NOW_MS)
        log.flushes.roll(now_ms=NOW_MS)
    log.marks.update_high_watermark(len(times))
    return log


@pytest.mark.parametrize("at_most", range(8))
def test_rt2_no_more_segments_are_deleted_than_asked_for_whatever_the_reasons(at_most: int) -> None:
    """The first of six segments is below the log start, the next two exceed retention.bytes, the others are too old."""
    log = of_times(*[NOW_MS - 5000] * 6)
    log.update_config(replace(log.local.config, retention_bytes=3 * SIZE))
    log.marks.maybe_increment_log_start_offset(1)
    deleted = log.retention.delete_old(NOW_MS, at_most=at_most)
    assert deleted == min(at_most, 6)
    assert (log.log_start_offset, len(log.local.segments)) == (max(1, deleted), 7 - deleted)


def test_rt4_retention_by_size_precedes_retention_by_time() -> None:
    """The first segment is young, so the old ones after it are not checked until it is deleted by size."""
    log = of_times(NOW_MS, NOW_MS - 5000, NOW_MS)
    assert log.retention.delete_old(NOW_MS) == 2
    assert read_offsets(log) == [2]
    # This is not too much.
    log = of_times(NOW_MS, NOW_MS - 5000)
    assert log.retention.delete_old(NOW_MS) == 0


# Truncation and reads at a boundary


def test_rt11_the_first_segment_is_emptied_and_not_made_again_where_the_truncation_meets_its_base() -> None:
    calls: list[str] = []
    file_system = new_file_system()
    log = open_log(recorded(file_system, calls), THREE)
    append_each(log, 8)
    log.marks.update_high_watermark(8)
    log.marks.maybe_increment_log_start_offset(3)
    assert log.retention.delete_old(NOW_MS) == 1
    kept = log.local.segments.first
    del calls[:]
    assert log.truncate_to(3, now_ms=NOW_MS)
    assert log.local.segments.active is kept and kept.size_bytes == 0
    assert "unlink 6.log" in calls and not [call for call in calls if "3.log" in call]
    assert (log.log_start_offset, log.log_end_offset) == (3, 3)


def test_rd2_a_read_that_begins_at_its_bound_returns_the_bound_itself() -> None:
    """The read returns the place of its bound, not of the batch that holds the bound and may begin below."""
    log = open_log(new_file_system())
    append_each(log, 1)
    log.append_as_leader(produced(3), leader_epoch=0, now_ms=NOW_MS)
    bound = LogOffsetMetadata(2, 0, SIZE)
    assert log.marks.maybe_increment_high_watermark(bound)
    found = log.read(2, max_size=1000, isolation=Isolation.HIGH_WATERMARK)
    assert found.records == b"" and found.offset_metadata == bound


def test_rt5_a_record_of_which_a_cut_forgot_the_time_is_kept_for_its_time() -> None:
    """The time index had one entry, of the last batch. Kafka takes the time of the later append for the greatest."""
    file_system, config = new_file_system(), replace(SMALL, retention_ms=1000)
    log = open_log(file_system, config)
    for time in (NOW_MS - 500, NOW_MS - 9000, NOW_MS):
        log.append_as_leader(produced(timestamp=time), leader_epoch=0, now_ms=NOW_MS)
    log.close()
    log = open_log(file_system, config, clean=True)
    log.truncate_to(2, now_ms=NOW_MS)
    log.append_as_leader(produced(timestamp=NOW_MS - 9000), leader_epoch=0, now_ms=NOW_MS)
    log.marks.update_high_watermark(3)
    assert log.retention.delete_old(NOW_MS) == 0 and read_offsets(log) == [0, 1, 2]
    assert log.retention.delete_old(NOW_MS + 1001) == 1
