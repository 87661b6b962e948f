"""Copies what processes have written into simulated disks, where the simulator's witnesses read it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import final

from sim.disk import SimDisk, SimFileSystem
from sim.disk.life import Life
from storage.codec.buffer import Buffer
from storage.disk.filesystem import OpenMode, join
from storage.draws import Draws


def new_disk() -> SimDisk:
    """Returns an empty disk, which no fault of the simulator strikes."""
    return SimDisk(Draws(0), lambda: 0)


def copier(disk: SimDisk) -> SimFileSystem:
    """Returns the disk as one who writes copies to it sees it."""
    return disk.file_system(Life("copier"))


def _append(files: SimFileSystem, path: str, data: Buffer) -> None:
    """Add bytes to the end of a file."""
    file = files.open(path, OpenMode.CREATE)
    file.append(data)
    file.close()


def copy_logs(source: Path, disk: SimDisk, directory: str) -> None:
    """Copy the segments of every partition in the log directory `source`. Raises OSError."""
    files = copier(disk)
    for folder in sorted(source.glob("*-*/")):
        # A partition that is being deleted has another ending.
        if folder.name.rpartition("-")[2].isdecimal():
            target = join(directory, folder.name)
            files.make_directory(target)
            for path in sorted(folder.glob("*.log")):
                _append(files, join(target, path.name), path.read_bytes())
    disk.sync_all()


@final
class GrowingLog:
    """A copy of a log that a process is writing; `read_on` brings it up to date.

    Only whole batches are copied: the rest of one may be written later, or cut at the start after a kill.
    """

    def __init__(self, source: Path, disk: SimDisk, directory: str) -> None:
        self._source, self._disk, self._directory = source, disk, directory
        self._files = copier(disk)
        # The bytes of each segment that were copied, by name.
        self._sizes: dict[str, int] = {}
        self._files.make_directory(directory)

    def read_on(self) -> bool:
        """Copy the bytes that were written since the last call, durably. Returns whether there were any."""
        has_grown = any([self._copy(path) for path in sorted(self._source.glob("*.log"))])
        if has_grown:
            self._disk.sync_all()
        return has_grown

    def _copy(self, path: Path) -> bool:
        before = self._sizes.get(path.name, 0)
        try:
            with path.open("rb") as file:
                file.seek(before)
                data = _whole_batches(file.read())
        except FileNotFoundError:
            # A segment that a snapshot has made needless; its decisions were copied when they were new.
            return False
        if data:
            _append(self._files, join(self._directory, path.name), data)
            self._sizes[path.name] = before + len(data)
        assert self._sizes.get(path.name, 0) >= before, (path, before)
        return bool(data)


def _whole_batches(data: bytes) -> bytes:
    """Returns the batches at the start of the bytes, without one that is not whole."""
    end = 0
    while (size := int.from_bytes(data[end + 8 : end + 12], "big") + 12) > 12 and end + size <= len(data):
        end += size
    return data[:end]


@final
class GrowingText:
    """The lines that a process adds to a file; a line that is not whole yet comes with a later call."""

    def __init__(self, path: Path) -> None:
        self._path, self._position = path, 0

    def read_on(self) -> Iterator[str]:
        """Yield the whole lines that were written since the last call."""
        if not self._path.exists():
            return
        with self._path.open("rb") as file:
            file.seek(self._position)
            data = file.read()
        whole = data[: data.rfind(b"\n") + 1]
        self._position += len(whole)
        for line in whole.splitlines():
            yield line.decode(errors="replace")
