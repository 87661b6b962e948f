"""Delta debugging: the smallest part of a list that still fails, by leaving out ever smaller chunks.

Zeller and Hildebrandt, "Simplifying and Isolating Failure-Inducing Input" (2002), with complements only: what is
left is 1-minimal either way, and a chunk alone rarely fails where faults build on each other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TypeVar

Item = TypeVar("Item")
# Returns the index of the first of these lists that still fails, or None. They may be tried at the same time.
FirstFailing = Callable[[Sequence[Sequence[Item]]], int | None]


def ddmin(items: Sequence[Item], first_failing: FirstFailing[Item]) -> list[Item]:
    """Returns a part of `items`, in their order, that fails and of which no single one can be left out.

    `items` fail, which is not tried again. An empty list is tried first, since often nothing is needed.
    """
    kept = list(items)
    if not kept or first_failing([[]]) is not None:
        return []
    chunk_count = 2
    while len(kept) > 1:
        tried = complements(kept, chunk_count)
        found = first_failing(tried)
        if found is not None:
            assert len(tried[found]) < len(kept), (len(tried[found]), len(kept))
            kept = tried[found]
            chunk_count = max(2, chunk_count - 1)
        elif chunk_count == len(kept):
            break
        else:
            chunk_count = min(2 * chunk_count, len(kept))
        chunk_count = min(chunk_count, len(kept))
    return kept


def complements(items: Sequence[Item], chunk_count: int) -> list[list[Item]]:
    """Returns `items` without each of `chunk_count` chunks of nearly equal length, the last chunk left out first.

    What comes late is most likely not needed, since the failure may be there before.
    """
    assert 1 < chunk_count <= len(items), (chunk_count, len(items))
    bounds = [len(items) * number // chunk_count for number in range(chunk_count + 1)]
    chunks = list(pairwise(bounds))
    return [[*items[:start], *items[end:]] for start, end in reversed(chunks)]
