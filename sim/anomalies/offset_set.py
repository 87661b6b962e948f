"""A set of offsets as blocks of bits, which stays small however long a dense log is, and takes them in any order."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from typing import final

# The number of bits of an offset within its block.
_BLOCK_BITS = 10
_LAST = (1 << _BLOCK_BITS) - 1


@final
class OffsetSet:
    """Offsets by block: the bits of those that are members, and the numbers of the blocks that have any, in order."""

    __slots__ = ("_blocks", "_numbers")

    def __init__(self) -> None:
        self._blocks: dict[int, int] = {}
        self._numbers: list[int] = []

    @property
    def end(self) -> int:
        """The offset after the greatest one, 0 if there is none."""
        if not self._numbers:
            return 0
        number = self._numbers[-1]
        return (number << _BLOCK_BITS) + self._blocks[number].bit_length()

    def __contains__(self, offset: int) -> bool:
        return bool(self._blocks.get(offset >> _BLOCK_BITS, 0) >> (offset & _LAST) & 1)

    def first_in(self, start: int, end: int) -> int | None:
        """Returns the smallest member of [start, end), None if there is none."""
        number = start >> _BLOCK_BITS
        first, bits = start, self._blocks.get(number, 0) >> (start & _LAST)
        if not bits:
            place = bisect_right(self._numbers, number)
            if place == len(self._numbers):
                return None
            first, bits = self._numbers[place] << _BLOCK_BITS, self._blocks[self._numbers[place]]
        first += (bits & -bits).bit_length() - 1
        return first if first < end else None

    def last_before(self, offset: int) -> int | None:
        """Returns the greatest member below the offset, None if there is none."""
        number = offset >> _BLOCK_BITS
        bits = self._blocks.get(number, 0) & ((1 << (offset & _LAST)) - 1)
        if not bits:
            place = bisect_left(self._numbers, number) - 1
            if place < 0:
                return None
            number, bits = self._numbers[place], self._blocks[self._numbers[place]]
        return (number << _BLOCK_BITS) + bits.bit_length() - 1

    def add(self, offset: int) -> None:
        """Add an offset, which may be a member already."""
        number, bit = offset >> _BLOCK_BITS, 1 << (offset & _LAST)
        bits = self._blocks.get(number)
        if bits is None:
            insort(self._numbers, number)
            bits = 0
        self._blocks[number] = bits | bit
