"""Segments replace others in steps, each of which begins once the one before it is durable."""

from __future__ import annotations

import pytest

from sim.checkers.base import Jury
from sim.checkers.ghost import Ghost
from sim.checkers.swap_names import (
    NAME,
    REMOVAL_NAME,
    ROLL_NAME,
    removal_finding,
    roll_finding,
    swap_finding,
)
from sim.disk import SimDisk, SimFileSystem
from sim.disk.life import Life
from sim.run import run_scenario
from sim.scenario.loading import scenario_of
from sim.witness.swap_names import SwapNames
from storage.config import LogConfig
from storage.disk.filesystem import OpenMode
from storage.draws import Draws
from storage.segment.replace import create_cleaned_segment, replace_segments
from storage.segment.segment import LogSegment
from storage.segment.segments import LogSegments

OLD, NEW = "00000000000000000000", "00000000000000000007"


@pytest.mark.parametrize(
    ("verb", "name", "pending", "is_wrong"),
    [
        ("rename", f"{NEW}.log.cleaned", ("", f"{NEW}.log.cleaned"), True),
        ("rename", f"{NEW}.log.cleaned", (f"{NEW}.index.cleaned", f"{NEW}.index.swap"), False),
        ("rename", f"{OLD}.log.cleaned", (f"{NEW}.log.cleaned", f"{NEW}.log.swap"), True),
        ("rename", f"{OLD}.log", (f"{OLD}.log.cleaned", f"{OLD}.log.swap"), True),
        ("unlink", f"{OLD}.index", (f"{OLD}.log.cleaned", f"{OLD}.log.swap"), True),
        ("rename", f"{OLD}.log", (f"{NEW}.log", f"{NEW}.log.deleted"), False),
        ("rename", f"{OLD}.log.swap", (f"{NEW}.log", f"{NEW}.log.deleted"), True),
        ("rename", f"{OLD}.log.swap", (f"{OLD}.index", ""), True),
        ("rename", f"{NEW}.log.swap", (f"{OLD}.log.swap", f"{OLD}.log"), True),
        ("rename", f"{NEW}.log.swap", (f"{NEW}.index.swap", f"{NEW}.index"), False),
        ("unlink", f"{OLD}.log.swap", (f"{OLD}.index", ""), False),
    ],
)
def test_ll28_a_step_waits_until_the_one_before_is_durable(
    verb: str, name: str, pending: tuple[str, str], is_wrong: bool
) -> None:
    assert bool(swap_finding(verb, name, [pending], [f"{OLD}.log.cleaned"])) is is_wrong


class Unsynced:
    """A file system whose `count`-th sync of a directory from now on does nothing."""

    def __init__(self, disk: SimDisk) -> None:
        self.files = disk.file_system(Life("broker"))
        self.left_out = self.count = 0

    def __getattr__(self, name: str) -> object:
        return getattr(self.files, name)

    def sync_directory(self, path: str) -> None:
        self.count += 1
        if self.count != self.left_out:
            self.files.sync_directory(path)


def violations(left_out: int) -> list[str]:
    """Returns what is wrong with a replacement of two segments by two, without one of its syncs; 0: with all."""
    disk = SimDisk(Draws(1), lambda: 0)
    jury = Jury(Ghost(), [], now_us=lambda: 0, on_violation=lambda violation: None)
    SwapNames(jury, {1: disk})
    files = Unsynced(disk)
    files.files.make_directory("t-0")
    config, segments = LogConfig(), LogSegments()
    bases = (0, 7)
    for base in bases:
        segments.add(LogSegment.open(files, "t-0", base, config, 0))  # type: ignore[arg-type]
        files.files.sync_directory("t-0")
    old = list(segments)
    new = [create_cleaned_segment(files, "t-0", base, config, 0) for base in bases]  # type: ignore[arg-type]
    files.left_out, files.count = left_out, 0
    replace_segments(files, "t-0", segments, new, old)  # type: ignore[arg-type]
    return [each.checker for each in jury.violations[:1]]


@pytest.mark.parametrize("left_out", [1, 2, 3, 4, 5])
def test_ll28_a_replacement_without_one_of_its_syncs_is_found(left_out: int) -> None:
    assert violations(left_out) == [NAME]


@pytest.mark.parametrize("left_out", [0, 6])
def test_ll28_a_replacement_with_all_that_it_relies_on_is_not(left_out: int) -> None:
    # The last sync is followed by no step that relies on it.
    assert violations(left_out) == []


@pytest.mark.parametrize(
    ("pending", "unsynced", "is_wrong"),
    [
        ((), (), False),
        ((), (f"{OLD}.log",), True),
        ((("", f"{OLD}.log"),), (), True),
        # Indexes are made again from the log.
        ((("", f"{OLD}.index"),), (), False),
        ((("", f"{NEW}.log"),), (), False),
    ],
)
def test_ro3_a_segment_is_made_once_what_is_before_it_is_durable(
    pending: tuple[tuple[str, str], ...], unsynced: tuple[str, ...], is_wrong: bool
) -> None:
    assert bool(roll_finding(f"{NEW}.log", pending, unsynced)) is is_wrong


@pytest.mark.parametrize("state", ["synced", "unsynced", "unnamed", "deceived"])
def test_ro3_a_new_segment_beside_one_that_is_not_durable_is_found(state: str) -> None:
    disk = SimDisk(Draws(1), lambda: 0)
    jury = Jury(Ghost(), [], now_us=lambda: 0, on_violation=lambda violation: None)
    SwapNames(jury, {1: disk})
    files = disk.file_system(Life("broker"))
    files.make_directory("t-0")
    file = files.open(f"t-0/{OLD}.log", OpenMode.CREATE)
    file.append(b"records")
    if state == "deceived":
        disk.let_syncs_lie(True)
    if state != "unsynced":
        file.sync()
    if state != "unnamed":
        files.sync_directory("t-0")
    files.open(f"t-0/{NEW}.log", OpenMode.CREATE)
    assert [each.checker for each in jury.violations] == [ROLL_NAME] * (state in ("unsynced", "unnamed"))


MIDDLE = "00000000000000000003"
THREE = [f"{OLD}.log", f"{OLD}.index", f"{MIDDLE}.log", f"{NEW}.log"]


@pytest.mark.parametrize(
    ("name", "pending", "more", "is_wrong"),
    [
        (f"{OLD}.log", [], [], False),
        (f"{NEW}.log", [], [], False),
        (f"{MIDDLE}.log", [], [], True),
        # A compaction takes segments from anywhere, and so does the start that ends it.
        (f"{MIDDLE}.log", [], [f"{OLD}.log.swap"], False),
        (f"{OLD}.log", [("00000000000000000000.index", "00000000000000000000.index.deleted")], [], False),
        (f"{MIDDLE}.log.cleaned", [], [f"{MIDDLE}.log.cleaned"], False),
    ],
)
def test_rt3_segments_leave_a_log_from_one_of_its_ends(
    name: str, pending: list[tuple[str, str]], more: list[str], is_wrong: bool
) -> None:
    assert bool(removal_finding(name, pending, [*THREE, *more])) is is_wrong


@pytest.mark.parametrize("after", ["", f"{OLD}.log.deleted"])
def test_rt3_each_segment_has_left_its_log_durably_before_the_next(after: str) -> None:
    left = THREE[2:]
    assert removal_finding(f"{MIDDLE}.log", [(f"{OLD}.log", after)], left)
    # The file is made in this very moment, or gets its name from a swap.
    assert not removal_finding(f"{MIDDLE}.log", [("", f"{MIDDLE}.log")], left)


def three_segments(directory: str) -> tuple[Jury, SimFileSystem]:
    """Returns who judges the names of a log of three segments, and its disk."""
    jury = Jury(Ghost(), [], now_us=lambda: 0, on_violation=lambda violation: None)
    disk = SimDisk(Draws(1), lambda: 0)
    SwapNames(jury, {1: disk})
    files = disk.file_system(Life("broker"))
    files.make_directory(directory)
    for base in (OLD, MIDDLE, NEW):
        files.open(f"{directory}/{base}.log", OpenMode.CREATE_NEW).close()
        files.sync_directory(directory)
    return jury, files


@pytest.mark.parametrize("forgets", [False, True])
def test_a_deletion_that_syncs_no_names_is_found_before_the_second_segment_goes(forgets: bool) -> None:
    jury, files = three_segments("data/t-0")
    for base in (OLD, MIDDLE):
        files.rename(f"data/t-0/{base}.log", f"data/t-0/{base}.log.deleted")
        if not forgets:
            files.sync_directory("data/t-0")
    assert [each.checker for each in jury.violations] == [REMOVAL_NAME] * forgets


def test_a_log_that_is_deleted_as_a_whole_loses_its_segments_in_any_order() -> None:
    jury, files = three_segments("data/t-0-delete")
    for base in (MIDDLE, OLD, NEW):
        files.unlink(f"data/t-0-delete/{base}.log")
    assert jury.violations == []


@pytest.mark.parametrize(
    ("forgets", "is_killed", "name"),
    [
        (False, False, "leader-epoch-checkpoint"),
        (True, False, "leader-epoch-checkpoint"),
        (True, True, "leader-epoch-checkpoint"),
        (True, False, f"{NEW}.snapshot"),
    ],
)
def test_a_replaced_file_has_its_name_durably_before_the_next_change(
    forgets: bool, is_killed: bool, name: str
) -> None:
    """A process that dies in between does nothing that could rely on it, and a new snapshot replaces no file."""
    disk = SimDisk(Draws(1), lambda: 0)
    jury = Jury(Ghost(), [], now_us=lambda: 0, on_violation=lambda violation: None)
    SwapNames(jury, {1: disk})
    files = disk.file_system(Life("broker"))
    files.make_directory("t-0")
    file = files.open(f"t-0/{name}.tmp", OpenMode.CREATE)
    file.append(b"content")
    file.sync()
    files.rename(f"t-0/{name}.tmp", f"t-0/{name}")
    if not forgets:
        files.sync_directory("t-0")
    if is_killed:
        disk.crash_process()
        disk.begin_life()
        files = disk.file_system(Life("next"))
    assert not jury.violations
    files.open("t-0/other", OpenMode.CREATE)
    is_wrong = forgets and not is_killed and not name.endswith(".snapshot")
    assert [each.checker for each in jury.violations] == ["replaced-names"] * is_wrong


def test_what_an_earlier_life_has_left_is_no_change_of_the_one_that_has_died() -> None:
    """Broker 2 dies within the rename of a checkpoint; before its next life begins, a file is left in its directory."""
    scenario = scenario_of(
        {
            "scenario": "left",
            "duration": "5s",
            "topics": {"t": {"partitions": 2, "replicas": 3, "config": {"min.insync.replicas": 2}}},
            "producers": [{"topic": "t", "rate": "25/s", "acks": "all"}],
            "steps": [
                {
                    "at": "3s", "kill_inside": "broker 2", "change": 3, "renames": True, "suffix": ".tmp",
                    "down": "500ms",
                }
            ],
            "buggify": {"points": ["leftover-file", "snapshots-gone"], "chance": "100%"},
        }
    )  # fmt: skip
    results = [run_scenario(scenario, seed) for seed in (2, 8)]
    assert [result.violations for result in results] == [(), ()]
