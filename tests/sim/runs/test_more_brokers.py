"""Clusters with more brokers than replicas, and faults that find nothing to strike."""

from __future__ import annotations

import re
from pathlib import Path

from click.testing import CliRunner

from sim.commands import sim
from sim.run import RunResult, Verdict, run_scenario
from sim.scenario.loading import parse_scenario
from sim.scenario.steps import BROKER_JOBS, CONTROLLER_JOBS
from tests.places import ROOT

HEAD = """\
scenario: more-brokers
duration: 4s
cluster: {brokers: 5}
topics:
  t: {partitions: 2, replicas: 2}
producers:
  - {topic: t, rate: 20/s, acks: all}
consumers:
  - {topic: t}
steps:
"""
# One broker at least has no replica of t-0, whatever the controller has drawn.
PARTIAL_WRITES = "".join(
    f"  - {{partial_write: broker {number}, log: t/0, byte: 10 B, down: 300ms, at: {number * 200 + 1500}ms}}\n"
    for number in range(1, 6)
)


def run(steps: str, seed: int = 1) -> RunResult:
    return run_scenario(parse_scenario(HEAD + steps), seed)


def test_a_broker_without_a_replica_may_lose_power_and_is_not_compared() -> None:
    result = run("  - {at: 2500ms, power: all, keep: all, down: 300ms}\n")
    assert result.verdict is Verdict.HELD, (result.violations, result.starved_because)
    assert any("every replica agrees" in line for line in result.story)


def test_a_partial_write_on_a_broker_without_the_log_is_told_in_one_line_and_counted() -> None:
    result = run(PARTIAL_WRITES)
    assert not result.violations
    lacking = [line for line in result.story if "has no log of t-0 to write to" in line]
    assert len(lacking) == 3
    assert len([what for what in result.never_struck if "it has no log of t-0" in what]) == 3
    assert any("writes 10 bytes of its next batch" in line for line in result.story)


def test_a_fault_that_waits_in_vain_is_counted() -> None:
    steps = "  - {at: 2500ms, kill: leader(t/0), point: before compact}\n"
    result = run(steps + "  - {kill: broker 3, as: A}\n  - kill: A\n")
    waits, down = [what for what in result.never_struck if "compact" in what], result.never_struck[0]
    assert len(waits) == 1 and re.fullmatch(r"kill broker-\d before compact", waits[0])
    assert down == "kill broker-3, the A: it was down already"
    assert result.as_json()["never_struck"] == list(result.never_struck)


def test_a_fault_that_struck_is_not_counted() -> None:
    result = run("  - {at: 2500ms, kill: leader(t/0), point: after checkpoint, down: 300ms}\n")
    assert any("after checkpoint" in line for line in result.story)
    assert not result.never_struck


def test_the_command_prints_the_faults_that_never_struck(tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_text(HEAD + "  - {at: 2500ms, kill: leader(t/0), point: before compact}\n")
    printed = CliRunner().invoke(sim, ["run", str(path), "--no-story"]).stdout
    assert "faults that never struck: 1\nnever struck: kill broker-" in printed


def test_the_points_of_a_kill_are_the_jobs_of_the_core() -> None:
    kinds: dict[bool, set[str]] = {True: set(), False: set()}
    for path in sorted((ROOT / "cluster" / "core").rglob("*.py")):
        found = re.findall(r'run_job\(\s*"([a-z]+)"|RunJob\([^)]*kind="([a-z]+)"', path.read_text())
        kinds["controller" in path.parts].update(one or other for one, other in found)
    assert kinds[False] == set(BROKER_JOBS) and kinds[True] == set(CONTROLLER_JOBS)
