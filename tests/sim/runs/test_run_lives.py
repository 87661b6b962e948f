"""Runs in which lives end at odd moments."""

from __future__ import annotations

from sim.run import Verdict
from tests.sim.runs.cluster_driver import driven_cluster


def test_committed_records_that_the_controller_could_not_report_count_from_its_next_start() -> None:
    cluster = driven_cluster(seed=1)
    # It is the flush of the election that follows.
    cluster.kill_at_job("controller", "after", "flush")
    cluster.kill("leader")
    cluster.advance(4_000)
    assert not cluster.is_up("controller")
    before = cluster.leader()
    cluster.restart("controller")
    cluster.advance(200)
    assert cluster.leader() != before
    assert cluster.violations == ()


def test_what_the_controller_lost_before_it_was_on_disk_never_counts() -> None:
    cluster = driven_cluster(seed=1)
    before = cluster.leader()
    cluster.kill("leader")
    cluster.kill_at_job("controller", "before", "flush")
    cluster.advance(4_000)
    assert not cluster.is_up("controller")
    cluster.power_loss("controller", "none")
    cluster.restart("controller")
    cluster.advance(200)
    assert cluster.leader() == before
    assert cluster.violations == ()


def test_a_node_that_is_stopping_when_everything_is_healed_comes_back() -> None:
    cluster = driven_cluster(seed=1)
    cluster.stop("leader")
    assert cluster.finish().verdict is Verdict.HELD
