"""Finds where two logs differ although nothing that brokers tell each other shows it, in Kafka neither."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from sim.checkers.ghost import PartitionGhost
from sim.checkers.history import LEADER_ALONE, RETENTION

# Why a compacted partition is judged no further. That takes no fault which a scenario may not have: a fail-over while a
# follower is away is enough, in Kafka too.
HIDDEN = "knows of an epoch only what compaction has left of it"


class Unseen(NamedTuple):
    """From which offset on logs differ unseen, and why."""

    since: int
    why: str


def needs_fault(reason: str) -> bool:
    """Whether the excuse for lost records is a fault, and nothing that a sound cluster does by itself."""
    return reason not in (RETENTION, LEADER_ALONE) and not reason.endswith(HIDDEN)


def unseen_difference(partition: PartitionGhost, leader: int, cached: Mapping[int, int]) -> Unseen | None:
    """Returns where logs differ unseen once `leader` leads with the epoch cache `cached`; None if they do not."""
    since = _before_start(partition, leader)
    if since is not None:
        return Unseen(since, f"broker {leader} leads with records from before the start of other logs")
    since = _in_hidden_epoch(partition, leader, cached)
    if since is not None:
        return Unseen(since, f"broker {leader} {HIDDEN}")
    return None


def _before_start(partition: PartitionGhost, leader: int) -> int | None:
    """Returns the first offset below the start of a leader's log at which `leader` holds something else.

    A follower is told to cut its log at that start, not where it differs. Later its own log begins there too, but a
    crash may take that back, as the start is written once a minute.
    """
    chain, end = partition.image(leader).chain, partition.leader_log_start
    mine, truth = chain.between(0, end), {mark.base_offset: mark for mark in partition.truth.between(0, end)}
    return next((each.base_offset for each in mine if truth.get(each.base_offset, each) != each), None)


def _in_hidden_epoch(partition: PartitionGhost, leader: int, cached: Mapping[int, int]) -> int | None:
    """Returns from which offset on another replica's log differs from that of `leader`, which is not in its cache.

    A follower that copies a compacted log notes in its epoch cache where the first batch begins that is left of an
    epoch, not where the epoch began. Once it leads, a replica whose older records end between the two is not told that
    it differs, and goes on behind them. That epoch may be the oldest of the leader, which began again at the start of
    another log.
    """
    starts = partition.image(leader).chain.epoch_starts()
    for epoch, start in starts:
        for broker, image in partition.images.items():
            hidden = image.chain.between(start, cached.get(epoch, start)) if broker != leader else []
            if any(mark.epoch < epoch for mark in hidden):
                return start
    return None
