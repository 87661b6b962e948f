"""A controller that dies at any call of its file system: its answers hold, and each decision is whole or absent."""

from __future__ import annotations

import pytest

from cluster.core.messages import CreateTopicRequest, CreateTopicResponse
from sim.disk import SimDisk
from sim.disk.life import Dead
from sim.disk.survival import PowerLoss
from storage.draws import Draws
from tests.cluster.controller.setup import ControllerBench

PARTITIONS = 7


def run_until_death(disk: SimDisk, call: int) -> list[str]:
    """Return the topics whose creation was acknowledged before the `call`-th mutating call killed the controller."""
    told: list[str] = []
    disk.arm_crash(call)
    try:
        bench = ControllerBench(disk=disk).unfenced(1)
        for number in range(4):
            name = f"topic-{number}"
            answer = bench.ask(CreateTopicRequest(name=name, partitions=PARTITIONS))
            assert isinstance(answer, CreateTopicResponse)
            told.append(name)
    except Dead:
        pass
    return told


@pytest.mark.parametrize("mode", ["none", "prefix", "subset", "torn", "all"])
def test_acknowledged_decisions_survive_a_death_at_any_call(mode: PowerLoss) -> None:
    deaths = 0
    for call in range(1, 200):
        disk = SimDisk(Draws(call), lambda: 0)
        told = run_until_death(disk, call)
        disk.disarm()
        disk.lose_power(mode)
        bench = ControllerBench(disk=disk)
        topics = bench.controller.image.topics
        assert set(told) <= set(topics), (call, told)
        assert all(len(topic.partitions) == PARTITIONS for topic in topics.values()), call
        if len(told) == 4:
            break
        deaths += 1
    assert len(told) == 4 and deaths > 10, deaths
