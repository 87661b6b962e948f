"""A log's directory is deleted with everything in it, whatever somebody has put there. Rules LL4, RT13, RT15."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sim.disk.life import Life
from storage.directory.manager import LogManager
from storage.disk.filesystem import FileSystem, OpenMode, delete_log_files
from storage.disk.os_filesystem import OsFileSystem
from storage.draws import Draws
from tests.storage.directory.directories import DIRECTORY, manager, started
from tests.storage.logs import NOW_MS, SMALL, append_each, new_disk

DOOMED = f"t-0.{'a' * 32}-delete"


def fill(file_system: FileSystem, directory: str) -> None:
    for name in ("", "/sub", "/sub/empty", "/sub/deep/er", "/t-0"):
        file_system.make_directory(directory + name)
        file_system.open(f"{directory}{name}/00000000000000000000.log", OpenMode.CREATE).close()


def test_ll4_a_directory_with_sub_directories_is_deleted_by_the_next_start() -> None:
    disk = new_disk()
    started(disk).shutdown()
    fill(disk.file_system(Life()), f"{DIRECTORY}/{DOOMED}")
    logs = manager(disk)
    logs.load(NOW_MS)
    assert logs.logs == {} and not disk.file_system(Life()).exists(f"{DIRECTORY}/{DOOMED}")
    disk.lose_power("none")
    assert not disk.file_system(Life()).exists(f"{DIRECTORY}/{DOOMED}")


@pytest.mark.parametrize("is_later", [False, True])
def test_rt13_a_log_with_a_sub_directory_in_it_is_deleted(is_later: bool) -> None:
    disk = new_disk()
    logs = started(disk)
    append_each(logs.create("t", 0), 3)
    fill(disk.file_system(Life()), f"{DIRECTORY}/t-0")
    if is_later:
        assert logs.delete_later("t", 0, NOW_MS)
        assert len(logs.delete_due(NOW_MS + SMALL.file_delete_delay_ms)) == 1
    else:
        assert logs.delete("t", 0)
    left = disk.file_system(Life()).list(DIRECTORY)
    assert [name for name in left if name.startswith("t-0")] == []


def test_rt13_a_deletion_in_two_parts_takes_the_log_out_at_once_and_its_files_later() -> None:
    disk = new_disk()
    logs = started(disk)
    append_each(logs.create("t", 0), 3)
    file_system = disk.file_system(Life())
    delete_files = logs.begin_deletion("t", 0)
    assert delete_files is not None and logs.begin_deletion("t", 0) is None
    assert logs.get("t", 0) is None
    (renamed,) = (name for name in file_system.list(DIRECTORY) if name.startswith("t-0"))
    assert renamed.endswith("-delete")
    # A log of the same name may come before the files are gone.
    append_each(logs.create("t", 0), 1)
    delete_files()
    assert [name for name in file_system.list(DIRECTORY) if name.startswith("t-0")] == ["t-0"]


def test_ll4_a_link_is_deleted_and_what_it_leads_to_is_not(tmp_path: Path) -> None:
    doomed, other = tmp_path / "data" / DOOMED, tmp_path / "other"
    fill(OsFileSystem(), str(other))
    doomed.mkdir(parents=True)
    for name, target in (("to-a-directory", other), ("to-itself", "to-itself"), ("to-nothing", "nothing")):
        (doomed / name).symlink_to(target)
    (doomed / "to-a-file").symlink_to(other / "00000000000000000000.log")
    os.mkfifo(doomed / "fifo")
    logs = LogManager(OsFileSystem(), str(tmp_path / "data"), SMALL, NOW_MS, Draws(1))
    logs.load(NOW_MS)
    logs.shutdown()
    assert not os.path.lexists(doomed)
    assert (other / "sub" / "deep" / "er" / "00000000000000000000.log").exists()


def test_a_tree_deeper_than_pythons_stack_is_deleted(tmp_path: Path) -> None:
    path = tmp_path / "doomed"
    deepest = str(path)
    while len(deepest) < 3900:
        os.mkdir(deepest)
        deepest += "/d"
    delete_log_files(OsFileSystem(), str(path))
    assert not path.exists()
