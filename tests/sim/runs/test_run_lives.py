"""Runs in which lives end at odd moments."""

from __future__ import annotations

from sim.run import Verdict
from tests.sim.runs.cluster_driver import PARTITION, ClusterDriver


def test_committed_records_that_the_controller_could_not_report_count_from_its_next_start() -> None:
    driver = ClusterDriver(seed=1)
    # It is the flush of the election that follows.
    driver.kill_at_job("controller", "after", "flush")
    driver.kill("leader")
    driver.pass_time(4_000)
    assert not driver.run.cluster.controller.is_up
    before = driver.run.ghost.partition(str(PARTITION)).leader
    driver.restart("controller")
    driver.pass_time(200)
    assert driver.run.ghost.partition(str(PARTITION)).leader != before
    assert driver.violations == []


def test_what_the_controller_lost_before_it_was_on_disk_never_counts() -> None:
    driver = ClusterDriver(seed=1)
    before = driver.run.ghost.partition(str(PARTITION)).leader
    driver.kill("leader")
    driver.kill_at_job("controller", "before", "flush")
    driver.pass_time(4_000)
    assert not driver.run.cluster.controller.is_up
    driver.run.cluster.controller.disk.lose_power("none")
    driver.restart("controller")
    driver.pass_time(200)
    assert driver.run.ghost.partition(str(PARTITION)).leader == before
    assert driver.violations == []


def test_a_node_that_is_stopping_when_everything_is_healed_comes_back() -> None:
    driver = ClusterDriver(seed=1)
    driver.stop("leader")
    assert driver.end().verdict is Verdict.HELD
