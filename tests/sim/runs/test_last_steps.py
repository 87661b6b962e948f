"""What a process did in its last step is on its disk, and nobody was told of it: no rule takes that for a loss."""

from __future__ import annotations

from cluster.core.broker.broker import Broker
from cluster.core.messages import TopicPartition
from replog.testing import SimCluster

T0 = TopicPartition("t", 0)
SETTINGS = {"log.flush.offset.checkpoint.interval.ms": 500, "log.flush.scheduler.interval.ms": 100}


def cluster_with_five_flushed() -> SimCluster:
    """Returns a cluster in which every broker's checkpoint has recovery point 5."""
    topics: dict[str, dict[str, object]] = {"t": {"replicas": 3, "config": {"flush.ms": 100}}}
    cluster = SimCluster(seed=1, topics=topics, settings=SETTINGS)
    for _ in range(5):
        cluster.produce()
    cluster.advance(2_000)
    return cluster


def cut_untold(cluster: SimCluster, broker: int, offset: int) -> None:
    """Cut the broker's log as its process does it in a step at whose end it is dead."""
    core = cluster._node(broker).core
    assert isinstance(core, Broker)
    assert core.replicas()[T0].log.truncate_to(offset, now_ms=0)


def test_a_cut_in_the_step_in_which_the_power_is_lost_is_no_loss() -> None:
    cluster = cluster_with_five_flushed()
    cut_untold(cluster, 2, 3)
    cluster.power_loss(2, keep="all")
    cluster.restart(2)
    cluster.advance(3_000)
    assert cluster.ends(2) == (5, 5) and not cluster.violations
    cluster.finish()
