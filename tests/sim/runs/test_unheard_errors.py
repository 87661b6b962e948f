"""Errors of disks that jobs meet of whose end nobody hears: a stop has begun, or another replica leads meanwhile."""

from __future__ import annotations

from unittest.mock import patch

import pytest

from cluster.core.broker.logs import BrokerLogs
from cluster.core.replica import list_offsets
from sim.run import RunResult, run_scenario
from sim.scenario.loading import parse_scenario

SNAPSHOT = """
scenario: snapshot
duration: 5s
cluster: {brokers: 3, jobs: {snapshot: 300ms}}
topics: {t: {partitions: 2, replicas: 3, config: {segment.bytes: 1024}}}
producers: [{topic: t, clients: 3, rate: 40/s}]
buggify: {points: [few-batches-a-step]}
steps:
- {at: 2s, stop: leader(t/0), as: S, down: 500ms}
- {at: +20ms, fail_sync: S, file: snapshot, pages: dirty}
"""
DELETION = """
scenario: deletion
duration: 3s
cluster:
  brokers: 3
  jobs: {delete: 200ms}
  settings: {log.retention.check.interval.ms: 20, log.initial.task.delay.ms: 20}
topics:
  t: {partitions: 2, replicas: 3, config: {segment.bytes: 1024, retention.ms: 200, file.delete.delay.ms: 10}}
producers: [{topic: t, clients: 3, rate: 40/s}]
steps:
- {at: 2s, pick: leader(t/0), as: S}
- {at: +1ms, stop: S, down: 500ms}
- {at: +65ms, fail_disk: S, calls: writes, for: 40ms, error: io}
"""
SEARCH = """
scenario: search
duration: 4s
cluster: {brokers: 3, jobs: {search: 60ms}}
topics: {t: {partitions: 1, replicas: 3}}
producers: [{topic: t, rate: 60/s}]
seekers: [{topic: t, clients: 6, every: 15ms}]
buggify: {points: [short-searches]}
steps:
- {at: 2s, pick: leader(t/0), as: B}
- {at: +1ms, stop: B, down: 300ms}
- {at: +14ms, fail_disk: B, error: io, calls: reads, for: 130ms}
"""
CHECKPOINT = """
scenario: checkpoint
duration: 12s
cluster: {brokers: 3, directories: 2}
topics: {t: {partitions: 4, replicas: 3, config: {min.insync.replicas: 2}}}
producers: [{topic: t, rate: 10/s}]
steps:
- {at: 3s, slow_disk: broker 1, by: 40ms}
- {at: 4270ms, fail_sync: broker 1, file: checkpoint}
- {at: 4270ms, stop: broker 1, down: 2s}
"""
OTHER_LEADER = """
scenario: other-leader
duration: 9s
cluster: {brokers: 3, directories: 2, jobs: {search: 300ms}}
topics: {t: {partitions: 1, replicas: 3}}
producers: [{topic: t, rate: 60/s}]
seekers: [{topic: t, clients: 2, every: 100ms}]
buggify: {points: [short-searches]}
steps:
- {at: 2s, pick: leader(t/0), as: B}
- {at: +1ms, cut: B <-> controller, for: 2500ms}
- {at: +3080ms, fail_disk: B, error: io, calls: reads}
"""


def run(text: str, seed: int) -> RunResult:
    return run_scenario(parse_scenario(text, "unheard.yaml"), seed)


@pytest.mark.parametrize(("text", "seed"), [(SNAPSHOT, 5), (DELETION, 1), (SEARCH, 0), (CHECKPOINT, 1)])
def test_ll5_a_stop_does_not_mark_a_directory_whose_disk_has_failed_in_a_job_before_it(
    text: str, seed: int
) -> None:
    assert not run(text, seed).violations
    with patch.object(BrokerLogs, "distrust_disk_of", lambda logs, error: None):
        violations = run(text, seed).violations
    assert {each.checker for each in violations} == {"failed-disks"}
    assert "as stopped in order although a call on" in violations[0].what


def test_ap16_a_search_that_another_leader_overtakes_takes_a_failed_disk_offline() -> None:
    assert not run(OTHER_LEADER, 1).violations
    with patch.object(list_offsets, "is_late_disk_error", lambda error: False):
        assert {each.checker for each in run(OTHER_LEADER, 1).violations} == {"failed-disks"}
