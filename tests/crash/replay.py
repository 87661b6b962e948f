"""Makes one state of a sweep again and prints it call by call."""

from __future__ import annotations

import logging
import sys

from sim.disk import SimDisk
from sim.disk.life import Life
from storage.disk.filesystem import FileSystem, join
from tests.crash.model import judge
from tests.crash.recovery import start_and_check
from tests.crash.stage import ROOT
from tests.crash.states import AFTER_AN_APPEND, StateName
from tests.crash.sweep import append_everywhere
from tests.crash.workloads import Workload, record


def replay(workload: Workload, name: StateName) -> int:
    """Print the crash, the start after it and the verdict. Returns 1 when the state breaks a promise, else 0."""
    recording = record(workload)
    point = recording.points[name.point]
    expected = recording.expectation_of(point)
    disk = point.disk.snapshot()
    print(f"crash before {point.call}, in {expected.operation!r}; pending: {disk.pending_sequences()}")
    name.loss.apply(disk)
    logging.basicConfig(level=logging.INFO, format="  %(levelname)s %(message)s", stream=sys.stdout)
    if name.inner_call is not None and name.inner_loss is not None:
        disk = _crash_in_start(disk, name.inner_call, workload)
        name.inner_loss.apply(disk)
    _show_tree(disk.file_system(Life()), ROOT)
    disk.call_log = []
    _, outcome = start_and_check(disk, recording.config)
    print(*(f"  {call}" for call in disk.call_log), sep="\n")
    problems = outcome.problems or judge(expected, outcome.findings)
    for problem in problems:
        print(f"wrong: {problem}")
    print("violated" if problems else "held")
    return 1 if problems else 0


def _crash_in_start(disk: SimDisk, call: int, workload: Workload) -> SimDisk:
    """Return the disk before that call of a start, or after the append that follows the start."""
    points: list[SimDisk] = []
    disk.observer = lambda verb, path: points.append(disk.snapshot())
    manager, _ = start_and_check(disk, record(workload).config)
    disk.observer = None
    if call == AFTER_AN_APPEND and manager is not None:
        append_everywhere(manager)
    return points[call] if 0 <= call < len(points) else disk


def _show_tree(file_system: FileSystem, directory: str) -> None:
    for name in file_system.list(directory):
        path = join(directory, name)
        found = file_system.stat(path)
        if found.is_directory:
            _show_tree(file_system, path)
        else:
            print(f"  {found.size_bytes:>6} {path}")
