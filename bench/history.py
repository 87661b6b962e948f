"""Measures `replog history check` on a million operations, against its marks: 30 seconds of CPU time and 2 GB."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from bench.history_data import history_lines
from bench.table import Line

OPERATIONS = 1_000_000
# A tenth, to see what each further operation adds.
FEWER = OPERATIONS // 10
MOST_CPU_S, MOST_BYTES = 30.0, 2e9
# Of the first log, so that the result is known.
LOST = 1_000


def run() -> list[Line]:
    """Check a history with one lost record: half a minute."""
    with tempfile.TemporaryDirectory(prefix="replog-bench-") as directory:
        path = Path(directory, "history.jsonl")
        _, fewer_bytes = _checked(path, FEWER)
        cpu_s, peak_bytes = _checked(path, OPERATIONS)
    each = (peak_bytes - fewer_bytes) / (OPERATIONS - FEWER)
    return [
        Line(
            what="history check, a million operations",
            value=cpu_s,
            unit="s of CPU time",
            target=MOST_CPU_S,
            lower_is_better=True,
            detail=f"{OPERATIONS / cpu_s:,.0f} operations a CPU-second",
        ),
        Line(
            what="its memory",
            value=peak_bytes / 1e6,
            unit="MB at most",
            target=MOST_BYTES / 1e6,
            lower_is_better=True,
            detail=f"{fewer_bytes / 1e6:,.0f} MB for a tenth of it: {each:,.0f} bytes an operation",
        ),
    ]


def _checked(path: Path, operations: int) -> tuple[float, float]:
    """Check a history in a process of its own; returns its CPU time and the most bytes that it held."""
    with path.open("wb") as file:
        file.writelines(history_lines(operations, lost=LOST))
    answer = path.with_suffix(".txt")
    command = [sys.executable, "-m", "replog", "history", "check", str(path)]
    with answer.open("wb") as output:
        actions = [(os.POSIX_SPAWN_DUP2, output.fileno(), 1)]
        pid = os.posix_spawn(sys.executable, command, os.environ, file_actions=actions)
        _, status, used = os.wait4(pid, 0)
    found = answer.read_text().splitlines()[-1]
    assert os.waitstatus_to_exitcode(status) == 1, (status, found)
    # It was to be the first one of a poll, and each of the two consumers goes on after it.
    assert found == "anomalies: 1 lost-write, 2 poll-skip", found
    return used.ru_utime + used.ru_stime, used.ru_maxrss * 1024.0
