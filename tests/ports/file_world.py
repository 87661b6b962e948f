"""The two file systems on which one script runs, and what the script sees of each."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import final

from sim.disk import SimDisk
from sim.disk.life import Life
from storage.disk.filesystem import File, FileStat, FileSystem, OpenMode, read_file
from storage.disk.os_filesystem import OsFileSystem
from storage.draws import Draws


def seen_of(call: Callable[[], object]) -> object:
    """What a caller sees of one call: its result, or the name of its error."""
    try:
        found = call()
    except OSError as error:
        return errno.errorcode[error.errno or 0]
    except (ValueError, BufferError) as error:
        return type(error).__name__
    if isinstance(found, FileStat):
        # The size of a directory is the file system's own affair.
        return "directory" if found.is_directory else found.size_bytes
    return found if isinstance(found, (bytes, int, list, str)) else "done"


@final
class Desk:
    """A file system with an empty directory, and what a script has seen there so far."""

    def __init__(self, fs: FileSystem, root: str, disk: SimDisk | None = None) -> None:
        self.fs, self.root = fs, root
        # The simulated machine's; None where the machine is real.
        self.disk = disk
        self.seen: list[object] = []
        self._opened: list[File] = []

    def path(self, name: str) -> str:
        return f"{self.root}/{name}" if name else self.root

    def below_root(self, path: str) -> str:
        return path.removeprefix(self.root)

    def see(self, call: Callable[..., object], *arguments: object) -> None:
        """Make a call and note what comes of it."""
        self.seen.append(seen_of(lambda: call(*arguments)))

    def see_open(self, name: str, mode: OpenMode) -> None:
        """Open and close a file, and note what comes of it."""
        self.see(lambda: self.fs.open(self.path(name), mode).close())

    def open(self, name: str, mode: OpenMode = OpenMode.CREATE, content: bytes = b"") -> File:
        """Open a file, which has to work, and append `content`."""
        file = self.fs.open(self.path(name), mode)
        self._opened.append(file)
        if content:
            file.append(content)
        return file

    def make(self, *names: str) -> None:
        """Make a directory of each name that ends with a slash, and a file with its name in it of each other."""
        for name in names:
            if name.endswith("/"):
                self.fs.make_directory(self.path(name[:-1]))
            else:
                self.open(name, content=name.encode()).close()

    def tree(self, name: str = "") -> list[str]:
        """All paths below a directory, each file with its content."""
        found = []
        for each in self.fs.list(self.path(name)):
            path = f"{name}/{each}" if name else each
            if self.fs.stat(self.path(path)).is_directory:
                found += [f"{path}/", *self.tree(path)]
            else:
                content = read_file(self.fs, self.path(path))
                found.append(f"{path}={content[:99]!r}")
        return found

    def close(self) -> None:
        for file in self._opened:
            file.close()


@contextmanager
def real_desk() -> Iterator[Desk]:
    """The kernel's file system, in a directory that is deleted afterwards."""
    with TemporaryDirectory() as directory:
        # Where the root is itself a link, a path and its canonical form would differ.
        desk = Desk(OsFileSystem(), str(Path(directory).resolve()))
        yield desk
        desk.close()


@contextmanager
def simulated_desk() -> Iterator[Desk]:
    """The disk of a simulated machine."""
    disk = SimDisk(Draws(1), lambda: 1_700_000_000_000)
    fs = disk.file_system(Life())
    fs.make_directory("data")
    desk = Desk(fs, "data", disk)
    yield desk
    desk.close()
