"""Scenarios drawn by Hypothesis are legal, and hold."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, find, given, settings
from hypothesis.stateful import run_state_machine_as_test

from replog.testing import RuleViolated, SimClusterMachine, strategies
from sim.bugs import install
from sim.run import Verdict, run_scenario
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
