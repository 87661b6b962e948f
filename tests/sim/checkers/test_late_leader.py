"""A leader that wakes after it was replaced, with fetches that had waited for it."""

from __future__ import annotations

import pytest

from replog.testing import SimCluster
from sim.run import Verdict
from tests.sim.runs.cluster_driver import driven_cluster

# After this time the follower holds the records, and its next fetch is on its way.
FETCHED_MS = 6


SEEDS = range(1, 13)


def late_leader(
    *, led_on: bool, flush_promised: bool = False, comes_back_with_all: bool = False, seed: int = 1
) -> SimCluster:
    """Let the leader sleep before it hears that its only follower has all; the follower loses power and is elected."""
    cluster = driven_cluster(seed=seed, min_isr=1, flush_promised=flush_promised)
    leader = cluster.leader()
    follower, other = (broker for broker in (1, 2, 3) if broker != leader)
    cluster.kill(other)
    cluster.advance(4_000)
    cluster.produce(5)
    cluster.advance(500)
    cluster.produce(5)
    cluster.advance(FETCHED_MS)
    cluster.pause(leader)
    cluster.advance(20)
    cluster.power_loss(follower, "all" if comes_back_with_all else "none")
    cluster.restart(follower)
    cluster.advance(6_000)
    assert cluster.leader() == follower
    if led_on:
        cluster.produce(40)
        cluster.advance(1_000)
    cluster.resume(leader)
    cluster.advance(100)
    return cluster


@pytest.mark.parametrize("led_on", [False, True])
def test_batches_that_a_late_leader_commits_and_the_new_ones_disk_lost_are_excused(
    led_on: bool,
) -> None:
    """It depends on the seed whether the leader falls asleep in time; one is enough."""
    for seed in SEEDS:
        cluster = late_leader(led_on=led_on, seed=seed)
        assert cluster.finish().verdict is Verdict.HELD, cluster.violations
        if "led on after every in-sync replica had lost it" in "\n".join(cluster.story):
            return
    pytest.fail(f"no leader was late with seeds {SEEDS}")


@pytest.mark.parametrize("led_on", [False, True])
def test_batches_that_a_late_leader_commits_and_the_new_one_holds_are_true(led_on: bool) -> None:
    cluster = late_leader(led_on=led_on, comes_back_with_all=True)
    assert cluster.finish().verdict is Verdict.HELD, cluster.violations
    assert "EXCUSED" not in "\n".join(cluster.story)


@pytest.mark.parametrize("led_on", [False, True])
def test_nothing_is_excused_where_a_flush_was_promised(led_on: bool) -> None:
    cluster = late_leader(led_on=led_on, flush_promised=True)
    assert cluster.finish().verdict is Verdict.HELD, cluster.violations
    assert "EXCUSED" not in "\n".join(cluster.story)
