"""A log directory on a simulated disk, and its manager."""

from __future__ import annotations

from sim.disk import SimDisk
from sim.disk.life import Life
from storage.directory.manager import LogManager
from storage.disk.filesystem import join, read_file
from storage.draws import Draws
from storage.recovery.cut import RecoveryCut
from tests.storage.logs import NOW_MS, SMALL

DIRECTORY = "data"
TOPIC_ID = "A" * 21 + "w"


def manager(disk: SimDisk, cuts: list[RecoveryCut] | None = None) -> LogManager:
    """Return a manager that has not loaded its logs yet."""
    return LogManager(
        disk.file_system(Life()),
        DIRECTORY,
        SMALL,
        NOW_MS,
        Draws(1),
        report=(cuts if cuts is not None else []).append,
    )


def started(disk: SimDisk, cuts: list[RecoveryCut] | None = None) -> LogManager:
    logs = manager(disk, cuts)
    logs.load(NOW_MS)
    return logs


def content(disk: SimDisk, name: str) -> bytes:
    return read_file(disk.file_system(Life()), join(DIRECTORY, name))
