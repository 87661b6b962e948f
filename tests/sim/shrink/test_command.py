"""`replog sim shrink`: a planted mistake, from its scenario to the smallest file that shows it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from sim.commands import sim
from sim.run import Verdict, run_scenario
from sim.scenario.loading import load_scenario
from sim.shrink.data import read_data
from sim.shrink.likelihood import Restarts
from sim.shrink.search import Failing
from sim.shrink.trial import Outcome
from tests.places import ROOT

BUG = "ack-before-high-watermark"


def invoke(*arguments: str | Path) -> Result:
    return CliRunner().invoke(sim, ["shrink", *map(str, arguments)])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "missing SCENARIO and --seed N, or --swarm N"),
        (["leader-crash"], "missing SCENARIO and --seed N"),
        (["leader-crash", "--swarm", "1"], "--swarm N is scenario and seed at once"),
        (["leader-crush", "--seed", "1"], "did you mean 'leader-crash'?"),
        (["leader-crash", "--seed", "1", "--bug", "nonsense"], "unknown bug 'nonsense'"),
        (["leader-crash", "--seed", "1", "--budget", "soon"], "'soon' is no duration"),
    ],
)
def test_options_that_make_no_sense_are_refused(arguments: list[str], message: str) -> None:
    result = invoke(*arguments)
    assert result.exit_code == 2 and message in result.stderr


@pytest.mark.slow
def test_a_planted_mistake_is_shrunk_to_a_file_that_shows_it(tmp_path: Path) -> None:
    path = tmp_path / "min.yaml"
    # In a process without gRPC, which may fork.
    arguments = ["leader-crash", "--seed", "0", "--bug", BUG, "--out", str(path), "--json", "--jobs", "1"]
    command = [sys.executable, "-m", "replog", "sim", "shrink", *arguments]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    row = json.loads(result.stdout)
    assert row["proof"] == {"runs": 10, "failed": 10, "is_same_run": True}
    assert (row["after"]["steps"], row["after"]["sends"]) == (0, 1)
    assert len(row["likelihood"]) == 12 and 3 <= len(row["story"]) <= 5
    again = run_scenario(path, row["seed"], bug=BUG, stops_early=True)
    assert again.verdict is Verdict.VIOLATED and again.violations[0].checker == "acknowledged-committed"
    assert run_scenario(path, row["seed"]).verdict is Verdict.HELD


@pytest.mark.slow
def test_a_run_that_does_not_fail_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    path = tmp_path / "min.yaml"
    result = invoke("leader-crash", "--seed", "0", "--out", path)
    assert (result.exit_code, path.exists()) == (2, False)
    assert "the run with seed 0 does not fail" in result.stderr


@pytest.mark.slow
def test_fresh_draws_change_a_run_from_their_event_on_and_none_changes_nothing() -> None:
    path = ROOT / "scenarios" / "leader-crash.yaml"
    whole = run_scenario(load_scenario(path), 0, bug=BUG, stops_early=True)
    outcome = Outcome(signature="acknowledged-committed: x", events=whole.events)
    failing = Failing(data=read_data(path), seed=0, outcome=outcome)
    asked = [(whole.events + 1, 1), (300, 1), (300, 1), (300, 2)]
    rows = [Restarts(failing=failing, bug=BUG, asked=asked).run(number) for number in range(4)]
    hashes = [row["trace_hash"] for row in rows]
    assert hashes[0] == whole.trace_hash
    assert hashes[1] == hashes[2] and len(set(hashes)) == 3
    assert rows[0]["fresh_at_us"] == -1 and rows[1]["fresh_at_us"] == rows[3]["fresh_at_us"] > 0
