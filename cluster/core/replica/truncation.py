"""How a follower finds the offset up to which its log agrees with the leader's.

It is a strategy, so that the ways of older Kafka versions can take its place.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Protocol, final

from cluster.core.messages import NO_EPOCH, EpochEnd
from cluster.core.replica.context import ReplicaContext
from cluster.core.replica.follower import FetchState
from cluster.core.replica.logs import LogKeeper
from cluster.core.replica.replica import Replica
from storage.errors import CorruptBatch, OutOfHandles, StorageError
from storage.log import PartitionLog

logger = logging.getLogger(__name__)

TRUNCATE_TIMER = "replica.truncate:"


class TruncationStrategy(Protocol):
    """The way in which a follower finds the offset from which its log differs from the leader's."""

    def on_new_epoch(self, log: PartitionLog) -> int | None:
        """Returns the offset to cut at before the first fetch in a leader epoch; None: nothing is cut."""

    def last_fetched_epoch(self, log: PartitionLog) -> int:
        """Returns the epoch that a fetch states so that the leader can find a divergence; NO_EPOCH: no check."""

    def truncation_point(self, log: PartitionLog, diverging: EpochEnd) -> int:
        """Returns the offset to cut at after the leader's log was found to differ."""


@dataclass(frozen=True, slots=True)
class InFetchTruncation:
    """Truncates by leader epochs within the fetches themselves, one or more epochs a round (EPC-2, EPC-3).

    The high watermark plays no part: it may be behind, so a cut to it would lose committed records (B-01).
    Kafka: KIP-101, KIP-279, KIP-595.
    """

    def on_new_epoch(self, log: PartitionLog) -> int | None:
        """Returns the high watermark for a log without epochs, for which nothing better is known (FET-2); else None."""
        return log.marks.high_watermark if log.epochs.latest_epoch is None else None

    def last_fetched_epoch(self, log: PartitionLog) -> int:
        return NO_EPOCH if log.epochs.latest_epoch is None else log.epochs.latest_epoch

    def truncation_point(self, log: PartitionLog, diverging: EpochEnd) -> int:
        """Returns the offset to cut at; `diverging` is the leader's largest epoch that is at most the follower's, and
        its end.

        If the follower's log has that epoch, the result is the lower of both ends. If not, it is the end of the
        follower's next lower epoch, which the next fetch then states: each round removes at least one epoch from the
        log.
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
        """Truncates if the strategy says so before the first fetch in a leader epoch, even under the same leader.

        The fetches find the rest (EPC-6, KAFKA-7164).
        """
        assert replica.leader is None, replica.name
        replica.log.truncation.forget_prepared()
        point = self.strategy.on_new_epoch(replica.log)
        if point is not None:
            self._truncate_before_fetching(now_ms, replica, point)

    def _truncate_before_fetching(self, now_ms: int, replica: Replica, to_offset: int) -> None:
        """Does a slice of the cut to `to_offset`; while more is left, the follower fetches nothing.

        No answer of a leader asks for the rest, as in `truncate_in_part`: a timer does. An error fails the partition.
        Raises StorageError if the last log directory fails.
        """
        follower = replica.follower
        assert follower is not None, replica.name
        follower.state, next_ms = FetchState.TRUNCATING, now_ms
        try:
            if self._is_cut(now_ms, replica, to_offset):
                follower.state = FetchState.FETCHING
                return
        except OutOfHandles as error:
            # Nothing has changed, and connections may end.
            logger.warning("not truncated yet: log=%s reason=%s", replica.name, error)
            next_ms += self._context.config.replica_fetch_backoff_ms
        except StorageError as error:
            self._context.fail_follower(replica, error)
            return

        def go_on(now_ms: int) -> None:
            # The broker may have another role by now.
            if replica.follower is follower and follower.state is FetchState.TRUNCATING:
                self._truncate_before_fetching(now_ms, replica, to_offset)

        self._context.outbox.set_timer(f"{TRUNCATE_TIMER}{replica.name}", next_ms, go_on)

    def _is_cut(self, now_ms: int, replica: Replica, to_offset: int) -> bool:
        """Does a slice of the cut to `to_offset`. Returns whether nothing is left to do. Raises StorageError."""
        self.truncate_in_part(now_ms, replica, to_offset)
        log = replica.log
        return log.local.log_end_offset <= to_offset and not log.truncation.is_preparing

    def on_diverging(
        self, now_ms: int, replica: Replica, diverging: EpochEnd, leader_log_start_offset: int
    ) -> None:
        """Truncates to where the logs may agree; the next fetch finds out whether they do. Raises StorageError."""
        assert replica.leader is None, replica.name
        point = self.strategy.truncation_point(replica.log, diverging)
        self.truncate_or_start_again(now_ms, replica, point, leader_log_start_offset)

    def truncate_or_start_again(
        self, now_ms: int, replica: Replica, to_offset: int, leader_log_start_offset: int
    ) -> None:
        """Cuts to `to_offset`, or starts again at the leader's start if the cut leaves no record to read (EPC-9).

        A log that started at `to_offset` would lack what the leader has below it and may not have committed yet.
        Only for an answer to a fetch. Raises StorageError.
        """
        if to_offset < replica.log.marks.log_start_offset and leader_log_start_offset >= 0:
            self.start_again(now_ms, replica, leader_log_start_offset)
        else:
            self.truncate_in_part(now_ms, replica, to_offset)

    def truncate_in_part(self, now_ms: int, replica: Replica, to_offset: int) -> None:
        """Cuts to `to_offset` or, where that would delete many segments, to an offset above it. Raises StorageError.

        Where the log would replay many batches of producers, or look at many that stay, it does a slice of that and
        nothing is cut yet. After an answer to a fetch what is left differs from the leader's log as before, so the
        answer to the next fetch asks for the rest.
        """
        segments, most = replica.log.local.segments, self._context.config.steps.segments
        if len(segments) > most:
            to_offset = max(to_offset, segments.last_base_offsets(most)[0])
        try:
            if replica.log.truncation.prepare(to_offset, now_ms=now_ms):
                self.truncate(now_ms, replica, to_offset)
        except CorruptBatch as error:
            # What is damaged is this log, not an answer that could be asked for again: only the partition has failed.
            raise StorageError(f"{replica.name}: not truncated to {to_offset}: {error}") from error

    def truncate(self, now_ms: int, replica: Replica, to_offset: int) -> None:
        """Cuts to `to_offset`, also below the follower's own high watermark (EPC-7); the log enforces EPC-8.

        Raises StorageError.
        """
        log = replica.log
        log_end_offset, high_watermark = log.local.log_end_offset, log.marks.high_watermark
        log.truncate_to(to_offset, now_ms=now_ms)
        self._keeper.on_log_truncated(replica)
        assert log.local.log_end_offset <= log_end_offset, (log.local.log_end_offset, log_end_offset)
        self._report(replica, log_end_offset, high_watermark)

    def start_again(self, now_ms: int, replica: Replica, start_at: int) -> None:
        """Does what `truncate_fully` does or, where that would delete many segments, deletes the last ones.

        Only for an answer to a fetch: that of the next one asks for the rest. Raises StorageError.
        """
        segments = replica.log.local.segments
        if len(segments) > self._context.config.steps.segments:
            self.truncate_in_part(now_ms, replica, segments.first_base_offset)
        else:
            self.truncate_fully(now_ms, replica, start_at)

    def truncate_fully(self, now_ms: int, replica: Replica, start_at: int) -> None:
        """Starts the log again, empty, at `start_at`: the leader has none of its records any more (EPC-9, KAFKA-9491).

        Raises StorageError.
        """
        log_end_offset, high_watermark = replica.log.local.log_end_offset, replica.log.marks.high_watermark
        replica.log.truncation.truncate_fully_and_start_at(start_at, now_ms=now_ms)
        self._keeper.on_log_truncated(replica)
        assert replica.log.local.log_end_offset == start_at, (replica.log.local.log_end_offset, start_at)
        self._report(replica, log_end_offset, high_watermark)

    def _report(self, replica: Replica, from_end_offset: int, high_watermark: int) -> None:
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
            self._context.report_high_watermark(replica)
