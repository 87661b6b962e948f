"""Topics whose segments get their whole length as they begin: zeros follow the newest batch (FR1, FR6)."""

from __future__ import annotations

import pytest

from sim.bugs.planting import Replacement, replaced
from sim.run import Verdict, run_scenario
from sim.scenario.loading import parse_scenario
from tests.sim.runs.cluster_driver import driven_cluster

STRUCK = """\
scenario: preallocated
duration: 8s
cluster: {settings: {log.cleaner.backoff.ms: 300}}
topics:
  t: {partitions: 1, replicas: 3, config: {preallocate: true, segment.bytes: 8192, file.delete.delay.ms: 200}}
  u:
    partitions: 1
    replicas: 3
    config: {preallocate: true, segment.bytes: 8192, cleanup.policy: compact, min.cleanable.dirty.ratio: '0.01'}
producers:
- {topic: t, rate: 60/s, acks: 1}
- {topic: u, rate: 60/s, keys: 5}
consumers:
- {topic: t}
- {topic: u}
steps:
- {at: 2500ms, kill: leader(t/0), as: L}
- {at: 3500ms, restart: L}
- {at: 5s, power: all}
- {at: 5500ms, restart: all}
"""


@pytest.mark.parametrize("seed", [1, 2])
def test_crashes_leave_no_room_among_the_batches(seed: int) -> None:
    result = run_scenario(parse_scenario(STRUCK), seed)
    assert result.verdict is Verdict.HELD, result.violations


def test_fr6_a_sealed_segment_that_keeps_its_room_is_noticed() -> None:
    untrimmed = Replacement(
        target="storage.segment.file_records:FileRecords.trim", make=lambda original: lambda *_: None
    )
    with replaced(untrimmed):
        found = run_scenario(parse_scenario(STRUCK), 1).violations
    assert found


def test_a_topic_whose_segments_are_preallocated_from_a_step_on_holds() -> None:
    cluster = driven_cluster(seed=1)
    cluster.produce(20)
    cluster.alter_topic("t", {"preallocate": "true"})
    for _ in range(20):
        cluster.advance(200)
        cluster.produce(20)
    cluster.advance(1_000)
    assert cluster.finish().verdict is Verdict.HELD
