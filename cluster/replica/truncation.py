"""How a follower finds the point up to which its log agrees with the leader's. A strategy, so that Kafka's older
generations can be put in its place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from cluster.messages import NO_EPOCH, EpochEnd
from storage.log import PartitionLog


class TruncationStrategy(Protocol):
    def on_new_epoch(self, log: PartitionLog) -> int | None:
        """Where to cut before the first fetch in a leader epoch; None: nowhere."""

    def last_fetched_epoch(self, log: PartitionLog) -> int:
        """What a fetch tells the leader, so that it can see a divergence; NO_EPOCH: no check."""

    def truncation_point(self, log: PartitionLog, diverging: EpochEnd) -> int:
        """Where to cut after the leader's log was found to differ."""


@dataclass(frozen=True, slots=True)
class InFetchTruncation:
    """By epochs, within the fetch itself (KIP-101, KIP-279, KIP-595): EPC-2, repeated as EPC-3 says.

    The high watermark plays no part: it may be stale, so cutting to it drops committed records (B-01).
    """

    def on_new_epoch(self, log: PartitionLog) -> int | None:
        """Only a log without epochs has nothing better than its high watermark (FET-2)."""
        return log.high_watermark if log.epochs.latest_epoch is None else None

    def last_fetched_epoch(self, log: PartitionLog) -> int:
        return NO_EPOCH if log.epochs.latest_epoch is None else log.epochs.latest_epoch

    def truncation_point(self, log: PartitionLog, diverging: EpochEnd) -> int:
        """`diverging` is the leader's largest epoch at most ours, and its end there.

        With that epoch in our log: the lower of both ends. Without: the end of our next lower one; the next
        fetch names that one and is answered in its turn, so each round takes one epoch from us.
        """
        epoch, end_offset = log.reads.end_offset_for_epoch(diverging.epoch)
        if epoch < 0:
            return min(log.high_watermark, diverging.end_offset)
        if epoch == diverging.epoch:
            end_offset = min(end_offset, diverging.end_offset)
        return min(end_offset, log.log_end_offset)
