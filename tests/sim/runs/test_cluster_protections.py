"""Sequences that need more than one life or more than one fault, over a whole simulated cluster."""

from __future__ import annotations

from sim.run import Verdict
from tests.sim.runs.cluster_driver import driven_cluster


def test_a_crash_after_a_clean_stop_and_a_start_is_recovered_from() -> None:
    cluster = driven_cluster(seed=1)
    cluster.produce(5)
    cluster.advance(500)
    cluster.stop(1)
    cluster.advance(3_000)
    cluster.restart(1)
    cluster.advance(2_000)
    cluster.tear_next_append(1, 100, None)
    cluster.produce(5)
    cluster.advance(1_000)
    assert not cluster.is_up(1)
    cluster.restart(1)
    cluster.advance(2_000)
    assert cluster.finish().verdict is Verdict.HELD, cluster.violations
    assert "is back after a clean stop" in "\n".join(cluster.story)
    assert "is back after an unclean stop" in "\n".join(cluster.story)
