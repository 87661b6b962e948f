"""A file of the simulated disk: its bytes in the page cache, and how to undo the changes that are not durable.

Only one image of the bytes is kept. Each change remembers the bytes that it replaced: a sync clears the list of
changes, and a power loss undoes them. Bytes after `data_end` are zero and take no memory, so a preallocated index
costs nothing.
"""

from __future__ import annotations

import mmap
from enum import Enum
from typing import NamedTuple, final

from sim.world.packed import PackedList, Packing, Row
from storage.codec.buffer import Buffer

# From this size on, memory is mapped from the kernel, which makes each page when it is first touched.
_LAZY_BYTES = 1 << 16

Memory = bytearray | mmap.mmap


class Fate(Enum):
    """What a power loss does to a change in the list."""

    # The change may or may not survive.
    PENDING = "pending"
    # The change was synced; it is listed still because the list also has a lost change.
    DURABLE = "durable"
    # The change is in the page cache only: its sync failed, and no later sync writes it.
    LOST = "lost"


class FileChange(NamedTuple):
    """One write (size_bytes >= 0) or change of length (size_bytes -1), with the state that undoes it."""

    sequence: int
    position: int
    size_bytes: int
    old_length: int
    new_length: int
    old_data_end: int
    # The bytes that were overwritten or cut off, from `position` on; trailing bytes after them were zero.
    old_bytes: bytes
    fate: Fate = Fate.PENDING

    @property
    def is_write(self) -> bool:
        return self.size_bytes >= 0


def _row_of(change: FileChange) -> Row:
    return (*change[:-1], change.fate.value)


def _change_of(row: Row) -> FileChange:
    return FileChange._make((*row[:-1], Fate(row[-1])))


# A log that nobody syncs has a change for each append.
_PACKING = Packing(_row_of, _change_of)


def _allocate(capacity: int) -> Memory:
    return bytearray(capacity) if capacity < _LAZY_BYTES else mmap.mmap(-1, capacity)


@final
class FileNode:
    """A file's content, whatever its name. Invariant: `memory` is zero from `data_end` on; `data_end <= length`."""

    __slots__ = (
        "changes",
        "data_end",
        "durable_modified_ms",
        "has_lost",
        "is_deceiving",
        "length",
        "live_maps",
        "memory",
        "modified_ms",
        "number",
        "superseded",
    )

    def __init__(self, number: int, modified_ms: int) -> None:
        self.number = number
        self.modified_ms = self.durable_modified_ms = modified_ms
        self.memory: Memory = bytearray(256)
        self.length = self.data_end = 0
        self.changes = PackedList(_PACKING)
        # Whether a change is LOST.
        self.has_lost = False
        # Whether a sync has said success while a change was lost.
        self.is_deceiving = False
        self.live_maps = 0
        # Memory that the file has outgrown but that live maps still show.
        self.superseded: list[Memory] = []

    def read(self, position: int, size: int) -> bytes:
        """Returns up to `size` bytes from `position`; fewer at the end of the file."""
        assert position >= 0 <= size, (position, size)
        end = position + size
        if end > self.length:
            end = self.length
        if position >= end:
            return b""
        if end <= self.data_end:
            return bytes(memoryview(self.memory)[position:end])
        data = bytes(memoryview(self.memory)[position : self.data_end])
        return data + bytes(end - position - len(data))

    def write(self, sequence: int, position: int, data: Buffer) -> None:
        """Write into the page cache and remember the change, which is pending."""
        size_bytes = len(data)
        kept_end = min(position + size_bytes, self.data_end)
        old_bytes = bytes(memoryview(self.memory)[position:kept_end]) if kept_end > position else b""
        change = FileChange(
            sequence=sequence,
            position=position,
            size_bytes=size_bytes,
            old_length=self.length,
            new_length=max(self.length, position + size_bytes),
            old_data_end=self.data_end,
            old_bytes=old_bytes,
        )
        self.put(position, data)
        self.changes.append(change)

    def resize(self, sequence: int, length: int) -> None:
        """Cut the file, or extend it with zeros, in the page cache and remember the change, which is pending."""
        assert not (self.live_maps and length < self.length), (length, self.length)
        change = FileChange(
            sequence=sequence,
            position=length,
            size_bytes=-1,
            old_length=self.length,
            new_length=length,
            old_data_end=self.data_end,
            old_bytes=bytes(memoryview(self.memory)[length : self.data_end]),
        )
        self.set_length(length)
        self.changes.append(change)

    def sync(self) -> None:
        """Make pending changes durable; changes lost by a failed sync stay lost."""
        assert self.data_end <= self.length, (self.number, self.data_end, self.length)
        self.is_deceiving = self.has_lost
        assert self.data_end <= len(self.memory), (self.number, self.data_end, len(self.memory))
        if self.has_lost:
            self._end_pending(Fate.DURABLE)
        else:
            self.changes.clear()
        self.durable_modified_ms = self.modified_ms

    def may_regrow(self) -> bool:
        """Whether a power loss may bring bytes back that were cut off; zeros, as of room set aside, are none."""
        return any(
            each.old_bytes and not each.is_write and each.fate is Fate.PENDING for each in self.changes
        )

    def lose_pending(self) -> None:
        """Fail a sync: its pages count as clean although they were not written, so no later sync writes them."""
        self._end_pending(Fate.LOST)
        self.has_lost = any(change.fate is Fate.LOST for change in self.changes)

    def lose_newest(self) -> None:
        """Let the newest change be lost: no sync writes it."""
        (newest,) = self.changes.truncate(len(self.changes) - 1)
        self.changes.append(newest._replace(fate=Fate.LOST))
        self.has_lost = True

    def _end_pending(self, fate: Fate) -> None:
        """Let every pending change have that fate; the others keep theirs."""
        ended = [each._replace(fate=fate) if each.fate is Fate.PENDING else each for each in self.changes]
        assert len(ended) == len(self.changes), (len(ended), len(self.changes))
        self.changes = PackedList(_PACKING, ended)
        assert not any(each.fate is Fate.PENDING for each in ended), self.number

    def unwind(self) -> list[tuple[FileChange, bytes]]:
        """Undo all changes, newest first. Returns each change, oldest first, with the bytes that it had written.

        Changes that are DURABLE are undone too; the caller applies them again.
        """
        undone: list[tuple[FileChange, bytes]] = []
        for change in reversed(list(self.changes)):
            written = self.read(change.position, change.size_bytes) if change.is_write else b""
            self.set_length(max(self.length, change.old_length))
            if change.is_write:
                self.put(change.position, bytes(change.size_bytes))
            self.put(change.position, change.old_bytes)
            self.set_length(change.old_length)
            assert self.data_end <= max(change.old_data_end, change.old_length), change
            undone.append((change, written))
        self.changes.clear()
        self.has_lost = self.is_deceiving = False
        undone.reverse()
        return undone

    def put(self, position: int, data: Buffer) -> None:
        """Put bytes into the image, which grows if needed, without remembering a change."""
        assert position >= 0, position
        end = position + len(data)
        if not len(data):
            return
        self._reserve(end)
        memoryview(self.memory)[position:end] = data
        for older in self.superseded:
            if position < len(older):
                part = memoryview(data)[: len(older) - position]
                memoryview(older)[position : position + len(part)] = part
        self.data_end = max(self.data_end, end)
        self.length = max(self.length, end)
        assert self.data_end <= self.length, (self.data_end, self.length)

    def set_length(self, length: int) -> None:
        """Set the length of the image without remembering a change."""
        assert length >= 0, length
        if length < self.data_end:
            memoryview(self.memory)[length : self.data_end] = bytes(self.data_end - length)
            self.data_end = length
        self.length = length
        assert self.data_end <= self.length, (self.data_end, self.length)

    def map_view(self) -> memoryview:
        self._reserve(self.length)
        self.live_maps += 1
        return memoryview(self.memory)[: self.length].toreadonly()

    def unmap(self) -> None:
        assert self.live_maps > 0, self.number
        self.live_maps -= 1
        if self.live_maps == 0:
            self.superseded.clear()

    def drop_maps(self) -> None:
        """End all maps, because the process that made them has ended."""
        self.live_maps = 0
        self.superseded.clear()

    def duplicate(self) -> FileNode:
        """Returns an independent node with the same bytes and the same changes pending."""
        twin = FileNode(self.number, self.modified_ms)
        twin.durable_modified_ms = self.durable_modified_ms
        twin.put(0, bytes(memoryview(self.memory)[: self.data_end]))
        twin.length = self.length
        twin.has_lost, twin.is_deceiving = self.has_lost, self.is_deceiving
        assert twin.data_end == self.data_end, (twin.data_end, self.data_end)
        assert twin.data_end <= twin.length, (twin.data_end, twin.length)
        twin.changes = self.changes.copy()
        return twin

    def _reserve(self, capacity: int) -> None:
        assert self.data_end <= len(self.memory), (self.data_end, len(self.memory))
        if capacity <= len(self.memory):
            return
        # Memory is never resized in place: a live map holds the old one, which from now on gets every write too.
        grown = _allocate(max(capacity, 2 * self.data_end))
        memoryview(grown)[: self.data_end] = memoryview(self.memory)[: self.data_end]
        if self.live_maps:
            self.superseded.append(self.memory)
        self.memory = grown
        assert len(self.memory) >= capacity, (len(self.memory), capacity)
