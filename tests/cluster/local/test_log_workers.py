"""Processes that work on partitions side by side: none outlives its parent, none prints anything about Ctrl-C."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time

import pytest

from cluster.local.log_workers import for_each_partition

_PROGRAM = r"""
import os, signal, sys
from cluster.local.log_workers import for_each_partition

def work(path):
    os.write(int(sys.argv[1]), b"%d\n" % os.getpid())
    signal.pause()

try:
    list(for_each_partition(work, ["a-0", "a-1"], jobs=2, title="test"))
except KeyboardInterrupt:
    sys.exit(3)
"""


def _die(path: str) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _have_ended(handles: list[int], within_s: float) -> bool:
    """Whether the processes of the pidfds have ended: a pidfd is readable from then on."""
    deadline_s = time.monotonic() + within_s
    for handle in handles:
        if not select.select([handle], [], [], max(deadline_s - time.monotonic(), 0))[0]:
            return False
    return True


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="there are no pidfds but on Linux")
@pytest.mark.parametrize(
    ("number", "is_group", "status"),
    [(signal.SIGKILL, False, -9), (signal.SIGINT, False, 3), (signal.SIGINT, True, 3)],
)
def test_workers_end_with_their_parent_and_say_nothing(
    number: signal.Signals, is_group: bool, status: int
) -> None:
    reader, writer = os.pipe()
    command = [sys.executable, "-c", _PROGRAM, str(writer)]
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, start_new_session=True, pass_fds=(writer,)
    ) as process:
        os.close(writer)
        with open(reader, encoding="ascii") as told:
            handles = [os.pidfd_open(int(told.readline())) for _ in range(2)]
        (os.killpg if is_group else os.kill)(process.pid, number)
        process.wait(10)
        have_ended = _have_ended(handles, within_s=10)
        for handle in handles:
            os.close(handle)
        assert have_ended
        assert process.stderr is not None
        assert process.stderr.read() == b""
        assert process.returncode == status


@pytest.mark.slow
def test_a_killed_worker_is_reported() -> None:
    with pytest.raises(ChildProcessError, match=r"^a-0: a process .* was killed"):
        list(for_each_partition(_die, ["a-0", "a-1"], jobs=2, title="test"))
