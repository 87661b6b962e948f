"""The simulated disk: the durable state of each file and directory, and the changes that are not durable yet.

A process crash keeps the page cache (`sim.disk.cache`). A power loss keeps what was synced, and as much of the rest as
its mode says (`sim.disk.survival`). `sync` of a file makes its bytes and its length durable, but not its name;
`sync_directory` makes the names durable. Everything is a function of the calls and the draws; there is no real I/O.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Collection, Mapping, Sequence
from hashlib import blake2b
from typing import final

from sim.buggify.disks import DiskPoints
from sim.disk.cache import PageCache
from sim.disk.costs import Meter
from sim.disk.faults import ALL_VERBS, MUTATING, OPENING, WRITES, Applied, Phantom, Refusal, Trigger
from sim.disk.file import Fate, FileNode
from sim.disk.handles import SimFileSystem
from sim.disk.life import Life
from sim.disk.names import DirectoryNode, Node, components, durable_node, missing
from sim.disk.rot import Extent, overwrite, rot, synced_bytes
from sim.disk.survival import PowerLoss, Survivors, Tear, keep_by_mode, keep_chosen, keep_sequences
from storage.disk.handle_pool import HandlePool
from storage.draws import Draws


@final
class SimDisk:
    """One machine's disk; it outlives the processes (`Life`) that use it."""

    def __init__(self, draws: Draws, now_ms: Callable[[], int]) -> None:
        self._draws = draws
        self._cache = PageCache(draws, now_ms)
        self._power_losses = 0
        # Whether bytes that were synced have ever changed without a word.
        self.has_rotten = False
        # How many processes have begun on it.
        self.lives = 0

    def file_system(self, life: Life, handles: HandlePool | None = None) -> SimFileSystem:
        """Returns the disk as the process of `life` sees it; all its handles die with that life.

        `handles` limits how many files stay open while they are not used; by default all do.
        """
        self._cache.join(life)
        return SimFileSystem(self._cache, life, handles)

    @property
    def names_version(self) -> int:
        """Grows with each change of a name: as long as it stays, each path names the same file."""
        return self._cache.names_version

    def names_of(self, path: str) -> tuple[object, int]:
        """Returns what stays equal as long as each name in the directory at `path` names the same file."""
        node = self._node_at(path)
        return (node, node.version) if isinstance(node, DirectoryNode) else (None, 0)

    @property
    def points(self) -> DiskPoints | None:
        """The buggify points of the disk; None where all of them are off."""
        return self._cache.points

    @points.setter
    def points(self, points: DiskPoints | None) -> None:
        self._cache.points = points

    @property
    def meter(self) -> Meter:
        """Counts what the calls of processes cost."""
        return self._cache.meter

    def crash_process(self) -> None:
        """End every life on this disk with its handles, maps and locks; the page cache stays."""
        self._cache.crash_process()

    def lose_power(self, mode: PowerLoss) -> None:
        """End the processes and the page cache; `mode` says how the pending changes that survive are drawn."""
        self._cache.crash_process()
        self._power_losses += 1
        keep_by_mode(self._cache, mode, Survivors(self._draws, self._power_losses))

    def lose_power_keeping(self, sequences: Collection[int], tears: Mapping[int, Tear] | None = None) -> None:
        """Lose power and keep exactly the pending changes with these numbers, so that a test can try every set.

        A write whose number is in `tears` is kept in that shape; a tear of any other change has no effect.
        """
        self._cache.crash_process()
        self._power_losses += 1
        keep_sequences(self._cache, sequences, tears)
        assert not self._cache.dirty_files, len(self._cache.dirty_files)
        assert not self._cache.dirty_directories, len(self._cache.dirty_directories)

    def arm_crash(
        self,
        call: int,
        *,
        applied: Applied = Applied.DRAWN,
        hook: Callable[[], None] | None = None,
        verbs: Collection[str] = MUTATING,
        path_suffix: str = "",
    ) -> None:
        """Let the process die inside the `call`-th matching call from now (1 is the next), after `applied` of it.

        `hook` runs when all handles are dead and before `Dead` is raised, for example to lose power at that moment.
        """
        trigger = Trigger(
            countdown=call, verbs=frozenset(verbs), path_suffix=path_suffix, applied=applied, hook=hook
        )
        self._cache.faults.arm(trigger)

    def arm(self, trigger: Trigger) -> None:
        """Let the fault count calls from now on, and strike."""
        self._cache.faults.arm(trigger)

    def take_back(self, trigger: Trigger) -> None:
        """Let the fault count no calls any more; it may have struck, or have gone with a process."""
        self._cache.faults.take_back(trigger)

    def arm_partial_write(
        self, path_suffix: str, byte: int, rest: bytes = b"", path_prefix: str = ""
    ) -> None:
        """The next write to a path with this beginning and this end stores only `byte` bytes; then the process dies.

        With `rest` the file is as long as if all were stored, and has these bytes, repeated, in place of the others.
        """
        assert byte >= 0, (path_suffix, byte)
        trigger = Trigger(
            countdown=1,
            verbs=WRITES,
            path_suffix=path_suffix,
            path_prefix=path_prefix,
            applied=Applied.ALL,
            applied_bytes=byte,
            rest=rest,
        )
        self._cache.faults.arm(trigger)

    def fail(
        self,
        call: int,
        error_number: int = errno.EIO,
        *,
        verbs: Collection[str] = MUTATING,
        path_suffix: str = "",
        applied_bytes: int = 0,
    ) -> None:
        """Let the `call`-th matching call from now raise OSError; a write first stores `applied_bytes` bytes.

        A failed sync leaves the file's pending changes in the page cache only: no later sync makes them durable.
        """
        assert ALL_VERBS.issuperset(verbs), verbs
        trigger = Trigger(
            countdown=call,
            verbs=frozenset(verbs),
            path_suffix=path_suffix,
            applied=Applied.NOTHING,
            applied_bytes=applied_bytes,
            error_number=error_number,
        )
        self._cache.faults.arm(trigger)

    def fail_next_sync(self, path_part: str, hook: Callable[[], None], *, keeps_pages: bool = False) -> None:
        """Let the next sync of a file whose path ends in `path_part` raise EIO, after a call of `hook`.

        What the file has pending is in the page cache only, from then on: later syncs succeed and do not write it,
        unless the kernel keeps the pages as dirty.
        """
        trigger = Trigger(
            countdown=1, verbs=frozenset({"sync"}), path_suffix=path_part, applied=Applied.NOTHING,
            error_number=errno.EIO, hook=hook, keeps_pages=keeps_pages,
        )  # fmt: skip
        self._cache.faults.arm(trigger)

    def refuse(
        self, error_number: int, verbs: Collection[str], *, path: str = "", free_bytes: int = 0
    ) -> None:
        """Let calls of `verbs` at or below `path` (empty: anywhere) raise OSError until `mend` or `end_refusal`.

        With `free_bytes` writes succeed until they have taken that much. It replaces an earlier refusal.
        """
        assert ALL_VERBS.issuperset(verbs), verbs
        self._cache.faults.refusal = Refusal(
            verbs=frozenset(verbs), path=path, error_number=error_number, free_bytes=free_bytes
        )

    def end_refusal(self) -> None:
        self._cache.faults.refusal = None

    def lack_descriptors(self, verbs: Collection[str]) -> None:
        """Leave the process that runs no descriptor for calls of these verbs, some of `OPENING`: until this is called
        without any, or `begin_life`.
        """
        assert OPENING.issuperset(verbs), verbs
        self._cache.faults.lacking = frozenset(verbs)

    @property
    def lacks_descriptors(self) -> bool:
        """Whether the process that runs lacks descriptors."""
        return bool(self._cache.faults.lacking)

    def let_syncs_lie(self, lie: bool) -> None:
        """Let syncs of files report success and write nothing, as long as `lie` was passed last."""
        self._cache.faults.syncs_lie = lie

    def refused(self, path: str) -> bool:
        """Whether a call at or below `path` met an error since `begin_life`."""
        return any(each.startswith(f"{path}/") or each == path for each in self._cache.faults.refused)

    @property
    def errors(self) -> Sequence[str]:
        """The paths of the calls that have raised an error since `begin_life`, in order."""
        return self._cache.faults.told

    @property
    def has_refused(self) -> bool:
        """Whether any call met an error since `begin_life`."""
        return bool(self._cache.faults.refused)

    def begin_life(self) -> None:
        """Count a process that begins, and forget the errors that earlier ones met."""
        self.lives += 1
        self._cache.faults.begin_life()

    def wipe(self) -> None:
        """Leave an empty disk; no process may run."""
        self._cache.replace_tree(None)

    def restore(self, image: SimDisk) -> None:
        """Hold what `image` holds, which stays as it is; no process may run."""
        self._cache.replace_tree(image._cache.duplicate(self._draws))

    def names_in(self, path: str) -> list[str]:
        """Returns the names in a directory, in order, as a process sees them; none if there is no such directory."""
        node = self._node_at(path)
        return node.names() if isinstance(node, DirectoryNode) else []

    def synced_bytes(self, path: str) -> int:
        """Returns how many bytes at the start of the file no pending change touches; 0 if there is no such file."""
        node = self._file_at(path)
        return 0 if node is None else synced_bytes(node)

    def is_synced(self, path: str) -> bool:
        """Whether no change of the file's bytes is pending or lost; so also if there is no such file."""
        node = self._file_at(path)
        return node is None or not node.changes

    def may_regrow(self, path: str) -> bool:
        """Whether a power loss may bring bytes back that the file was cut of; not if there is no such file."""
        node = self._file_at(path)
        return node is not None and node.may_regrow()

    def rot(self, path: str, extent: Extent, draws: Draws) -> tuple[int, int] | None:
        """Change bytes of a file that were synced, without a word. Returns their place, None if nothing was synced."""
        node = self._file_at(path)
        self.has_rotten = self.has_rotten or node is not None
        return None if node is None else rot(node, extent, draws)

    def overwrite(self, path: str, data: bytes, draws: Draws) -> tuple[int, int] | None:
        """Put bytes that belong elsewhere over what was synced, without a word. Returns their place as `rot` does."""
        node = self._file_at(path)
        self.has_rotten = self.has_rotten or node is not None
        return None if node is None else overwrite(node, data, draws)

    def lose_writes(self, percent: int, stray: Callable[[str, bytes], None] | None = None) -> None:
        """Let so many of a hundred writes be acknowledged and never arrive, until 0 is passed.

        `stray` is called with the path and the bytes of each.
        """
        self._cache.faults.phantom = Phantom(percent=percent, stray=stray) if percent else None

    def _file_at(self, path: str) -> FileNode | None:
        node = self._node_at(path)
        return node if isinstance(node, FileNode) else None

    def _node_at(self, path: str) -> Node | None:
        """Returns what processes see at `path`; None if nothing is there."""
        node: Node | None = self._cache.root
        for part in components(path):
            node = node.entries.get(part) if isinstance(node, DirectoryNode) else None
        return node

    def break_directory(self, path: str) -> None:
        """Let every read and change at or below `path` raise EIO, in this life and later ones, until `mend`."""
        self._cache.faults.break_directory(path)

    def breaks(self, path: str) -> bool:
        """Whether every call at or below `path` fails now."""
        return self._cache.faults.breaks(path)

    @property
    def is_broken(self) -> bool:
        """Whether any directory is broken now."""
        return self._cache.faults.is_broken

    @property
    def has_faults(self) -> bool:
        """Whether any fault is armed or any directory is broken."""
        return self._cache.faults.is_armed

    @property
    def spoils_calls(self) -> bool:
        """Whether any call could meet an error or lie; a death that waits changes none before it strikes."""
        return self._cache.faults.spoils_calls

    @property
    def has_lost_writes(self) -> bool:
        """Whether the page cache shows changes whose sync failed, so that a power loss takes them for certain."""
        return any(node.has_lost for node in self._cache.dirty_files.values())

    @property
    def has_deceived(self) -> bool:
        """Whether a sync has ever said success of changes that stayed in the cache."""
        return self._cache.has_deceived

    @property
    def deceives(self) -> bool:
        """Whether a sync has said success of changes that a power loss takes for certain."""
        # Few disks ever do, and one that is seldom synced has many such files.
        return self._cache.has_deceived and any(
            node.is_deceiving for node in self._cache.dirty_files.values()
        )

    def mend(self) -> None:
        """End broken directories and refusals; what a failed sync left pending is not durable."""
        self._cache.faults.mend()

    def disarm(self) -> None:
        """Drop every armed fault that has not struck."""
        self._cache.faults.disarm()

    @property
    def operations(self) -> int:
        """The number of mutating calls so far, including those struck by a fault."""
        return self._cache.operations

    @property
    def call_log(self) -> list[str] | None:
        """The list to which each mutating call adds a line; None if no test has set one."""
        return self._cache.call_log

    @call_log.setter
    def call_log(self, lines: list[str] | None) -> None:
        self._cache.call_log = lines

    @property
    def observer(self) -> Callable[[str, str], None] | None:
        """The function that is called with the verb and the path before each mutating call, or None."""
        return self._cache.observer

    @observer.setter
    def observer(self, observer: Callable[[str, str], None] | None) -> None:
        self._cache.observer = observer

    def sync_all(self) -> None:
        """Make every pending change durable, as sync(2) does: a test calls it before it enumerates survivors."""
        self._cache.sync_all()

    @property
    def last_sequence(self) -> int:
        """The number of the newest change, pending or not; numbers count from 1."""
        return self._cache.last_sequence

    def pending_sequences(self) -> list[int]:
        """Returns the numbers of the changes that may or may not survive a power loss, oldest first."""
        return self._cache.pending_sequences()

    def pending_count(self) -> int:
        return len(self._cache.pending_sequences())

    def pending_writes(self) -> list[int]:
        """Returns the numbers of the pending changes that are writes, and so may be torn."""
        return sorted(
            change.sequence
            for node in self._cache.dirty_files.values()
            for change in node.changes
            if change.fate is Fate.PENDING and change.is_write
        )

    def pending_names(self) -> dict[int, str]:
        """Returns the pending changes of names by number, oldest first: the name added, empty where one is removed."""
        found = {
            change.sequence: change.target_name
            for directory in self._cache.dirty_directories.values()
            for change in directory.changes
        }
        return {sequence: found[sequence] for sequence in sorted(found)}

    def pending_changes_in(self, path: str) -> list[tuple[str, str]]:
        """Returns the pending changes of names in a directory, oldest first: the name removed, and the one added."""
        node, _ = self.names_of(path)
        if not isinstance(node, DirectoryNode):
            return []
        return [(change.source_name, change.target_name) for change in node.changes]

    def held_bytes(self) -> int:
        """Returns the size of all files together, each up to the last byte written: what follows takes no memory."""
        return _held_bytes(self._cache.root)

    def fingerprint(self) -> bytes:
        """Returns a digest of every name and byte that a process sees; equal trees have equal digests."""
        digest = blake2b(digest_size=16)
        _digest(self._cache.root, "", digest.update)
        return digest.digest()

    def durable_bytes(self, path: str, *, zeros: int | None = None) -> bytes:
        """Returns the file's bytes after a power loss that keeps nothing pending.

        All of them, or with `zeros` those up to the last one that was written and at most so many of the zeros that
        follow, as in room that is set aside.
        Raises FileNotFoundError if the file has no durable name.
        """
        node = durable_node(self._cache.root, path)
        if not isinstance(node, FileNode):
            raise missing(path)
        if node.changes:
            node = node.duplicate()
            keep_chosen(node, lambda sequence: False)
        return node.read(0, node.length if zeros is None else min(node.length, node.data_end + zeros))

    def snapshot(self, draws: Draws | None = None) -> SimDisk:
        """Returns an independent disk in the same state, without lives, locks, maps and armed faults.

        With the same draws, a power loss leaves the same on both.
        """
        twin = SimDisk(draws if draws is not None else self._draws, self._cache.now_ms)
        twin._cache = self._cache.duplicate(twin._draws)
        twin._power_losses = self._power_losses
        # The draws of faults and of a power loss name these numbers.
        assert twin.operations == self.operations, (twin.operations, self.operations)
        assert twin.last_sequence == self.last_sequence, (twin.last_sequence, self.last_sequence)
        return twin


def _held_bytes(node: Node) -> int:
    if isinstance(node, FileNode):
        return node.data_end
    return sum(map(_held_bytes, node.entries.values()))


def _digest(node: Node, path: str, update: Callable[[bytes], None]) -> None:
    if isinstance(node, FileNode):
        content = node.read(0, node.data_end).rstrip(b"\0")
        update(b"%s %d %d\n" % (path.encode(), node.length, len(content)))
        update(content)
        return
    update(b"%s/\n" % path.encode())
    for name in node.names():
        _digest(node.entries[name], f"{path}/{name}", update)
