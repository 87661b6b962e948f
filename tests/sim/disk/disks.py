"""Helpers for the tests of the simulated disk."""

from __future__ import annotations

from sim.disk import PowerLoss, SimDisk, SimFileSystem
from sim.disk.life import Life
from storage.disk.filesystem import File, OpenMode, read_file
from storage.draws import Draws

ALL_MODES: tuple[PowerLoss, ...] = ("none", "prefix", "subset", "torn", "all")


def new_disk(seed: int = 1, now_ms: int = 1000) -> SimDisk:
    return SimDisk(Draws(seed), lambda: now_ms)


def with_durable_file(disk: SimDisk, content: bytes = b"", path: str = "d/f") -> tuple[SimFileSystem, File]:
    """Return a life, and a file whose name and content survive a power loss."""
    fs = disk.file_system(Life())
    fs.make_directory("d")
    file = fs.open(path, OpenMode.CREATE)
    file.append(content)
    file.sync()
    fs.sync_directory("d")
    fs.sync_directory("")
    assert disk.pending_count() == 0
    return fs, file


def content_after(disk: SimDisk, mode: PowerLoss, path: str = "d/f") -> bytes | None:
    disk.lose_power(mode)
    fs = disk.file_system(Life())
    return read_file(fs, path) if fs.exists(path) else None
