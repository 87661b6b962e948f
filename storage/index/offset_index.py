"""The offset index of a segment: from an offset to a byte in its `.log`, sparse.

| byte | size | field of an entry | |
| --- | --- | --- | --- |
| 0 | 4 | offset, relative to the base offset | 0 to 2^31-1; strictly increasing |
| 4 | 4 | position in the `.log` | the first batch of the append that ends with this offset |

Kafka: OffsetIndex; rules IX13 to IX19.
"""

from __future__ import annotations

import struct
import sys
from array import array
from bisect import bisect_right
from collections.abc import Sequence
from typing import ClassVar, Final, NamedTuple, final

from storage.errors import CorruptIndex, InvalidOffset
from storage.index.memory_mapped import WARM_BYTES, MemoryMappedIndex, is_rising

# After this many searches outside of the remembered warm part, the warm part is read again.
SEARCHES_A_READ: Final = 64

ENTRY: Final = struct.Struct(">ii")
_ENTRY_AT: Final = ENTRY.unpack_from
_COLUMN: Final = struct.Struct(">i")
_POSITION_AT: Final = 4


class OffsetPosition(NamedTuple):
    """An offset, and a byte position in the `.log`."""

    offset: int
    position: int


class _Warm(NamedTuple):
    """The relative offsets of the entries in [first, end), ascending, at one version of the index.

    Entries that were appended later are not among them. It takes 4 KiB and never changes, so readers take no lock.
    """

    version: int
    first: int
    end: int
    offsets: array[int]


_NOTHING_WARM: Final = _Warm(-1, 0, 0, array("i"))


@final
class OffsetIndex(MemoryMappedIndex):
    """The offset index of one segment."""

    entry_size: ClassVar[int] = ENTRY.size
    _last_offset: int
    _warm: _Warm = _NOTHING_WARM
    _searches: int = 0

    @property
    def last_offset(self) -> int:
        """The last entry's offset; the base offset when there is none (IX15)."""
        return self._last_offset

    def append(self, offset: int, position: int) -> None:
        """Append an entry.

        Raises ValueError for a full index, InvalidOffset for an offset that is not above the last one, and
        SegmentOffsetOverflow; then nothing is appended (IX13).
        """
        assert position >= 0, (offset, position)
        if self.is_full:
            raise ValueError(f"{self._path} is full with {self._entries} entries")
        if self._entries and offset <= self._last_offset:
            raise InvalidOffset(
                f"{self._path}: offset {offset} is not above the last offset {self._last_offset}"
            )
        self._append_entries(ENTRY.pack(self.relative_offset(offset), position))
        self._last_offset = offset

    def append_all(self, offsets: Sequence[int], positions: Sequence[int]) -> None:
        """Append many entries by one write, all or none. Raises what `append` raises."""
        if not offsets:
            return
        assert 0 <= positions[0], (self._path, positions[0])
        assert positions[0] <= positions[-1], (self._path, positions[0], positions[-1])
        self._check_free(len(offsets))
        before = self._last_offset if self._entries else self._base_offset - 1
        if before >= offsets[0] or not is_rising(offsets):
            raise InvalidOffset(
                f"{self._path}: {len(offsets)} new offsets do not strictly increase from {before} on"
            )
        self.relative_offset(offsets[0])
        self.relative_offset(offsets[-1])
        columns = [0] * (2 * len(offsets))
        base = self._base_offset
        columns[::2] = [offset - base for offset in offsets]
        columns[1::2] = positions
        self._append_entries(struct.pack(f">{len(columns)}i", *columns))
        self._last_offset = offsets[-1]
        assert before < self._last_offset, (self._path, before, self._last_offset)

    def entry(self, slot: int) -> OffsetPosition:
        """The entry at `slot`, from 0. Raises ValueError when there is no such entry."""

        def read() -> OffsetPosition:
            self._check_slot(slot)
            return self._entry(slot)

        return self._settled(read)

    def lookup(self, target_offset: int) -> OffsetPosition:
        """The last entry whose offset is at most the target; (base offset, 0) when there is none (IX14)."""
        base = self._base_offset
        relative = target_offset - base
        # This is `_settled`, written out to save the call.
        while True:
            version = self._version
            try:
                warm_version, first, end, offsets = self._warm
                if (
                    warm_version == version
                    and offsets[0] < relative
                    and (relative < offsets[-1] or end == self._entries)
                ):
                    slot = first - 1 + bisect_right(offsets, relative)
                else:
                    slot = self._search(relative, _COLUMN.unpack_from, 0)[0]
                    self._searches += 1
                    if self._searches % SEARCHES_A_READ == 0:
                        self._read_warm(version, slot)
                offset, position = _ENTRY_AT(self._mapped(), slot * ENTRY.size) if slot >= 0 else (0, 0)
            except (ValueError, struct.error):
                if version == self._version:
                    raise
                continue
            if version == self._version:
                return OffsetPosition(base + offset, position)

    def fetch_upper_bound_offset(self, start: OffsetPosition, size: int) -> OffsetPosition | None:
        """The first entry at or after the end of `size` bytes from `start`; None without one (IX19)."""
        end_position = start.position + size

        def find() -> OffsetPosition | None:
            _, slot = self._search(end_position, _COLUMN.unpack_from, _POSITION_AT)
            return self._entry(slot) if slot >= 0 else None

        return self._settled(find)

    def truncate_to(self, offset: int) -> None:
        """Drop every entry at or above `offset` (IX16)."""
        slot, _ = self._search(offset - self._base_offset, _COLUMN.unpack_from, 0)
        if slot < 0:
            self._truncate_to_entries(0)
        elif self._entry(slot).offset == offset:
            self._truncate_to_entries(slot)
        else:
            self._truncate_to_entries(slot + 1)

    def sanity_check(self) -> None:
        """Raise CorruptIndex where the last entry contradicts the base offset.

        A zero-filled file passes: its last entry is (base offset, 0) (IX17).
        """
        if self._entries and self._last_offset < self._base_offset:
            reason = f"last offset {self._last_offset} is below the base offset {self._base_offset}"
            raise CorruptIndex(self._path, reason)
        self._check_length()

    def _read_warm(self, version: int, slot: int) -> None:
        """Remember the warm part if `slot`, at which a search ended, is in it: more such searches may follow."""
        view, end = self._mapped(), self._entries
        first = max(0, end - 1 - WARM_BYTES // ENTRY.size)
        if slot < first:
            return
        words = array("i", view[first * ENTRY.size : end * ENTRY.size].tobytes())
        if sys.byteorder == "little":
            words.byteswap()
        offsets = words[::2]
        # In a damaged index, whose offsets do not rise, bisection here would find other entries than `_search` finds.
        self._warm = _Warm(version, first, end, offsets) if is_rising(offsets) else _NOTHING_WARM

    def _entry(self, slot: int) -> OffsetPosition:
        relative, position = ENTRY.unpack_from(self._mapped(), slot * ENTRY.size)
        return OffsetPosition(self._base_offset + relative, position)

    def _load_last_entry(self) -> None:
        relative = ENTRY.unpack(self._bytes_of(self._entries - 1))[0] if self._entries else 0
        self._last_offset = self._base_offset + relative
