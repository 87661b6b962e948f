"""An index that is opened at its first use: a start with many segments opens few files.

If two threads use it first at the same time, one opens it and the other waits (KAFKA-9156, KAFKA-14792). The file is
not opened while it is being renamed or deleted. Kafka: LazyIndex; rule IX25.
"""

from __future__ import annotations

import errno
from _thread import allocate_lock
from collections.abc import Callable
from typing import Generic, TypeVar, final

from storage.disk.filesystem import FileSystem, basename, join
from storage.index.memory_mapped import MemoryMappedIndex
from storage.index.offset_index import OffsetIndex
from storage.index.time_index import TimeIndex

Index = TypeVar("Index", bound=MemoryMappedIndex)


@final
class LazyIndex(Generic[Index]):
    """An index file that the function `opened` opens at the first `get()`; until then only the file is acted on."""

    __slots__ = ("_entry_size", "_file_system", "_is_deleted", "_lock", "_opened", "_path", "index")

    def __init__(
        self, file_system: FileSystem, path: str, opened: Callable[[str], Index], entry_size: int
    ) -> None:
        self._file_system = file_system
        self._path = path
        self._opened = opened
        self._entry_size = entry_size
        # None until `get` opens it.
        self.index: Index | None = None
        self._lock = allocate_lock()
        # Keeps a late reader from creating the file again.
        self._is_deleted = False

    def get(self) -> Index:
        """Returns the index, opened if necessary. Raises FileNotFoundError if it was deleted before its first use."""
        index = self.index
        if index is not None:
            return index
        with self._lock:
            if self._is_deleted:
                raise FileNotFoundError(errno.ENOENT, "the index is deleted", self._path)
            if self.index is None:
                self.index = self._opened(self._path)
                assert self.index.path == self._path, (self.index.path, self._path)
            return self.index

    @property
    def is_open(self) -> bool:
        return self.index is not None

    def entries_bytes(self) -> int:
        """The size of the entries in bytes; the index is not opened. Raises OSError."""
        index = self.index
        if index is not None:
            return index.size_bytes
        try:
            length = self._file_system.stat(self._path).size_bytes
        except FileNotFoundError:
            return 0
        return length // self._entry_size * self._entry_size

    @property
    def path(self) -> str:
        return self._path if self.index is None else self.index.path

    def rename_to(self, path: str) -> None:
        """Rename the file; until the index is opened, a missing file is no error."""
        with self._lock:
            assert not self._is_deleted, (self._path, path)
            if self.index is not None:
                self.index.rename_to(path)
            else:
                if self._file_system.exists(self._path):
                    self._file_system.rename(self._path, path)
                self._path = path
            assert self.path == path, (self.path, path)

    def update_parent_directory(self, directory: str) -> None:
        """Take over the new name of the directory; only the remembered path changes."""
        with self._lock:
            if self.index is not None:
                self.index.update_parent_directory(directory)
            self._path = join(directory, basename(self._path))

    def delete_if_exists(self) -> bool:
        """Close the index and delete its file. Returns whether there was one."""
        with self._lock:
            self._is_deleted = True
            if self.index is not None:
                return self.index.delete_if_exists()
            try:
                self._file_system.unlink(self._path)
            except FileNotFoundError:
                return False
            return True

    def close(self) -> None:
        if self.index is not None:
            self.index.close()

    def close_handler(self) -> None:
        if self.index is not None:
            self.index.close_handler()


def lazy_offset_index(
    file_system: FileSystem, path: str, base_offset: int, *, max_index_size: int = -1, read_only: bool = False
) -> LazyIndex[OffsetIndex]:
    """Returns the offset index at `path`, opened at its first use with these arguments of `OffsetIndex`."""

    def opened(path: str) -> OffsetIndex:
        return OffsetIndex(file_system, path, base_offset, max_index_size=max_index_size, read_only=read_only)

    return LazyIndex(file_system, path, opened, OffsetIndex.entry_size)


def lazy_time_index(
    file_system: FileSystem, path: str, base_offset: int, *, max_index_size: int = -1, read_only: bool = False
) -> LazyIndex[TimeIndex]:
    """Returns the time index at `path`, opened at its first use with these arguments of `TimeIndex`."""

    def opened(path: str) -> TimeIndex:
        return TimeIndex(file_system, path, base_offset, max_index_size=max_index_size, read_only=read_only)

    return LazyIndex(file_system, path, opened, TimeIndex.entry_size)
