"""Look-ups in one segment by time and by position, and its last offset: what readers and loads ask, no append."""

from __future__ import annotations

from storage.batch import RecordBatch
from storage.errors import StorageError
from storage.index.offset_index import OffsetPosition
from storage.segment.file_records import TimestampAndOffset, decoded
from storage.segment.segment import LogSegment


def read_next_offset(segment: LogSegment) -> int:
    """One above the last offset, found from the last index entry on; the base offset when empty (LS9)."""
    found = segment.translate_offset(segment.offset_index.last_offset)
    last = None if found is None else segment.records.last_batch(found.position)
    return segment.base_offset if last is None else last.next_offset


def has_overflow(segment: LogSegment) -> bool:
    """Whether the last offset is too far above the base: an old broker may have written such a segment (LS20)."""
    next_offset = read_next_offset(segment)
    return next_offset > segment.base_offset and not segment.can_hold(next_offset - 1)


def find_offset_by_timestamp(
    segment: LogSegment, timestamp: int, start_offset: int, most_bytes: int | None = None
) -> TimestampAndOffset | None:
    """The first record at least as late as `timestamp`, from `start_offset` on (LS18).

    Raises TruncatedWhileRead, StorageError, OSError. With `most_bytes` it raises ReadTakesLong for a batch of more
    bytes to decode, and for a search over many batches.
    """
    cuts = segment.records.cuts
    try:
        from_offset = max(segment.time_index.lookup(timestamp).offset, start_offset)
        position = segment.indexed_position(from_offset)
        found = segment.records.search_for_timestamp(timestamp, position, start_offset, most_bytes)
    except (StorageError, ValueError):
        segment.records.check_uncut(cuts)
        raise
    segment.records.check_uncut(cuts)
    return found


def find_max_timestamp(segment: LogSegment, most_bytes: int | None = None) -> TimestampAndOffset | None:
    """The first record that has the segment's greatest timestamp; None in an empty segment (RD8).

    Raises ReadTakesLong for a batch of more than `most_bytes` to decode and, if that is given, for a search over many
    batches.
    """
    latest = segment.max_timestamp
    position = segment.indexed_position(latest.offset)
    batch = segment.records.find_max_timestamp(latest.timestamp, position, in_step=most_bytes is not None)
    return None if batch is None else _first_record_at(batch, latest.timestamp, most_bytes)


def _first_record_at(batch: RecordBatch, timestamp: int, most_bytes: int | None) -> TimestampAndOffset | None:
    epoch = batch.partition_leader_epoch
    for record in decoded(batch, most_bytes):
        if record.timestamp == timestamp:
            return TimestampAndOffset(
                timestamp=timestamp, offset=record.offset, leader_epoch=epoch if epoch >= 0 else None
            )
    return None


def fetch_upper_bound_offset(segment: LogSegment, position: int, size: int) -> int | None:
    """An offset above all of the `size` bytes at `position`; None when the index has none (IX19).

    If the bytes end at the first entry, it is the second entry's: Kafka's search does not check the first one.
    """
    index, end = segment.offset_index, position + size
    entry = index.fetch_upper_bound_offset(OffsetPosition(0, position), size)
    if entry is not None and entry.position == end and entry == index.entry(0):
        entry = index.entry(1) if index.entries > 1 else None
    return None if entry is None else entry.offset
