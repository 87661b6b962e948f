"""The script that draws whole scenarios."""

from __future__ import annotations

from io import StringIO

from ruamel.yaml import YAML

from sim.scenario.model import parse_scenario
from sim.scenario.steps import VERB_NAMES
from tests.sim.runs.drawing import TRANSPORTS, signature
from tests.sim.runs.drawn import description, drawn


def test_one_seed_draws_one_scenario_for_each_transport() -> None:
    assert drawn(3, "stream") == drawn(3, "stream") != drawn(3, "datagram")
    assert drawn(3, "stream") != drawn(4, "stream")


def test_what_is_described_is_what_is_run() -> None:
    for seed in range(30):
        text = StringIO()
        YAML(typ="safe", pure=True).dump(description(seed, "datagram"), text)
        assert parse_scenario(text.getvalue()) == drawn(seed, "datagram")


def test_every_step_but_pick_and_every_size_of_cluster_is_drawn() -> None:
    scenarios = [drawn(seed, transport) for seed in range(60) for transport in TRANSPORTS]
    assert {step.verb for each in scenarios for step in each.steps} == set(VERB_NAMES) - {"pick"}
    assert {each.cluster.brokers for each in scenarios} == {1, 2, 3, 4, 5}
    assert {topic.replicas for each in scenarios for topic in each.topics.values()} == {1, 2, 3, 4}


def test_a_signature_has_no_numbers_and_no_values() -> None:
    assert (
        signature("history", "t-0: b'x/17' at offset 3 is lost") == "history: t-N: VALUE at offset N is lost"
    )
