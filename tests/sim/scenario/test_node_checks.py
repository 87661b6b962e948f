"""Tests which nodes a step of a scenario may strike."""

from __future__ import annotations

import pytest

from sim.run import Verdict, run_scenario
from sim.scenario.loading import ScenarioError, parse_scenario

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


@pytest.mark.parametrize(
    ("part", "words"),
    [
        ("network: {latency: 400ms, spread: 50ms}", "heartbeats are given up after 900ms"),
        ("cluster: {disk: {sync: 450ms}}", "write less than 450000us"),
        ("cluster: {disk: {call: 180ms}}", "write less than 180000us"),
    ],
)
def test_a_sound_cluster_is_fast_enough_for_its_sessions(part: str, words: str) -> None:
    with pytest.raises(ScenarioError, match=words):
        parse_scenario(f"scenario: s\nduration: 5s\ntopics: {{t: {{}}}}\n{part}\n")


def test_a_snapshot_of_the_metadata_is_struck_by_a_name_too() -> None:
    scenario = parse_scenario(STEPS + "- {fail_sync: D, file: metadata}\n")
    assert scenario.steps[-1].verb == "fail_sync"


@pytest.mark.parametrize("number", ["00", "01", "0" * 5000, "1" * 5000], ids=["00", "01", "zeros", "ones"])
def test_a_partition_of_a_log_is_a_plain_number(number: str) -> None:
    with pytest.raises(ScenarioError, match=r":10: .*no partition '[01]{2,12}'"):
        parse_scenario(STEPS + f"- {{rot: broker 1, log: t/{number}}}\n")


@pytest.mark.parametrize(
    "steps", ["!foo [1]", "!!python/tuple [1]", "[!!bool x]", "!!bool x", "!!seq x", "!!map x", "!!int x"]
)
def test_a_tag_that_does_not_fit_is_refused_in_one_line(steps: str) -> None:
    with pytest.raises(ScenarioError, match=r":[0-9]+: "):
        parse_scenario(BASE + f"steps: {steps}\n")


@pytest.mark.parametrize(
    "part",
    [
        "cluster: {brokers: '3'}", "cluster: {brokers: 3.0}", "cluster: {brokers: true}",
        "producers: [{topic: t, acks: true}]", "producers: [{topic: t, acks: '1'}]",
        "producers: [{topic: t, idempotent: 1}]",
    ],
)  # fmt: skip
def test_a_value_has_the_type_of_its_key(part: str) -> None:
    with pytest.raises(ScenarioError, match=r":[0-9]+: (cluster\.brokers|producers\.0\.(acks|idempotent)): "):
        parse_scenario(f"scenario: s\nduration: 5s\ntopics: {{t: {{}}}}\n{part}\n")


@pytest.mark.parametrize("step", ["pause: broker 1, lasting: 1s", "pause: broker 1, for: 1s, name: X"])
def test_a_key_has_one_spelling(step: str) -> None:
    with pytest.raises(ScenarioError, match=r":[0-9]+: (unknown key 'name'|steps\.0\.for: missing)"):
        parse_scenario(f"scenario: s\nduration: 5s\ntopics: {{t: {{}}}}\nsteps: [{{{step}}}]\n")
