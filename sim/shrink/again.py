"""Runs a trial in an interpreter of its own: `python -m sim.shrink.again` with the work as JSON on standard input.

It writes a line of JSON for each run: what failed, and the trace hash.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass

from sim.determinism.double import FIRST_ENVIRONMENT, ROOT, SECOND_ENVIRONMENT
from sim.scenario.source import parse_yaml
from sim.shrink.data import as_yaml
from sim.shrink.families import are_alike
from sim.shrink.search import Failing
from sim.shrink.trial import Trial, Trials

RUNS_EACH = 5
_MOST_CPU_S = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """How often a scenario failed alike in new interpreters, and whether all these runs were the same."""

    runs: int
    failed: int
    is_same_run: bool

    @property
    def holds(self) -> bool:
        return self.failed == self.runs and self.is_same_run


def prove(failing: Failing, signature: str, bug: str | None) -> Proof:
    """Run a failing scenario again, in two new interpreters, and compare what came out with `signature`."""
    work = {"text": as_yaml(failing.data), "seed": failing.seed, "bug": bug, "runs": RUNS_EACH}
    rows = [
        row
        for environment in (FIRST_ENVIRONMENT, SECOND_ENVIRONMENT)
        for row in _rows(json.dumps(work), environment)
    ]
    failed = sum(are_alike(row["signature"], signature) for row in rows)
    assert failed <= 2 * RUNS_EACH, (failed, rows)
    return Proof(runs=2 * RUNS_EACH, failed=failed, is_same_run=len({row["trace_hash"] for row in rows}) == 1)


def _rows(work: str, environment: Mapping[str, str]) -> list[dict[str, str]]:
    """Returns the lines of a new interpreter; of one that ended early, those that it had written."""
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH", "")])])
    # Without the current directory, where a user may have a `sim` or `queue.py`.
    command = [sys.executable, "-P", "-m", "sim.shrink.again"]
    ended = subprocess.run(
        command, input=work, capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": path, **environment},
    )  # fmt: skip
    return [json.loads(line) for line in ended.stdout.splitlines()]


def main() -> None:
    """Run the trial of standard input as often as it says."""
    work = json.loads(sys.stdin.read())
    logging.getLogger().addHandler(logging.NullHandler())
    data = parse_yaml(work["text"]).data
    assert isinstance(data, dict), type(data)
    trial = Trial(data=data, seed=work["seed"])
    trials = Trials(trials=[trial] * work["runs"], bug=work["bug"], most_events=None, most_cpu_s=_MOST_CPU_S)
    for outcome in trials.outcomes(1):
        found = {"signature": outcome.signature, "trace_hash": outcome.trace_hash}
        sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
