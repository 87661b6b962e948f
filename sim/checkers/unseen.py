"""Finds where two logs differ although nothing that brokers tell each other shows it, in Kafka neither."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from itertools import pairwise
from typing import NamedTuple

from sim.checkers.chain import Chain
from sim.checkers.ghost import PartitionGhost
from sim.checkers.history import LEADER_ALONE, RETENTION

# Why a partition is judged no further. Neither takes a fault which a scenario may not have: a fail-over while a
# follower is away is enough, in Kafka too, where compaction or retention has taken what would show the difference.
HIDDEN = "knows of an epoch only what compaction has left of it"
BEFORE_START = "leads with records from before the start of other logs"


class Unseen(NamedTuple):
    """From which offset on logs differ unseen, and why."""

    since: int
    why: str


def needs_fault(reason: str) -> bool:
    """Whether the excuse for lost records is a fault, and nothing that a sound cluster does by itself."""
    return reason not in (RETENTION, LEADER_ALONE) and not reason.endswith((HIDDEN, BEFORE_START))


def unseen_difference(partition: PartitionGhost, leader: int, cached: Mapping[int, int]) -> Unseen | None:
    """Returns where logs differ unseen once `leader` leads with the epoch cache `cached`; None if they do not."""
    since = _before_start(partition, leader)
    if since is not None:
        return Unseen(since, f"broker {leader} {BEFORE_START}")
    return _hidden(partition, leader, cached, [each for each in partition.images if each != leader])


def unseen_by_follower(
    partition: PartitionGhost, follower: int, leader: int, cached: Mapping[int, int]
) -> Unseen | None:
    """Returns where the follower's log differs unseen from its leader's; `cached` is the epoch cache of the follower.

    It is cut where its own cache says that the epochs end which both have (KIP-279).
    """
    return _hidden(partition, follower, cached, [leader])


def _before_start(partition: PartitionGhost, leader: int) -> int | None:
    """Returns the first offset below the start of a leader's log at which `leader` holds something else.

    A follower is told to cut its log at that start, not where it differs. Later its own log begins there too, but a
    crash may take that back, as the start is written once a minute.
    """
    chain, end = partition.image(leader).chain, partition.leader_log_start
    mine, truth = chain.between(0, end), {mark.base_offset: mark for mark in partition.truth.between(0, end)}
    return next((each.base_offset for each in mine if truth.get(each.base_offset, each) != each), None)


def _hidden(
    partition: PartitionGhost, holder: int, cached: Mapping[int, int], others: Collection[int]
) -> Unseen | None:
    """Returns from which offset on the log of another replica differs from that of `holder`, which is not in its cache.

    A follower that copies a compacted log notes in its epoch cache where the first batch begins that is left of an
    epoch, not where the epoch began, and no epoch of which nothing is left. So it takes what it holds there for an
    older epoch. A replica that has other records of that one there does not learn, once the holder leads, that it
    differs, and goes on behind them; nor is the holder told when it follows that replica. Records of an epoch that the
    holder does not take its own for are told of. Before all that a cache has, the holder may have begun again at the
    start of another log: then it knows of no older epoch.
    """
    chain, oldest = partition.image(holder).chain, min(cached, default=-1)
    for epoch, start, end in _stretches(chain):
        for other in others:
            for mark in partition.image(other).chain.between(start, end):
                believed = _believed(cached, mark.base_offset)
                is_hidden = mark.epoch < oldest if believed is None else mark.epoch == believed != epoch
                if is_hidden:
                    return Unseen(start, f"broker {holder} {HIDDEN}")
    return None


def _stretches(chain: Chain) -> Iterator[tuple[int, int, int]]:
    """Yields each epoch of a log, where it begins, and where it ends (exclusive)."""
    starts = chain.epoch_starts()
    for (epoch, start), (_, end) in pairwise([*starts, (-1, chain.end)]):
        yield epoch, start, end


def _believed(cached: Mapping[int, int], offset: int) -> int | None:
    """Returns the epoch of an offset by an epoch cache; None before the first one."""
    return max([epoch for epoch, start in cached.items() if start <= offset], default=None)
