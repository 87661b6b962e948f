"""Produce requests: the append as leader, and the answer when the records are as safe as `acks` asks.

Kafka: ReplicaManager.appendRecords, DelayedProduce.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from cluster.core import fencing
from cluster.core.errors import ClusterError, ErrorCode
from cluster.core.fencing import LogView
from cluster.core.messages import (
    ProducePartition,
    ProducePartitionResponse,
    ProduceRequest,
    ProduceResponse,
    TopicPartition,
)
from cluster.core.replica.context import ReplicaContext
from cluster.core.replica.flushes import Flushes
from cluster.core.replica.isr import committed_isr, maximal_isr
from cluster.core.replica.leader import Leader, promises_flush
from cluster.core.replica.purgatory import Purgatory
from cluster.core.replica.replica import Replica
from storage.errors import StorageError
from storage.log import AppendInfo

EXPIRY_TIMER = "produce.expiry"
ACKS_ALL, ACKS_LEADER, ACKS_NONE = -1, 1, 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """One partition of a parked produce request: acknowledged once all below `required_offset` is safe.

    This holds only in the topic and leader epoch of the append: in another epoch, the same offset may hold another
    record (PRO-5, KAFKA-1148), and another topic of the same name begins with epoch 0 too (C1).
    """

    # The topic and the leader epoch of the append.
    view: LogView
    required_offset: int
    success: ProducePartitionResponse


Outcome = Waiting | ProducePartitionResponse


@final
class ParkedProduce:
    """A produce request whose partitions are not all answered yet."""

    __slots__ = ("acks", "call", "outcomes")

    def __init__(self, call: int, acks: int, outcomes: list[Outcome]) -> None:
        self.call = call
        self.acks = acks
        # In the order of the request.
        self.outcomes = outcomes

    def awaited(self) -> list[TopicPartition]:
        """Returns the partitions that are not answered yet."""
        return [each.success.topic_partition for each in self.outcomes if isinstance(each, Waiting)]


@final
class ProduceHandler:
    """Appends what clients produce, and answers each request once (never with acks=0)."""

    def __init__(self, context: ReplicaContext, flushes: Flushes) -> None:
        self._context = context
        self._flushes = flushes
        self.purgatory: Purgatory[ParkedProduce] = Purgatory(context.outbox, EXPIRY_TIMER, self._on_expired)

    def on_request(self, now_ms: int, call: int, request: ProduceRequest) -> None:
        """Appends all batches of the request, and answers it or parks it until they are as safe as `acks` asks.

        Raises StorageError if the disk under the last log directory fails.
        """
        outcomes = [self._append(now_ms, request.acks, asked) for asked in request.partitions]
        if request.acks == ACKS_NONE:
            return
        parked = ParkedProduce(call, request.acks, outcomes)
        self._settle(parked)
        awaited = parked.awaited()
        if not awaited:
            self._answer(parked)
            return
        self.purgatory.park(parked, awaited, now_ms + max(0, request.timeout_ms))

    def _append(self, now_ms: int, acks: int, asked: ProducePartition) -> Outcome:
        topic_partition = asked.topic_partition
        try:
            self.check_acks(acks)
            self.check_room()
            replica = self._context.replica(topic_partition, asked.topic_id)
            fencing.check_topic_id(topic_partition, asked.topic_id, replica.topic_id)
            # In the same step as the append, so that leadership cannot end in between (PRO-6).
            leader = replica.check_leads()
            if acks == ACKS_ALL:
                self.check_enough_in_sync(leader)
            info = replica.log.append_as_leader(
                asked.records, leader_epoch=leader.leader_epoch, now_ms=now_ms
            )
            self.check_not_empty(info)
        except ClusterError as error:
            return self._refuse(topic_partition, error.code, error.detail)
        except StorageError as error:
            self._context.check_online(topic_partition, error)
            return self._refuse(topic_partition, ErrorCode(error.code), str(error))
        return self._appended(now_ms, acks, replica, leader, info)

    def check_acks(self, acks: int) -> None:
        if acks not in (ACKS_ALL, ACKS_LEADER, ACKS_NONE):
            raise ClusterError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks={acks}: must be -1, 0 or 1")

    def check_not_empty(self, info: AppendInfo) -> None:
        if info.is_empty:
            raise ClusterError(ErrorCode.INVALID_RECORD, "no whole batch in the request")

    def check_room(self) -> None:
        """Raises ClusterError if too many requests wait: before the append, so that the refusal is definite."""
        if len(self.purgatory) >= self._context.config.max_parked_requests:
            raise ClusterError(ErrorCode.REQUEST_TIMED_OUT, "too many produce requests wait")

    def check_enough_in_sync(self, leader: Leader) -> None:
        """Raises ClusterError if too few replicas are in sync to commit the records (PRO-2)."""
        size = len(committed_isr(leader.isr).isr)
        if size < leader.min_isr:
            raise ClusterError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"{size} in sync replicas, min.insync.replicas is {leader.min_isr}",
            )

    def _appended(
        self, now_ms: int, acks: int, replica: Replica, leader: Leader, info: AppendInfo
    ) -> Outcome:
        """Returns the outcome of an append; a duplicate waits for the offsets of its first append (PRO-7)."""
        if not info.is_duplicate:
            self._context.report_appended(replica, info.first_offset, info.last_offset, "leader")
            self._flushes.maybe_flush(replica)
            # If no follower is waited for, the append alone commits the records.
            self._context.advance_high_watermark(replica, now_ms)
        success = ProducePartitionResponse(
            topic_partition=replica.topic_partition,
            base_offset=info.first_offset,
            last_offset=info.last_offset,
            log_append_time_ms=info.log_append_time_ms,
            log_start_offset=replica.log.marks.log_start_offset,
            leader_id=replica.leader_id,
            leader_epoch=replica.leader_epoch,
        )
        if acks == ACKS_LEADER and not promises_flush(replica.log):
            return success
        return Waiting(
            view=replica.view,
            required_offset=info.last_offset + 1,
            success=success,
        )

    def _settle(self, parked: ParkedProduce) -> None:
        for index, outcome in enumerate(parked.outcomes):
            if isinstance(outcome, Waiting):
                parked.outcomes[index] = self.outcome_of(parked.acks, outcome)

    def outcome_of(self, acks: int, waiting: Waiting) -> Outcome:
        """Returns the partition's answer, or `waiting` itself while there is none yet."""
        topic_partition = waiting.success.topic_partition
        replica = self._context.replicas.get(topic_partition)
        leader = None if replica is None else replica.leader
        if topic_partition in self._context.offline:
            return self._refuse(
                topic_partition,
                ErrorCode.KAFKA_STORAGE_ERROR,
                "its log directory failed while it waited",
            )
        if self.has_lost_leadership(replica, waiting):
            return self._refuse(
                topic_partition, ErrorCode.NOT_LEADER_OR_FOLLOWER, "leadership ended while it waited"
            )
        if leader is None or not self.is_safe(acks, leader, waiting.required_offset):
            return waiting
        if acks == ACKS_ALL and len(maximal_isr(leader.isr)) < leader.min_isr:
            # The record is in the log, and may or may not survive (PRO-3).
            return self._refuse(
                topic_partition,
                ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
                "the ISR shrank while it waited",
            )
        return waiting.success

    def has_lost_leadership(self, replica: Replica | None, waiting: Waiting) -> bool:
        """Returns whether the epoch of the append is over: no other may acknowledge its records (PRO-5, E4, B-13).

        It is also over if the topic was deleted, whatever the next topic of that name has at the offset.
        """
        return (
            replica is None or replica.leader is None or not fencing.is_same_log(waiting.view, replica.view)
        )

    def is_safe(self, acks: int, leader: Leader, required_offset: int) -> bool:
        """Returns whether all below `required_offset` is as safe as `acks` asks (PRO-1).

        Where a flush is promised, even acks=1 waits for the leader's own.
        """
        if acks == ACKS_ALL:
            return leader.log.marks.high_watermark >= required_offset
        return leader.own_end.offset >= required_offset

    def on_touched(self, now_ms: int, topic_partition: TopicPartition) -> None:
        """Answers the requests that are ready after the partition's high watermark, flush, ISR or role moved."""
        for number, parked in self.purgatory.watching(topic_partition):
            self._settle(parked)
            if not parked.awaited():
                self.purgatory.take(number)
                self._answer(parked)

    def _on_expired(self, now_ms: int, parked: ParkedProduce) -> None:
        """Answers after the timeout: the outcome of what still waits is unknown (PRO-4)."""
        self._end(parked, ErrorCode.REQUEST_TIMED_OUT, "its replication took longer than timeout_ms")

    def fail_all(self) -> None:
        """Answers all parked requests, with an error for what still waits, because the broker is ending."""
        for number in self.purgatory.numbers():
            parked = self.purgatory.take(number)
            if parked is not None:
                self._end(parked, ErrorCode.NOT_LEADER_OR_FOLLOWER, "the broker is shutting down")

    def _end(self, parked: ParkedProduce, error: ErrorCode, message: str) -> None:
        for index, outcome in enumerate(parked.outcomes):
            if isinstance(outcome, Waiting):
                parked.outcomes[index] = self._refuse(outcome.success.topic_partition, error, message)
        self._answer(parked)

    def _refuse(
        self, topic_partition: TopicPartition, error: ErrorCode, message: str
    ) -> ProducePartitionResponse:
        leader_id, leader_epoch = self._context.leader_hint(topic_partition)
        return ProducePartitionResponse(
            topic_partition=topic_partition,
            error=error,
            message=message,
            leader_id=leader_id,
            leader_epoch=leader_epoch,
        )

    def _answer(self, parked: ParkedProduce) -> None:
        answers = []
        for outcome in parked.outcomes:
            assert isinstance(outcome, ProducePartitionResponse), outcome
            answers.append(outcome)
            if outcome.error is ErrorCode.NONE:
                self._context.outbox.observe(
                    "produce.acknowledged",
                    topic_partition=str(outcome.topic_partition),
                    base_offset=outcome.base_offset,
                    last_offset=outcome.last_offset,
                    acks=parked.acks,
                )
        self._context.outbox.reply(parked.call, ProduceResponse(partitions=tuple(answers)))
