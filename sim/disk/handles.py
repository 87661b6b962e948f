"""The simulated disk as one process sees it: files, maps and locks that die with the process."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import final

from sim.disk.cache import PageCache
from sim.disk.file import FileNode
from sim.disk.life import Dead, Life
from sim.disk.names import (
    DirectoryNode,
    NameChange,
    Node,
    check_name,
    components,
    missing,
    walk,
    walk_directory,
)
from storage.codec.buffer import Buffer
from storage.disk.filesystem import FileStat, OpenMode
from storage.disk.handle_pool import HandlePool, is_out_of_handles


def _refuse(error_number: int, path: str) -> OSError:
    return OSError(error_number, os.strerror(error_number), path)


@final
class SimReadMap:
    """A file mapped for reading."""

    def __init__(self, owner: SimFileSystem, node: FileNode, path: str) -> None:
        self._owner, self._cache, self._life = owner, owner.cache, owner.life
        self._node: FileNode | None = node
        self.number = node.number
        self.path = path
        self._view = self._cache.map_file(node)
        owner.hold(self)

    @property
    def view(self) -> memoryview:
        return self._view

    def release_until(self, position: int) -> None:
        """Do nothing: the mapped bytes are the disk's own, so there is no memory to release."""

    def close(self) -> None:
        """End the map; does nothing a second time, or in a dead life, whose maps have ended already."""
        node, self._node = self._node, None
        if node is not None:
            self._owner.held.pop(self, None)
            self._view.release()
            if not self._life.dead:
                self._cache.unmap_file(node)


@final
class SimFile:
    """An open file; it stays the same file when it is renamed or its name is deleted.

    Like a real one, it looks for its name when it is used after it has rested, and refuses if that is another file.
    """

    def __init__(
        self, owner: SimFileSystem, node: FileNode, path: str, *, writable: bool, can_rest: bool
    ) -> None:
        self._owner, self._cache, self._life = owner, owner.cache, owner.life
        self._node = node
        self._path = path
        # Where it is looked for, if it is used after a rest.
        self._names = (path, path)
        self._writable, self._can_rest = writable, can_rest
        self._closed = self._rests = False
        self._sync_error: OSError | None = None
        self.is_used = True
        # Whether bytes were written, or cut off, since the last sync.
        self.is_unsynced = False
        owner.hold(self)
        if can_rest:
            owner.handles.add(self)

    @property
    def path(self) -> str:
        return self._path

    @property
    def number(self) -> int:
        """The number of the file on its disk: a file that replaces it under its name has another."""
        return self._node.number

    @property
    def data_end(self) -> int:
        """The position (exclusive) up to which anything was written: all that follows is zero."""
        return self._node.data_end

    @property
    def is_dead(self) -> bool:
        """Whether the life that opened the file has ended: then each call raises Dead."""
        return self._life.dead

    def size(self) -> int:
        self._check("size")
        return self._node.length

    def read_at(self, position: int, size: int) -> bytes:
        """Returns up to `size` bytes from `position`; fewer only where the file ends."""
        self._check("read")
        if position < 0 or size < 0:
            raise _refuse(errno.EINVAL, self._path)
        return self._read(position, size)

    def read_into(self, position: int, buffer: memoryview) -> int:
        """Read into `buffer`. Returns the number of bytes, which is less at the end of the file."""
        self._check("read")
        if position < 0:
            raise _refuse(errno.EINVAL, self._path)
        data = self._read(position, len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def _read(self, position: int, size: int) -> bytes:
        """Returns what is there; a buggify point may stop the first call early, so that a second one reads the rest."""
        if self._life.sees_through:
            return self._node.read(position, size)
        points = self._cache.points
        first = size if points is None else points.first_read(size)
        data = self._node.read(position, first)
        self._cache.meter.call(len(data))
        if first == size or len(data) < first:
            return data
        # A disk may have begun to fail meanwhile: then the caller gets nothing.
        self._strike_read()
        rest = self._node.read(position + first, size - first)
        self._cache.meter.call(len(rest))
        assert len(data) + len(rest) <= size, (position, size, first)
        return data + rest

    def write_at(self, position: int, data: Buffer) -> None:
        self._check_writable()
        self._write("write_at", position, data)

    def append(self, data: Buffer) -> None:
        self._check_writable()
        self._write("append", self._node.length, data)

    def truncate(self, size: int) -> None:
        self._check("write")
        if size > self._node.length:
            raise ValueError(f"{self._path}: cannot truncate {self._node.length} bytes to {size}")
        self._resize("truncate", size)

    def set_length(self, size: int) -> None:
        self._check("write")
        self._resize("set_length", size)

    def sync(self) -> None:
        """Make the file's bytes and length durable; after an error of most disks its pending changes are never durable.

        Raises also what an earlier sync of this file met.
        """
        self._check("size")
        if self._sync_error is not None:
            self._cache.faults.told.append(self._path)
            raise self._sync_error
        try:
            self._sync()
        except OSError as error:
            # Without a descriptor no sync was tried.
            if not is_out_of_handles(error):
                self._sync_error = error
            raise

    def _sync(self) -> None:
        stop = self._cache.begin("sync", self._path)
        if stop is not None:
            if stop.share():
                self._cache.sync_file(self._node)
            elif stop.trigger.error_number is not None and not stop.trigger.keeps_pages:
                self._node.lose_pending()
            stop.end()
        self._cache.sync_file(self._node)
        self.is_unsynced = False

    def map_for_reading(self) -> SimReadMap:
        self._check("read", may_rest=True)
        if self._node.length == 0:
            raise ValueError(f"{self._path}: cannot map an empty file")
        return SimReadMap(self._owner, self._node, self._path)

    def moves_to(self, path: str) -> None:
        """Note that the file is about to be renamed: if it must be opened again, it is looked for at both names."""
        self._names = (path, self._names[0])

    def rest(self) -> None:
        """Give the handle up until the next use, unless bytes wait for a sync."""
        if self._can_rest and not self.is_unsynced and self.give_up():
            self._owner.handles.remove(self)

    def give_up(self) -> bool:
        """End the use of the handle, after a sync if there are bytes to sync. Returns False if it must stay open.

        The error of that sync is raised by the next sync of this file: no later sync writes those bytes.
        """
        if self._sync_error is not None:
            return False
        if self.is_unsynced and not self._life.dead:
            try:
                self._sync()
            except OSError as error:
                self._sync_error = error
                self._cache.faults.keep_back(self._path)
                return False
        self._rests = True
        return True

    def close(self) -> None:
        """Close the file; may be called again, and in a dead life, because it changes nothing on the disk."""
        self._closed = True
        self._owner.held.pop(self, None)
        if self._can_rest:
            self._owner.handles.remove(self)

    def _look_again(self) -> None:
        """Look for the file at its name, and at the one before the last rename.

        Raises FileNotFoundError if it is at neither, also where another file took its place.
        """
        found = [self._owner.file_at(name) for name in self._names]
        if self._node in found:
            return
        if found == [None, None]:
            raise missing(self._path)
        raise FileNotFoundError(errno.ENOENT, "Another file took its place", self._path)

    def _check(self, verb: str, *, may_rest: bool = False) -> None:
        if self._life.dead:
            raise Dead(self._life.name)
        if self._closed:
            raise _refuse(errno.EBADF, self._path)
        self.is_used = True
        if self._rests:
            if self._cache.faults.lacking and not self._life.sees_through:
                self._owner.ask_for_descriptor("reopen", self._path)
            self._look_again()
            if not may_rest:
                self._rests = False
                self._owner.handles.add(self)
        if verb == "read" and not self._life.sees_through:
            self._strike_read()

    def _strike_read(self) -> None:
        if not self._cache.faults.is_armed:
            return
        stop = self._cache.strike("read", self._path)
        if stop is not None:
            stop.end()

    def _check_writable(self) -> None:
        self._check("write")
        if not self._writable:
            raise _refuse(errno.EBADF, self._path)

    def _write(self, verb: str, position: int, data: Buffer) -> None:
        if position < 0:
            raise _refuse(errno.EINVAL, self._path)
        self.is_unsynced = True
        stop = self._cache.begin(verb, self._path, position, len(data))
        if stop is None:
            self._write_parts(position, data)
            if self._cache.faults.phantom is not None:
                self._cache.after_write(self._node, self._path, data)
            # Only now: a write that is lost never becomes durable, not even by itself.
            self._cache.maybe_write_back(self._node)
            self._cache.maybe_write_page_back()
            return
        part = stop.stored(data)
        if part:
            self._cache.change_file(self._node).write(self._cache.next_sequence(), position, part)
        stop.end()

    def _write_parts(self, position: int, data: Buffer) -> None:
        """Write all of `data`; a buggify point may split the write."""
        node, points = self._cache.change_file(self._node), self._cache.points
        first = len(data) if points is None else points.first_part(len(data))
        if first == len(data):
            node.write(self._cache.next_sequence(), position, data)
        else:
            view = memoryview(data)
            node.write(self._cache.next_sequence(), position, view[:first])
            node.write(self._cache.next_sequence(), position + first, view[first:])

    def _resize(self, verb: str, length: int) -> None:
        if self._node.live_maps and length < self._node.length:
            raise BufferError(f"{self._path} is mapped: cannot shrink it to {length} bytes")
        if length < 0:
            raise _refuse(errno.EINVAL, self._path)
        if not self._writable:
            raise _refuse(errno.EBADF, self._path)
        # A file that only grows has no new bytes that could be lost.
        self.is_unsynced = self.is_unsynced or length < self._node.length
        stop = self._cache.begin(verb, self._path, length)
        if (stop is None or stop.share()) and length != self._node.length:
            self._cache.change_file(self._node).resize(self._cache.next_sequence(), length)
        if stop is not None:
            stop.end()


@final
class SimLock:
    """The lock of a file, held until `release` or the end of the life."""

    def __init__(self, cache: PageCache, life: Life, node: FileNode) -> None:
        self._cache = cache
        self._life = life
        self._node: FileNode | None = node

    def release(self) -> None:
        node, self._node = self._node, None
        if node is not None and not self._life.dead:
            self._cache.unlock(node)


@final
class SimFileSystem:
    """The `FileSystem` over a page cache, for one life of one process; each method raises Dead after that life.

    `handles` is the pool of the files that may rest; by default it has no limit.
    """

    def __init__(self, cache: PageCache, life: Life, handles: HandlePool | None = None) -> None:
        self.cache = self._cache = cache
        self.life = self._life = life
        self._handles = HandlePool() if handles is None else handles
        # What was opened or mapped and not closed, in that order.
        self.held: dict[SimFile | SimReadMap, None] = {}

    @property
    def handles(self) -> HandlePool:
        """The pool of the handles that may be given up while they are not used."""
        return self._handles

    @contextmanager
    def reserved(self, count: int) -> Iterator[None]:
        """Do nothing: a simulated process has as many descriptors as it likes, unless a fault strikes `reserve`.

        Where it has those that it keeps, no call within the block lacks one.
        """
        assert count > 0, count
        self._life.check_alive()
        self.ask_for_descriptor("reserve", "")
        yield

    def ask_for_descriptor(self, verb: str, path: str) -> None:
        """Raises OSError if a fault leaves the process no descriptor for the call."""
        stop = self._cache.strike(verb, path)
        if stop is not None:
            stop.end()

    def hold(self, handle: SimFile | SimReadMap) -> None:
        """Count what was opened or mapped until it is closed; nobody asks what an eye from outside holds."""
        if not self._life.sees_through:
            self.held[handle] = None

    def numbers(self) -> set[int]:
        """Returns the numbers of the files that have a name."""
        found: set[int] = set()
        directories = [self._cache.root]
        while directories:
            for node in directories.pop().entries.values():
                if isinstance(node, DirectoryNode):
                    directories.append(node)
                else:
                    found.add(node.number)
        return found

    def file_at(self, path: str) -> FileNode | None:
        """Returns the file called `path`; None if there is none."""
        try:
            node = self._find(path)[2]
        except OSError:
            return None
        return node if isinstance(node, FileNode) else None

    def open(self, path: str, mode: OpenMode, *, can_rest: bool = False) -> SimFile:
        """Open a file, which is made where the mode says so. Raises OSError as open(2) does."""
        parent, name, found = self._find(path)
        if found is not None and mode is OpenMode.CREATE_NEW:
            raise FileExistsError(errno.EEXIST, "File exists", path)
        if isinstance(found, DirectoryNode):
            raise IsADirectoryError(errno.EISDIR, "Is a directory", path)
        if found is None:
            if mode in (OpenMode.READ, OpenMode.WRITE):
                raise missing(path)
            found = self._create(parent, name, path)
        elif self._cache.faults.lacking and not self._life.sees_through:
            self.ask_for_descriptor("open", path)
        return SimFile(self, found, path, writable=mode is not OpenMode.READ, can_rest=can_rest)

    def exists(self, path: str) -> bool:
        """Whether a process sees a file or a directory at `path`."""
        self._life.check_alive()
        try:
            walk(self._cache.root, components(path), path)
        except OSError:
            return False
        return True

    def stat(self, path: str) -> FileStat:
        """Returns size, modification time and kind of what is at `path`. Raises OSError if nothing is."""
        self._life.check_alive()
        node = walk(self._cache.root, components(path), path)
        is_directory = isinstance(node, DirectoryNode)
        size_bytes = 0 if isinstance(node, DirectoryNode) else node.length
        return FileStat(size_bytes=size_bytes, modified_ms=node.modified_ms, is_directory=is_directory)

    def list(self, path: str) -> list[str]:
        self._life.check_alive()
        return walk_directory(self._cache.root, components(path), path).names()

    def set_modified(self, path: str, modified_ms: int) -> None:
        """Set the modification time, in milliseconds since the Unix epoch."""
        self._life.check_alive()
        node = walk(self._cache.root, components(path), path)
        stop = self._cache.begin("set_modified", path, modified_ms)
        if stop is None or stop.share():
            self._cache.change_modified(node, modified_ms)
        if stop is not None:
            stop.end()

    def rename(self, old: str, new: str) -> None:
        """Rename a file or directory as rename(2) does, which replaces a file or an empty directory."""
        source, source_name, node = self._find(old)
        target, target_name, replaced = self._find(new)
        if node is None:
            raise missing(old)
        if node is replaced:
            return
        from_parts, to_parts = components(old), components(new)
        if to_parts[: len(from_parts)] == from_parts:
            # The rename would move a directory into itself.
            raise _refuse(errno.EINVAL, new)
        if from_parts[: len(to_parts)] == to_parts:
            # The rename would replace a directory above the moved one.
            raise _refuse(errno.ENOTEMPTY, new)
        self._check_replaceable(node, replaced, new)
        change = NameChange(
            sequence=self._cache.next_sequence(),
            node=node,
            source=source,
            source_name=source_name,
            target=target,
            target_name=target_name,
        )
        self._change_name("rename", old, change, new)

    def canonical(self, path: str) -> str:
        return "/".join(components(path))

    def unlink(self, path: str) -> None:
        self._take_name("unlink", path)

    def make_directory(self, path: str) -> None:
        """Make a directory and its missing parents; does nothing if it exists."""
        self._life.check_alive()
        node = self._cache.root
        parts = components(path)
        for depth, part in enumerate(parts, 1):
            child = node.entries.get(part)
            if child is None:
                check_name(part, path)
                child = DirectoryNode(self._cache.next_number(), self._cache.now_ms())
                self._give_name("make_directory", path, child, node, part)
            elif not isinstance(child, DirectoryNode):
                raise _refuse(errno.EEXIST if depth == len(parts) else errno.ENOTDIR, path)
            node = child

    def remove_directory(self, path: str) -> None:
        self._take_name("remove_directory", path)

    def lock(self, path: str) -> SimLock:
        """Lock a file, which is made if needed. Raises BlockingIOError while another handle holds its lock."""
        parent, name, found = self._find(path)
        if isinstance(found, DirectoryNode):
            raise IsADirectoryError(errno.EISDIR, "Is a directory", path)
        node = found if found is not None else self._create(parent, name, path)
        self._cache.take_lock(node, path)
        return SimLock(self._cache, self._life, node)

    def sync_directory(self, path: str) -> None:
        """Make the names in a directory durable."""
        self._life.check_alive()
        node = walk_directory(self._cache.root, components(path), path)
        stop = self._cache.begin("sync_directory", path)
        if stop is None or stop.share():
            self._cache.sync_names(node)
        if stop is not None:
            stop.end()

    def _find(self, path: str) -> tuple[DirectoryNode, str, Node | None]:
        self._life.check_alive()
        parts = components(path)
        if not parts:
            raise IsADirectoryError(errno.EISDIR, "Is a directory", path)
        parent = walk_directory(self._cache.root, parts[:-1], path)
        found = parent.entries.get(parts[-1])
        if found is None:
            check_name(parts[-1], path)
        return parent, parts[-1], found

    def _create(self, parent: DirectoryNode, name: str, path: str) -> FileNode:
        node = FileNode(self._cache.next_number(), self._cache.now_ms())
        self._give_name("create", path, node, parent, name)
        return node

    def _give_name(self, verb: str, path: str, node: Node, parent: DirectoryNode, name: str) -> None:
        sequence = self._cache.next_sequence()
        change = NameChange(sequence=sequence, node=node, target=parent, target_name=name)
        self._change_name(verb, path, change)

    def _take_name(self, verb: str, path: str) -> None:
        parent, name, node = self._find(path)
        if node is None:
            raise missing(path)
        if verb == "unlink" and isinstance(node, DirectoryNode):
            raise IsADirectoryError(errno.EISDIR, "Is a directory", path)
        if verb == "remove_directory":
            if not isinstance(node, DirectoryNode):
                raise NotADirectoryError(errno.ENOTDIR, "Not a directory", path)
            if node.entries:
                raise _refuse(errno.ENOTEMPTY, path)
        sequence = self._cache.next_sequence()
        self._change_name(
            verb, path, NameChange(sequence=sequence, node=node, source=parent, source_name=name)
        )

    def _change_name(self, verb: str, path: str, change: NameChange, *detail: str) -> None:
        stop = self._cache.begin(verb, path, *detail)
        if stop is None or stop.share():
            self._cache.change_names(change)
        if stop is not None:
            stop.end()
        for directory in change.directories():
            self._cache.maybe_write_names_back(directory)

    def _check_replaceable(self, node: Node, replaced: Node | None, new: str) -> None:
        if replaced is None or node is replaced:
            return
        if isinstance(node, DirectoryNode):
            if not isinstance(replaced, DirectoryNode):
                raise NotADirectoryError(errno.ENOTDIR, "Not a directory", new)
            if replaced.entries:
                raise _refuse(errno.ENOTEMPTY, new)
        elif isinstance(replaced, DirectoryNode):
            raise IsADirectoryError(errno.EISDIR, "Is a directory", new)
