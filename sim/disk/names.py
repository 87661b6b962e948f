"""Directories of the simulated disk: the names that a process sees, and those that a power loss leaves."""

from __future__ import annotations

import errno
from dataclasses import dataclass
from typing import final

from sim.disk.file import FileNode


@final
class DirectoryNode:
    __slots__ = ("changes", "durable", "entries", "modified_ms", "number")

    def __init__(self, number: int, modified_ms: int) -> None:
        self.number = number
        self.modified_ms = modified_ms
        # The names as a process sees them.
        self.entries: dict[str, Node] = {}
        # The names as of the last sync of this directory.
        self.durable: dict[str, Node] = {}
        # What leads from `durable` to `entries`, oldest first.
        self.changes: list[NameChange] = []

    def forget(self, node: Node, name: str) -> None:
        """Drop the durable name of `node` in this directory, which was last seen as `name`."""
        if self.durable.get(name) is node:
            del self.durable[name]
            return
        for other in [other for other, found in self.durable.items() if found is node]:
            del self.durable[other]


Node = FileNode | DirectoryNode


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NameChange:
    """A name given (`target` alone), taken (`source` alone) or moved (both), at once or not at all.

    It follows the node, not the name: a rename that survives while the creation before it did not still
    puts the file at its new name, and no file ever ends with two.
    """

    sequence: int
    node: Node
    source: DirectoryNode | None = None
    source_name: str = ""
    target: DirectoryNode | None = None
    target_name: str = ""

    def make_durable(self) -> Node | None:
        """Apply the change to the durable names. Returns the node that lost its name: the one unlinked or replaced."""
        if self.source is not None:
            self.source.forget(self.node, self.source_name)
        if self.target is None:
            return self.node
        replaced = self.target.durable.get(self.target_name)
        self.target.durable[self.target_name] = self.node
        return replaced

    def directories(self) -> list[DirectoryNode]:
        return [directory for directory in (self.source, self.target) if directory is not None]


def components(path: str) -> list[str]:
    """`a//b/` and `/a/b` are one place: the simulated disk has one root and no working directory."""
    parts = [part for part in path.split("/") if part and part != "."]
    assert ".." not in parts, path
    return parts


def missing(path: str) -> FileNotFoundError:
    return FileNotFoundError(errno.ENOENT, "No such file or directory", path)


def walk(root: DirectoryNode, parts: list[str], path: str) -> Node:
    """Returns the node at `parts`. Raises FileNotFoundError or NotADirectoryError, naming `path`."""
    node: Node = root
    for part in parts:
        if not isinstance(node, DirectoryNode):
            raise NotADirectoryError(errno.ENOTDIR, "Not a directory", path)
        found = node.entries.get(part)
        if found is None:
            raise missing(path)
        node = found
    return node


def walk_directory(root: DirectoryNode, parts: list[str], path: str) -> DirectoryNode:
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

    A move between two directories is one entry of a journal: it takes what is pending in the other along.
    """
    touched, waiting = [directory], [directory]
    while waiting:
        for change in waiting.pop().changes:
            for other in change.directories():
                if not any(other is known for known in touched):
                    touched.append(other)
                    waiting.append(other)
    pending = {change.sequence: change for known in touched for change in known.changes}
    nameless = [pending[sequence].make_durable() for sequence in sorted(pending)]
    for known in touched:
        known.changes.clear()
    return touched, [node for node in nameless if node is not None]


def duplicate(node: Node, copies: dict[int, Node], changes: dict[int, NameChange]) -> Node:
    """Returns a copy of `node` and all below it, durable and not; each node and each change of names is copied once."""
    if node.number in copies:
        return copies[node.number]
    if isinstance(node, FileNode):
        copies[node.number] = file = node.duplicate()
        return file
    twin = DirectoryNode(node.number, node.modified_ms)
    copies[node.number] = twin
    twin.entries = {name: duplicate(child, copies, changes) for name, child in node.entries.items()}
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
    return twin


def _duplicate_directory(
    node: DirectoryNode | None, copies: dict[int, Node], changes: dict[int, NameChange]
) -> DirectoryNode | None:
    twin = None if node is None else duplicate(node, copies, changes)
    assert twin is None or isinstance(twin, DirectoryNode)
    return twin
