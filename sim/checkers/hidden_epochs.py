"""Finds where two logs differ although their leader epochs cannot show it."""

from __future__ import annotations

from collections.abc import Mapping

from sim.checkers.ghost import PartitionGhost

WHY = "copied a compacted log: it believes that an epoch begins at the first record that is left of it"


def hidden_divergence(partition: PartitionGhost, leader: int, cached: Mapping[int, int]) -> int | None:
    """Returns from which offset on another replica's log differs unseen from that of `leader`, None if none does.

    A follower that copies a compacted log notes in its epoch cache, `cached`, where the first batch begins that is left
    of an epoch, not where the epoch began. Once it leads, a replica whose older records end between the two is not told
    that it differs, and goes on behind them. Kafka does the same.
    """
    starts = partition.image(leader).chain.epoch_starts()
    for epoch, start in starts[1:]:
        for broker, image in partition.images.items():
            unseen = image.chain.between(start, cached.get(epoch, start)) if broker != leader else []
            if any(mark.epoch < epoch for mark in unseen):
                return start
    return None
