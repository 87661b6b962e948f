"""Sequences that need more than one life or more than one fault, over a whole simulated cluster."""

from __future__ import annotations

from sim.run import Verdict
from tests.sim.runs.cluster_driver import ClusterDriver


def test_a_crash_after_a_clean_stop_and_a_start_is_recovered_from() -> None:
    driver = ClusterDriver(seed=1)
    driver.produce(5, acks_all=True)
    driver.pass_time(500)
    driver.stop(1)
    driver.pass_time(3_000)
    driver.restart(1)
    driver.pass_time(2_000)
    driver.tear_next_append(1, 100, None)
    driver.produce(5, acks_all=True)
    driver.pass_time(1_000)
    assert not driver.node(1).is_up
    driver.restart(1)
    driver.pass_time(2_000)
    assert driver.end().verdict is Verdict.HELD, driver.violations
    assert "is back after a clean stop" in driver.story
    assert "is back after an unclean stop" in driver.story
