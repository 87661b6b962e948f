"""Helpers for the tests of the indexes."""

from __future__ import annotations

from sim.disk import SimDisk
from sim.disk.life import Life
from storage.disk.filesystem import FileSystem
from storage.draws import Draws
from storage.index.offset_index import OffsetIndex

BASE = 45


def simulated() -> tuple[SimDisk, FileSystem]:
    disk = SimDisk(Draws(1), lambda: 1000)
    return disk, disk.file_system(Life())


def new_index(fs: FileSystem | None = None, slots: int = 30, path: str = "45.index") -> OffsetIndex:
    return OffsetIndex(fs or simulated()[1], path, BASE, max_index_size=slots * 8)


def fill(index: OffsetIndex, entries: list[tuple[int, int]]) -> None:
    for offset, position in entries:
        index.append(offset, position)


def all_entries(index: OffsetIndex) -> list[tuple[int, int]]:
    return [(entry.offset, entry.position) for entry in map(index.entry, range(index.entries))]
