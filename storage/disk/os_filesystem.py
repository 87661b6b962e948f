"""The real disk as a `FileSystem`: only this module of `storage` opens, maps or syncs anything."""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import resource
import stat as stat_bits
from contextlib import suppress
from typing import final

from storage.codec.buffer import Buffer
from storage.disk.filesystem import FileStat, OpenMode

# Without O_NONBLOCK the open of a FIFO would wait for a writer for ever; a regular file knows no such wait. O_NOCTTY
# keeps a terminal from becoming ours.
_NO_WAIT = os.O_NONBLOCK | os.O_NOCTTY
_OPEN_FLAGS = {
    OpenMode.READ: os.O_RDONLY | _NO_WAIT,
    OpenMode.WRITE: os.O_RDWR | _NO_WAIT,
    OpenMode.CREATE: os.O_RDWR | os.O_CREAT | _NO_WAIT,
    OpenMode.CREATE_NEW: os.O_RDWR | os.O_CREAT | os.O_EXCL | _NO_WAIT,
}
_KINDS = {
    stat_bits.S_IFIFO: "a FIFO",
    stat_bits.S_IFSOCK: "a socket",
    stat_bits.S_IFCHR: "a device",
    stat_bits.S_IFBLK: "a device",
}
_OPEN_FILES, _MAPS, _MOST_MAPS = "/proc/self/fd", "/proc/self/maps", "/proc/sys/vm/max_map_count"
_LOCKS = "/proc/locks"
# On macOS fsync reaches only the drive's cache; this flag reaches the platter. Linux has no such flag.
_FULL_SYNC: int | None = getattr(fcntl, "F_FULLFSYNC", None)


def _named(error: OSError, path: str) -> OSError:
    """Returns the error with the file's name, which calls on a descriptor do not know, and with the exhausted limit."""
    number = error.errno or errno.EIO
    return OSError(number, (error.strerror or os.strerror(number)) + _limit_behind(number), path)


def _checked_regular(descriptor: int, path: str) -> int:
    """Returns the descriptor if it is one of a regular file; else closes it.

    Raises IsADirectoryError for a directory, and OSError with EINVAL and what it is for anything else.
    """
    mode = os.fstat(descriptor).st_mode
    if stat_bits.S_ISREG(mode):
        return descriptor
    os.close(descriptor)
    if stat_bits.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    kind = _KINDS.get(stat_bits.S_IFMT(mode), "something else")
    raise OSError(errno.EINVAL, f"expected a regular file, found {kind}", path)


def _limit_behind(number: int) -> str:
    """Returns what stopped a call that ended with `number` (an errno), and the setting that raises a limit; empty for
    other errors.
    """
    if number == errno.ENXIO:
        return ": expected a regular file, found a socket or device"
    if number == errno.EMFILE:
        used, (allowed, _) = _count_lines(_OPEN_FILES), resource.getrlimit(resource.RLIMIT_NOFILE)
        return f": this process has {used} files open of {allowed} it may, raise `ulimit -n`"
    if number == errno.ENFILE:
        return ": the machine has as many files open as it may, raise fs.file-max"
    if number == errno.ENOMEM:
        used, allowed = _count_lines(_MAPS), _read_number(_MOST_MAPS)
        return f": this process has {used} maps of {allowed} it may, raise vm.max_map_count or `ulimit -v`"
    return ""


def _count_lines(path: str) -> int:
    """Returns the number of names in a directory or of lines in a file of /proc; -1 if the system has no such path."""
    try:
        if os.path.isdir(path):
            return len(os.listdir(path))
        descriptor = os.open(path, os.O_RDONLY)
    # A directory cannot be listed when no file can be opened: then the whole limit is in use.
    except OSError:
        return resource.getrlimit(resource.RLIMIT_NOFILE)[0] if path == _OPEN_FILES else -1
    try:
        count = 0
        while block := os.read(descriptor, 1 << 16):
            count += block.count(b"\n")
        return count
    finally:
        os.close(descriptor)


def _read_number(path: str) -> int:
    """Returns the number in a file of /proc; -1 if the system has no such file."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:
        return -1
    try:
        return int(os.read(descriptor, 64))
    finally:
        os.close(descriptor)


def _sync_descriptor(descriptor: int) -> None:
    if _FULL_SYNC is not None:
        fcntl.fcntl(descriptor, _FULL_SYNC)
    else:
        os.fsync(descriptor)


@final
class OsReadMap:
    """A shared read-only mapping: everything that `write_at` puts into the page cache is visible in it at once."""

    def __init__(self, file: OsFile, mapped: mmap.mmap) -> None:
        self._file: OsFile | None = file
        self._mapped = mapped
        self._released = 0
        self._view = memoryview(mapped)

    @property
    def view(self) -> memoryview:
        return self._view

    def release_until(self, position: int) -> None:
        """Return the whole pages before `position` to the system; a later read fetches them from the file again."""
        assert 0 <= position <= len(self._view), (position, len(self._view))
        end = position // mmap.PAGESIZE * mmap.PAGESIZE
        if end > self._released:
            self._mapped.madvise(mmap.MADV_DONTNEED, self._released, end - self._released)
            self._released = end
        assert self._released <= len(self._view), (self._released, len(self._view))

    def close(self) -> None:
        """Unmap; may be called again. Raises BufferError while a caller still holds a slice of the view, which
        is a bug.
        """
        if self._file is None:
            return
        assert self._file._live_maps > 0, (self._file.path, self._file._live_maps)
        self._view.release()
        self._mapped.close()
        self._file._live_maps -= 1
        self._file = None


@final
class _Descriptor(int):
    """The number of an open file, which is closed when nothing refers to this object any more.

    A call of the system holds such a reference until it returns. So no other thread can close the file meanwhile, and
    the number cannot become that of another file, whose bytes the call would then return.
    """

    __slots__ = ()

    def __del__(self) -> None:
        # What was written is synced before, where it matters: the file is closed in any case.
        with suppress(OSError):
            os.close(self)


@final
class OsFile:
    """One descriptor. Every transfer is positioned, so readers on other threads share it without a lock."""

    def __init__(self, path: str, descriptor: int) -> None:
        self._path = path
        # -1 after `close`: every call then fails with EBADF.
        self._descriptor: int = _Descriptor(descriptor)
        self._live_maps = 0

    @property
    def path(self) -> str:
        return self._path

    def size(self) -> int:
        try:
            return os.fstat(self._descriptor).st_size
        except OSError as error:
            raise _named(error, self._path) from error

    def read_at(self, position: int, size: int) -> bytes:
        try:
            return self._read_at(position, size)
        except OSError as error:
            raise _named(error, self._path) from error

    def _read_at(self, position: int, size: int) -> bytes:
        data = os.pread(self._descriptor, size, position)
        if len(data) == size or not data:
            return data
        # The kernel may stop early, on a signal or above 2 GiB: only an empty read is the end of the file.
        pieces = [data]
        while size > (done := sum(map(len, pieces))):
            piece = os.pread(self._descriptor, size - done, position + done)
            if not piece:
                break
            pieces.append(piece)
        return b"".join(pieces)

    def read_into(self, position: int, buffer: memoryview) -> int:
        """Fill `buffer`, with several calls if the kernel stops early; returns the count."""
        size, done = len(buffer), 0
        try:
            while done < size:
                count = os.preadv(self._descriptor, [buffer[done:] if done else buffer], position + done)
                if count == 0:
                    break
                done += count
        except OSError as error:
            raise _named(error, self._path) from error
        return done

    def write_at(self, position: int, data: Buffer) -> None:
        """Write all of `data`, with several calls if the kernel stops early. An OSError may leave a prefix written."""
        try:
            done = os.pwrite(self._descriptor, data, position)
            # After a short write the next call either continues or raises the reason (ENOSPC, EIO).
            while done < len(data):
                done += os.pwrite(self._descriptor, memoryview(data)[done:], position + done)
        except OSError as error:
            raise _named(error, self._path) from error

    def append(self, data: Buffer) -> None:
        self.write_at(self.size(), data)

    def truncate(self, size: int) -> None:
        if size > self.size():
            raise ValueError(f"{self._path}: cannot truncate {self.size()} bytes to {size}")
        self.set_length(size)

    def set_length(self, size: int) -> None:
        """Make the file `size` bytes long. Raises BufferError, having changed nothing, to shrink a mapped file."""
        # Reading a page after the new end through a map would end the process with SIGBUS: refuse while a map exists.
        if self._live_maps and size < self.size():
            raise BufferError(f"{self._path} is mapped: cannot shrink it to {size} bytes")
        try:
            os.ftruncate(self._descriptor, size)
        except OSError as error:
            # Linux reports EINVAL for a descriptor that is open for reading only.
            if error.errno == errno.EINVAL and size >= 0:
                raise OSError(errno.EBADF, os.strerror(errno.EBADF), self._path) from error
            raise _named(error, self._path) from error

    def sync(self) -> None:
        """Put the file's bytes and length on stable storage."""
        # Without this os.fsync would raise ValueError for descriptor -1.
        self._check_open()
        try:
            _sync_descriptor(self._descriptor)
        except OSError as error:
            raise _named(error, self._path) from error

    def map_for_reading(self) -> OsReadMap:
        """Map the whole file; the file cannot shrink until the map is closed. Raises ValueError for an empty file."""
        # A map of descriptor -1 would be a map of no file.
        self._check_open()
        assert self._live_maps >= 0, (self._path, self._live_maps)
        try:
            mapped = mmap.mmap(self._descriptor, 0, access=mmap.ACCESS_READ)
        except OSError as error:
            raise _named(error, self._path) from error
        self._live_maps += 1
        return OsReadMap(self, mapped)

    def close(self) -> None:
        """Close the file, once the calls that run on other threads have returned; may be called again."""
        self._descriptor = -1

    def _check_open(self) -> None:
        if self._descriptor < 0:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), self._path)


@final
class OsLock:
    """An flock on its own descriptor: it excludes other processes and other holders in this process."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def release(self) -> None:
        """Release the lock; may be called again. The file is kept: if it were deleted, two processes could lock two
        files of one name.
        """
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


@final
class OsFileSystem:
    """The operating system's files, by its own paths; the empty path is the working directory.

    With `keeps_access_times` a read does not change a file's access time, if the system supports that and the file is
    ours.
    """

    def __init__(self, *, keeps_access_times: bool = False) -> None:
        self._read_flags = getattr(os, "O_NOATIME", 0) if keeps_access_times else 0

    def open(self, path: str, mode: OpenMode) -> OsFile:
        """Open a regular file, without waiting. Raises OSError with the path, also for a FIFO, a socket or a device;
        IsADirectoryError for a directory, in every mode.
        """
        try:
            if mode is OpenMode.READ and self._read_flags:
                descriptor = self._open_unnoticed(path, _OPEN_FLAGS[mode])
            else:
                descriptor = os.open(path, _OPEN_FLAGS[mode], 0o644)
        except OSError as error:
            raise _named(error, path) from error
        return OsFile(path, _checked_regular(descriptor, path))

    def exists(self, path: str) -> bool:
        return os.path.exists(path or ".")

    def stat(self, path: str) -> FileStat:
        """Returns what the system reports of `path`, which may be a directory."""
        found = os.stat(path or ".")
        return FileStat(
            size_bytes=found.st_size,
            modified_ms=found.st_mtime_ns // 1_000_000,
            is_directory=stat_bits.S_ISDIR(found.st_mode),
        )

    def list(self, path: str) -> list[str]:
        """Returns the names in a directory, sorted."""
        try:
            if not self._read_flags:
                return sorted(os.listdir(path or "."))
            descriptor = self._open_unnoticed(path or ".", os.O_RDONLY | os.O_DIRECTORY)
            try:
                return sorted(os.listdir(descriptor))
            finally:
                os.close(descriptor)
        except OSError as error:
            raise _named(error, path) from error

    def _open_unnoticed(self, path: str, flags: int) -> int:
        """Open so that reads keep the access time. Only a file's owner may do that; for other files it is updated as
        usual.
        """
        try:
            return os.open(path, flags | self._read_flags)
        except PermissionError:
            return os.open(path, flags)

    def canonical(self, path: str) -> str:
        return os.path.realpath(path or ".")

    def set_modified(self, path: str, modified_ms: int) -> None:
        os.utime(path, ns=(modified_ms * 1_000_000, modified_ms * 1_000_000))

    def rename(self, old: str, new: str) -> None:
        os.replace(old, new)

    def unlink(self, path: str) -> None:
        os.unlink(path)

    def make_directory(self, path: str) -> None:
        if path:
            os.makedirs(path, exist_ok=True)

    def remove_directory(self, path: str) -> None:
        os.rmdir(path)

    def lock(self, path: str) -> OsLock:
        """Take the exclusive lock on `path`, created if missing. Raises BlockingIOError while another holder has it."""
        try:
            descriptor = _checked_regular(os.open(path, _OPEN_FLAGS[OpenMode.CREATE], 0o644), path)
        except OSError as error:
            raise _named(error, path) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(descriptor)
            raise _named(error, path) from error
        return OsLock(descriptor)

    def is_locked(self, path: str) -> bool:
        """Whether some process holds the lock on `path`; does not take it. False if Linux does not report locks."""
        try:
            found = os.stat(path)
            descriptor = os.open(_LOCKS, os.O_RDONLY)
        except OSError:
            return False
        with open(descriptor, encoding="ascii") as lines:
            device = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}"
            return any(f" {device}:{found.st_ino} " in line for line in lines)

    def sync_directory(self, path: str) -> None:
        """Put the names created, renamed and removed in `path` on stable storage."""
        descriptor = os.open(path or ".", os.O_RDONLY | os.O_DIRECTORY)
        try:
            _sync_descriptor(descriptor)
        except OSError as error:
            raise _named(error, path) from error
        finally:
            os.close(descriptor)
