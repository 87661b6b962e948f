"""What a healed partition, or a healed cluster, lacks to be at rest."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import final

import pytest

from cluster.core.messages import DeleteTopicRequest, TopicPartition
from replog.real.admin import Place, RunAdmin
from replog.real.ground import Ground
from replog.real.processes import Process
from replog.real.rest import Rest, partition_lacks
from replog.real.watch import Watch
from sim.hosts.history import History
from sim.scenario.loading import parse_scenario

SCENARIO = parse_scenario(
    "scenario: s\ncluster: {brokers: 2}\ntopics: {t: {replicas: 2}}\nproducers: [{topic: t}]\n"
)

T0 = TopicPartition("t", 0)


def places(**ends: tuple[int, int]) -> dict[tuple[TopicPartition, int], Place]:
    return {(T0, int(name.removeprefix("broker_"))): Place(*end) for name, end in ends.items()}


def test_a_partition_whose_replicas_are_equal_and_committed_lacks_nothing() -> None:
    assert partition_lacks((1, 2), 1, 2, T0, places(broker_1=(5, 5), broker_2=(5, 5))) == ""


@pytest.mark.parametrize(
    ("isr", "leader", "ends", "word"),
    [
        ((1, 2), -1, {}, "has no leader"),
        ((1,), 1, {}, "only [1] are in sync"),
        ((1, 2), 1, {"broker_1": (5, 5)}, "broker 2 has no replica"),
        ((1, 2), 1, {"broker_1": (5, 5), "broker_2": (4, 4)}, "differ"),
        ((1, 2), 1, {"broker_1": (5, 4), "broker_2": (5, 4)}, "differ"),
    ],
)
def test_what_a_partition_lacks_is_said(
    isr: tuple[int, ...], leader: int, ends: dict[str, tuple[int, int]], word: str
) -> None:
    assert word in partition_lacks(isr, leader, 2, T0, places(**ends))


@final
class House:
    """A cluster of two brokers whose processes have all served, and a partition that is at rest."""

    def __init__(self, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        history = History()
        self.watch = Watch(
            SCENARIO, data, history, lambda: 0, on_violation=lambda found: None, note=lambda who, what: None
        )
        self.ground = Ground(SCENARIO, 0, data, history, self.watch, lambda: 0, lambda count: [])
        self.unfenced = [1, 2]
        monkeypatch.setattr(Process, "is_up", True)
        monkeypatch.setattr(Watch, "unfenced_brokers", lambda watch: self.unfenced)
        for name in ("controller", "broker-1", "broker-2"):
            self.ground.nodes[name] = Process(name, self.ground, data / f"{name}.txt", lambda: [])
            self.serve(name)

    def serve(self, name: str) -> None:
        """Let the present life of a node say that it serves."""
        self.ground.on_line(self.ground.nodes[name], b'{"event": "ready", "port": 1}')

    def rests(self, admin: RunAdmin) -> str:
        """Returns what is missing to be at rest, without any patience."""
        rest = Rest(self.watch, admin, {"t": 2}, [], self.ground)
        return asyncio.run(rest.wait(0, lambda: 0)).partition("healed ")[2]


@pytest.fixture
def house(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> House:
    async def places(admin: RunAdmin) -> dict[tuple[TopicPartition, int], Place]:
        return {}

    monkeypatch.setattr(RunAdmin, "places", places)
    return House(tmp_path, monkeypatch)


def test_a_cluster_is_not_at_rest_before_each_node_serves_in_its_last_life(house: House) -> None:
    admin = RunAdmin([1])
    assert house.rests(admin) == ""
    house.ground.nodes["controller"].starts += 1
    assert house.rests(admin) == "controller does not serve since its last start"
    house.serve("controller")
    assert house.rests(admin) == ""


def test_a_cluster_with_a_fenced_broker_is_not_at_rest(house: House) -> None:
    house.unfenced = [1]
    assert house.rests(RunAdmin([1])) == "broker-2 is fenced"


def test_a_cluster_is_not_at_rest_before_each_topic_that_was_asked_for_is_there(house: House) -> None:
    admin = RunAdmin([1])
    admin.ask(DeleteTopicRequest(name="u"))
    assert house.rests(admin) == "topic u is still to be deleted"
