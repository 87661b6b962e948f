"""Brokers forget producers after a time that a topic sets, or a day by their clocks: that is no violation (PS13)."""

from __future__ import annotations

import pytest

from replog.testing import SimCluster
from sim.run import Verdict, run_scenario
from sim.scenario.loading import parse_scenario

EXPIRING = """\
scenario: expiring
duration: 6s
cluster: {settings: {producer.id.expiration.check.interval.ms: 100, log.initial.task.delay.ms: 10}}
topics: {t: {config: {producer.id.expiration.ms: 1000}}}
producers: [{topic: t, rate: 20/s, records: 20}]
steps:
- {at: 4s, kill: leader(t/0), down: 500ms}
"""
DAYS_AHEAD = """\
scenario: days-ahead
duration: 6s
topics: {t: {}}
producers: [{topic: t, rate: 20/s, records: 20}]
steps:
- {at: 3s, step_clock: all, by: 3000m}
- {at: 4s, kill: leader(t/0), down: 500ms}
"""


@pytest.mark.parametrize("text", [EXPIRING, DAYS_AHEAD])
def test_ps13_a_producer_that_may_be_forgotten_is_not_missed(text: str) -> None:
    result = run_scenario(parse_scenario(text), 0)
    assert result.verdict is Verdict.HELD, result.violations


def test_ps13_a_change_in_a_cluster_that_a_test_drives_lets_producers_expire() -> None:
    cluster = SimCluster()
    cluster.produce(3)
    cluster.advance(500)
    cluster.alter_topic("t", {"producer.id.expiration.ms": 1})
    cluster.advance(31_000)
    cluster.kill("leader")
    cluster.advance(4_000)
    assert cluster.finish().verdict is Verdict.HELD
