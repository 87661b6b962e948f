"""Mistakes that Kafka had, each in the smallest scenario that shows it; without the bug the same scenario holds."""

from __future__ import annotations

import pytest

from sim.run import Verdict, run_scenario


@pytest.mark.slow
@pytest.mark.parametrize(
    ("bug", "scenario", "checker"),
    [
        # The leader notes an end of the follower that is above its own.
        ("leader-counts-diverging-fetch", "leader-counts-diverging-fetch", "no-failure"),
        ("leader-answers-latest-too-early", "leader-answers-latest-too-early", "offset-answers"),
        ("consumer-reads-again", "consumer-reads-again", "no-failure"),
        ("fetch-waits-as-asked", "fetch-waits-as-asked", "parked-fetches"),
        ("half-a-change-applies", "half-a-change-applies", "metadata"),
        ("controller-unfences-too-early", "controller-unfences-too-early", "broker-sessions"),
        ("recovery-skipped", "torn-tail-power-loss", "recovery"),
        # Nothing was recovered: the torn batch stays.
        ("clean-mark-survives", "clean-mark-survives", "recovery"),
        ("follower-refuses-large-set", "follower-refuses-large-set", "no-failure"),
        ("retention-takes-uncommitted", "retention-takes-uncommitted", "no-failure"),
        ("compaction-takes-uncommitted", "compaction-takes-uncommitted", "compaction-range"),
    ],
)
def test_a_mistake_that_kafka_had_is_seen(bug: str, scenario: str, checker: str) -> None:
    assert run_scenario(scenario, 7).verdict is Verdict.HELD
    result = run_scenario(scenario, 7, bug=bug, stops_early=True)
    assert result.violations[0].checker == checker, result.violations
