"""Pages that the kernel writes back by itself: each becomes durable alone, at any time and in any order.

After a power loss a page that was written later may be there, and one before it not: then the file has a hole of
zeros, or of what was there before.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Final

from sim.disk.file import Fate, FileChange, FileNode

PAGE_BYTES: Final = 4_096
# Only pages that the newest changes have touched are written back: a log that nobody syncs has thousands.
_NEWEST: Final = 128


def write_page_back(node: FileNode, number: int) -> bool:
    """Make a page durable that the newest writes have touched, the `number`-th in a circle. Returns False without any.

    What a sync has lost stays lost, as in a page that counts as clean.
    """
    older = max(0, len(node.changes) - _NEWEST)
    # A page of the newest changes has nothing from before them.
    floor = node.changes[older - 1].new_length if older else 0
    recent = node.changes.truncate(older)
    pages = sorted({page for change in recent for page in _pages_of(change) if page * PAGE_BYTES >= floor})
    page = pages[number % len(pages)] if pages else -1
    before = len(node.changes)
    for change in recent:
        for part in _parted(change, page):
            node.changes.append(part)
    assert len(node.changes) >= before + len(recent), (node.number, before, len(recent))
    return page >= 0


def _pages_of(change: FileChange) -> range:
    """Returns the pages that a write has touched and that are not durable; none of a change of length."""
    if change.size_bytes <= 0 or change.fate is not Fate.PENDING:
        return range(0)
    last = (change.position + change.size_bytes - 1) // PAGE_BYTES
    return range(change.position // PAGE_BYTES, last + 1)


def _parted(change: FileChange, page: int) -> list[FileChange]:
    """Returns the change as up to three, of which the one inside the page is durable."""
    if page < 0 or page not in _pages_of(change):
        return [change]
    end = change.position + change.size_bytes
    starts = [change.position, page * PAGE_BYTES, (page + 1) * PAGE_BYTES]
    cuts = [change.position, *(at for at in starts[1:] if change.position < at < end), end]
    return [
        _part(change, start, stop, is_durable=start // PAGE_BYTES == page) for start, stop in pairwise(cuts)
    ]


def _part(change: FileChange, start: int, stop: int, *, is_durable: bool) -> FileChange:
    """Returns what the change has written from `start` to `stop` (exclusive), as a change after the part before it."""
    offset = start - change.position
    assert 0 <= offset < stop - change.position <= change.size_bytes, (start, stop, change)
    return change._replace(
        position=start,
        size_bytes=stop - start,
        old_length=max(change.old_length, start) if offset else change.old_length,
        new_length=max(change.old_length, stop),
        old_data_end=max(change.old_data_end, start) if offset else change.old_data_end,
        old_bytes=change.old_bytes[offset : stop - change.position],
        fate=Fate.DURABLE if is_durable else change.fate,
    )
