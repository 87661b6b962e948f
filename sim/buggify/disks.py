"""Points at a disk: slow calls, writes in parts, and changes that become durable before anybody asks for it."""

from __future__ import annotations

from typing import final

from sim.buggify.buggify import Buggify
from storage.disk.handle_pool import HandlePool


@final
class DiskPoints:
    """The points at the disk of the node called `name`. Times are microseconds."""

    __slots__ = ("_buggify", "_name")

    def __init__(self, buggify: Buggify, name: str) -> None:
        self._buggify, self._name = buggify, name

    def call_us(self) -> int:
        """Returns how much longer a write, or a change of a name, takes."""
        return self._buggify.more_us(20, "call-slow", self._name)

    def sync_us(self) -> int:
        """Returns how much longer a sync takes."""
        return self._buggify.more_us(50, "sync-slow", self._name)

    def writes_back(self) -> bool:
        """Whether what was just written becomes durable by itself."""
        return self._buggify.fires("write-back", self._name)

    def writes_page_back(self) -> tuple[int, int] | None:
        """Returns the drawn numbers of a file and of a page that become durable by themselves; None if none does."""
        if not self._buggify.fires("page-written-back", self._name):
            return None
        return divmod(self._buggify.between(0, (1 << 32) - 1, "page-written-back", self._name), 1 << 16)

    def writes_names_back(self) -> bool:
        """Whether the names of the directory that was just changed become durable by themselves."""
        return self._buggify.fires("names-written-back", self._name)

    def first_part(self, size_bytes: int) -> int:
        """Returns how many bytes of a write are written first; all of them in one write if that is `size_bytes`."""
        if size_bytes < 2 or not self._buggify.fires("write-in-parts", self._name):
            return size_bytes
        return self._buggify.between(1, size_bytes - 1, "write-in-parts", self._name)

    def first_read(self, size_bytes: int) -> int:
        """Returns how many bytes the first call of a read may return; `size_bytes` if it may return all of them."""
        if size_bytes < 2 or not self._buggify.fires("read-in-parts", self._name):
            return size_bytes
        return self._buggify.between(1, size_bytes - 1, "read-in-parts", self._name)

    def leaves_over(self) -> bool:
        """Whether an earlier life has left what it wrote before it could rename it to a checkpoint."""
        return self._buggify.fires("leftover-file", self._name)

    def leaves_swap(self) -> bool:
        """Whether an earlier life has ended before the last renames of a compaction."""
        return self._buggify.fires("leftover-swap", self._name)

    def loses_snapshots(self) -> bool:
        """Whether a log of a life that was killed has no snapshot of its producers any more."""
        return self._buggify.fires("snapshots-gone", self._name)

    def tears_snapshots(self) -> bool:
        """Whether that log has all of them, and none that loads."""
        return self._buggify.between(0, 1, "snapshots-gone", self._name) == 1

    def merges_swap(self) -> bool:
        """Whether that life has ended before it took the segments away that the compaction has merged."""
        return self._buggify.between(0, 1, "leftover-swap", self._name) == 1

    def which(self, count: int) -> int:
        """Returns the number of one of so many segments."""
        return self._buggify.between(0, count - 1, "leftover-swap", self._name)

    def handles(self) -> HandlePool | None:
        """Returns the pool of a new process with few file handles; None if it may have as many as it likes."""
        if not self._buggify.fires("few-handles", self._name):
            return None
        return HandlePool(self._buggify.between(1, 4, "few-handles", self._name))
