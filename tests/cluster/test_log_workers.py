"""Processes that work on partitions side by side: none outlives its parent, none speaks of an interruption."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cluster.local.log_workers import for_each_partition

_PROGRAM = """
import os, sys, time
from cluster.local.log_workers import for_each_partition

def work(path):
    with open(path, "w") as file:
        file.write(str(os.getpid()))
    time.sleep(60)

try:
    list(for_each_partition(work, sys.argv[1:], jobs=2, title="test"))
except KeyboardInterrupt:
    sys.exit(3)
"""


def _die(path: str) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def _worker_ids(paths: list[Path]) -> list[int]:
    while not all(path.exists() and path.read_text() for path in paths):
        time.sleep(0.01)
    return [int(path.read_text()) for path in paths]


def _gone(pids: list[int]) -> bool:
    deadline_s = time.monotonic() + 10
    while any(map(_is_running, pids)):
        if time.monotonic() > deadline_s:
            return False
        time.sleep(0.01)
    return True


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="/proc")
@pytest.mark.parametrize(
    ("number", "is_group", "status"),
    [(signal.SIGKILL, False, -9), (signal.SIGINT, False, 3), (signal.SIGINT, True, 3)],
)
def test_workers_end_with_their_parent_and_say_nothing(
    tmp_path: Path, number: signal.Signals, is_group: bool, status: int
) -> None:
    paths = [tmp_path / "a-0", tmp_path / "a-1"]
    command = [sys.executable, "-c", _PROGRAM, *map(str, paths)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, start_new_session=True) as process:
        pids = _worker_ids(paths)
        (os.killpg if is_group else os.kill)(process.pid, number)
        process.wait(10)
        assert _gone(pids)
        assert process.stderr is not None
        assert process.stderr.read() == b""
        assert process.returncode == status


@pytest.mark.slow
def test_a_worker_that_is_killed_is_told_of() -> None:
    with pytest.raises(ChildProcessError, match=r"^a-0: a process .* was killed"):
        list(for_each_partition(_die, ["a-0", "a-1"], jobs=2, title="test"))
