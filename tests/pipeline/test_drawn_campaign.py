"""A campaign of drawn runs in Spark, whose driver is killed and goes on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pipeline.session import SparkUnavailable, check_available
from sim.swarm.job import SwarmJob

try:
    check_available()
    missing = ""
except SparkUnavailable as reason:
    missing = str(reason)

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.skipif(bool(missing), reason=missing)]
SEEDS = 10


def campaign(out: Path, *more: str) -> subprocess.Popen[str]:
    """Start a campaign as a leader of its own process group."""
    arguments = [
        "--seeds",
        f"0..{SEEDS}",
        "--only",
        "kill",
        "--out",
        str(out),
        "--master",
        "local[2]",
        "--json",
    ]
    return subprocess.Popen(
        [sys.executable, "-m", "replog", "spark", "campaign", "--swarm", *arguments, *more],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def until_rows_are_there(out: Path, running: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 200
    while not list(out.glob("part-*.parquet")):
        assert running.poll() is None and time.monotonic() < deadline, running.communicate()
        time.sleep(0.02)


@pytest.mark.timeout(900)
def test_a_killed_driver_goes_on_and_counts_every_seed_once(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    out = tmp_path / "results"
    killed = campaign(out)
    until_rows_are_there(out, killed)
    os.killpg(killed.pid, signal.SIGKILL)
    killed.communicate()
    before = {path: path.read_bytes() for path in out.glob("part-*.parquet")}
    assert sum(pq.read_table(path).num_rows for path in before) < SEEDS
    again = campaign(out)
    printed, said = again.communicate(timeout=400)
    summary = json.loads(printed)
    assert (again.returncode, summary["runs"], summary["out"]) == (0, SEEDS, str(out)), said
    rows = pq.read_table(out, columns=["seed", "trace_hash", "faults"]).to_pylist()
    assert sorted(row["seed"] for row in rows) == list(range(SEEDS))
    assert all(path.read_bytes() == data for path, data in before.items())
    assert {fault for row in rows for fault in row["faults"]} <= {"kill"}
    job = SwarmJob(only=("kill",))
    (found,) = (row["trace_hash"] for row in rows if row["seed"] == 1)
    assert found == job.run(1)["trace_hash"]
