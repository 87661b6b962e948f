"""Log directories on a real disk: two paths that lead to one directory (LL1)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from storage.directory.directories import LogDirectories
from storage.disk.os_filesystem import OsFileSystem
from storage.draws import Draws
from storage.errors import ConfigError
from tests.storage.logs import NOW_MS, SMALL


def opened(*paths: str | Path) -> LogDirectories:
    return LogDirectories(OsFileSystem(), [str(path) for path in paths], SMALL, NOW_MS, Draws(1))


def test_ll1_a_directory_given_by_two_paths_is_refused_as_given_twice(tmp_path: Path) -> None:
    real, link, other = tmp_path / "real", tmp_path / "link", tmp_path / "other"
    real.mkdir()
    link.symlink_to(real)
    (tmp_path / "chain").symlink_to(link)
    for second in (
        link,
        tmp_path / "chain",
        f"{tmp_path}/other/../real",
        f"{tmp_path}/./real//",
        os.path.relpath(real),
    ):
        with pytest.raises(ConfigError, match=r"log\.dirs: these directories are given more than once"):
            opened(real, other, second)
    assert not list(real.iterdir()) and not other.exists()


def test_ll1_directories_that_only_look_alike_are_two(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "target")
    logs = opened(tmp_path / "link", tmp_path / "data", tmp_path / "Data")
    logs.load(NOW_MS)
    assert len(logs.online) + len(logs.offline) == 3
    logs.shutdown()
