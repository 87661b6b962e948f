"""Calls of the real disk that fail, or that only look, leave no descriptor open."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from storage.disk.filesystem import OpenMode
from storage.disk.machine_limits import named_error
from storage.disk.os_filesystem import OsFileSystem
from storage.errors import StorageError
from storage.segment.file_records import MAX_FILE_BYTES, FileRecords

DESCRIPTORS = "/dev/fd"


def left_open(call: Callable[[], object]) -> int:
    """Return how many descriptors more are open after some calls than after the first one."""
    call()
    before = len(os.listdir(DESCRIPTORS))
    for _ in range(3):
        call()
    return len(os.listdir(DESCRIPTORS)) - before


@pytest.mark.parametrize("kind", ["directory", "fifo"])
def test_what_is_no_regular_file_is_closed_again(tmp_path: Path, kind: str) -> None:
    path = tmp_path / kind
    if kind == "fifo":
        os.mkfifo(path)
    else:
        path.mkdir()

    def open_it() -> None:
        with pytest.raises(OSError) as raised:
            OsFileSystem().open(str(path), OpenMode.READ)
        assert raised.value.errno == (errno.EINVAL if kind == "fifo" else errno.EISDIR)

    assert left_open(open_it) == 0


def test_fr1_a_log_that_is_too_large_is_closed_again(tmp_path: Path) -> None:
    path = tmp_path / f"{0:020d}.log"
    with path.open("wb") as file:
        file.truncate(MAX_FILE_BYTES + 1)

    def open_it() -> None:
        with pytest.raises(StorageError, match="more than a segment may have"):
            FileRecords(OsFileSystem(), str(path), file_already_exists=True)

    assert left_open(open_it) == 0


def test_a_lock_that_another_holder_has_is_closed_again(tmp_path: Path) -> None:
    file_system, path = OsFileSystem(), f"{tmp_path}/.lock"
    held = file_system.lock(path)

    def lock_it() -> None:
        with pytest.raises(BlockingIOError):
            file_system.lock(path)

    assert left_open(lock_it) == 0
    held.release()
    file_system.lock(path).release()


def test_a_directory_that_is_listed_keeping_its_access_time_is_closed_again(tmp_path: Path) -> None:
    (tmp_path / "b").touch()
    (tmp_path / "a").touch()
    file_system = OsFileSystem(keeps_access_times=True)
    assert file_system.list(str(tmp_path)) == ["a", "b"]
    assert left_open(lambda: file_system.list(str(tmp_path))) == 0


@pytest.mark.parametrize("keeps_access_times", [False, True])
@pytest.mark.parametrize("mode", [OpenMode.READ, OpenMode.WRITE, OpenMode.CREATE])
def test_only_reads_that_are_to_keep_access_times_are_opened_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: OpenMode, *, keeps_access_times: bool
) -> None:
    path = tmp_path / "a"
    path.touch()
    flags: list[int] = []
    opened = os.open

    def noted(path: str, how: int, *rest: int) -> int:
        flags.append(how)
        return opened(path, how, *rest)

    monkeypatch.setattr(os, "open", noted)
    OsFileSystem(keeps_access_times=keeps_access_times).open(str(path), mode).close()
    is_unnoticed = keeps_access_times and mode is OpenMode.READ
    assert [bool(each & os.O_NOATIME) for each in flags] == [is_unnoticed]


def test_the_files_that_name_an_exhausted_limit_are_closed_again() -> None:
    assert left_open(lambda: named_error(OSError(errno.ENOMEM, "no memory"), "x")) == 0
