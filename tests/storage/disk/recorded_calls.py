"""A file system that writes down the calls that change names, in order, for rules about the order of steps."""

from __future__ import annotations

from typing import cast

from sim.disk import SimFileSystem
from storage.disk.filesystem import basename


class _Recorded:
    def __init__(self, file_system: SimFileSystem, calls: list[str]) -> None:
        self._file_system, self._calls = file_system, calls

    def rename(self, old: str, new: str) -> None:
        self._calls.append(f"rename {_short(old)} {_short(new)}")
        self._file_system.rename(old, new)

    def unlink(self, path: str) -> None:
        self._calls.append(f"unlink {_short(path)}")
        self._file_system.unlink(path)

    def sync_directory(self, path: str) -> None:
        self._calls.append("sync")
        self._file_system.sync_directory(path)

    def __getattr__(self, name: str) -> object:
        return getattr(self._file_system, name)


def _short(path: str) -> str:
    """Return the path without the directory and without the zeros before an offset."""
    name = basename(path)
    return name[19:] if name[:19] == "0" * 19 else name


def recorded(file_system: SimFileSystem, calls: list[str]) -> SimFileSystem:
    """Return `file_system`, wrapped to add each change of a name to `calls`.

    Examples: `unlink 3.log`, `rename 3.log.swap 3.log`, `sync` of any directory.
    """
    return cast(SimFileSystem, _Recorded(file_system, calls))
