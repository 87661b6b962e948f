"""Both file systems where the system stops early: a read or a write moves a part of its bytes, and must go on."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import final

import pytest

from sim.buggify.buggify import Buggify
from sim.buggify.disks import DiskPoints
from storage.codec.buffer import Buffer
from storage.draws import Draws
from tests.ports.file_world import Desk, real_desk, simulated_desk


@final
class ShortCalls:
    """The kernel's own calls, each asked for a third of what its caller wants, rounded up; `count` are those so cut."""

    def __init__(self) -> None:
        self.count = 0
        self._pread, self._preadv, self._pwrite = os.pread, os.preadv, os.pwrite

    def _part(self, size_bytes: int) -> int:
        self.count += size_bytes > 1
        return (size_bytes + 2) // 3 if size_bytes > 1 else size_bytes

    def pread(self, descriptor: int, size: int, position: int) -> bytes:
        return self._pread(descriptor, self._part(size), position)

    def preadv(self, descriptor: int, buffers: Sequence[memoryview], position: int) -> int:
        return self._preadv(descriptor, [buffers[0][: self._part(len(buffers[0]))]], position)

    def pwrite(self, descriptor: int, data: Buffer, position: int) -> int:
        return self._pwrite(descriptor, memoryview(data)[: self._part(len(data))], position)


@contextmanager
def short_real_desk() -> Iterator[tuple[Desk, ShortCalls]]:
    """The kernel's file system, whose calls stop early."""
    calls = ShortCalls()
    with pytest.MonkeyPatch.context() as patch, real_desk() as desk:
        for name in ("pread", "preadv", "pwrite"):
            patch.setattr(os, name, getattr(calls, name))
        yield desk, calls


@contextmanager
def short_simulated_desk() -> Iterator[tuple[Desk, Buggify]]:
    """The disk of a simulated machine, of which every read and every write takes two calls."""
    buggify = Buggify(Draws(1), ("read-in-parts", "write-in-parts"), percent=100)
    with simulated_desk() as desk:
        disk = desk.disk
        assert disk is not None, "the simulated desk has a disk"
        disk.points = DiskPoints(buggify, "node-1")
        yield desk, buggify
