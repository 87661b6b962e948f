"""How a follower finds the point up to which its log agrees with the leader's. A strategy, so that Kafka's older
generations can be put in its place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, final

from cluster.core.messages import NO_EPOCH, EpochEnd
from cluster.core.replica.context import ReplicaContext
from cluster.core.replica.logs import LogKeeper
from cluster.core.replica.replica import Replica
from storage.log import PartitionLog


class TruncationStrategy(Protocol):
    """How a follower finds where its log and the leader's part."""

    def on_new_epoch(self, log: PartitionLog) -> int | None:
        """Returns the offset to cut at before the first fetch in a leader epoch; None: nothing is cut."""

    def last_fetched_epoch(self, log: PartitionLog) -> int:
        """Returns what a fetch tells the leader, so that it can see a divergence; NO_EPOCH: no check."""

    def truncation_point(self, log: PartitionLog, diverging: EpochEnd) -> int:
        """Returns the offset to cut at after the leader's log was found to differ."""


@dataclass(frozen=True, slots=True)
class InFetchTruncation:
    """Truncates by epochs, within the fetch itself (KIP-101, KIP-279, KIP-595): EPC-2, repeated as EPC-3 says.

    The high watermark plays no part: it may be stale, so cutting to it drops committed records (B-01).
    """

    def on_new_epoch(self, log: PartitionLog) -> int | None:
        """Returns the high watermark for a log without epochs, which has nothing better (FET-2)."""
        return log.marks.high_watermark if log.epochs.latest_epoch is None else None

    def last_fetched_epoch(self, log: PartitionLog) -> int:
        return NO_EPOCH if log.epochs.latest_epoch is None else log.epochs.latest_epoch

    def truncation_point(self, log: PartitionLog, diverging: EpochEnd) -> int:
        """`diverging` is the leader's largest epoch at most ours, and its end there.

        With that epoch in our log: the lower of both ends. Without: the end of our next lower one; the next
        fetch names that one and is answered in its turn, so each round takes one epoch from us.
        """
        epoch, end_offset = log.reads.end_offset_for_epoch(diverging.epoch)
        if epoch < 0:
            return min(log.marks.high_watermark, diverging.end_offset)
        if epoch == diverging.epoch:
            end_offset = min(end_offset, diverging.end_offset)
        return min(end_offset, log.local.log_end_offset)


@final
class Truncations:
    """Cuts the logs of followers, and reports what moved."""

    def __init__(self, context: ReplicaContext, keeper: LogKeeper, strategy: TruncationStrategy) -> None:
        self._context = context
        self._keeper = keeper
        self.strategy = strategy

    def on_new_epoch(self, now_ms: int, replica: Replica) -> None:
        """EPC-6: at each new epoch, be the leader the same (KAFKA-7164); the fetch itself finds the rest."""
        point = self.strategy.on_new_epoch(replica.log)
        if point is not None:
            self.truncate(now_ms, replica, point)

    def on_diverging(self, now_ms: int, replica: Replica, diverging: EpochEnd) -> None:
        self.truncate(now_ms, replica, self.strategy.truncation_point(replica.log, diverging))

    def truncate(self, now_ms: int, replica: Replica, to_offset: int) -> None:
        """Cuts to `to_offset`, also below the follower's own high watermark (EPC-7); the log enforces EPC-8."""
        log = replica.log
        log_end_offset, high_watermark = log.local.log_end_offset, log.marks.high_watermark
        log.truncate_to(to_offset, now_ms=now_ms)
        self._keeper.on_log_truncated(replica)
        assert log.local.log_end_offset <= log_end_offset, (log.local.log_end_offset, log_end_offset)
        self._tell(replica, log_end_offset, high_watermark)

    def truncate_fully(self, now_ms: int, replica: Replica, start_at: int) -> None:
        """Starts the log again at `start_at`: the leader has nothing left of what is in it (EPC-9, KAFKA-9491)."""
        log_end_offset, high_watermark = replica.log.local.log_end_offset, replica.log.marks.high_watermark
        replica.log.truncation.truncate_fully_and_start_at(start_at, now_ms=now_ms)
        self._keeper.on_log_truncated(replica)
        self._tell(replica, log_end_offset, high_watermark)

    def _tell(self, replica: Replica, from_end_offset: int, high_watermark: int) -> None:
        log = replica.log
        if log.local.log_end_offset != from_end_offset:
            self._context.touch(replica.topic_partition)
            self._context.outbox.observe(
                "replica.truncated",
                topic_partition=replica.name,
                to_offset=log.local.log_end_offset,
                from_log_end_offset=from_end_offset,
                leader_epoch=replica.leader_epoch,
            )
        if log.marks.high_watermark != high_watermark:
            self._context.tell_high_watermark(replica)
