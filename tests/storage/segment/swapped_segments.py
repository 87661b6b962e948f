"""Segments that are to be swapped for others, and one whose offsets do not fit."""

from __future__ import annotations

from sim.disk import SimFileSystem
from storage.config import LogConfig
from storage.disk.filesystem import FileSystem
from storage.log import PartitionLog
from storage.segment import LogSegment
from storage.segment.replace import create_cleaned_segment
from storage.segment.segments import LogSegments
from storage.segment.split import split_overflowed_segment
from tests.storage.logs import (
    DIRECTORY,
    NOW_MS,
    THREE,
    append_batch,
    append_each,
    batch,
    open_log,
    open_segment,
)

# There are three offsets a segment.
OLD = list(range(12))
CONFIG = LogConfig(segment_index_bytes=1200, index_interval_bytes=0)
BEYOND = 2**31


def old_log(file_system: SimFileSystem) -> PartitionLog:
    """Return a log of the offsets OLD, all of it on the disk."""
    log = open_log(file_system, THREE)
    append_each(log, len(OLD))
    log.flushes.flush()
    file_system.sync_directory("")
    file_system.sync_directory("logs")
    return log


def cleaned(file_system: SimFileSystem, base_offset: int, offsets: list[int]) -> LogSegment:
    """Return a new segment of batches at `offsets`, still under its `.cleaned` name."""
    segment = create_cleaned_segment(file_system, DIRECTORY, base_offset, THREE, NOW_MS)
    for offset in offsets:
        append_batch(segment, batch(offset))
    segment.on_become_inactive()
    segment.flush()
    return segment


def overflowed(file_system: SimFileSystem, offsets: list[int], base_offset: int = 0) -> LogSegment:
    segment = open_segment(file_system, base_offset, CONFIG)
    segment.records.append(b"".join(batch(offset) for offset in offsets))
    return segment


def split(file_system: FileSystem, segment: LogSegment) -> LogSegments:
    """Split the segment. Returns the segments that then exist."""
    segments = LogSegments()
    segments.add(segment)
    result = split_overflowed_segment(file_system, DIRECTORY, segments, segment, CONFIG, NOW_MS)
    assert result.new == list(segments)
    return segments
