"""Scenarios drawn by Hypothesis are legal, and hold."""

from __future__ import annotations

from functools import partial

import pytest
from hypothesis import HealthCheck, Phase, find, given, settings
from hypothesis.stateful import run_state_machine_as_test
from hypothesis.strategies import SearchStrategy

from replog.testing import RuleViolated, SimClusterMachine, strategies
from sim.bugs import install
from sim.run import Verdict, run_scenario
from sim.scenario.loading import scenario_of
from sim.scenario.model import Scenario

FEW = settings(
    max_examples=4,
    derandomize=True,
    deadline=None,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)


@settings(max_examples=60, derandomize=True, deadline=None, database=None)
@given(strategies.scenarios())
def test_each_drawn_scenario_is_one_that_a_file_may_hold(scenario: Scenario) -> None:
    times = [step.at.us for step in scenario.steps if step.at is not None]
    assert times == sorted(times) and len(times) == len(scenario.steps) <= 6


def _has(verb: str, fault: strategies.Fault) -> bool:
    return verb in fault


@pytest.mark.parametrize(
    ("strategy", "verbs"),
    [
        (
            strategies.machine_faults(),
            "slow_disk hang_disk slow_cpu step_clock freeze_clock lack_descriptors lag_metadata",
        ),
        (strategies.disk_faults(), "fail_disk fail_sync break_disk"),
        (strategies.network_faults(), "isolate cut slow lose clog narrow flip_bits hang_up"),
    ],
)
def test_a_family_draws_each_of_its_faults(strategy: SearchStrategy[strategies.Fault], verbs: str) -> None:
    for verb in verbs.split():
        found = find(strategy, partial(_has, verb), settings=settings(database=None))
        scenario_of({"scenario": "s", "topics": {"t": {"replicas": 3}}, "steps": [{"at": "3s", **found}]})


@FEW
@given(strategies.scenarios(most=3))
def test_a_drawn_scenario_breaks_no_rule(scenario: Scenario) -> None:
    assert run_scenario(scenario, 1).verdict is not Verdict.VIOLATED


def test_what_hypothesis_finds_has_as_few_faults_as_it_needs() -> None:
    kills = strategies.plans(strategies.crashes())
    found = find(kills, lambda plan: any("kill" in step for step in plan), settings=settings(database=None))
    assert len(found) == 1


@pytest.mark.parametrize("bug", ["ack-before-high-watermark"])
def test_the_machine_finds_a_planted_bug(bug: str) -> None:
    with install(bug), pytest.raises((RuleViolated, BaseExceptionGroup)):
        run_state_machine_as_test(SimClusterMachine, settings=settings(FEW, max_examples=20))
