"""The port through which every durable byte of a log is written and read.

Two implementations pass one contract test-suite (`tests/storage/disk/filesystem_contract.py`): `OsFileSystem`, the real
disk, and `sim.disk.SimFileSystem`, the disk that forgets. Paths are plain strings with `/`; an implementation raises
`OSError` (or its usual subclasses: FileNotFoundError, FileExistsError, PermissionError, errno ENOSPC, EIO …) with the
file's name; where a limit of the system stopped the call, the message has the count and the setting.

Which calls may overlap: a log has one writer, so every call that changes it is made on one thread at a time. Meanwhile
other threads may call

- `LogSegment.read`, `translate_offset`, `find_offset_by_timestamp` and `lookup` of its indexes: they see whole index
  entries of one moment, and whole batches up to where the segment ended; in a segment that is being truncated or
  deleted they see less, or raise;
- a `PreparedFlush` and the work of a `Compaction`: they see what existed when they were prepared, and what was
  appended since.

While a segment's index is mapped, resized, trimmed or truncated, a look-up starts again or reads a copy: it never waits
and never sees half of a change. A segment that was closed or deleted raises ValueError or OSError and never returns
other bytes. Readers in another process (dump, verify, stats, Spark) open files for reading only, map none of them, and
accept the end of the active segment and the zeros after its index entries as they are at that moment.

A file that was opened with `can_rest` holds a descriptor only while it is used (`handle_pool.py`): it is opened again
by its name, and only if that name still leads to the same file. So its owner says with `moves_to` what its name will
be, before it renames the file or a directory above it.
"""

from __future__ import annotations

import errno
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import Enum
from typing import Final, Protocol

from storage.codec.buffer import Buffer
from storage.disk.handle_pool import HandlePool


class OpenMode(Enum):
    """The ways to open a file."""

    # The file must exist; no verb that writes is legal.
    READ = "read"
    # The file must exist; it may be read too.
    WRITE = "write"
    # The file is created empty when missing; it may be read too.
    CREATE = "create"
    # The file is created; FileExistsError when it exists.
    CREATE_NEW = "create_new"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileStat:
    """The facts that the file system reports of a path."""

    size_bytes: int
    # In milliseconds since the epoch.
    modified_ms: int
    is_directory: bool


class ReadMap(Protocol):
    """A read-only view of a whole file, as long as the file was when it was mapped; later `write_at`s show in it."""

    @property
    def view(self) -> memoryview: ...

    def release_until(self, position: int) -> None:
        """Release this process's memory for the bytes before `position`, which are not read again soon."""

    def close(self) -> None:
        """Release the view. A caller must close it before it truncates the file."""


class File(Protocol):
    """An open file. Positions and sizes are bytes."""

    @property
    def path(self) -> str: ...

    def size(self) -> int:
        """Returns the file's present length, asked of the file system."""

    def read_at(self, position: int, size: int) -> bytes:
        """Read up to `size` bytes; fewer only where the file ends."""

    def read_into(self, position: int, buffer: memoryview) -> int:
        """Fill `buffer`; returns the count, smaller than the buffer only where the file ends."""

    def write_at(self, position: int, data: Buffer) -> None:
        """Write all of `data`. A call that raises OSError may have written a prefix of it."""

    def append(self, data: Buffer) -> None:
        """Write `data` at the present end of the file, as one operation of the file system."""

    def truncate(self, size: int) -> None:
        """Cut the file to `size` bytes. Raises ValueError if it is shorter."""

    def set_length(self, size: int) -> None:
        """Make the file `size` bytes long; new bytes read as zeros."""

    def sync(self) -> None:
        """Put the file's bytes and length on stable storage; its name needs `sync_directory`."""

    def map_for_reading(self) -> ReadMap:
        """Map the whole file. Raises ValueError for an empty file."""

    def moves_to(self, path: str) -> None:
        """Note that the file is about to be renamed: if it must be opened again, it is looked for at both names."""

    def rest(self) -> None:
        """Give the descriptor up until the next use, unless bytes wait for a sync; only with `can_rest`."""

    def close(self) -> None:
        """Close without a sync; may be called again."""


class Lock(Protocol):
    """An exclusive lock on a path, held until `release`."""

    def release(self) -> None: ...


class FileSystem(Protocol):
    """A file system; every verb may raise OSError with the path."""

    @property
    def handles(self) -> HandlePool:
        """The pool of the handles that may be given up while they are not used."""

    def reserved(self, count: int) -> AbstractContextManager[None]:
        """Keep `count` descriptors for what this thread does within the block, in which others may take all others.

        The block is not entered, and OSError with EMFILE or ENFILE is raised, unless so many more files can be open at
        once, idle ones closed. A log asks for it before it changes many files. A block within such a block asks for no
        more than the outer one, whose descriptors it uses.
        """

    def open(self, path: str, mode: OpenMode, *, can_rest: bool = False) -> File:
        """Open a file. With `can_rest` its descriptor may be given up and is opened again at the next use."""

    def exists(self, path: str) -> bool: ...

    def stat(self, path: str) -> FileStat: ...

    def list(self, path: str) -> list[str]:
        """The names in a directory, sorted."""

    def canonical(self, path: str) -> str:
        """The one path of what `path` leads to, without links, `.` and `..`; it need not exist."""

    def set_modified(self, path: str, modified_ms: int) -> None: ...

    def rename(self, old: str, new: str) -> None:
        """Rename atomically; replaces an existing file. Durable only after a sync of the directory."""

    def unlink(self, path: str) -> None: ...

    def make_directory(self, path: str) -> None:
        """Create a directory and its parents; does nothing when it exists."""

    def remove_directory(self, path: str) -> None:
        """Remove an empty directory; raises OSError for any other."""

    def lock(self, path: str) -> Lock:
        """Take the exclusive lock on `path`, created if missing. Raises BlockingIOError while another holder has it."""

    def sync_directory(self, path: str) -> None:
        """Put the names created, renamed and removed in `path` on stable storage."""


def join(directory: str, name: str) -> str:
    """Returns `directory/name`; `name` must be one component."""
    assert name and "/" not in name and name not in (".", ".."), name
    return f"{directory}/{name}" if directory else name


def basename(path: str) -> str:
    return path.rsplit("/", 1)[-1]


def dirname(path: str) -> str:
    return path.rsplit("/", 1)[0] if "/" in path else ""


_LEADS_TO_NOTHING: Final = (errno.ELOOP, errno.ENAMETOOLONG, errno.ENOTDIR)


def found_at(file_system: FileSystem, path: str) -> FileStat | None:
    """Returns what the system reports of `path`; None if the name leads to nothing, as a broken link or a loop does.

    Java's File.isFile and isDirectory are false then. Raises OSError.
    """
    try:
        return file_system.stat(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno in _LEADS_TO_NOTHING:
            return None
        raise


def is_directory(file_system: FileSystem, path: str) -> bool:
    """Whether `path` leads to a directory. Raises OSError."""
    found = found_at(file_system, path)
    return found is not None and found.is_directory


def read_file(file_system: FileSystem, path: str) -> bytes:
    """Read a whole file. Raises OSError."""
    file = file_system.open(path, OpenMode.READ)
    try:
        return file.read_at(0, file.size())
    finally:
        file.close()


def replace_file(file_system: FileSystem, path: str, content: Buffer) -> None:
    """Write `content` durably to `path`: to a `.tmp` file, sync, rename, sync of the directory (Kafka:
    CheckpointFile.write).

    After an OSError or a crash `path` has its old or its new content, never a mixture.
    """
    temporary = path + ".tmp"
    write_synced(file_system, temporary, content)
    file_system.rename(temporary, path)
    file_system.sync_directory(dirname(path))


def write_synced(file_system: FileSystem, path: str, content: Buffer) -> None:
    """Write `content` in the place of what `path` has, and sync it; a new name is not synced."""
    file = file_system.open(path, OpenMode.CREATE)
    try:
        file.set_length(0)
        file.write_at(0, content)
        file.sync()
    finally:
        file.close()


def make_directory_durably(file_system: FileSystem, path: str) -> None:
    """Create the directory and its parents, with durable names: without them a flush of what is in it is lost.

    Raises OSError.
    """
    # Even where the directory existed: the life that made it may have ended before the sync.
    parents = [dirname(path)]
    ancestor = parents[0]
    while ancestor and not file_system.exists(ancestor):
        ancestor = dirname(ancestor)
        parents.append(ancestor)
    file_system.make_directory(path)
    for parent in parents:
        file_system.sync_directory(parent)


def delete_log_files(file_system: FileSystem, directory: str) -> None:
    """Delete `directory` with everything in it, sub-directories too; durable on return. Kafka: Utils.delete.

    A link is deleted, not what it leads to.
    """
    assert directory, "the working directory is no log's"
    # The innermost directory is the last. Each is listed when all in it are about to be deleted.
    waiting = [directory]
    while waiting:
        inner = [path for path in _paths_in(file_system, waiting[-1]) if not _unlinked(file_system, path)]
        if inner:
            waiting += inner
        else:
            file_system.remove_directory(waiting.pop())
    file_system.sync_directory(dirname(directory))


def _paths_in(file_system: FileSystem, directory: str) -> list[str]:
    return [join(directory, name) for name in file_system.list(directory)]


def _unlinked(file_system: FileSystem, path: str) -> bool:
    """Delete a file or a link. Returns whether it did; False for a directory, with nothing done."""
    try:
        file_system.unlink(path)
    # macOS refuses to unlink a directory with EPERM.
    except (IsADirectoryError, PermissionError):
        if not file_system.stat(path).is_directory:
            raise
        return False
    return True
