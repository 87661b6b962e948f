"""Places that searches by offset have passed in one `.log`, where the offset index has no entry for long.

Such an index was emptied because it was damaged, or has a huge interval. Without a place to go on from, each search
would read all headers from the entry on: 80 ms for a segment of 1 GiB in small batches.
"""

from __future__ import annotations

from _thread import allocate_lock
from bisect import bisect_left
from typing import Final, final

# As many as a file of the greatest size has, in the smallest batches. Each takes about 100 bytes.
MOST_WAYPOINTS: Final = 1 << 14


@final
class Waypoints:
    """The waypoints of each start of a search, ascending: of one start because only the search from there is repeated
    exactly, also where the offsets of a damaged file go back.

    They hold until the file is cut. Any thread may call it.
    """

    __slots__ = ("_count", "_lock", "_of_starts")

    def __init__(self) -> None:
        # By the position at which the searches began: the greatest base offset up to each waypoint, and its position.
        self._of_starts: dict[int, tuple[list[int], list[int]]] = {}
        self._count = 0
        self._lock = allocate_lock()

    def __len__(self) -> int:
        return self._count

    def last_before(self, start: int, target_offset: int) -> tuple[int, int]:
        """Returns the waypoint from which a search from `start` for `target_offset` may go on: the greatest base offset
        up to it, and the position of its batch, which is below the target; -1 and `start` without one.
        """
        found = self._of_starts.get(start)
        if found is None:
            return -1, start
        greatest_offsets, positions = found
        place = bisect_left(greatest_offsets, target_offset) - 1
        return (greatest_offsets[place], positions[place]) if place >= 0 else (-1, start)

    def note(self, start: int, greatest_offset: int, position: int) -> None:
        """Note the batch at `position`, which a search from `start` has passed; `greatest_offset` is the greatest base
        offset from there up to it.
        """
        assert start < position, (start, position)
        with self._lock:
            if self._count == MOST_WAYPOINTS:
                self._of_starts, self._count = {}, 0
            greatest_offsets, positions = self._of_starts.setdefault(start, ([], []))
            # A search in shorter steps, or another thread, may be behind.
            place = bisect_left(positions, position)
            if place < len(positions) and positions[place] == position:
                return
            # A reader without the lock finds a position for each offset.
            positions.insert(place, position)
            greatest_offsets.insert(place, greatest_offset)
            self._count += 1
        assert self._count <= MOST_WAYPOINTS, self._count
