"""Runs a campaign: one scenario with many seeds in Spark tasks, a new process for each run.

No two runs share a process: a leaked cache or a collected object of one seed must not affect the next.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from cluster.local.python_path import python_path
from sim.seed_range import Seeds

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

SCHEMA = (
    "scenario string, seed bigint, verdict string, trace_hash string, events bigint, simulated_ms bigint, "
    "violations string, replay string, error string"
)
# Spark's own cost is a few per cent of a task that takes a second or more.
TASKS_A_CORE = 4
RUN_TIMEOUT_S = 600


def run_campaign(
    spark: SparkSession, *, scenario: Path, seeds: Seeds, called: str | None = None
) -> DataFrame:
    """Prepare a data frame with one row for each seed. The scenario's text is part of the tasks, so executors need no
    shared file system. The runs start when the frame is used.

    `called` is the user's name for the scenario, with which the column `replay` runs it again; by default its path.
    """
    user_name = str(scenario) if called is None else called
    name, text = scenario.name, scenario.read_text(encoding="utf-8")
    cores = spark.sparkContext.defaultParallelism
    tasks = min(seeds.end - seeds.first, cores * TASKS_A_CORE)
    rows = spark.sparkContext.range(seeds.first, seeds.end, numSlices=tasks).mapPartitions(
        lambda part: run_seeds(name, text, part, called=user_name)
    )
    return spark.createDataFrame(rows, SCHEMA)


def run_seeds(name: str, text: str, seeds: Iterable[int], *, called: str) -> Iterator[Row]:
    """Run the seeds of one task, in an executor, each in a process of its own; yields their rows."""
    with tempfile.TemporaryDirectory(prefix="replog-campaign-", dir=_folder_of_spark()) as directory:
        path = Path(directory) / name
        path.write_text(text, encoding="utf-8")
        for seed in seeds:
            yield run_seed(path, seed, called=called)


def _folder_of_spark() -> str | None:
    """Returns the folder that Spark has for files of the tasks; None outside of a task.

    An executor kills its workers when a job is cancelled. What they leave there is deleted with the session.
    """
    from pyspark import SparkFiles, TaskContext

    return SparkFiles.getRootDirectory() if TaskContext.get() is not None else None


def run_seed(path: Path, seed: int, *, called: str) -> Row:
    """Run one seed in a process; returns its row. A process that fails has a row too, with the verdict `error`."""
    from pyspark.sql import Row

    from sim.run import replay_command

    command = [sys.executable, "-m", "replog", "sim", "run", str(path), "--seed", str(seed), "--json"]
    verdict, error = "error", ""
    result: dict[str, object] = {}
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=RUN_TIMEOUT_S,
            check=False,
            env=os.environ | python_path(os.environ),
        )
        # A broken assert of ours ends the process with status 1, as a violation does, and leaves only a traceback.
        is_result = done.returncode in (0, 1, 3) and done.stdout.strip()
        result = json.loads(done.stdout) if is_result else {}
        verdict = str(result.get("verdict", "error"))
        error = "" if result else (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
    except (subprocess.TimeoutExpired, ValueError) as problem:
        error = f"{type(problem).__name__}: {problem}"
    return Row(
        scenario=path.stem,
        seed=seed,
        verdict=verdict,
        trace_hash=str(result.get("trace_hash", "")),
        events=_whole(result, "events"),
        simulated_ms=_whole(result, "simulated_ms"),
        violations=json.dumps(result.get("violations", []), sort_keys=True),
        replay=replay_command(called, seed, None),
        error=error,
    )


def _whole(result: dict[str, object], name: str) -> int:
    value = result.get(name, 0)
    return value if isinstance(value, int) else 0
