"""The time index of a segment: from a timestamp to an offset, sparse.

| byte | size | field of an entry | |
| --- | --- | --- | --- |
| 0 | 8 | timestamp | strictly increasing: the greatest so far |
| 8 | 4 | offset, relative to the base offset | the last offset of the batch with the timestamp; never falls |

Every message with a greater timestamp is after that offset. The last slot is kept for the entry that is
written when the segment rolls or closes. Kafka: TimeIndex; rules IX20 to IX24.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import ClassVar, Final, NamedTuple, final

from storage.errors import CorruptIndex, InvalidOffset
from storage.index.memory_mapped import MemoryMappedIndex, is_rising

ENTRY: Final = struct.Struct(">qi")
_TIMESTAMP: Final = struct.Struct(">q")
_OFFSET: Final = struct.Struct(">i")
_OFFSET_AT: Final = 8


class TimestampOffset(NamedTuple):
    """A timestamp in milliseconds, and an offset."""

    timestamp: int
    offset: int


@final
class TimeIndex(MemoryMappedIndex):
    """The time index of one segment."""

    entry_size: ClassVar[int] = ENTRY.size
    # The last slot is for roll and close (IX3).
    kept_entries: ClassVar[int] = 1
    _last_entry: TimestampOffset

    @property
    def last_entry(self) -> TimestampOffset:
        """The last entry; (-1, base offset) when there is none (IX22)."""
        return self._last_entry

    def maybe_append(self, timestamp: int, offset: int, *, skip_full_check: bool = False) -> bool:
        """Append an entry if the timestamp is above the last one. Returns whether it was appended (IX20).

        Raises ValueError for a full index and for an older timestamp, InvalidOffset for a lower offset, and
        SegmentOffsetOverflow; then nothing is appended. With `skip_full_check` the kept slot may be used.
        """
        if not skip_full_check and self.is_full:
            raise ValueError(f"{self._path} is full with {self._entries} entries")
        last = self._last_entry
        if self._entries and offset < last.offset:
            raise InvalidOffset(f"{self._path}: offset {offset} is below the last offset {last.offset}")
        if self._entries and timestamp < last.timestamp:
            raise ValueError(
                f"{self._path}: timestamp {timestamp} is below the last timestamp {last.timestamp}"
            )
        if timestamp <= last.timestamp:
            return False
        self._append_entries(ENTRY.pack(timestamp, self.relative_offset(offset)))
        self._last_entry = TimestampOffset(timestamp, offset)
        return True

    def append_all(self, timestamps: Sequence[int], offsets: Sequence[int]) -> None:
        """Append many entries by one write, all or none; they may use the kept slot.

        Raises ValueError if they do not fit or the timestamps do not strictly increase, InvalidOffset if an offset is
        lower than the one before, and SegmentOffsetOverflow.
        """
        if not timestamps:
            return
        self._check_free(len(timestamps))
        last, base = self._last_entry, self._base_offset
        if last.timestamp >= timestamps[0] or not is_rising(timestamps):
            raise ValueError(
                f"{self._path}: new timestamps do not strictly increase from {last.timestamp} on"
            )
        if last.offset > offsets[0] or sorted(offsets) != list(offsets):
            raise InvalidOffset(f"{self._path}: new offsets are below {last.offset} or decrease")
        self.relative_offset(offsets[0])
        self.relative_offset(offsets[-1])
        columns = [0] * (2 * len(timestamps))
        columns[::2] = timestamps
        columns[1::2] = [offset - base for offset in offsets]
        # A Struct of its own: struct.pack would keep the long format in its cache.
        self._append_entries(struct.Struct(">" + "qi" * len(timestamps)).pack(*columns))
        self._last_entry = TimestampOffset(timestamps[-1], offsets[-1])
        assert last.timestamp < timestamps[-1], (self._path, last, self._last_entry)

    def entry(self, slot: int) -> TimestampOffset:
        """The entry at `slot`, from 0. Raises ValueError when there is no such entry."""

        def read() -> TimestampOffset:
            self._check_slot(slot)
            return self._entry(slot)

        return self._settled(read)

    def lookup(self, target_timestamp: int) -> TimestampOffset:
        """The last entry whose timestamp is at most the target; (-1, base offset) for none (IX21)."""
        # This is `_settled`, written out to save the call.
        while True:
            version = self._version
            try:
                slot, _ = self._search(target_timestamp, _TIMESTAMP.unpack_from, 0)
                found = self._entry(slot) if slot >= 0 else TimestampOffset(-1, self._base_offset)
            except (ValueError, struct.error):
                if version == self._version:
                    raise
                continue
            if version == self._version:
                return found

    def last_before(self, offset: int) -> TimestampOffset:
        """The last entry whose offset is below `offset`: the last one after a truncation; (-1, base offset) for none.

        For the thread that writes.
        """
        slot = self._last_slot_before(offset)
        return self._entry(slot) if slot >= 0 else TimestampOffset(-1, self._base_offset)

    def truncate_to(self, offset: int) -> None:
        """Drop every entry whose offset is at or above `offset` (IX23)."""
        self._truncate_to_entries(self._last_slot_before(offset) + 1)

    def _last_slot_before(self, offset: int) -> int:
        slot, _ = self._search(offset - self._base_offset, _OFFSET.unpack_from, _OFFSET_AT)
        # Several entries may hold one offset, and the search may end at any of them.
        while slot >= 0 and self._entry(slot).offset >= offset:
            slot -= 1
        return slot

    def sanity_check(self) -> None:
        """Raise CorruptIndex where the last entry contradicts the first or the base offset (IX24)."""
        if self._entries:
            first, last = self._entry_in_file(0), self._last_entry
            if last.timestamp < first.timestamp:
                reason = f"last timestamp {last.timestamp} is before the first, {first.timestamp}"
                raise CorruptIndex(self._path, reason)
            if last.offset < self._base_offset:
                reason = f"last offset {last.offset} is below the base offset {self._base_offset}"
                raise CorruptIndex(self._path, reason)
        self._check_length()

    def _entry(self, slot: int) -> TimestampOffset:
        timestamp, relative = ENTRY.unpack_from(self._mapped(), slot * ENTRY.size)
        return TimestampOffset(timestamp, self._base_offset + relative)

    def _load_last_entry(self) -> None:
        count, empty = self._entries, TimestampOffset(-1, self._base_offset)
        self._last_entry = self._entry_in_file(count - 1) if count else empty

    def _entry_in_file(self, slot: int) -> TimestampOffset:
        timestamp, relative = ENTRY.unpack(self._bytes_of(slot))
        return TimestampOffset(timestamp, self._base_offset + relative)
