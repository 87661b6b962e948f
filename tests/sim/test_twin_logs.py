"""A second log of a partition beside one in a directory that is offline (KIP-112)."""

from __future__ import annotations

import pytest

from cluster.core.broker.logs import BrokerLogs
from cluster.core.messages import TopicPartition
from sim.disk import SimDisk
from sim.disk.life import Life
from sim.run import run_scenario
from sim.scenario.loading import parse_scenario
from sim.twin_logs import NAME, twins
from storage.disk.checkpoints import PartitionMetadataFile
from storage.draws import Draws

LOST_DIRECTORY = """
scenario: lost-directory
duration: 8s
cluster: {brokers: 3, directories: 2}
topics: {t: {partitions: 1, replicas: 3}}
producers: [{topic: t, rate: 20/s}]
steps:
- {at: 2s, break_disk: follower(t/0), log: t/0, as: V}
- {at: +300ms, kill: V, down: 300ms}
"""


def found(seed: int) -> set[str]:
    result = run_scenario(parse_scenario(LOST_DIRECTORY), seed)
    return {violation.checker for violation in result.violations}


def test_kip112_a_broker_makes_no_log_in_place_of_one_that_it_cannot_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert found(1) == set()

    def may_be_offline(self: BrokerLogs, topic_partition: TopicPartition, topic_id: str) -> bool:
        return False

    monkeypatch.setattr(BrokerLogs, "may_be_offline", may_be_offline)
    assert NAME in found(1)


def test_a_wiped_disk_may_have_one_directory_less() -> None:
    steps = """
- {at: 2s, break_disk: broker 2, directory: 2}
- {at: 2s, wipe_disk: broker 2, down: 300ms}
"""
    head, _, _ = LOST_DIRECTORY.partition("- {at")
    assert run_scenario(parse_scenario(head + steps.lstrip()), 1).violations == ()


@pytest.mark.parametrize(
    ("name", "topic_id", "is_twin"), [("t-0", "A" * 21 + "Q", True), ("t-0", "B" * 21 + "Q", False)]
)
def test_a_topic_of_the_same_name_is_another_one(name: str, topic_id: str, is_twin: bool) -> None:
    disk = SimDisk(Draws(1), lambda: 0)
    file_system = disk.file_system(Life("test"))
    for directory, known in (("data-1", "A" * 21 + "Q"), ("data-2", topic_id)):
        file_system.make_directory(directory)
        file_system.make_directory(f"{directory}/{name}")
        PartitionMetadataFile(file_system, f"{directory}/{name}").write(known)
    assert list(twins(disk, ("data-1", "data-2"))) == ([name] if is_twin else [])
