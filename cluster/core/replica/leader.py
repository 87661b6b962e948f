"""The state of a replica while it leads, in one leader epoch: its followers, its ISR, its high watermark.

A new leader epoch makes a new `Leader`, so nothing that was learned in an older one counts (ISR-8). A leader that kept
its followers' offsets over a re-election would commit records that they have cut since (B-21). Kafka: Partition.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import final

from cluster.core import fencing
from cluster.core.messages import IsrMember
from cluster.core.metadata.image import CurrentImage, PartitionRegistration
from cluster.core.replica.isr import (
    CommittedIsr,
    IsrState,
    PendingExpandIsr,
    PendingShrinkIsr,
    committed_isr,
    maximal_isr,
)
from cluster.core.replica.progress import NEVER_MS, FollowerProgress
from storage.log import PartitionLog
from storage.segment.place import LogOffsetMetadata


def promises_flush(log: PartitionLog) -> bool:
    """Returns whether flush.messages is 1: then nothing is promised before it is on stable storage."""
    return log.local.config.flush_messages == 1


@final
class Leader:
    """The state of one leader epoch. `log` is the replica's own; `metadata` says who may be in sync."""

    def __init__(
        self,
        *,
        broker_id: int,
        log: PartitionLog,
        metadata: CurrentImage,
        registration: PartitionRegistration,
        lag_time_max_ms: int,
        now_ms: int,
    ) -> None:
        assert registration.leader == broker_id, (registration, broker_id)
        assert broker_id in registration.replicas, (registration, broker_id)
        self.broker_id = broker_id
        self.log = log
        self.metadata = metadata
        self.lag_time_max_ms = lag_time_max_ms
        self.leader_epoch = registration.leader_epoch
        self.epoch_start_offset = log.local.log_end_offset
        self.isr: IsrState = CommittedIsr(
            isr=frozenset(registration.isr), partition_epoch=registration.partition_epoch
        )
        self.followers: dict[int, FollowerProgress] = {}
        self.adopt_replicas(registration.replicas, now_ms)
        # The call of the AlterPartition in flight.
        self.proposal_call: int | None = None
        # How many were sent.
        self.proposals_sent = 0

    def adopt_replicas(self, replicas: Iterable[int], now_ms: int) -> None:
        """Takes over the assigned replicas; those that are known already keep their progress.

        New replicas count as caught up now if they are in the ISR, else as never caught up (ISR-8).
        """
        assert self.broker_id in replicas, (self.broker_id, replicas)
        known = self.followers
        members = committed_isr(self.isr).isr
        self.followers = {
            replica: known.get(replica)
            or FollowerProgress(replica, last_caught_up_ms=now_ms if replica in members else NEVER_MS)
            for replica in replicas
            if replica != self.broker_id
        }
        # The high watermark would wait for a fetch of its own.
        assert self.broker_id not in self.followers, (self.broker_id, replicas)

    @property
    def min_isr(self) -> int:
        """The effective min.insync.replicas: a topic with fewer replicas needs all of them."""
        return min(self.log.local.config.min_insync_replicas, len(self.followers) + 1)

    @property
    def own_end(self) -> LogOffsetMetadata:
        """The log end that the leader counts for itself: where a flush is promised, only what is flushed."""
        if promises_flush(self.log) and self.log.local.recovery_point < self.log.local.log_end_offset:
            return LogOffsetMetadata(self.log.local.recovery_point)
        return self.log.local.log_end

    def is_under_min_isr(self) -> bool:
        """Returns whether too few replicas are in sync: then nothing is committed (HWM-3, KAFKA-15583)."""
        return len(committed_isr(self.isr).isr) < self.min_isr

    def counted_isr(self) -> frozenset[int]:
        """Returns the replicas whose logs the high watermark waits for (HWM-2)."""
        return maximal_isr(self.isr)

    def should_wait_for(self, follower: FollowerProgress, now_ms: int) -> bool:
        """Returns whether the high watermark waits for the follower: a member, or one that is about to join (HWM-1).

        A replica that may not join does not hold the high watermark back (KAFKA-15021).
        """
        if follower.broker_id in self.counted_isr():
            return True
        is_caught_up = follower.is_caught_up(self.log.local.log_end_offset, now_ms, self.lag_time_max_ms)
        return is_caught_up and self.is_eligible(follower)

    def high_watermark_candidate(self, now_ms: int) -> LogOffsetMetadata:
        """Returns the lowest log end of all that the high watermark waits for; it may be below the high watermark."""
        candidate = self.own_end
        for follower in self.followers.values():
            if follower.log_end_offset < candidate.offset and self.should_wait_for(follower, now_ms):
                candidate = follower.log_end
        return candidate

    def is_held_back_at(self, offset: int) -> bool:
        """Returns whether a member is known to have nothing from `offset` on, as mostly after an append.

        Then no candidate is above the offset, and none need be looked for.
        """
        counted = self.counted_isr()
        for follower in self.followers.values():
            if follower.log_end_offset <= offset and follower.broker_id in counted:
                return True
        return False

    def maybe_advance_high_watermark(self, now_ms: int) -> bool:
        """Raises the high watermark to the candidate; it never falls (HWM-4). Returns whether it moved."""
        before = self.log.marks.high_watermark
        if self.is_held_back_at(before) or self.is_under_min_isr():
            return False
        candidate = self.high_watermark_candidate(now_ms)
        if candidate.offset <= before:
            return False
        self.log.marks.maybe_increment_high_watermark(candidate)
        after = self.log.marks.high_watermark
        assert before <= after <= self.log.local.log_end_offset, (
            before,
            after,
            self.log.local.log_end_offset,
        )
        return after > before

    def is_eligible(self, follower: FollowerProgress) -> bool:
        """Returns whether the follower is unfenced, not shutting down, and still in the life in which it fetched.

        Nobody else may join (KIP-841, KIP-903).
        """
        is_same_life = fencing.is_same_life(
            follower.broker_epoch, self.metadata.image.broker_epoch(follower.broker_id)
        )
        return is_same_life and self.metadata.image.is_active(follower.broker_id)

    def has_reached_epoch(self, follower: FollowerProgress) -> bool:
        """Returns whether the follower has reached the start of this leader epoch and the high watermark.

        The high watermark alone may be behind (KAFKA-7128).
        """
        return follower.log_end_offset >= max(self.log.marks.high_watermark, self.epoch_start_offset)

    def can_join(self, follower: FollowerProgress) -> bool:
        """Returns whether the follower may join (ISR-3); its offset and its broker epoch are of one fetch (ISR-4)."""
        is_outside = follower.broker_id not in maximal_isr(self.isr)
        return is_outside and self.has_reached_epoch(follower) and self.is_eligible(follower)

    def is_lagging(self, follower: FollowerProgress, now_ms: int) -> bool:
        """Returns whether the follower has not been caught up within the lag time (ISR-2)."""
        return not follower.is_caught_up(self.log.local.log_end_offset, now_ms, self.lag_time_max_ms)

    def expansion(self, follower: FollowerProgress) -> PendingExpandIsr | None:
        """Returns the proposal that `follower` joins; None if it may not, or another proposal is on its way (ISR-5)."""
        if not isinstance(self.isr, CommittedIsr) or self.proposal_call is not None:
            return None
        if not self.can_join(follower):
            return None
        joiner = follower.broker_id
        followers = self._present_lives(self.isr.isr | {joiner})
        return PendingExpandIsr(committed=self.isr, joiner=joiner, followers=followers)

    def shrinkage(self, now_ms: int) -> PendingShrinkIsr | None:
        """Returns the proposal that all lagging members leave; None if none lags, or another proposal is on its way."""
        if not isinstance(self.isr, CommittedIsr) or self.proposal_call is not None:
            return None
        leavers = frozenset(
            follower.broker_id
            for follower in self.followers.values()
            if follower.broker_id in self.isr.isr and self.is_lagging(follower, now_ms)
        )
        if not leavers:
            return None
        followers = self._present_lives(self.isr.isr - leavers)
        return PendingShrinkIsr(committed=self.isr, leavers=leavers, followers=followers)

    def _present_lives(self, proposed: Iterable[int]) -> tuple[IsrMember, ...]:
        """Returns the proposed members but this leader, in ascending order, in the lives that it knows them in."""
        return tuple(
            IsrMember(broker_id=member, broker_epoch=self._broker_epoch(member))
            for member in sorted(proposed)
            if member != self.broker_id
        )

    def _broker_epoch(self, member: int) -> int:
        """Returns the broker epoch that a new proposal names for `member`: that of its counted fetches (KIP-903)."""
        follower = self.followers.get(member)
        # A replica that has not fetched in this leader epoch can only be a member already.
        if follower is None or follower.broker_epoch < 0:
            return self.metadata.image.broker_epoch(member)
        return follower.broker_epoch

    def adopt_isr(self, isr: Iterable[int], partition_epoch: int) -> bool:
        """Replaces the committed and the proposed ISR by a newer committed one (ISR-7). Returns whether it is newer.

        The same partition epoch again changes nothing: it must not drop a proposal that may be committed next.
        """
        current = committed_isr(self.isr).partition_epoch
        if not fencing.is_newer_partition_epoch(partition_epoch, current):
            return False
        self._note_removed(frozenset(isr))
        self.isr = CommittedIsr(isr=frozenset(isr), partition_epoch=partition_epoch)
        return True

    def _note_removed(self, isr: frozenset[int]) -> None:
        """Notes members that the controller removed without a proposal of this leader: their disk failed or they are
        fenced.

        They do not fetch, and the high watermark would wait replica.lag.time.max.ms for them, as for a joining
        replica.
        """
        proposed = self.isr.leavers if isinstance(self.isr, PendingShrinkIsr) else frozenset()
        for follower in self.followers.values():
            if follower.broker_id in committed_isr(self.isr).isr - isr - proposed:
                follower.left()

    def revert_proposal(self) -> None:
        """Withdraws the proposal, which was refused for certain or has changed nothing (ISR-6)."""
        assert not isinstance(self.isr, CommittedIsr), self.isr
        assert self.proposal_call is None, (self.isr, self.proposal_call)
        self.isr = committed_isr(self.isr)
