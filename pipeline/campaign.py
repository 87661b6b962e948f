"""A campaign: one scenario, many seeds, a fresh process a run inside Spark tasks; results as Parquet.

A run never shares a process with another: a leaked cache or a collected object of one seed must not reach the next.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

SCHEMA = (
    "scenario string, seed bigint, verdict string, trace_hash string, events bigint, simulated_ms bigint, "
    "violations string, replay string, error string"
)
TASKS_A_CORE = 4  # a task of a second or more costs Spark a few per cent
RUN_TIMEOUT_S = 600


@dataclass(frozen=True, slots=True, kw_only=True)
class Seeds:
    """`first` to `end` (exclusive)."""

    first: int
    end: int

    @classmethod
    def parse(cls, text: str) -> Seeds:
        """`A..B`, B excluded; ValueError with what is wrong."""
        first, separator, end = text.partition("..")
        if not separator or not first.isdigit() or not end.isdigit():
            raise ValueError(f"seeds are A..B with whole numbers, B excluded, not {text!r}")
        if int(first) >= int(end):
            raise ValueError(f"seeds {text}: the first must be below the end, which is excluded")
        return cls(first=int(first), end=int(end))


def run_campaign(spark: SparkSession, *, scenario: Path, seeds: Seeds) -> DataFrame:
    """A row a seed. The scenario's text travels with the tasks: executors need no shared file system."""
    name, text = scenario.name, scenario.read_text(encoding="utf-8")
    cores = spark.sparkContext.defaultParallelism
    tasks = min(seeds.end - seeds.first, cores * TASKS_A_CORE)
    rows = spark.sparkContext.range(seeds.first, seeds.end, numSlices=tasks).mapPartitions(
        lambda part: run_seeds(name, text, part)
    )
    return spark.createDataFrame(rows, SCHEMA)


def run_seeds(name: str, text: str, seeds: Iterable[int]) -> Iterator[Row]:
    """In an executor: the runs of one task, each in a process of its own."""
    with tempfile.TemporaryDirectory(prefix="replog-campaign-") as directory:
        path = Path(directory) / name
        path.write_text(text, encoding="utf-8")
        for seed in seeds:
            yield run_seed(path, seed)


def run_seed(path: Path, seed: int) -> Row:
    """One run; what the process could not do is a row with an `error`, never a lost row."""
    from pyspark.sql import Row

    command = [sys.executable, "-m", "replog", "sim", "run", str(path), "--seed", str(seed), "--json"]
    verdict, error = "error", ""
    result: dict[str, object] = {}
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_TIMEOUT_S, check=False)
        result = json.loads(done.stdout) if done.returncode in (0, 1, 3) else {}
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
        replay=f"replog sim run {path.name} --seed {seed}",
        error=error,
    )


def _whole(result: dict[str, object], name: str) -> int:
    value = result.get(name, 0)
    return value if isinstance(value, int) else 0
