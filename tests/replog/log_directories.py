"""Log directories for the tests of `replog log`."""

from __future__ import annotations

from pathlib import Path

from storage.config import LogConfig
from storage.directory.manager import LogManager
from storage.disk.os_filesystem import OsFileSystem
from storage.draws import Draws
from tests.storage.logs import NOW_MS


def manager(path: Path) -> LogManager:
    logs = LogManager(OsFileSystem(), str(path), LogConfig(), NOW_MS, Draws(1))
    logs.load(NOW_MS)
    return logs
