"""Mistakes that Kafka had, each in the smallest scenario that shows it; without the bug the same scenario holds."""

from __future__ import annotations

from pathlib import Path

import pytest

from sim.run import Verdict, run_scenario

# The old leader is active again before its first fetch, whose log has more records than the new leader's.
LATE_FIRST_FETCH = """
scenario: late-first-fetch
duration: 10s
topics:
  t: {partitions: 1, replicas: 3, config: {min.insync.replicas: 1}}
producers:
  - {topic: t, clients: 1, rate: 25/s, acks: 1}
steps:
  - {when: after-ack(t/0) >= 30, pick: leader(t/0), as: Old}
  - {pick: "follower(t/0,1)", as: One}
  - {pick: "follower(t/0,2)", as: Two}
  - {isolate: Old, except: clients, for: 2500ms}
  - {cut: Old <-> One, for: 4s}
  - {cut: Old <-> Two, for: 4s}
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("bug", "scenario", "checker"),
    [
        # The leader notes an end of the follower that is above its own.
        ("leader-counts-diverging-fetch", LATE_FIRST_FETCH, "no-failure"),
        ("recovery-skipped", "torn-tail-power-loss", "recovery"),
        # Nothing was recovered: the torn batch stays.
        ("clean-mark-survives", "clean-mark-survives", "recovery"),
        ("follower-refuses-large-set", "follower-refuses-large-set", "convergence"),
        ("retention-takes-uncommitted", "retention-takes-uncommitted", "no-failure"),
        ("compaction-takes-uncommitted", "compaction-takes-uncommitted", "compaction"),
    ],
)
def test_a_mistake_that_kafka_had_is_seen(bug: str, scenario: str, checker: str, tmp_path: Path) -> None:
    path: Path | str = scenario
    if "\n" in scenario:
        path = tmp_path / "scenario.yaml"
        path.write_text(scenario)
    assert run_scenario(path, 7).verdict is Verdict.HELD
    result = run_scenario(path, 7, bug=bug, stops_early=True)
    assert result.violations[0].checker == checker, result.violations
