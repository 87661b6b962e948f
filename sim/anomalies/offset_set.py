"""A set of offsets as stretches without holes, which stays small however long a dense log is."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import final


@final
class OffsetSet:
    """Offsets as sorted stretches [start, end) that do not touch each other."""

    __slots__ = ("_ends", "_starts")

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []

    @property
    def end(self) -> int:
        """The offset after the greatest one, 0 if there is none."""
        return self._ends[-1] if self._ends else 0

    def __contains__(self, offset: int) -> bool:
        index = bisect_right(self._starts, offset) - 1
        return index >= 0 and offset < self._ends[index]

    def first_in(self, start: int, end: int) -> int | None:
        """Returns the smallest member of [start, end), None if there is none."""
        if start >= end:
            return None
        if start in self:
            return start
        index = bisect_right(self._starts, start)
        return self._starts[index] if index < len(self._starts) and self._starts[index] < end else None

    def last_before(self, offset: int) -> int | None:
        """Returns the greatest member below the offset, None if there is none."""
        index = bisect_left(self._starts, offset) - 1
        return min(self._ends[index], offset) - 1 if index >= 0 else None

    def add(self, offset: int) -> None:
        """Add an offset, which may be a member already."""
        starts, ends = self._starts, self._ends
        index = bisect_right(starts, offset)
        if index and offset < ends[index - 1]:
            return
        touches_before = bool(index) and ends[index - 1] == offset
        touches_after = index < len(starts) and starts[index] == offset + 1
        if touches_before and touches_after:
            ends[index - 1] = ends.pop(index)
            del starts[index]
        elif touches_before:
            ends[index - 1] = offset + 1
        elif touches_after:
            starts[index] = offset
        else:
            starts.insert(index, offset)
            ends.insert(index, offset + 1)
        assert len(starts) == len(ends), (len(starts), len(ends))
        assert offset in self, offset
