"""Tests which nodes a step of a scenario may strike."""

from __future__ import annotations

import pytest

from sim.run import Verdict, run_scenario
from sim.scenario.loading import parse_scenario

BASE = """\
scenario: base
duration: 2s
cluster: {brokers: 3}
topics: {t: {replicas: 3}, u: {replicas: 3, exists: false}}
producers: [{topic: t}]
consumers: [{topic: t}]
"""
STEPS = BASE + "steps:\n- {pick: controller, as: C}\n- {pick: C, as: D}\n"
NO_BROKER = "the controller is no broker"


@pytest.mark.parametrize(
    ("step", "words"),
    [
        ("isolate: clients", "clients is no node"),
        ("isolate: others", "others is no node"),
        ("create_topic: u, leader: controller", NO_BROKER),
        ("create_topic: u, leader: C", NO_BROKER),
        ("break_disk: controller", NO_BROKER),
        ("break_disk: C", NO_BROKER),
        ("wipe_disk: C", NO_BROKER),
        ("wipe_disk: D", NO_BROKER),
        ("rot: C", NO_BROKER),
        ("lie_syncs: C", NO_BROKER),
        ("rolling_restart: C", NO_BROKER),
        ("lag_metadata: C, for: 1s", "the controller replays no metadata"),
    ],
)
def test_a_step_does_not_strike_what_it_is_not_for(step: str, words: str) -> None:
    with pytest.raises(Exception, match=rf":10: .*{words}"):
        parse_scenario(STEPS + f"- {{{step}}}\n")


@pytest.mark.parametrize(
    "step", ["isolate: broker 1, except: clients", "fail_disk: C", "kill: C", "wipe_disk: broker 1"]
)
def test_a_step_strikes_what_it_is_for(step: str) -> None:
    assert len(parse_scenario(STEPS + f"- {{{step}}}\n").steps) == 3


@pytest.mark.parametrize("spread", ["0us", "1us"])
def test_a_network_may_be_without_latency(spread: str) -> None:
    scenario = parse_scenario(
        BASE.replace("2s", "300ms") + f"network: {{latency: 0us, spread: {spread}}}\nsteps: []\n"
    )
    assert run_scenario(scenario, 1).verdict is not Verdict.VIOLATED
