"""Fixtures for tests that run over the real disk and over the simulated one, and for cases that sync a lot."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from sim.disk import SimDisk
from sim.disk.life import Life
from storage.disk.filesystem import FileSystem
from storage.disk.os_filesystem import OsFileSystem
from storage.draws import Draws
from tests.golden.comparing import scratch


@pytest.fixture(params=["real", "simulated"])
def both_file_systems(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[FileSystem, str]:
    """A file system, and an existing, empty directory in it."""
    if request.param == "real":
        return OsFileSystem(), str(tmp_path)
    file_system = SimDisk(Draws(1), lambda: 1000).file_system(Life())
    file_system.make_directory("d")
    return file_system, "d"


@pytest.fixture
def memory_path() -> Iterator[Path]:
    """Yield an empty directory, in memory where there is such a place: a real disk takes long to sync."""
    with tempfile.TemporaryDirectory(prefix="replog-test-", dir=scratch()) as path:
        yield Path(path)
