"""Finds batches that are whole and have a right checksum, but are at impossible offsets.

The checksum of a batch covers neither its base offset nor its size and leader epoch, which a leader stamps without
reading the rest. So damage in these fields is visible only in the order of a segment's offsets.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from storage.batch import LOG_OVERHEAD
from storage.batch.format import FIELD_BASE_OFFSET, FIELD_LAST_OFFSET_DELTA, FIELD_MAX_TIMESTAMP, FIELD_SIZE
from storage.errors import CorruptBatch, InvalidRecord
from storage.index.offset_index import ENTRY as OFFSET_ENTRY
from storage.index.time_index import ENTRY as TIME_ENTRY
from storage.segment import LogSegment
from storage.segment.lookups import has_overflow

# A disk writes whole sectors; a torn write ends where a sector ends.
SECTOR_BYTES = 512
BASE_OFFSET_BYTES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Misfit:
    """The byte at which a segment has to be cut, and the reason."""

    position: int
    reason: str
    # Whether the batch is damaged; otherwise it is sound, but at an impossible offset.
    is_damage: bool
    # Whether a torn write of the header is the likely cause.
    is_torn_header: bool = False


def overflows(segment: LogSegment) -> bool:
    """Whether the last batch does not fit the segment's 31 bits (LS20); False where damage hides the last batch."""
    try:
        return has_overflow(segment)
    except CorruptBatch:
        return False


def find_misfit(segment: LogSegment) -> Misfit | None:
    """The first damaged batch; without one, the first batch whose offset does not fit the segment's 31 bits."""
    first_misfit, end, offset = None, 0, 0
    try:
        for _, _, position, header in segment.records.scan_headers():
            last_offset = header[FIELD_BASE_OFFSET] + header[FIELD_LAST_OFFSET_DELTA]
            end = position + LOG_OVERHEAD + header[FIELD_SIZE]
            if first_misfit is None and not segment.can_hold(last_offset):
                first_misfit, offset = range(position, end), last_offset
    except (CorruptBatch, InvalidRecord) as error:
        return Misfit(position=end, reason=str(error), is_damage=True)
    if end < segment.size_bytes:
        return Misfit(
            position=end,
            reason=f"the last {segment.size_bytes - end} bytes are no whole batch",
            is_damage=True,
        )
    if first_misfit is None:
        return None
    return Misfit(
        position=first_misfit.start,
        reason=f"offset {offset} does not fit a segment based at {segment.base_offset}",
        is_damage=False,
        is_torn_header=first_misfit.stop == end and _is_tearable(first_misfit.start),
    )


def _is_tearable(position: int) -> bool:
    """Whether a torn write can damage only the base offset at `position`: a sector ends inside or right after it.

    Any other torn write breaks a checksum.
    """
    return position // SECTOR_BYTES < (position + BASE_OFFSET_BYTES) // SECTOR_BYTES


def find_step_back(segment: LogSegment) -> Misfit | None:
    """The first sound batch whose last offset is not above the last offset before it."""
    before = segment.base_offset - 1
    for _, _, position, header in segment.records.scan_headers():
        last_offset = header[FIELD_BASE_OFFSET] + header[FIELD_LAST_OFFSET_DELTA]
        if last_offset <= before:
            reason = f"offset {last_offset} follows {before}"
            return Misfit(position=position, reason=reason, is_damage=False)
        before = last_offset
    return None


def overfills_indexes(segment: LogSegment, index_bytes: int) -> bool:
    """Whether recovery needs more entries than indexes of `index_bytes` bytes can hold: then Kafka does not start.

    Returns False where recovery ends earlier, at damage or at an offset that is not above the one before.
    """
    offset_room, time_room = index_bytes // OFFSET_ENTRY.size, index_bytes // TIME_ENTRY.size - 1
    offset_entries = time_entries = 0
    next_indexed, last_indexed = segment.index_interval_bytes, -1
    max_timestamp = last_indexed_time = -1
    with suppress(CorruptBatch, InvalidRecord):
        for _, _, position, header in segment.records.scan_headers():
            max_timestamp = max(max_timestamp, header[FIELD_MAX_TIMESTAMP])
            if position <= next_indexed:
                continue
            if offset_entries == offset_room:
                return True
            last_offset = header[FIELD_BASE_OFFSET] + header[FIELD_LAST_OFFSET_DELTA]
            if last_offset <= last_indexed:
                return False
            # The room is checked even where no entry would be appended (IX20).
            if time_entries >= time_room:
                return True
            last_indexed, next_indexed = last_offset, position + segment.index_interval_bytes
            offset_entries += 1
            if max_timestamp > last_indexed_time:
                last_indexed_time = max_timestamp
                time_entries += 1
    return False


def has_full_index(segment: LogSegment, index_bytes: int) -> bool:
    """Whether an index has all the entries that fit into `index_bytes` bytes.

    Entries are counted because recovery leaves the time index trimmed, so that the length of its file says nothing.
    """
    offset_index, time_index = segment.offset_index, segment.time_index
    is_full = offset_index.entries >= index_bytes // OFFSET_ENTRY.size
    return is_full or time_index.entries >= index_bytes // TIME_ENTRY.size - 1
