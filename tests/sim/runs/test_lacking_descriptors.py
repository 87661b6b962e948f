"""Brokers without descriptors: what they could not do they do later, and no log goes offline (AP16, LL4, ROL-5)."""

from __future__ import annotations

import pytest

from cluster.core.broker.logs import BrokerLogs
from cluster.core.messages import TopicPartition
from sim.run import RunResult, Verdict, run_scenario
from sim.scenario.loading import parse_scenario
from storage.disk.filesystem import dirname
from storage.errors import DirectoryFailed
from storage.log import PartitionLog

# Topics come, grow and go while one broker, and then each, lacks descriptors.
SCENARIO = """
scenario: lacking-descriptors
duration: 9s
cluster:
  directories: 2
  settings: {log.retention.check.interval.ms: 300, replica.high.watermark.checkpoint.interval.ms: 300}
topics:
  t: {partitions: 2, replicas: 3, config: {min.insync.replicas: 2, segment.bytes: 2000, retention.bytes: 6000}}
  u: {partitions: 2, replicas: 3, exists: false, config: {min.insync.replicas: 1}}
producers: [{topic: t, rate: 60/s}]
consumers: [{topic: t}]
steps:
  - {at: 2s, lack_descriptors: broker 2, left: LEFT, for: 1200ms}
  - {at: 2300ms, create_topic: u}
  - {at: 4s, lack_descriptors: all, left: LEFT, for: 1s}
  - {at: 4300ms, delete_topic: u}
"""


def run(left: str, seed: int = 1) -> RunResult:
    return run_scenario(parse_scenario(SCENARIO.replace("LEFT", left)), seed)


@pytest.mark.parametrize("left", ["few", "none"])
@pytest.mark.parametrize("seed", [1, 2])
def test_ap16_a_broker_without_descriptors_goes_on_and_does_the_rest_later(left: str, seed: int) -> None:
    result = run(left, seed)
    assert result.verdict is Verdict.HELD, result.violations


def test_rol5_a_deletion_that_is_forgotten_for_want_of_a_descriptor_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(BrokerLogs, "_delete_again", lambda self: None)
    found = {each.checker for each in run("few").violations}
    assert found and found <= {"held-files", "left-logs"}


def test_ap16_a_directory_that_goes_offline_for_want_of_a_descriptor_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A lack is no failure of a disk."""
    delete = BrokerLogs._delete

    def fails(self: BrokerLogs, topic_partition: TopicPartition, log: PartitionLog) -> None:
        delete(self, topic_partition, log)
        if topic_partition in self._undeleted:
            self.directories.fail(dirname(log.directory), DirectoryFailed("no descriptor is left"))

    monkeypatch.setattr(BrokerLogs, "_delete", fails)
    assert "failed-disks" in {each.checker for each in run("few").violations}


# What the broker tries again waits for its clock, its disk or its processor.
LATE = """
scenario: lacking-and-late
duration: 9s
topics:
  t: {partitions: 2, replicas: 3, config: {min.insync.replicas: 1}}
  u: {partitions: 30, replicas: 3, exists: false, config: {min.insync.replicas: 1}}
  v: {partitions: 3, replicas: 3, exists: false, config: {min.insync.replicas: 1}}
producers: [{topic: t, rate: 30/s}]
consumers: [{topic: t}]
steps:
  - {at: 2s, lack_descriptors: broker 2, left: few, for: 800ms}
  - {at: 2500ms, create_topic: u}
  - {at: 2850ms, STEP}
  - {at: 3500ms, create_topic: v}
"""


@pytest.mark.parametrize(
    "step",
    [
        "freeze_clock: broker 2, for: 2500ms",
        "hang_disk: broker 2, for: 2500ms",
        "slow_disk: broker 2, by: 4ms, for: 3s",
    ],
)
def test_ap16_what_is_tried_again_late_is_no_violation(step: str) -> None:
    result = run_scenario(parse_scenario(LATE.replace("STEP", step)), 0)
    assert result.verdict is Verdict.HELD, result.violations
