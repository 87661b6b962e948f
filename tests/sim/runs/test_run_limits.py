"""What a run may do before it ends, and what a scenario demands of it: an early end, no excuse, no missed step."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from sim.checkers.ghost import UNSYNCED
from sim.commands import sim
from sim.run import Verdict, run_scenario
from sim.scenario.loading import parse_scenario
from sim.world import time as time_module
from tests.sim.runs.test_run import SMALL

BUG = "ack-before-high-watermark"
# All replicas lose what they have not synced: Kafka promises nothing then.
LOST = """\
scenario: lost
duration: 4s
topics:
  t: {config: {min.insync.replicas: 2}}
producers:
  - {topic: t, rate: 40/s}
steps:
  - {at: 3s, power: all, keep: none, down: 100ms}
"""
# The only in-sync replica stops in a directory that breaks, before any other call has met that.
ALONE = """\
scenario: alone
duration: 4s
excuses: false
cluster: {brokers: 2, directories: 2, settings: {replica.high.watermark.checkpoint.interval.ms: 9000}}
topics:
  t: {replicas: 1}
producers:
  - {topic: t, rate: 40/s}
steps:
  - {at: 2800ms, cut: clients <-> others, for: 1s}
  - {at: 2900ms, break_disk: leader(t/0), log: t/0, as: L}
  - {at: 3s, stop: L}
"""
MISSED = """\
scenario: missed
duration: 3s
topics:
  t: {}
producers:
  - {topic: t, rate: 40/s}
steps:
  - {at: 2100ms, pause: broker 1, for: 20ms}
  - {when: isr(t/0) > 5, within: 200ms, kill: broker 1}
"""


def test_a_run_that_stops_early_ends_at_its_first_violation() -> None:
    scenario = parse_scenario(SMALL)
    whole, early = run_scenario(scenario, 7, bug=BUG), run_scenario(scenario, 7, bug=BUG, stops_early=True)
    assert early.verdict is whole.verdict is Verdict.VIOLATED
    assert early.violations == whole.violations[: len(early.violations)]
    assert early.simulated_ms < whole.simulated_ms
    assert early.replay.endswith(f"--seed 7 --bug {BUG} --stop-early")


def test_a_run_that_holds_is_the_same_run_when_it_may_stop_early() -> None:
    scenario = parse_scenario(SMALL)
    assert run_scenario(scenario, 7, stops_early=True).trace_hash == run_scenario(scenario, 7).trace_hash


def test_the_command_stops_early_too(tmp_path: Path) -> None:
    path = tmp_path / "small.yaml"
    path.write_text(SMALL)
    arguments = ["run", str(path), "--seed", "7", "--bug", BUG, "--stop-early", "--json"]
    printed = json.loads(CliRunner().invoke(sim, arguments).stdout)
    early = run_scenario(parse_scenario(SMALL), 7, bug=BUG, stops_early=True)
    assert (printed["trace_hash"], printed["verdict"]) == (early.trace_hash, "violated")


def test_a_loss_that_is_excused_is_a_violation_where_the_scenario_excuses_none() -> None:
    lenient = run_scenario(parse_scenario(LOST), 1)
    assert lenient.verdict is Verdict.HELD
    ((reason, count),) = lenient.excused.items()
    found = run_scenario(parse_scenario("excuses: false\n" + LOST), 1)
    assert found.verdict is Verdict.VIOLATED
    assert [(each.checker, each.what) for each in found.violations] == [
        ("excuses", f"{count} acknowledged records are lost: {reason}")
    ]


def test_a_loss_that_needs_no_fault_is_no_violation_where_nothing_is_excused() -> None:
    retention = "{segment.bytes: 2000, retention.ms: 300}"
    scenario = parse_scenario(
        "excuses: false\ncluster: {settings: {log.retention.check.interval.ms: 200, log.initial.task.delay.ms: 100}}\n"
        + LOST.replace("{min.insync.replicas: 2}", retention).replace(
            "power: all, keep: none", "kill: broker 1"
        )
    )
    result = run_scenario(scenario, 1)
    assert list(result.excused) == ["retention has deleted it"]
    assert result.verdict is Verdict.HELD


def test_a_disk_that_breaks_under_the_only_replica_may_take_what_was_not_synced() -> None:
    """Disks break where nothing is excused, too: the syncs of a broken one fail, and Kafka promises nothing then."""
    result = run_scenario(parse_scenario(ALONE), 1)
    assert list(result.excused) == [UNSYNCED]
    assert result.verdict is Verdict.HELD


@pytest.mark.parametrize(("strict", "verdict"), [("true", Verdict.STARVED), ("false", Verdict.HELD)])
def test_a_missed_step_makes_a_run_worthless_only_where_the_scenario_is_strict(
    strict: str, verdict: Verdict
) -> None:
    result = run_scenario(parse_scenario(f"strict: {strict}\n" + MISSED), 1)
    assert result.verdict is verdict
    assert ("step 2: its moment never came" in result.never_struck) == (strict == "false")


def test_a_run_of_which_no_step_struck_is_worthless_in_any_case() -> None:
    step = "  - {at: 2100ms, pause: broker 1, for: 20ms}\n"
    result = run_scenario(parse_scenario("strict: false\n" + MISSED.replace(step, "")), 1)
    assert result.verdict is Verdict.STARVED


@pytest.mark.parametrize("options", [(), ("--json",), ("--no-story", "--stop-early")])
def test_a_run_without_an_end_is_one_line_and_status_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...]
) -> None:
    path = tmp_path / "small.yaml"
    path.write_text(SMALL)
    monkeypatch.setattr(time_module, "MOST_A_SECOND", 5)
    result = CliRunner().invoke(sim, ["run", str(path), "--seed", "7", *options])
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("the run has no end: more than 5 events a second at "), result.stderr
    assert result.stderr.count("\n") == 1
