"""`log verify` of a partition whose files are deleted while it looks."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import pytest

from sim.disk import SimFileSystem
from storage.disk.filesystem import File, OpenMode, join, replace_file
from storage.inspection.verify.partition import PartitionReport, verify_partition
from tests.storage.logs import DIRECTORY, THREE, append_each, new_file_system, open_log
from tests.storage.recovery.stopped_logs import file_of


class _Overtaken:
    """A file system that does `step` just before the file at `path` is opened, `times` times."""

    def __init__(
        self, file_system: SimFileSystem, path: str, step: Callable[[], object], times: int = 1
    ) -> None:
        self._file_system, self._path, self._step, self._times = file_system, path, step, times
        self.looks = 0

    def open(self, path: str, mode: OpenMode, *, can_rest: bool = False) -> File:
        if path == self._path and self._times > 0:
            self._times -= 1
            self.looks += 1
            self._step()
        return self._file_system.open(path, mode, can_rest=can_rest)

    def __getattr__(self, name: str) -> object:
        return getattr(self._file_system, name)


class _Replaced(_Overtaken):
    """A file system in which the file at `path` rests once it is open, and another one takes its name."""

    def open(self, path: str, mode: OpenMode, *, can_rest: bool = False) -> File:
        looks = self.looks
        file = super().open(path, mode, can_rest=can_rest)
        if self.looks > looks:
            data = file.read_at(0, file.size())
            file.rest()
            replace_file(self._file_system, path, data)
        return file


def twelve_records() -> SimFileSystem:
    file_system = new_file_system()
    log = open_log(file_system, THREE)
    append_each(log, 12)
    log.close()
    return file_system


def delete(file_system: SimFileSystem, base_offset: int) -> None:
    for suffix in ("log", "index", "timeindex", "snapshot"):
        if file_system.exists(file_of(base_offset, suffix)):
            file_system.unlink(file_of(base_offset, suffix))


def verified(overtaken: _Overtaken, *, in_use: bool = True) -> PartitionReport:
    return verify_partition(cast(SimFileSystem, overtaken), DIRECTORY, in_use=in_use)


@pytest.mark.parametrize("in_use", [True, False])
@pytest.mark.parametrize("suffix", ["log", "index", "timeindex"])
def test_a_segment_that_is_deleted_under_the_look_makes_it_start_again(suffix: str, in_use: bool) -> None:
    file_system = twelve_records()
    overtaken = _Overtaken(file_system, file_of(0, suffix), lambda: delete(file_system, 0))
    report = verified(overtaken, in_use=in_use)
    assert (report.segments, report.records, report.first_offset, report.log_end_offset) == (3, 9, 3, 12)
    assert report.problems == [] and report.error is None


def test_a_file_that_another_replaces_while_it_rests_makes_the_look_start_again() -> None:
    """A truncation and a roll may give the name of a segment to another file."""
    file_system = twelve_records()
    replaced = _Replaced(file_system, file_of(3), lambda: None)
    report = verified(replaced)
    assert (report.segments, report.records, report.problems) == (4, 12, [])
    assert replaced.looks == 1


def test_a_partition_deleted_during_verification_is_empty_while_a_node_is_running() -> None:
    file_system = twelve_records()
    gone = join("logs", "topic-0." + "a" * 32 + "-delete")
    overtaken = _Overtaken(file_system, file_of(3), lambda: file_system.rename(DIRECTORY, gone))
    report = verified(overtaken)
    assert (report.segments, report.records, report.problems) == (0, 0, [])


def test_without_a_node_a_directory_that_is_not_there_is_an_error() -> None:
    file_system = twelve_records()
    file_system.rename(DIRECTORY, "elsewhere")
    with pytest.raises(FileNotFoundError):
        verify_partition(file_system, DIRECTORY)


def test_a_file_that_never_opens_is_an_error_and_not_an_endless_look() -> None:
    def refuse() -> None:
        raise FileNotFoundError(2, "No such file or directory", file_of(3))

    overtaken = _Overtaken(twelve_records(), file_of(3), refuse, times=1000)
    with pytest.raises(FileNotFoundError):
        verified(overtaken)
    assert overtaken.looks == 5
