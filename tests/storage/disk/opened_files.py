"""A file system that remembers the files that were opened, for rules about what must be closed."""

from __future__ import annotations

import errno
from typing import cast

from sim.disk import SimFileSystem
from storage.disk.filesystem import File, FileSystem, OpenMode


class _Watched:
    def __init__(self, file_system: FileSystem, opened: list[File]) -> None:
        self._file_system, self._opened = file_system, opened

    def open(self, path: str, mode: OpenMode, *, can_rest: bool = False) -> File:
        file = self._file_system.open(path, mode, can_rest=can_rest)
        self._opened.append(file)
        return file

    def __getattr__(self, name: str) -> object:
        return getattr(self._file_system, name)


def watched(file_system: FileSystem, opened: list[File]) -> SimFileSystem:
    """Return `file_system`, wrapped to add each file that is opened to `opened`."""
    return cast(SimFileSystem, _Watched(file_system, opened))


def still_open(opened: list[File]) -> list[str]:
    """Return the paths of those of the files that were not closed since."""
    return [file.path for file in opened if not _is_closed(file)]


def _is_closed(file: File) -> bool:
    try:
        file.size()
    except OSError as error:
        return error.errno == errno.EBADF
    return False
