"""Decides which un-synced changes survive a power loss.

| mode   | data of a file                                              | names in a directory   |
|--------|-------------------------------------------------------------|------------------------|
| none   | as of its last sync                                         | as of its last sync    |
| prefix | all changes of the disk up to a point in time, none after   | the same               |
| subset | each 4096-byte block of each write 50 %; any earlier length | each change 50 %       |
| torn   | changes up to a point; the write after it torn by sectors   | each change 50 %       |
| all    | everything                                                  | everything             |

In a torn write, each 512-byte sector is new (40 %), old (40 %), zero (10 %) or garbage (10 %), and the file has the
write's new length in 3 of 4 cases. Every draw is keyed by the power loss, the file, the change and the block.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from enum import Enum
from itertools import pairwise
from typing import Final, Literal, final

from sim.disk.cache import PageCache
from sim.disk.file import Fate, FileChange, FileNode
from sim.disk.names import NameChange
from storage.draws import Draws

PowerLoss = Literal["none", "prefix", "subset", "torn", "all"]
BLOCK_BYTES: Final = 4096
SECTOR_BYTES: Final = 512

Undone = list[tuple[FileChange, bytes]]


def pieces(position: int, size_bytes: int, unit: int) -> list[tuple[int, int]]:
    """Cuts [position, position + size_bytes) at multiples of `unit`; returns pairs of start and end (exclusive)."""
    end = position + size_bytes
    cuts = [position, *range((position // unit + 1) * unit, end, unit), end]
    return list(pairwise(cuts)) if size_bytes else []


def apply_whole(node: FileNode, change: FileChange, written: bytes) -> None:
    if change.is_write:
        node.put(change.position, written)
    else:
        node.set_length(change.new_length)


class Tear(Enum):
    """The shapes of a half kept write, for tests that try them one by one."""

    # The first half is kept, and the file ends there.
    SHORT = "short"
    # The first half is kept, in whole sectors if there are any; the rest is old, or zero where the file grew.
    HEAD = "head"
    # The second half is kept, likewise; the bytes before it are old.
    TAIL = "tail"
    # The new length is kept, and none of the bytes.
    LENGTH = "length"
    # The first half is kept; the second is bytes that were never written.
    GARBAGE = "garbage"


def keep_chosen(node: FileNode, keep: Callable[[int], bool], tears: Mapping[int, Tear] | None = None) -> None:
    """Rebuild the file from its durable bytes and the pending changes whose numbers `keep` accepts.

    A change is kept whole, or as `tears` says. A kept write grows the file even where an earlier growth was not kept;
    the gap reads as zeros.
    """
    for change, written in node.unwind():
        if change.fate is not Fate.DURABLE and (change.fate is not Fate.PENDING or not keep(change.sequence)):
            continue
        tear = tears.get(change.sequence) if tears is not None and change.is_write else None
        if tear is None:
            apply_whole(node, change, written)
        else:
            apply_torn(node, change, written, tear)


def apply_torn(node: FileNode, change: FileChange, written: bytes, tear: Tear) -> None:
    """Apply a write in the shape of `tear`; `written` are its bytes."""
    start, half = change.position, len(written) // 2
    # A sector is wholly old or wholly new.
    if len(written) >= SECTOR_BYTES:
        half = max((start + half) // SECTOR_BYTES * SECTOR_BYTES - start, 0)
    if tear in (Tear.SHORT, Tear.HEAD, Tear.GARBAGE):
        node.put(start, written[:half])
    if tear is Tear.TAIL:
        node.put(start + half, written[half:])
    elif tear is Tear.GARBAGE:
        node.put(start + half, bytes(byte ^ 0x5A for byte in written[half:]))
    if tear is not Tear.SHORT:
        node.set_length(max(node.length, start + len(written)))


@final
class Survivors:
    """The draws of one power loss."""

    def __init__(self, draws: Draws, loss_number: int) -> None:
        self._draws = draws
        self._loss_number = loss_number

    def _below(self, bound: int, kind: str, *identity: int) -> int:
        return self._draws.below(bound, kind, self._loss_number, *identity)

    def point(self, pending: list[int]) -> int:
        """Draws the number below which every change survives: a cut before, between or after the pending ones."""
        cut = self._below(len(pending) + 1, "disk.prefix")
        return pending[cut] if cut < len(pending) else pending[-1] + 1 if pending else 0

    def keeps_name(self, change: NameChange) -> bool:
        return self._below(2, "disk.name", change.sequence) == 0

    def keeps_modified(self, node: FileNode) -> bool:
        return self._below(2, "disk.modified", node.number) == 0

    def keep_subset(self, node: FileNode) -> None:
        """Keep drawn blocks of all pending writes, and a drawn length of those that the file has had since its sync."""
        undone = [(change, written) for change, written in node.unwind() if change.fate is not Fate.LOST]
        last_durable = max(
            (i for i, (change, _) in enumerate(undone, 1) if change.fate is Fate.DURABLE), default=0
        )
        lengths_kept = last_durable + self._below(len(undone) - last_durable + 1, "disk.length", node.number)
        length = undone[lengths_kept - 1][0].new_length if lengths_kept else node.length
        for index, (change, written) in enumerate(undone):
            if change.is_write:
                self._put_blocks(node, change, written)
            elif index < lengths_kept:
                node.set_length(change.new_length)
        node.set_length(length)

    def _put_blocks(self, node: FileNode, change: FileChange, written: bytes) -> None:
        for start, end in pieces(change.position, change.size_bytes, BLOCK_BYTES):
            durable = change.fate is Fate.DURABLE
            if (
                durable
                or self._below(2, "disk.block", node.number, change.sequence, start // BLOCK_BYTES) == 0
            ):
                node.put(start, written[start - change.position : end - change.position])

    def keep_torn(self, node: FileNode) -> None:
        """Keep all changes before a drawn write, and that write torn; without a pending write, keep a drawn prefix."""
        undone = [(change, written) for change, written in node.unwind() if change.fate is not Fate.LOST]
        candidates = [
            i for i, (change, _) in enumerate(undone) if change.is_write and change.fate is Fate.PENDING
        ]
        if candidates:
            torn = candidates[self._below(len(candidates), "disk.torn", node.number)]
        else:
            torn = self._below(len(undone) + 1, "disk.torn", node.number)
        for index, (change, written) in enumerate(undone):
            if index < torn or change.fate is Fate.DURABLE:
                apply_whole(node, change, written)
            elif index == torn and change.is_write:
                self._tear(node, change, written)

    def _tear(self, node: FileNode, change: FileChange, written: bytes) -> None:
        old_length = node.length
        for start, end in pieces(change.position, change.size_bytes, SECTOR_BYTES):
            fate = self._below(10, "disk.sector", node.number, change.sequence, start // SECTOR_BYTES)
            if fate < 4:
                node.put(start, written[start - change.position : end - change.position])
            elif fate == 8:
                node.put(start, bytes(end - start))
            elif fate == 9:
                node.put(start, self._garbage(change.sequence, start, end - start))
        keeps_length = self._below(4, "disk.torn_length", node.number, change.sequence) > 0
        node.set_length(change.new_length if keeps_length else old_length)

    def _garbage(self, sequence: int, start: int, size_bytes: int) -> bytes:
        words = (
            self._draws.bits("disk.garbage", self._loss_number, sequence, start, word).to_bytes(8, "big")
            for word in range(size_bytes // 8 + 1)
        )
        return b"".join(words)[:size_bytes]


def keep_by_mode(cache: PageCache, mode: PowerLoss, survivors: Survivors) -> None:
    """Reduce the cache to what a power loss of this mode leaves; `survivors` draws what the mode leaves open."""
    if mode in ("none", "prefix", "all"):
        ends = {"none": 0, "all": cache.last_sequence + 1}
        end = ends[mode] if mode in ends else survivors.point(cache.pending_sequences())
        _keep(cache, lambda sequence: sequence < end)
    else:
        for node in cache.dirty_files.values():
            if mode == "subset":
                survivors.keep_subset(node)
            else:
                survivors.keep_torn(node)
        _keep_names(cache, survivors.keeps_name)
    cache.settle(lambda node: mode == "all" or (mode != "none" and survivors.keeps_modified(node)))


def keep_sequences(
    cache: PageCache, sequences: Collection[int], tears: Mapping[int, Tear] | None = None
) -> None:
    """Reduce the cache to the durable state and the pending changes with these numbers, torn as `tears` says."""
    _keep(cache, lambda sequence: sequence in sequences, tears)
    cache.settle(lambda node: False)


def _keep(cache: PageCache, keep: Callable[[int], bool], tears: Mapping[int, Tear] | None = None) -> None:
    for node in cache.dirty_files.values():
        keep_chosen(node, keep, tears)
    _keep_names(cache, lambda change: keep(change.sequence))


def _keep_names(cache: PageCache, keep: Callable[[NameChange], bool]) -> None:
    changes = {
        change.sequence: change
        for directory in cache.dirty_directories.values()
        for change in directory.changes
    }
    for sequence in sorted(changes):
        if keep(changes[sequence]):
            changes[sequence].make_durable()
