"""The simulated cluster of tests that drive one step by step: a topic `t`, three replicas, small segments."""

from __future__ import annotations

from replog.testing import SimCluster


def driven_cluster(
    seed: int, *, min_isr: int = 2, flush_promised: bool = False, unclean: bool = False
) -> SimCluster:
    config = {
        "min.insync.replicas": min_isr,
        "flush.messages": 1 if flush_promised else (1 << 63) - 1,
        "unclean.leader.election.enable": unclean,
        "segment.bytes": 8192,
        "index.interval.bytes": 300,
    }
    topics: dict[str, dict[str, object]] = {"t": {"replicas": 3, "config": config}}
    return SimCluster(seed=seed, topics=topics, settings={"replica.lag.time.max.ms": 2_000})
