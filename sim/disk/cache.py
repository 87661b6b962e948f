"""The page cache of a simulated disk, which the handles of all processes read and change.

It holds the one tree that all processes see, knows which changes no sync has made durable yet, and lets armed faults
strike the calls that they wait for.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import final

from sim.buggify.disks import DiskPoints
from sim.disk.costs import DiskCosts, Meter
from sim.disk.faults import MUTATING, WRITES, ArmedFaults, Interruption
from sim.disk.file import Fate, FileNode
from sim.disk.life import Life
from sim.disk.names import DirectoryNode, NameChange, Node, duplicate, sync_names
from sim.disk.write_back import write_page_back
from storage.codec.buffer import Buffer
from storage.draws import Draws

_SYNCS = frozenset({"sync", "sync_directory"})


@final
class PageCache:
    """One image of all files and names, for the lives of all processes on the machine.

    A process crash leaves it as it is; `sim.disk.survival` reduces it to what a power loss leaves.
    """

    def __init__(self, draws: Draws, now_ms: Callable[[], int]) -> None:
        self.now_ms = now_ms
        self.root = DirectoryNode(0, now_ms())
        self.faults = ArmedFaults()
        self.meter = Meter(DiskCosts())
        # Files and directories with changes that are not durable yet, by node number.
        self.dirty_files: dict[int, FileNode] = {}
        self.dirty_directories: dict[int, DirectoryNode] = {}
        # The number of mutating calls so far, including those struck by a fault.
        self.operations = 0
        # If it is a list, each mutating call adds a line to it.
        self.call_log: list[str] | None = None
        # Called with the verb and the path before each mutating call.
        self.observer: Callable[[str, str], None] | None = None
        # The buggify points of the disk; None where all of them are off.
        self.points: DiskPoints | None = None
        # Grows with each change of a name: as long as it stays, each path names the same file.
        self.names_version = 0
        # Whether any sync has ever said success of a file with a lost change.
        self.has_deceived = False
        self._draws = draws
        self._numbers = 0
        self._sequence = 0
        self._lives: dict[Life, None] = {}
        self._locked: list[FileNode] = []
        self._mapped: dict[int, FileNode] = {}

    def join(self, life: Life) -> None:
        """Add `life` to those that `crash_process` ends."""
        self._lives[life] = None

    def crash_process(self) -> None:
        """End every life on this disk with its handles, maps, locks and armed faults; the tree stays as it is."""
        for life in self._lives:
            life.kill()
        self._lives.clear()
        self._locked.clear()
        self.faults.disarm()
        for node in self._mapped.values():
            node.drop_maps()
        self._mapped.clear()

    def begin(self, verb: str, path: str, *detail: int | str) -> Interruption | None:
        """Count and record a mutating call before it changes anything.

        Returns the fault that strikes it, which the caller must carry out, or None.
        """
        assert verb in MUTATING, (verb, path)
        if self.observer is not None:
            self.observer(verb, path)
        self.operations += 1
        # Writes name their position and their size.
        size_bytes = detail[1] if verb in WRITES else 0
        assert isinstance(size_bytes, int), (verb, detail)
        points = self.points
        if verb in _SYNCS:
            self.meter.sync()
            longer_us = 0 if points is None else points.sync_us()
        else:
            self.meter.call(size_bytes)
            longer_us = 0 if points is None else points.call_us()
        if longer_us:
            self.meter.wait(longer_us)
        if self.call_log is not None:
            self.call_log.append(" ".join((verb, path, *map(str, detail))))
        return self.strike(verb, path, size_bytes) if self.faults.is_armed else None

    def strike(self, verb: str, path: str, size_bytes: int = 0) -> Interruption | None:
        """Returns the fault that strikes this call; None if the call may proceed."""
        trigger = self.faults.struck(verb, path, size_bytes) if self.faults.is_armed else None
        if trigger is None:
            return None
        return Interruption(
            trigger=trigger, verb=verb, path=path, crash=self.crash_process, drawn=self._drawn_share
        )

    def _drawn_share(self, size_bytes: int) -> int:
        return self._draws.between(0, size_bytes, "disk.interrupted", self.operations)

    def next_sequence(self) -> int:
        self._sequence += 1
        return self._sequence

    def next_number(self) -> int:
        self._numbers += 1
        return self._numbers

    def change_file(self, node: FileNode) -> FileNode:
        """Mark the file as modified now and not durable; the caller changes its bytes."""
        node.modified_ms = self.now_ms()
        self.dirty_files[node.number] = node
        return node

    def after_write(self, node: FileNode, path: str, data: Buffer) -> None:
        """Let the write that the file has just taken be lost, if such a fault is there and strikes it.

        The page cache shows it until the machine loses power, whatever is synced meanwhile.
        """
        phantom = self.faults.phantom
        if phantom is None or self._draws.below(100, "disk.phantom", self.operations) >= phantom.percent:
            return
        assert node.changes[-1].is_write, (path, node.changes[-1].sequence)
        node.lose_newest()
        if phantom.stray is not None:
            phantom.stray(path, bytes(data))

    def sync_file(self, node: FileNode) -> None:
        """Make the file's changes durable; where syncs lie, they are lost instead, and nobody is told."""
        if self.faults.syncs_lie:
            node.lose_pending()
        node.sync()
        if node.is_deceiving:
            self.has_deceived = True
        if not node.changes:
            self.dirty_files.pop(node.number, None)

    def maybe_write_back(self, node: FileNode) -> bool:
        """Make the file durable without a sync, if a buggify point says so. Returns whether it did.

        What a failed sync has lost stays lost, and a disk whose syncs lie writes nothing by itself either.
        """
        if self.points is None or self.faults.syncs_lie or not self.points.writes_back():
            return False
        if node.has_lost:
            return False
        self.sync_file(node)
        assert not node.changes, (node.number, len(node.changes))
        return True

    def maybe_write_page_back(self) -> None:
        """Make one page of some file durable without a sync, if a buggify point says so."""
        if self.points is None or self.faults.syncs_lie or not self.dirty_files:
            return
        drawn = self.points.writes_page_back()
        if drawn is None:
            return
        number, page = drawn
        files = list(self.dirty_files.values())
        write_page_back(files[number % len(files)], page)

    def maybe_write_names_back(self, directory: DirectoryNode) -> None:
        """Make the names of a directory durable without a sync, if a buggify point says so."""
        if self.points is not None and self.points.writes_names_back():
            self.sync_names(directory)

    def change_modified(self, node: Node, modified_ms: int) -> None:
        node.modified_ms = modified_ms
        if isinstance(node, FileNode):
            self.dirty_files[node.number] = node

    def map_file(self, node: FileNode) -> memoryview:
        self._mapped[node.number] = node
        return node.map_view()

    def unmap_file(self, node: FileNode) -> None:
        node.unmap()
        if node.live_maps == 0:
            self._mapped.pop(node.number, None)

    def change_names(self, change: NameChange) -> None:
        """Apply a change of names to the tree; it is not durable yet."""
        assert change.source is not None or change.target is not None, change.sequence
        self.names_version += 1
        if change.source is not None:
            assert change.source.entries.get(change.source_name) is change.node, change.source_name
            change.source.remove(change.source_name)
        if change.target is not None:
            change.target.add(change.target_name, change.node)
        if change.source is not None:
            # No file has two names.
            left = change.source.entries.get(change.source_name)
            assert left is not change.node, (change.source_name, change.target_name)
        for directory in change.directories():
            if not directory.changes or directory.changes[-1] is not change:
                directory.changes.append(change)
            directory.version = self.names_version
            directory.modified_ms = self.now_ms()
            self.dirty_directories[directory.number] = directory

    def sync_names(self, directory: DirectoryNode) -> None:
        """Make the names of a directory durable, and those of directories that share a move with it."""
        synced, nameless = sync_names(directory)
        for written in synced:
            self.dirty_directories.pop(written.number, None)
        # No power loss can bring a nameless file back, so its pending bytes do not matter.
        for node in nameless:
            self.dirty_files.pop(node.number, None)

    def take_lock(self, node: FileNode, path: str) -> None:
        """Lock the file. Raises BlockingIOError while another handle holds its lock."""
        if any(node is locked for locked in self._locked):
            raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable", path)
        self._locked.append(node)

    def unlock(self, node: FileNode) -> None:
        self._locked = [locked for locked in self._locked if locked is not node]

    def sync_all(self) -> None:
        """Make every pending change durable, as sync(2) does."""
        for node in list(self.dirty_files.values()):
            self.sync_file(node)
        for directory in list(self.dirty_directories.values()):
            self.sync_names(directory)

    @property
    def last_sequence(self) -> int:
        """The number of the newest change, pending or not; numbers count from 1."""
        return self._sequence

    def pending_sequences(self) -> list[int]:
        """Returns the numbers of the changes that may or may not survive a power loss, oldest first."""
        found = {
            change.sequence
            for node in self.dirty_files.values()
            for change in node.changes
            if change.fate is Fate.PENDING
        }
        for directory in self.dirty_directories.values():
            found.update(change.sequence for change in directory.changes)
        return sorted(found)

    def settle(self, keeps_modified: Callable[[FileNode], bool]) -> None:
        """End a power loss: what survived it is now both in the page cache and durable.

        A file keeps its last modification time where `keeps_modified` says so.
        """
        for node in self.dirty_files.values():
            assert not node.changes, (node.number, len(node.changes))
            if not keeps_modified(node):
                node.modified_ms = node.durable_modified_ms
            node.durable_modified_ms = node.modified_ms
        self.names_version += 1
        for directory in self.dirty_directories.values():
            directory.changes.clear()
            directory.become(directory.durable)
            directory.version = self.names_version
        self.dirty_files.clear()
        self.dirty_directories.clear()
        assert not self._lives, "a power loss ends every life first"

    def replace_tree(self, twin: PageCache | None) -> None:
        """Hold the tree of `twin` from now on, which is not used again, or none; no process may run."""
        assert not self._lives, "a machine whose disk is replaced has no power"
        assert not self._locked, len(self._locked)
        self.root = DirectoryNode(self.next_number(), self.now_ms()) if twin is None else twin.root
        self.dirty_files = {} if twin is None else twin.dirty_files
        self.dirty_directories = {} if twin is None else twin.dirty_directories
        self.has_deceived = twin is not None and twin.has_deceived
        self.names_version += 1

    def duplicate(self, draws: Draws) -> PageCache:
        """Returns an independent cache in the same state, without lives, locks, maps and armed faults."""
        twin = PageCache(draws, self.now_ms)
        twin.operations, twin._numbers, twin._sequence = self.operations, self._numbers, self._sequence
        twin.has_deceived = self.has_deceived
        copies: dict[int, Node] = {}
        root = duplicate(self.root, copies, {})
        assert isinstance(root, DirectoryNode)
        assert root is not self.root, "the twin would change this cache"
        twin.root = root
        for number in self.dirty_files:
            # A file without a copy is still open but has no name any more, not even a durable one.
            if isinstance(file := copies.get(number), FileNode):
                twin.dirty_files[number] = file
        for number in self.dirty_directories:
            if isinstance(directory := copies.get(number), DirectoryNode):
                twin.dirty_directories[number] = directory
        return twin
