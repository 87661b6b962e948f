"""Errors of a disk of which the callers of a process have been told."""

from __future__ import annotations

import pytest

from sim.disk.life import Life
from storage.disk.filesystem import OpenMode
from storage.disk.handle_pool import HandlePool
from tests.sim.disk.disks import new_disk


def test_an_error_counts_for_the_life_that_has_met_it() -> None:
    disk = new_disk()
    file_system = disk.file_system(Life())
    file = file_system.open("f", OpenMode.CREATE, can_rest=True)
    disk.fail(1, verbs={"append"})
    with pytest.raises(OSError, match="f"):
        file.append(b"a")
    assert list(disk.errors) == ["f"] and disk.has_refused
    disk.begin_life()
    assert not disk.errors and not disk.has_refused


def test_the_error_of_a_sync_that_made_room_for_another_file_is_told_by_the_next_sync() -> None:
    disk = new_disk()
    file_system = disk.file_system(Life(), HandlePool(1))
    file = file_system.open("f", OpenMode.CREATE, can_rest=True)
    file.append(b"a")
    disk.fail(1, verbs={"sync"}, path_suffix="f")
    other = file_system.open("g", OpenMode.CREATE, can_rest=True)
    for _ in range(3):
        other.append(b"b")
    assert disk.has_refused and not disk.errors
    with pytest.raises(OSError, match="f"):
        file.sync()
    assert list(disk.errors) == ["f"]


def test_after_one_sync_has_failed_no_later_one_of_the_file_says_success() -> None:
    disk = new_disk()
    file = disk.file_system(Life()).open("f", OpenMode.CREATE)
    file.append(b"a")
    disk.fail(1, verbs={"sync"}, path_suffix="f")
    for _ in range(2):
        with pytest.raises(OSError, match="f"):
            file.sync()
    assert not disk.has_deceived
