"""The disk that forgets: of each file and directory what is durable, and the changes that are not yet.

A process crash keeps the page cache. A power loss keeps what was synced and, of the rest, what the mode
says (`sim.disk_survival`). `sync` of a file makes its bytes and length durable, not its name;
`sync_directory` the names. All is a function of the calls and the draws; there is no real I/O.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Collection, Mapping
from hashlib import blake2b
from typing import Final, final

from sim.crash import Life
from sim.disk_faults import EIO_ALWAYS, MUTATING, WRITES, Applied, Interruption, Trigger
from sim.disk_file import Fate, FileNode
from sim.disk_handles import SimFile, SimFileSystem
from sim.disk_names import DirectoryNode, NameChange, Node, durable_node, missing, sync_names
from sim.disk_survival import PowerLoss, Survivors, Tear, keep_chosen
from storage.draws import Draws

__all__ = ["Applied", "PowerLoss", "SimDisk", "SimFile", "SimFileSystem", "Tear"]

READ_OR_MUTATE: Final = MUTATING | {"read"}


@final
class SimDisk:
    """One machine's disk; it outlives the processes (`Life`) that use it."""

    def __init__(self, draws: Draws, now_ms: Callable[[], int]) -> None:
        self.draws = draws
        self.now_ms = now_ms
        self.operations = 0  # mutating calls so far, the struck ones too
        self.call_log: list[str] | None = None  # set to a list to have each mutating call written down
        self.observer: Callable[[str, str], None] | None = (
            None  # told verb and path before each mutating call
        )
        self.root = DirectoryNode(0, now_ms())
        self._numbers = 0
        self._sequence = 0
        self._power_losses = 0
        self._lives: list[Life] = []
        self._locked: list[FileNode] = []
        self._triggers: list[Trigger] = []
        self._broken: list[str] = []  # directories that raise EIO
        self._dirty_files: dict[int, FileNode] = {}
        self._dirty_directories: dict[int, DirectoryNode] = {}
        self._mapped: dict[int, FileNode] = {}

    def file_system(self, life: Life) -> SimFileSystem:
        if not any(life is known for known in self._lives):
            self._lives.append(life)
        return SimFileSystem(self, life)

    # What ends a process.

    def crash_process(self) -> None:
        """Every life on this disk ends: handles, maps and locks are gone, the page cache stays."""
        for life in self._lives:
            life.kill()
        self._lives.clear()
        self._locked.clear()
        self._triggers.clear()
        for node in self._mapped.values():
            node.drop_maps()
        self._mapped.clear()

    def lose_power(self, mode: PowerLoss) -> None:
        """The processes and the page cache end; what survives of the pending changes is drawn by `mode`."""
        self.crash_process()
        self._power_losses += 1
        survivors = Survivors(self.draws, self._power_losses)
        if mode in ("none", "prefix", "all"):
            pending = self.pending_sequences()
            ends = {"none": 0, "all": self._sequence + 1}
            end = ends[mode] if mode in ends else survivors.point(pending)
            self._keep(lambda sequence: sequence < end)
        else:
            for node in self._dirty_files.values():
                if mode == "subset":
                    survivors.keep_subset(node)
                else:
                    survivors.keep_torn(node)
            self._keep_names(survivors.keeps_name)
        self._settle(lambda node: mode == "all" or (mode != "none" and survivors.keeps_modified(node)))

    def lose_power_keeping(self, sequences: Collection[int], tears: Mapping[int, Tear] | None = None) -> None:
        """A power loss that keeps exactly these of `pending_sequences`, to enumerate every survivor set.

        A kept write whose number is in `tears` is kept in that shape; of other changes a tear means nothing.
        """
        self.crash_process()
        self._power_losses += 1
        self._keep(lambda sequence: sequence in sequences, tears)
        self._settle(lambda node: False)

    # What a test or a fault plan arms.

    def arm_crash(
        self,
        call: int,
        *,
        applied: Applied = Applied.DRAWN,
        hook: Callable[[], None] | None = None,
        verbs: Collection[str] = MUTATING,
        path_suffix: str = "",
    ) -> None:
        """The process dies inside the `call`-th following mutating call (1 is the next), after a share of it.

        `hook` runs once every handle is fenced and before `Dead` unwinds, e.g. to lose power at that very
        point.
        """
        self._arm(
            Trigger(
                countdown=call, verbs=frozenset(verbs), path_suffix=path_suffix, applied=applied, hook=hook
            )
        )

    def arm_partial_write(self, path_suffix: str, byte: int) -> None:
        """The next write to a file whose path ends so puts down `byte` bytes; then the process dies."""
        self._arm(
            Trigger(
                countdown=1,
                verbs=WRITES,
                path_suffix=path_suffix,
                applied=Applied.ALL,
                applied_bytes=byte,
            )
        )

    def fail(
        self,
        call: int,
        error_number: int = errno.EIO,
        *,
        verbs: Collection[str] = MUTATING,
        path_suffix: str = "",
        applied_bytes: int = 0,
    ) -> None:
        """The `call`-th matching call from now raises OSError; of a write, `applied_bytes` get down first.

        A failed sync leaves the file's pending changes in the page cache only: a later sync does not save
        them.
        """
        assert READ_OR_MUTATE.issuperset(verbs), verbs
        trigger = Trigger(
            countdown=call,
            verbs=frozenset(verbs),
            path_suffix=path_suffix,
            applied=Applied.NOTHING,
            applied_bytes=applied_bytes,
            error_number=error_number,
        )
        self._arm(trigger)

    def break_directory(self, path: str) -> None:
        """From now on every read and change at or below `path` raises EIO, in this life and the next, until `mend`."""
        self._broken.append(path)

    def mend(self) -> None:
        """What lies in broken directories is as it was; a sync that failed meanwhile saved nothing."""
        self._broken.clear()

    def disarm(self) -> None:
        """Nothing that was armed and has not struck will strike."""
        self._triggers.clear()

    def _arm(self, trigger: Trigger) -> None:
        assert trigger.countdown > 0, trigger
        self._triggers.append(trigger)

    # What an observer may ask.

    def sync_all(self) -> None:
        """Nothing is pending after it, as after sync(2): where a test begins to enumerate."""
        for node in list(self._dirty_files.values()):
            self.sync_file(node)
        for directory in list(self._dirty_directories.values()):
            self.sync_names(directory)

    def pending_sequences(self) -> list[int]:
        """The numbers of the changes that a power loss would decide on, oldest first."""
        found = {
            change.sequence
            for node in self._dirty_files.values()
            for change in node.changes
            if change.fate is Fate.PENDING
        }
        for directory in self._dirty_directories.values():
            found.update(change.sequence for change in directory.changes)
        return sorted(found)

    def pending_count(self) -> int:
        return len(self.pending_sequences())

    def pending_writes(self) -> list[int]:
        """Those of `pending_sequences` that put down bytes and may be torn."""
        return sorted(
            change.sequence
            for node in self._dirty_files.values()
            for change in node.changes
            if change.fate is Fate.PENDING and change.is_write
        )

    @property
    def last_sequence(self) -> int:
        """The number of the newest change, pending or not; they count from 1."""
        return self._sequence

    def fingerprint(self) -> bytes:
        """Of every name and byte that a process sees; equal for equal trees, whatever led there."""
        digest = blake2b(digest_size=16)
        _digest(self.root, "", digest.update)
        return digest.digest()

    def durable_bytes(self, path: str) -> bytes:
        """The file after a power loss that keeps nothing; FileNotFoundError if it has no name then."""
        node = durable_node(self.root, path)
        if not isinstance(node, FileNode):
            raise missing(path)
        twin = node.duplicate()
        keep_chosen(twin, lambda sequence: False)
        return twin.read(0, twin.length)

    def snapshot(self, draws: Draws | None = None) -> SimDisk:
        """An independent disk in the same state, without lives, locks, maps and armed faults.

        With the same draws a power loss ends for both alike.
        """
        twin = SimDisk(draws if draws is not None else self.draws, self.now_ms)
        twin.operations, twin._numbers, twin._sequence = self.operations, self._numbers, self._sequence
        twin._power_losses = self._power_losses
        copies: dict[int, Node] = {}
        changes: dict[int, NameChange] = {}
        root = _duplicate(self.root, copies, changes)
        assert isinstance(root, DirectoryNode)
        twin.root = root
        for number in self._dirty_files:
            if isinstance(file := copies.get(number), FileNode):  # else: open, but without a name for ever
                twin._dirty_files[number] = file
        for number in self._dirty_directories:
            if isinstance(directory := copies.get(number), DirectoryNode):
                twin._dirty_directories[number] = directory
        return twin

    # What the handles call.

    @property
    def is_broken(self) -> bool:
        return bool(self._broken)

    @property
    def has_faults(self) -> bool:
        return bool(self._triggers or self._broken)

    def begin(self, verb: str, path: str, *detail: int | str) -> Interruption | None:
        """Before each mutating call; the caller obeys what strikes it."""
        if self.observer is not None:
            self.observer(verb, path)
        self.operations += 1
        if self.call_log is not None:
            self.call_log.append(" ".join((verb, path, *map(str, detail))))
        return self.strike(verb, path) if self.has_faults else None

    def strike(self, verb: str, path: str) -> Interruption | None:
        if any(path == broken or path.startswith(f"{broken}/") for broken in self._broken):
            return Interruption(disk=self, trigger=EIO_ALWAYS, verb=verb, path=path)
        struck = [trigger for trigger in self._triggers if trigger.strikes(verb, path)]
        if not struck:
            return None
        self._triggers.remove(struck[0])
        return Interruption(disk=self, trigger=struck[0], verb=verb, path=path)

    def next_sequence(self) -> int:
        self._sequence += 1
        return self._sequence

    def next_number(self) -> int:
        self._numbers += 1
        return self._numbers

    def change_file(self, node: FileNode) -> FileNode:
        node.modified_ms = self.now_ms()
        self._dirty_files[node.number] = node
        return node

    def sync_file(self, node: FileNode) -> None:
        node.sync()
        if not node.changes:
            self._dirty_files.pop(node.number, None)

    def change_modified(self, node: Node, modified_ms: int) -> None:
        node.modified_ms = modified_ms
        if isinstance(node, FileNode):
            self._dirty_files[node.number] = node

    def map_file(self, node: FileNode) -> memoryview:
        self._mapped[node.number] = node
        return node.map_view()

    def unmap_file(self, node: FileNode) -> None:
        node.unmap()
        if node.live_maps == 0:
            self._mapped.pop(node.number, None)

    def change_names(self, change: NameChange) -> None:
        if change.source is not None:
            del change.source.entries[change.source_name]
        if change.target is not None:
            change.target.entries[change.target_name] = change.node
        for directory in change.directories():
            if not directory.changes or directory.changes[-1] is not change:
                directory.changes.append(change)
            directory.modified_ms = self.now_ms()
            self._dirty_directories[directory.number] = directory

    def sync_names(self, directory: DirectoryNode) -> None:
        synced, nameless = sync_names(directory)
        for written in synced:
            self._dirty_directories.pop(written.number, None)
        for node in nameless:  # nothing can bring it back, whatever of it was not synced
            self._dirty_files.pop(node.number, None)

    def take_lock(self, node: FileNode, path: str) -> None:
        if any(node is locked for locked in self._locked):
            raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable", path)
        self._locked.append(node)

    def unlock(self, node: FileNode) -> None:
        self._locked = [locked for locked in self._locked if locked is not node]

    # The power loss itself.

    def _keep(self, keep: Callable[[int], bool], tears: Mapping[int, Tear] | None = None) -> None:
        for node in self._dirty_files.values():
            keep_chosen(node, keep, tears)
        self._keep_names(lambda change: keep(change.sequence))

    def _keep_names(self, keep: Callable[[NameChange], bool]) -> None:
        changes = {
            change.sequence: change
            for directory in self._dirty_directories.values()
            for change in directory.changes
        }
        for sequence in sorted(changes):
            if keep(changes[sequence]):
                changes[sequence].make_durable()

    def _settle(self, keeps_modified: Callable[[FileNode], bool]) -> None:
        """What survived is all there is now, in the page cache and on the disk."""
        for node in self._dirty_files.values():
            if not keeps_modified(node):
                node.modified_ms = node.durable_modified_ms
            node.durable_modified_ms = node.modified_ms
        for directory in self._dirty_directories.values():
            directory.changes.clear()
            directory.entries = dict(directory.durable)
        self._dirty_files.clear()
        self._dirty_directories.clear()


def _digest(node: Node, path: str, update: Callable[[bytes], None]) -> None:
    if isinstance(node, FileNode):
        content = node.read(0, node.data_end).rstrip(b"\0")
        update(b"%s %d %d\n" % (path.encode(), node.length, len(content)))
        update(content)
        return
    update(b"%s/\n" % path.encode())
    for name in sorted(node.entries):
        _digest(node.entries[name], f"{path}/{name}", update)


def _duplicate(node: Node, copies: dict[int, Node], changes: dict[int, NameChange]) -> Node:
    """`node` and all below it, durable and not; each node and each change of names once."""
    if node.number in copies:
        return copies[node.number]
    if isinstance(node, FileNode):
        copies[node.number] = file = node.duplicate()
        return file
    twin = DirectoryNode(node.number, node.modified_ms)
    copies[node.number] = twin
    twin.entries = {name: _duplicate(child, copies, changes) for name, child in node.entries.items()}
    twin.durable = {name: _duplicate(child, copies, changes) for name, child in node.durable.items()}
    for change in node.changes:
        if change.sequence not in changes:
            changes[change.sequence] = NameChange(
                sequence=change.sequence,
                node=_duplicate(change.node, copies, changes),
                source=_duplicate_directory(change.source, copies, changes),
                source_name=change.source_name,
                target=_duplicate_directory(change.target, copies, changes),
                target_name=change.target_name,
            )
        twin.changes.append(changes[change.sequence])
    return twin


def _duplicate_directory(
    node: DirectoryNode | None, copies: dict[int, Node], changes: dict[int, NameChange]
) -> DirectoryNode | None:
    twin = None if node is None else _duplicate(node, copies, changes)
    assert twin is None or isinstance(twin, DirectoryNode)
    return twin
