"""A file system over another one, of which it changes nothing: it shows what a change would do.

A file is copied into `scratch`, a directory for files that nobody keeps, when it is opened for writing; a `.log`, which
may be large, only when it is written: until then it can become shorter without a copy. Names that are created, renamed
or deleted are kept in memory. Directories cannot be renamed, and a lock locks nothing.
"""

from __future__ import annotations

import errno
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass
from enum import Enum
from typing import final

from storage.codec.buffer import Buffer
from storage.disk.filesystem import File, FileStat, FileSystem, Lock, OpenMode, ReadMap, dirname, join
from storage.disk.handle_pool import HandlePool

_UNCOPIED_SUFFIX = ".log"
_COPIED_AT_ONCE = 1 << 20


class Change(Enum):
    """What would happen to a file."""

    CREATED = "created"
    CHANGED = "changed"
    DELETED = "deleted"


@dataclass(slots=True, eq=False)
class _Node:
    """A file's content: the file `path` of the file system below, up to `limit` (exclusive) unless that is None."""

    path: str
    # Whether `path` is a copy in `scratch`, which may be written.
    is_copy: bool = False
    limit: int | None = None
    modified_ms: int | None = None
    maps: int = 0


@final
class OverlayFileSystem:
    """A `FileSystem` over `below`; `scratch` is an existing, empty directory of `below`, which the caller deletes."""

    def __init__(self, below: FileSystem, scratch: str) -> None:
        self.below = below
        self._scratch = scratch
        self._copies = 0
        # The files whose names or contents differ from `below`; None for one that was deleted.
        self._nodes: dict[str, _Node | None] = {}
        # Whether a directory exists, where that differs from `below`.
        self._directories: dict[str, bool] = {}

    def changes(self) -> dict[str, Change]:
        """Returns what is different now, by path in order; a file with equal bytes is not."""
        found: dict[str, Change] = {}
        for path, node in sorted(self._nodes.items()):
            was = self.below.exists(path)
            if node is None:
                if was:
                    found[path] = Change.DELETED
            elif not was:
                found[path] = Change.CREATED
            elif node.path != path or node.limit is not None:
                if not self._is_equal(path, node):
                    found[path] = Change.CHANGED
        return found

    def _is_equal(self, path: str, node: _Node) -> bool:
        with closing(self.below.open(path, OpenMode.READ)) as was, closing(self._reader(path, node)) as now:
            size_bytes = was.size()
            return size_bytes == now.size() and all(
                was.read_at(position, _COPIED_AT_ONCE) == now.read_at(position, _COPIED_AT_ONCE)
                for position in range(0, size_bytes, _COPIED_AT_ONCE)
            )

    def _reader(self, path: str, node: _Node) -> OverlayFile:
        return OverlayFile(self, path, node, is_writable=False)

    @property
    def handles(self) -> HandlePool:
        """The pool of the file system below."""
        return self.below.handles

    def reserved(self, count: int) -> AbstractContextManager[None]:
        """Keep `count` descriptors of the file system below within the block. Raises OSError."""
        return self.below.reserved(count)

    def open(self, path: str, mode: OpenMode, *, can_rest: bool = False) -> OverlayFile:
        """Open a file; for writing, it is a copy. Raises OSError with the path."""
        node = self._node(path)
        if node is None and mode in (OpenMode.READ, OpenMode.WRITE):
            raise _error(errno.EISDIR if self._is_directory(path) else errno.ENOENT, path)
        if node is not None and mode is OpenMode.CREATE_NEW:
            raise _error(errno.EEXIST, path)
        is_writable = mode is not OpenMode.READ
        if node is None:
            node = self._new(path)
        elif is_writable and not path.endswith(_UNCOPIED_SUFFIX):
            self.copy(node)
        # Else a write would change the file below.
        assert node.is_copy or not is_writable or path.endswith(_UNCOPIED_SUFFIX), (path, node.path)
        if is_writable:
            self._nodes[path] = node
        return OverlayFile(self, path, node, is_writable=is_writable, can_rest=can_rest)

    def _new(self, path: str) -> _Node:
        self._check_parent(path)
        if self._is_directory(path):
            raise _error(errno.EISDIR, path)
        node = _Node(self._scratch_path(), is_copy=True)
        self.below.open(node.path, OpenMode.CREATE_NEW).close()
        return node

    def _scratch_path(self) -> str:
        self._copies += 1
        return join(self._scratch, str(self._copies))

    def copy(self, node: _Node) -> None:
        """Let the node be a copy of its own content, unless it is one. Raises OSError, with the node as it was."""
        if node.is_copy:
            return
        # A map would go on showing the file below.
        assert node.maps == 0, (node.path, node.maps)
        below, target = self.below, self._scratch_path()
        with (
            closing(below.open(node.path, OpenMode.READ)) as source,
            closing(below.open(target, OpenMode.CREATE_NEW)) as copy,
        ):
            end, position = source.size() if node.limit is None else node.limit, 0
            while position < end:
                data = source.read_at(position, min(_COPIED_AT_ONCE, end - position))
                if not data:
                    raise OSError(
                        errno.EIO, f"became shorter than {end} bytes while it was copied", node.path
                    )
                copy.write_at(position, data)
                position += len(data)
        assert position == end, (node.path, position, end)
        if node.modified_ms is None:
            node.modified_ms = self.below.stat(node.path).modified_ms
        node.path, node.is_copy, node.limit = target, True, None

    def exists(self, path: str) -> bool:
        return self._node(path) is not None or self._is_directory(path)

    def stat(self, path: str) -> FileStat:
        """Returns what is known of `path`. Raises OSError if there is nothing."""
        node = self._node(path)
        if node is None:
            if not self._is_directory(path):
                raise _error(errno.ENOENT, path)
            return FileStat(size_bytes=0, modified_ms=0, is_directory=True)
        found = self.below.stat(node.path)
        return FileStat(
            size_bytes=found.size_bytes if node.limit is None else node.limit,
            modified_ms=found.modified_ms if node.modified_ms is None else node.modified_ms,
            is_directory=False,
        )

    def list(self, path: str) -> list[str]:
        """Returns the names in a directory, sorted."""
        if not self._is_directory(path):
            raise _error(errno.ENOTDIR if self._node(path) is not None else errno.ENOENT, path)
        names = set(self.below.list(path)) if self.below.exists(path) else set()
        changed = {*self._nodes, *self._directories}
        names |= {each.rsplit("/", 1)[-1] for each in changed if dirname(each) == path}
        # Only what was deleted here is gone: a link that leads to nothing is listed, as below.
        return sorted(
            name for name in names if join(path, name) not in changed or self.exists(join(path, name))
        )

    def set_modified(self, path: str, modified_ms: int) -> None:
        """Note the time of the last change. Raises FileNotFoundError without such a file."""
        node = self._node(path)
        if node is None:
            raise _error(errno.ENOENT, path)
        assert not self._is_directory(path), path
        node.modified_ms = modified_ms
        self._nodes[path] = node

    def canonical(self, path: str) -> str:
        return self.below.canonical(path)

    def rename(self, old: str, new: str) -> None:
        """Rename a file; replaces an existing one. Raises OSError for a directory."""
        node = self._node(old)
        if node is None:
            raise _error(errno.ENOTSUP if self._is_directory(old) else errno.ENOENT, old)
        if self._is_directory(new):
            raise _error(errno.EISDIR, new)
        self._check_parent(new)
        self._nodes[old] = None
        self._nodes[new] = node

    def unlink(self, path: str) -> None:
        if self._node(path) is None:
            raise _error(errno.EISDIR if self._is_directory(path) else errno.ENOENT, path)
        self._nodes[path] = None

    def make_directory(self, path: str) -> None:
        """Note a directory and its parents; does nothing when it exists."""
        if self._is_directory(path):
            return
        if self._node(path) is not None:
            raise _error(errno.EEXIST, path)
        self.make_directory(dirname(path))
        self._directories[path] = True

    def remove_directory(self, path: str) -> None:
        if self.list(path):
            raise _error(errno.ENOTEMPTY, path)
        self._directories[path] = False

    def lock(self, path: str) -> Lock:
        """Returns a lock that locks nothing."""
        return _NoLock()

    def sync_directory(self, path: str) -> None:
        if not self._is_directory(path):
            raise _error(errno.ENOTDIR if self._node(path) is not None else errno.ENOENT, path)

    def _check_parent(self, path: str) -> None:
        parent = dirname(path)
        if not self._is_directory(parent):
            raise _error(errno.ENOTDIR if self._node(parent) is not None else errno.ENOENT, path)

    def _is_directory(self, path: str) -> bool:
        if path in self._directories:
            return self._directories[path]
        return not path or (self.below.exists(path) and self.below.stat(path).is_directory)

    def _node(self, path: str) -> _Node | None:
        """Returns the file called `path`; None if there is none."""
        if path in self._nodes:
            return self._nodes[path]
        if not self.below.exists(path) or self.below.stat(path).is_directory:
            return None
        return _Node(path)


@final
class OverlayFile:
    """An open file of an overlay."""

    def __init__(
        self,
        owner: OverlayFileSystem,
        path: str,
        node: _Node,
        *,
        is_writable: bool,
        can_rest: bool = False,
    ) -> None:
        self._owner, self._path, self._node, self._is_writable = owner, path, node, is_writable
        self._can_rest = can_rest
        self._open_path, self._inner = "", self._opened()
        self._is_closed = False

    def _opened(self) -> File:
        mode = OpenMode.WRITE if self._node.is_copy and self._is_writable else OpenMode.READ
        self._open_path = self._node.path
        return self._owner.below.open(self._open_path, mode, can_rest=self._can_rest)

    def _file(self) -> File:
        """Returns the file below; another one after the node was copied."""
        if self._open_path != self._node.path and not self._is_closed:
            self._inner.close()
            self._inner = self._opened()
        return self._inner

    def _for_writing(self) -> File:
        if not self._is_writable:
            raise _error(errno.EBADF, self._path)
        if not self._is_closed:
            self._owner.copy(self._node)
        return self._file()

    @property
    def path(self) -> str:
        return self._path

    def size(self) -> int:
        size_bytes = self._file().size()
        return size_bytes if self._node.limit is None else self._node.limit

    def read_at(self, position: int, size: int) -> bytes:
        return self._file().read_at(position, self._count(position, size))

    def read_into(self, position: int, buffer: memoryview) -> int:
        return self._file().read_into(position, buffer[: self._count(position, len(buffer))])

    def _count(self, position: int, size: int) -> int:
        return size if self._node.limit is None else max(0, min(size, self._node.limit - position))

    def write_at(self, position: int, data: Buffer) -> None:
        self._for_writing().write_at(position, data)

    def append(self, data: Buffer) -> None:
        self._for_writing().append(data)

    def truncate(self, size: int) -> None:
        if size > self.size():
            raise ValueError(f"{self._path}: cannot truncate {self.size()} bytes to {size}")
        self.set_length(size)

    def set_length(self, size: int) -> None:
        """Make the file `size` bytes long; a file that is no copy yet becomes shorter without one."""
        if self._node.is_copy or not self._is_writable or not 0 <= size <= self.size():
            self._for_writing().set_length(size)
            return
        if self._node.maps and size < self.size():
            raise BufferError(f"{self._path} is mapped: cannot shrink it to {size} bytes")
        self._node.limit = size
        assert self.size() == size, (self._path, self.size(), size)

    def sync(self) -> None:
        self._file().size()

    def map_for_reading(self) -> ReadMap:
        """Map the whole file; the file cannot shrink until the map is closed. Raises ValueError for an empty file."""
        if self._node.is_copy:
            return self._file().map_for_reading()
        if self.size() == 0:
            raise ValueError(f"{self._path}: cannot map an empty file")
        return _LimitedMap(self._file().map_for_reading(), self._node, self.size())

    def moves_to(self, path: str) -> None:
        """Note the new name for messages; the file below keeps its own."""
        self._path = path

    def rest(self) -> None:
        self._inner.rest()

    def close(self) -> None:
        self._is_closed = True
        self._inner.close()


@final
class _LimitedMap:
    """The first bytes of a map of a file that is not copied."""

    def __init__(self, whole: ReadMap, node: _Node, size_bytes: int) -> None:
        self._whole, self._node = whole, node
        self._view = whole.view[:size_bytes]
        assert len(self._view) == size_bytes, (node.path, len(self._view), size_bytes)
        node.maps += 1
        self._is_closed = False

    @property
    def view(self) -> memoryview:
        return self._view

    def release_until(self, position: int) -> None:
        self._whole.release_until(position)

    def close(self) -> None:
        if self._is_closed:
            return
        assert self._node.maps > 0, (self._node.path, self._node.maps)
        self._view.release()
        self._whole.close()
        self._node.maps -= 1
        self._is_closed = True


@final
class _NoLock:
    def release(self) -> None: ...


def _error(number: int, path: str) -> OSError:
    """Returns the error of this number; OSError itself picks the subclass, such as FileNotFoundError."""
    return OSError(number, errno.errorcode[number], path)
