"""Lists the paths of a log's segments again and again, at the cost of what has changed since the last time."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import final

from storage.disk.filesystem import join

LOG, SWAP, _CLEANED = ".log", ".swap", ".cleaned"


@final
class SegmentPaths:
    """The paths of the segments of one log, by the names in its directory when they were asked for last.

    A log that is written gets new names at its end, and the thousands before them are as they were.
    """

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._names: list[str] = []
        self._live: list[str] = []
        self._paths: list[str] = []
        # Whether no segment of a compaction was among the names.
        self._is_plain = True

    def among(self, names: list[str]) -> Sequence[str]:
        """Returns the paths of the segments among the names of the directory, which are in order, as they are."""
        equal = _equal_names(self._names, names)
        new = names[equal:]
        self._is_plain = (self._is_plain or not equal) and not any(
            each.endswith((SWAP, _CLEANED)) for each in new
        )
        if self._is_plain:
            kept = bisect_right(self._live, names[equal - 1]) if equal else 0
            found = [each for each in new if each.endswith(LOG)]
            self._live = self._live[:kept] + found
            self._paths = self._paths[:kept] + [join(self._directory, each) for each in found]
        else:
            self._live = segment_names(names)
            self._paths = [join(self._directory, each) for each in self._live]
            self._is_plain = not any(each.endswith((SWAP, _CLEANED)) for each in names)
        self._names = names
        return self._paths


def _equal_names(before: list[str], after: list[str]) -> int:
    """Returns how many names at the begin of both lists are the same."""
    low, high = 0, min(len(before), len(after))
    while low < high:
        middle = (low + high + 1) // 2
        if before[low:middle] == after[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def segment_names(names: Sequence[str]) -> list[str]:
    """Returns the names of the segments that a start finds in a directory of `names`.

    A process that died while a compaction replaced segments leaves new ones under the name of a swap. The next start
    makes them live, but undoes all of them if one is not complete (LL28).
    """
    live = [name for name in names if name.endswith(LOG)]
    swaps = [name for name in names if name.endswith(LOG + SWAP)]
    if not swaps or any(name.endswith(_CLEANED) for name in names):
        return live
    return sorted([*live, *[name for name in swaps if name.removesuffix(SWAP) not in live]])
