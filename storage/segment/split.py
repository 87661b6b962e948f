"""Split a segment whose offsets do not fit 31 relative bits into segments whose offsets do.

Brokers before Kafka 1.1 wrote such segments when they followed or compacted a log with wide gaps (KAFKA-4451,
KAFKA-5413, KAFKA-6264). Kafka: LocalLog.splitOverflowedSegment, LogSegment.appendFromFile; rules LL27 and LS21.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from storage.batch import RecordBatch
from storage.config import LogConfig
from storage.disk.filesystem import FileSystem
from storage.errors import StorageError
from storage.segment.file_records import FileRecords
from storage.segment.lookups import has_overflow
from storage.segment.replace import create_cleaned_segment, delete_now, replace_segments
from storage.segment.segment import LogSegment
from storage.segment.segments import LogSegments

# The size of Kafka's buffer; each chunk is one append and gets at most one index entry (T47).
CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitResult:
    """The segments that a split replaced and made.

    `deleted` are the old segments whose base offset no new one has: their producer snapshots have to be deleted.
    """

    deleted: list[LogSegment]
    new: list[LogSegment]


def split_overflowed_segment(
    file_system: FileSystem,
    directory: str,
    segments: LogSegments,
    segment: LogSegment,
    config: LogConfig,
    now_ms: int,
    *,
    delete: Callable[[LogSegment], None] = delete_now,
) -> SplitResult:
    """Replace `segment` by as many segments as its offsets need, which together have the same bytes in the same order.

    Raises StorageError for a segment whose last offset fits (LS20), and where a batch cannot begin a segment; nothing
    has been replaced then. Raises OSError: the log must go offline then.
    """
    if not has_overflow(segment):
        raise StorageError(f"{segment.path} is not split: its last offset fits")
    coming: list[LogSegment] = []
    try:
        taken = set(segments.base_offsets) - {segment.base_offset}
        _copy(file_system, directory, segment, config, now_ms, coming, taken)
        _finish(segment, coming)
    except BaseException:
        for each in coming:
            each.delete()
        raise
    deleted = replace_segments(file_system, directory, segments, coming, [segment], delete=delete)
    assert segments.get(segment.base_offset) is not segment, segment
    return SplitResult(deleted=deleted, new=coming)


def _copy(
    file_system: FileSystem,
    directory: str,
    segment: LogSegment,
    config: LogConfig,
    now_ms: int,
    coming: list[LogSegment],
    taken: set[int],
) -> None:
    """Copy the batches of `segment` to new segments, which are added to `coming`; `taken` are base offsets in use."""
    position = 0
    while position < segment.size_bytes:
        first = next(segment.records.batches(position), None)
        if first is None or first.base_offset in taken or first.base_offset < 0:
            raise StorageError(
                f"{segment.path} at byte {position}: "
                "cannot split here, no batch with an unused base offset begins at this byte"
            )
        taken.add(first.base_offset)
        new = create_cleaned_segment(file_system, directory, first.base_offset, config, now_ms)
        coming.append(new)
        copied_bytes = append_from_file(new, segment.records, position)
        if copied_bytes == 0:
            raise StorageError(
                f"{segment.path} at byte {position}: "
                "cannot split here, no batch fits a segment that begins at this byte"
            )
        position += copied_bytes


def _finish(segment: LogSegment, coming: list[LogSegment]) -> None:
    modified_ms = segment.records.modified_ms()
    for new in coming:
        new.on_become_inactive()
        new.flush()
        new.set_modified(modified_ms)
    copied_bytes = sum(new.size_bytes for new in coming)
    if copied_bytes != segment.size_bytes:
        raise StorageError(
            f"{segment.path}: the split copied only {copied_bytes} of {segment.size_bytes} bytes"
        )


def append_from_file(segment: LogSegment, source: FileRecords, start: int) -> int:
    """Append the batches of `source` from byte `start` up to the first whose offset does not fit.

    Returns the number of bytes appended. A chunk is one append: as many batches as are below 1 MiB together, or one
    larger batch; later chunks may then be as large as that one, because Kafka's buffer keeps its size (LS21).
    """
    position, room_bytes = start, CHUNK_BYTES
    while chunk := _next_chunk(segment, source, position, room_bytes):
        size_bytes = sum(batch.size_bytes for batch in chunk)
        data = source.read_slice(position, size_bytes)
        segment.append(chunk[-1].last_offset, data)
        position += size_bytes
        room_bytes = max(room_bytes, size_bytes)
    assert position <= source.size_bytes, (source.path, position, source.size_bytes)
    return position - start


def _next_chunk(
    segment: LogSegment, source: FileRecords, position: int, room_bytes: int
) -> list[RecordBatch]:
    chunk: list[RecordBatch] = []
    size_bytes = 0
    for batch in source.batches(position):
        if not segment.can_hold(batch.last_offset) or (chunk and size_bytes + batch.size_bytes >= room_bytes):
            break
        chunk.append(batch)
        size_bytes += batch.size_bytes
    return chunk
