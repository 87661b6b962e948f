"""A file system whose n-th call fails: with an I/O error, on a full disk, or in the middle of a write."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import Enum
from typing import TypeVar, final

from sim.disk import SimDisk
from storage.codec.buffer import Buffer
from storage.disk.filesystem import File, FileStat, FileSystem, Lock, OpenMode, ReadMap
from storage.disk.handle_pool import HandlePool

Result = TypeVar("Result")

TAKES_SPACE = frozenset({"open", "write_at", "append", "set_length", "rename", "make_directory", "lock"})
WRITES = frozenset({"write_at", "append"})


class FaultKind(Enum):
    """How a call fails."""

    IO_ERROR = "EIO"
    FULL_DISK = "ENOSPC"
    # Half of the bytes are written, then the disk is full.
    SHORT_WRITE = "short"


@dataclass(slots=True)
class Fault:
    """A fault that, once armed, strikes one call: number `call`, from 1, of those that can fail so. 0 only counts."""

    kind: FaultKind
    call: int
    is_armed: bool = False
    count: int = 0
    # Verb and path of the call that failed.
    struck: str = ""

    def strikes(self, verb: str, path: str) -> bool:
        """Count the call if it can fail so, and return whether it must fail."""
        if not self.is_armed:
            return False
        if self.kind is FaultKind.FULL_DISK and verb not in TAKES_SPACE:
            return False
        if self.kind is FaultKind.SHORT_WRITE and verb not in WRITES:
            return False
        self.count += 1
        if self.count != self.call:
            return False
        self.struck = f"{verb} {path}"
        return True

    def arm(self) -> None:
        self.is_armed = True

    def error(self, path: str) -> OSError:
        number = errno.EIO if self.kind is FaultKind.IO_ERROR else errno.ENOSPC
        return OSError(number, os.strerror(number), path)


@final
class FaultyFile:
    """A file of which one call may fail."""

    def __init__(self, inner: File, disk: SimDisk, fault: Fault) -> None:
        self._inner, self._disk, self._fault = inner, disk, fault

    def _call(self, verb: str, run: Callable[[], Result]) -> Result:
        if self._fault.strikes(verb, self.path):
            raise self._fault.error(self.path)
        return run()

    @property
    def path(self) -> str:
        return self._inner.path

    def size(self) -> int:
        return self._call("size", self._inner.size)

    def read_at(self, position: int, size: int) -> bytes:
        return self._call("read_at", lambda: self._inner.read_at(position, size))

    def read_into(self, position: int, buffer: memoryview) -> int:
        return self._call("read_into", lambda: self._inner.read_into(position, buffer))

    def write_at(self, position: int, data: Buffer) -> None:
        self._write("write_at", position, data)

    def append(self, data: Buffer) -> None:
        self._write("append", self._inner.size(), data)

    def _write(self, verb: str, position: int, data: Buffer) -> None:
        if self._fault.strikes(verb, self.path):
            if self._fault.kind is FaultKind.SHORT_WRITE:
                self._inner.write_at(position, memoryview(data)[: len(data) // 2])
            raise self._fault.error(self.path)
        self._inner.write_at(position, data)

    def truncate(self, size: int) -> None:
        self._call("truncate", lambda: self._inner.truncate(size))

    def set_length(self, size: int) -> None:
        self._call("set_length", lambda: self._inner.set_length(size))

    def sync(self) -> None:
        if self._fault.strikes("sync", self.path):
            # A failed sync drops the pages, too.
            self._disk.fail(1, verbs={"sync"})
        self._inner.sync()

    def map_for_reading(self) -> ReadMap:
        return self._call("map_for_reading", self._inner.map_for_reading)

    def moves_to(self, path: str) -> None:
        self._inner.moves_to(path)

    def rest(self) -> None:
        self._inner.rest()

    def close(self) -> None:
        self._inner.close()


@final
class FaultyFileSystem:
    """A file system of which one call may fail, also on its files."""

    def __init__(self, inner: FileSystem, disk: SimDisk, fault: Fault) -> None:
        self._inner, self._disk, self._fault = inner, disk, fault

    def _call(self, verb: str, path: str, run: Callable[[], Result]) -> Result:
        if self._fault.strikes(verb, path):
            raise self._fault.error(path)
        return run()

    @property
    def handles(self) -> HandlePool:
        return self._inner.handles

    def reserved(self, count: int) -> AbstractContextManager[None]:
        return self._inner.reserved(count)

    def open(self, path: str, mode: OpenMode, *, can_rest: bool = False) -> File:
        file = self._call("open", path, lambda: self._inner.open(path, mode, can_rest=can_rest))
        return FaultyFile(file, self._disk, self._fault)

    def exists(self, path: str) -> bool:
        # It never raises: what cannot be seen does not exist.
        return self._inner.exists(path)

    def stat(self, path: str) -> FileStat:
        return self._call("stat", path, lambda: self._inner.stat(path))

    def list(self, path: str) -> list[str]:
        return self._call("list", path, lambda: self._inner.list(path))

    def canonical(self, path: str) -> str:
        return self._inner.canonical(path)

    def set_modified(self, path: str, modified_ms: int) -> None:
        self._call("set_modified", path, lambda: self._inner.set_modified(path, modified_ms))

    def rename(self, old: str, new: str) -> None:
        self._call("rename", old, lambda: self._inner.rename(old, new))

    def unlink(self, path: str) -> None:
        self._call("unlink", path, lambda: self._inner.unlink(path))

    def make_directory(self, path: str) -> None:
        self._call("make_directory", path, lambda: self._inner.make_directory(path))

    def remove_directory(self, path: str) -> None:
        self._call("remove_directory", path, lambda: self._inner.remove_directory(path))

    def lock(self, path: str) -> Lock:
        return self._call("lock", path, lambda: self._inner.lock(path))

    def sync_directory(self, path: str) -> None:
        self._call("sync_directory", path, lambda: self._inner.sync_directory(path))
