"""A controller that dies at any call of its file system: its answers hold, and each decision is whole or absent."""

from __future__ import annotations

import pytest

from cluster.core.controller.config import ControllerConfig
from cluster.core.errors import ErrorCode
from cluster.core.messages import CreateTopicRequest, CreateTopicResponse
from cluster.core.metadata.changes import ChangeReader
from cluster.core.metadata.log import committed_changes
from cluster.core.metadata.records import AbortTransactionRecord
from sim.disk import SimDisk
from sim.disk.life import Dead
from sim.disk.survival import PowerLoss
from storage.draws import Draws
from tests.cluster.controller.setup import ControllerBench

PARTITIONS = 7
# Each creation takes three batches.
MANY, SMALL_BATCHES = 70, ControllerConfig(metadata_max_batch_bytes=4 << 10)


def run_until_death(
    disk: SimDisk, call: int, config: ControllerConfig | None = None, partitions: int = PARTITIONS
) -> list[str]:
    """Return the topics whose creation was acknowledged before the `call`-th mutating call killed the controller."""
    told: list[str] = []
    disk.arm_crash(call)
    try:
        bench = ControllerBench(config, disk=disk).unfenced(1)
        for number in range(4):
            name = f"topic-{number}"
            answer = bench.ask(CreateTopicRequest(name=name, partitions=partitions))
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


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["prefix", "subset", "torn", "all"])
def test_krlog8_a_change_of_several_batches_is_whole_or_absent_after_a_death_at_any_call(
    mode: PowerLoss,
) -> None:
    aborted = 0
    for call in range(20, 200):
        disk = SimDisk(Draws(call), lambda: 0)
        told = run_until_death(disk, call, SMALL_BATCHES, MANY)
        disk.disarm()
        disk.lose_power(mode)
        bench = ControllerBench(SMALL_BATCHES, disk=disk)
        aborted += aborts(bench)
        for _ in range(2):
            topics = bench.controller.image.topics
            assert set(told) <= set(topics), (call, told)
            assert all(len(topic.partitions) == MANY for topic in topics.values()), call
            # What the first start made of it holds for the second one.
            bench.lose_power_and_restart()
        assert bench.unfenced(2).create("last").error is ErrorCode.NONE
        if len(told) == 4:
            break
    assert len(told) == 4 and aborted > 0, aborted


def aborts(bench: ControllerBench) -> int:
    """Return how many changes the log has whose end was lost."""
    changes = committed_changes(bench.controller.log, ChangeReader())
    return sum(
        isinstance(record, AbortTransactionRecord) for change in changes for _, record in change.records
    )
