"""The real disk as a `FileSystem`: only this module of `storage` opens, maps or syncs anything."""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import stat as stat_bits
from _thread import allocate_lock, get_ident
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeVar, final

from storage.codec.buffer import Buffer
from storage.disk.file_locks import is_whole_file_locked, lock_whole_file
from storage.disk.filesystem import FileStat, OpenMode
from storage.disk.handle_pool import OUT_OF_HANDLES, HandlePool
from storage.disk.machine_limits import default_handle_limit, named_error

Result = TypeVar("Result")

# Between a descriptor that was closed for a call and that call, another thread may take it.
MOST_TRIES = 32

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
_LOCKS = "/proc/locks"
# On macOS fsync reaches only the drive's cache; this flag reaches the platter. Linux has no such flag.
_FULL_SYNC: int | None = getattr(fcntl, "F_FULLFSYNC", None)


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
class _Reserve:
    """The descriptors, at most `count` of them, that are kept for the calls of one thread."""

    __slots__ = ("count", "descriptors")

    def __init__(self, count: int) -> None:
        self.count = count
        self.descriptors: list[_Descriptor] = []

    @property
    def is_full(self) -> bool:
        return len(self.descriptors) >= self.count


@final
class OsFile:
    """A file with one descriptor. Every transfer is positioned, so readers on other threads share it without a lock.

    A file that can rest has no descriptor while it is not used (`storage/disk/handle_pool.py`).
    """

    __slots__ = (
        "_can_rest",
        "_descriptor",
        "_file_system",
        "_is_closed",
        "_is_writable",
        "_live_maps",
        "_names",
        "_number",
        "_path",
        "_sync_error",
        "_sync_lock",
        "is_unsynced",
        "is_used",
    )

    def __init__(
        self, file_system: OsFileSystem, path: str, descriptor: int, *, is_writable: bool, can_rest: bool
    ) -> None:
        self._file_system, self._path = file_system, path
        # Where it is looked for, if it is used after a rest.
        self._names = (path, path)
        # None while the file rests, and after `close`. A call keeps a reference of its own until it returns.
        self._descriptor: _Descriptor | None = _Descriptor(descriptor)
        self._number = os.fstat(descriptor).st_ino
        self._is_writable, self._can_rest = is_writable, can_rest
        self._is_closed = False
        self._live_maps = 0
        self._sync_error: OSError | None = None
        # Held during a sync, until its error is noted.
        self._sync_lock = allocate_lock()
        self.is_used = True
        # Whether bytes were written, or cut off, since the last sync.
        self.is_unsynced = False
        if can_rest:
            file_system.handles.add(self)

    @property
    def path(self) -> str:
        return self._path

    def size(self) -> int:
        try:
            return os.fstat(self._awake()).st_size
        except OSError as error:
            raise named_error(error, self._path) from error

    def read_at(self, position: int, size: int) -> bytes:
        """Read up to `size` bytes, with several calls if the kernel stops early; fewer only where the file ends."""
        self.is_used = True
        descriptor = self._descriptor
        if descriptor is None:
            descriptor = self._wake()
        try:
            data = os.pread(descriptor, size, position)
            if len(data) == size or not data:
                return data
            return _read_on(descriptor, position, size, data)
        except OSError as error:
            raise named_error(error, self._path) from error

    def read_into(self, position: int, buffer: memoryview) -> int:
        """Fill `buffer`, with several calls if the kernel stops early; returns the count."""
        descriptor = self._awake()
        # To preadv, -1 is the present position of the descriptor; pread and pwrite refuse it.
        if position < 0:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), self._path)
        size, done = len(buffer), 0
        try:
            while done < size:
                count = os.preadv(descriptor, [buffer[done:] if done else buffer], position + done)
                if count == 0:
                    break
                done += count
        except OSError as error:
            raise named_error(error, self._path) from error
        return done

    def write_at(self, position: int, data: Buffer) -> None:
        """Write all of `data`, with several calls if the kernel stops early. An OSError may leave a prefix written."""
        # Before the descriptor is looked up: see `give_up`.
        self.is_used = self.is_unsynced = True
        descriptor = self._descriptor
        if descriptor is None:
            descriptor = self._wake()
        try:
            done = os.pwrite(descriptor, data, position)
            # After a short write the next call either continues or raises the reason (ENOSPC, EIO).
            while done < len(data):
                done += os.pwrite(descriptor, memoryview(data)[done:], position + done)
        except OSError as error:
            raise named_error(error, self._path) from error

    def append(self, data: Buffer) -> None:
        self.write_at(self.size(), data)

    def truncate(self, size: int) -> None:
        if size > self.size():
            raise ValueError(f"{self._path}: cannot truncate {self.size()} bytes to {size}")
        self.set_length(size)

    def set_length(self, size: int) -> None:
        """Make the file `size` bytes long. Raises BufferError, having changed nothing, to shrink a mapped file."""
        is_shorter = size < self.size()
        # Reading a page after the new end through a map would end the process with SIGBUS: refuse while a map exists.
        if self._live_maps and is_shorter:
            raise BufferError(f"{self._path} is mapped: cannot shrink it to {size} bytes")
        # A file that only grows has no new bytes that could be lost.
        self.is_unsynced = self.is_unsynced or is_shorter
        try:
            os.ftruncate(self._awake(), size)
        except OSError as error:
            # Linux reports EINVAL for a descriptor that is open for reading only.
            if error.errno == errno.EINVAL and size >= 0:
                raise OSError(errno.EBADF, os.strerror(errno.EBADF), self._path) from error
            raise named_error(error, self._path) from error

    def sync(self) -> None:
        """Put the file's bytes and length on stable storage. Raises also what an earlier sync of this file met.

        The kernel reports an error once and takes the bytes for written then: the next sync would say success.
        """
        error = self._synced(self._awake())
        if error is not None:
            raise named_error(error, self._path) from error

    def _synced(self, descriptor: _Descriptor) -> OSError | None:
        """Sync the file, unless a sync has failed before. Returns the error of this sync or of that one.

        One thread at a time: the kernel reports an error to one of two syncs that run beside each other, and the other
        one would say success.
        """
        with self._sync_lock:
            if self._sync_error is None:
                # Cleared before: what is written meanwhile needs another sync.
                self.is_unsynced = False
                try:
                    _sync_descriptor(descriptor)
                except OSError as error:
                    self._sync_error, self.is_unsynced = error, True
            return self._sync_error

    def map_for_reading(self) -> OsReadMap:
        """Map the whole file; the file cannot shrink until the map is closed. Raises ValueError for an empty file.

        The map keeps a descriptor of its own, so a file that rests goes on to rest.
        """
        assert self._live_maps >= 0, (self._path, self._live_maps)
        descriptor = self._descriptor
        if descriptor is None:
            descriptor = self._opened_again()
        try:
            mapped = self._file_system.with_room(lambda: mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ))
        except OSError as error:
            raise named_error(error, self._path) from error
        if self._descriptor is None:
            self._file_system.take_back(descriptor)
        self._live_maps += 1
        return OsReadMap(self, mapped)

    def moves_to(self, path: str) -> None:
        """Note that the file is about to be renamed: if it must be opened again, it is looked for at both names."""
        self._names = (path, self._names[0])

    def rest(self) -> None:
        """Give the descriptor up until the next use, unless bytes wait for a sync."""
        if self._can_rest and not self.is_unsynced and self.give_up():
            self._file_system.handles.remove(self)

    def give_up(self) -> bool:
        """Close the descriptor, after a sync if there are bytes to sync. Returns False if it must stay open.

        The error of that sync is raised by the next sync of this file: the kernel would not report it again.
        """
        if self._sync_error is not None:
            return False
        descriptor = self._descriptor
        if self.is_unsynced and descriptor is not None and self._synced(descriptor) is not None:
            return False
        self._descriptor = None
        # A write on another thread, which has begun meanwhile and uses this descriptor. One that begins only now finds
        # none and opens its own.
        if self.is_unsynced:
            self._descriptor = descriptor
            return False
        self._file_system.take_back(descriptor)
        return True

    def close(self) -> None:
        """Close the file, once the calls that run on other threads have returned; may be called again."""
        self._is_closed = True
        descriptor, self._descriptor = self._descriptor, None
        self._file_system.take_back(descriptor)
        if self._can_rest:
            self._file_system.handles.remove(self)

    def _awake(self) -> _Descriptor:
        """Returns the descriptor, opened if the file rests. Raises OSError with EBADF for a closed file."""
        self.is_used = True
        descriptor = self._descriptor
        return self._wake() if descriptor is None else descriptor

    def _wake(self) -> _Descriptor:
        descriptor = self._opened_again()
        # Another thread may be as far: then one of both descriptors is closed when its call returns.
        if not self._is_closed:
            self._descriptor = descriptor
            self._file_system.handles.add(self)
        return descriptor

    def _opened_again(self) -> _Descriptor:
        """Returns a new descriptor of the file, which is looked for at its name and at the one before the last rename.

        Raises FileNotFoundError if the file is at neither, also where another file took its place.
        """
        if self._is_closed:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), self._path)
        name, former_name = self._names
        found_other = False
        # The last look is for a rename between the first two.
        for path in (name, former_name, name):
            try:
                descriptor = _Descriptor(self._file_system.open_again(path, is_writable=self._is_writable))
            except FileNotFoundError:
                continue
            if os.fstat(descriptor).st_ino == self._number:
                return descriptor
            found_other = True
        why = "Another file took its place" if found_other else os.strerror(errno.ENOENT)
        raise FileNotFoundError(errno.ENOENT, why, self._path)


def _read_on(descriptor: int, position: int, size: int, data: bytes) -> bytes:
    """Returns `data`, which a read of `size` bytes at `position` returned, with what follows it.

    The kernel may stop early, on a signal or above 2 GiB: only an empty read is the end of the file.
    """
    pieces = [data]
    while size > (done := sum(map(len, pieces))):
        piece = os.pread(descriptor, size - done, position + done)
        if not piece:
            break
        pieces.append(piece)
    return b"".join(pieces)


@final
class OsLock:
    """A lock on its own descriptor: it excludes other processes, Kafka's too, and other holders in this process."""

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
    ours. `handles` is the pool of the files that may rest; by default one of half the descriptors that the process may
    have. `spare_descriptors` are kept for calls that find no other: a log that has begun to change its files can then
    finish.
    """

    def __init__(
        self,
        *,
        keeps_access_times: bool = False,
        handles: HandlePool | None = None,
        spare_descriptors: int = 0,
    ) -> None:
        self._read_flags = getattr(os, "O_NOATIME", 0) if keeps_access_times else 0
        self._handles = HandlePool(default_handle_limit()) if handles is None else handles
        self._most_spares = spare_descriptors
        self._spares: list[_Descriptor] = []
        # By thread: those of a change that must not stop in its midst.
        self._reserves: dict[int, _Reserve] = {}
        self._keep_spares()

    @property
    def handles(self) -> HandlePool:
        """The pool of the handles that may be given up while they are not used."""
        return self._handles

    def open(self, path: str, mode: OpenMode, *, can_rest: bool = False) -> OsFile:
        """Open a regular file, without waiting. Raises OSError with the path, also for a FIFO, a socket or a device;
        IsADirectoryError for a directory, but for CREATE_NEW, to which a directory is a name that exists.
        """
        descriptor = self._open(path, mode)
        return OsFile(self, path, descriptor, is_writable=mode is not OpenMode.READ, can_rest=can_rest)

    def open_again(self, path: str, *, is_writable: bool) -> int:
        """Returns a new descriptor of an existing file. Raises what `open` raises."""
        return self._open(path, OpenMode.WRITE if is_writable else OpenMode.READ)

    def _open(self, path: str, mode: OpenMode) -> int:
        flags = _OPEN_FLAGS[mode]
        try:
            if mode is OpenMode.READ and self._read_flags:
                descriptor = self.with_room(lambda: self._open_unnoticed(path, flags))
            else:
                descriptor = self.with_room(lambda: os.open(path, flags, 0o644))
        except OSError as error:
            raise named_error(error, path) from error
        return _checked_regular(descriptor, path)

    def with_room(self, call: Callable[[], Result]) -> Result:
        """Returns the result of `call`, which needs a descriptor. If the system has none, idle handles are given up,
        or a reserved or a spare descriptor, and the call is made again. Raises OSError.
        """
        if len(self._spares) < self._most_spares:
            self._keep_spares()
        for _ in range(MOST_TRIES):
            try:
                return call()
            except OSError as error:
                if error.errno not in OUT_OF_HANDLES or not self._made_room():
                    raise
        return call()

    def _made_room(self) -> bool:
        """Close something, so that a call may find a descriptor. Returns whether there was anything to close."""
        if self._handles.make_room():
            return True
        reserve = self._reserves.get(get_ident())
        return (reserve is not None and _gave_one(reserve.descriptors)) or _gave_one(self._spares)

    @contextmanager
    def reserved(self, count: int) -> Iterator[None]:
        """Keep `count` descriptors for what this thread does within the block, in which others may take all others.

        Raises OSError with EMFILE or ENFILE unless so many more files can be open at once, idle ones closed. Within a
        block of at least as many it does nothing: the thread has those.
        """
        assert count > 0, count
        thread = get_ident()
        outer = self._reserves.get(thread)
        if outer is not None:
            assert count <= outer.count, (count, outer.count)
            yield
            return
        reserve = _Reserve(count)
        try:
            while not reserve.is_full:
                reserve.descriptors.append(
                    _Descriptor(self.with_room(lambda: os.open(os.devnull, os.O_RDONLY)))
                )
        except OSError as error:
            raise named_error(error, os.devnull) from error
        self._reserves[thread] = reserve
        try:
            yield
        finally:
            del self._reserves[thread]

    def take_back(self, descriptor: _Descriptor | None) -> None:
        """Keep a descriptor that this thread needs no more, if it has reserved some and lacks one.

        Others could take it, were it closed; and a change of many files syncs their directory many times.
        """
        if descriptor is None or not self._reserves:
            return
        reserve = self._reserves.get(get_ident())
        if reserve is not None and not reserve.is_full:
            reserve.descriptors.append(descriptor)

    def _keep_spares(self) -> None:
        with suppress(OSError):
            while len(self._spares) < self._most_spares:
                self._spares.append(_Descriptor(os.open(os.devnull, os.O_RDONLY)))

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
                return sorted(self.with_room(lambda: os.listdir(path or ".")))
            flags = os.O_RDONLY | os.O_DIRECTORY
            descriptor = self.with_room(lambda: self._open_unnoticed(path or ".", flags))
            try:
                return sorted(os.listdir(descriptor))
            finally:
                os.close(descriptor)
        except OSError as error:
            raise named_error(error, path) from error

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
            opened = self.with_room(lambda: os.open(path, _OPEN_FLAGS[OpenMode.CREATE], 0o644))
            descriptor = _checked_regular(opened, path)
        except OSError as error:
            raise named_error(error, path) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            lock_whole_file(descriptor)
        except OSError as error:
            os.close(descriptor)
            raise named_error(error, path) from error
        return OsLock(descriptor)

    def is_locked(self, path: str) -> bool:
        """Whether some process holds the lock on `path`; does not take it. False if the system does not say."""
        return self._has_asked_lock(path) or self._has_listed_lock(path)

    def _has_asked_lock(self, path: str) -> bool:
        try:
            descriptor = os.open(path, _OPEN_FLAGS[OpenMode.READ])
        except OSError:
            return False
        try:
            return is_whole_file_locked(descriptor)
        finally:
            os.close(descriptor)

    def _has_listed_lock(self, path: str) -> bool:
        """Whether Linux lists a lock on `path`, also an flock alone. It lists none of another PID namespace."""
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
        descriptor = None
        try:
            descriptor = _Descriptor(
                self.with_room(lambda: os.open(path or ".", os.O_RDONLY | os.O_DIRECTORY))
            )
            _sync_descriptor(descriptor)
        except OSError as error:
            raise named_error(error, path) from error
        finally:
            self.take_back(descriptor)


def _gave_one(descriptors: list[_Descriptor]) -> bool:
    """Close one of the descriptors. Returns whether there was one."""
    try:
        descriptors.pop()
    except IndexError:
        return False
    return True
