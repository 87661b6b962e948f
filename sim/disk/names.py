"""Directories of the simulated disk: the names that a process sees, and the names that a power loss leaves."""

from __future__ import annotations

import errno
from bisect import bisect_left, insort
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import final

from sim.disk.file import FileNode
from storage.values import quickly_made

# What Linux takes in one part of a path.
LONGEST_NAME_BYTES = 255
# The paths whose parts are kept, which is far more than a process uses again and again.
_KNOWN_PATHS = 4_096


@final
class DirectoryNode:
    """A directory: its names now, its durable names, and the changes between them."""

    __slots__ = ("_sorted", "changes", "durable", "entries", "modified_ms", "number", "version")

    def __init__(self, number: int, modified_ms: int) -> None:
        self.number = number
        self.modified_ms = modified_ms
        # Grows with each change of `entries`.
        self.version = 0
        # The names as a process sees them; `add`, `remove` and `become` change them.
        self.entries: dict[str, Node] = {}
        # The same in order, kept since they were asked for: a log of many segments has thousands.
        self._sorted: list[str] | None = None
        # The names as of the last sync of this directory.
        self.durable: dict[str, Node] = {}
        # The changes that lead from `durable` to `entries`, oldest first.
        self.changes: list[NameChange] = []

    def names(self) -> list[str]:
        """Returns the names in order; the list is the caller's."""
        if self._sorted is None:
            self._sorted = sorted(self.entries)
        return self._sorted.copy()

    def add(self, name: str, node: Node) -> None:
        """Give a node a name here, in place of the node that has it."""
        if self._sorted is not None and name not in self.entries:
            insort(self._sorted, name)
        self.entries[name] = node

    def remove(self, name: str) -> None:
        """Take a name away."""
        del self.entries[name]
        if self._sorted is not None:
            place = bisect_left(self._sorted, name)
            assert self._sorted[place] == name, name
            del self._sorted[place]

    def become(self, entries: Mapping[str, Node]) -> None:
        """Have other names."""
        self.entries, self._sorted = dict(entries), None

    def forget(self, node: Node, name: str) -> None:
        """Remove the durable name of `node` from this directory; processes last saw it as `name`."""
        if self.durable.get(name) is node:
            del self.durable[name]
            return
        for other in [other for other, found in self.durable.items() if found is node]:
            del self.durable[other]


Node = FileNode | DirectoryNode


@quickly_made
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NameChange:
    """A name that was added (`target` alone), removed (`source` alone) or moved (both), wholly or not at all.

    The change belongs to the node, not to the name. If a rename survives and the creation before it does not, the file
    is still at its new name, and no file ever has two names.
    """

    sequence: int
    node: Node
    source: DirectoryNode | None = None
    source_name: str = ""
    target: DirectoryNode | None = None
    target_name: str = ""

    def make_durable(self) -> Node | None:
        """Apply the change to the durable names. Returns the node that lost its name, unlinked or replaced, or None."""
        if self.source is not None:
            self.source.forget(self.node, self.source_name)
            assert self.source.durable.get(self.source_name) is not self.node, self.source_name
        if self.target is None:
            return self.node
        replaced = self.target.durable.get(self.target_name)
        self.target.durable[self.target_name] = self.node
        return replaced

    def directories(self) -> tuple[DirectoryNode, ...]:
        """Returns the directory that loses a name and the one that gets one: twice the same for a rename in it."""
        source, target = self.source, self.target
        if source is None:
            return () if target is None else (target,)
        return (source,) if target is None else (source, target)


@lru_cache(maxsize=_KNOWN_PATHS)
def components(path: str) -> tuple[str, ...]:
    """Returns the parts of a path. `a//b/` and `/a/b` are equal: the disk has one root and no working directory."""
    parts = tuple([part for part in path.split("/") if part and part != "."])
    assert ".." not in parts, path
    return parts


def missing(path: str) -> FileNotFoundError:
    return FileNotFoundError(errno.ENOENT, "No such file or directory", path)


def check_name(name: str, path: str) -> None:
    """Check a name that is not there, and so may be a new one. Raises OSError with ENAMETOOLONG, as Linux does."""
    # No character takes more than four bytes.
    if len(name) * 4 > LONGEST_NAME_BYTES and len(name.encode()) > LONGEST_NAME_BYTES:
        raise OSError(errno.ENAMETOOLONG, "File name too long", path)


def walk(root: DirectoryNode, parts: Sequence[str], path: str) -> Node:
    """Returns the node at `parts`. Raises FileNotFoundError or NotADirectoryError, naming `path`."""
    node: Node = root
    for part in parts:
        if not isinstance(node, DirectoryNode):
            raise NotADirectoryError(errno.ENOTDIR, "Not a directory", path)
        found = node.entries.get(part)
        if found is None:
            check_name(part, path)
            raise missing(path)
        node = found
    return node


def walk_directory(root: DirectoryNode, parts: Sequence[str], path: str) -> DirectoryNode:
    node = walk(root, parts, path)
    if not isinstance(node, DirectoryNode):
        raise NotADirectoryError(errno.ENOTDIR, "Not a directory", path)
    return node


def durable_node(root: DirectoryNode, path: str) -> Node:
    """Returns the node at `path` by the names that a power loss would leave. Raises FileNotFoundError."""
    node: Node = root
    for part in components(path):
        found = node.durable.get(part) if isinstance(node, DirectoryNode) else None
        if found is None:
            raise missing(path)
        node = found
    return node


def sync_names(directory: DirectoryNode) -> tuple[list[DirectoryNode], list[Node]]:
    """Make the directory's names durable. Returns the directories written and the nodes that have no name now.

    A move between two directories is one entry of a journal, so it makes the other directory's changes durable too.
    """
    touched, waiting = {directory.number: directory}, [directory]
    while waiting:
        for change in waiting.pop().changes:
            for other in change.directories():
                if other.number not in touched:
                    touched[other.number] = other
                    waiting.append(other)
    pending = {change.sequence: change for known in touched.values() for change in known.changes}
    nameless = [pending[sequence].make_durable() for sequence in sorted(pending)]
    for known in touched.values():
        known.changes.clear()
    return list(touched.values()), [node for node in nameless if node is not None]


def duplicate(node: Node, copies: dict[int, Node], changes: dict[int, NameChange]) -> Node:
    """Returns a copy of `node` and of all below it, by durable names too; nodes and changes are copied once each."""
    if node.number in copies:
        return copies[node.number]
    if isinstance(node, FileNode):
        copies[node.number] = file = node.duplicate()
        return file
    twin = DirectoryNode(node.number, node.modified_ms)
    copies[node.number] = twin
    twin.become({name: duplicate(child, copies, changes) for name, child in node.entries.items()})
    twin.durable = {name: duplicate(child, copies, changes) for name, child in node.durable.items()}
    for change in node.changes:
        if change.sequence not in changes:
            changes[change.sequence] = NameChange(
                sequence=change.sequence,
                node=duplicate(change.node, copies, changes),
                source=_duplicate_directory(change.source, copies, changes),
                source_name=change.source_name,
                target=_duplicate_directory(change.target, copies, changes),
                target_name=change.target_name,
            )
        twin.changes.append(changes[change.sequence])
    # One that is below itself would be copied twice.
    assert copies[node.number] is twin, node.number
    return twin


def _duplicate_directory(
    node: DirectoryNode | None, copies: dict[int, Node], changes: dict[int, NameChange]
) -> DirectoryNode | None:
    twin = None if node is None else duplicate(node, copies, changes)
    assert twin is None or isinstance(twin, DirectoryNode)
    return twin
