"""Produce requests: each of their batches is appended as leader, and they are answered when all outcomes are known.

Kafka: KafkaApis.handleProduceRequest.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from functools import partial
from typing import final

from cluster.core.errors import ClusterError, ErrorCode
from cluster.core.messages import (
    ProducePartitionResponse,
    ProduceRequest,
    ProduceResponse,
    TopicPartition,
)
from cluster.core.replica.context import ReplicaContext
from cluster.core.replica.leader_appends import ACKS_ALL, ACKS_LEADER, ACKS_NONE, LeaderAppends
from cluster.core.replica.outcomes import Appended, Outcome
from storage.values import maker

logger = logging.getLogger(__name__)

_response, _partition_response = maker(ProduceResponse), maker(ProducePartitionResponse)


@final
class ProduceCall:
    """A produce request, of which some partitions may have no outcome yet."""

    __slots__ = ("acks", "answers", "call", "missing", "numbers")

    def __init__(self, call: int, request: ProduceRequest) -> None:
        self.call = call
        self.acks = request.acks
        # In the order of the request.
        self.answers: list[ProducePartitionResponse | None] = [None] * len(request.partitions)
        # How many of them are None.
        self.missing = len(request.partitions)
        # The numbers of its appends that wait.
        self.numbers: list[int] = []


@final
class ProduceHandler:
    """Appends what clients produce, and answers each request once (never with acks=0)."""

    def __init__(self, context: ReplicaContext, appends: LeaderAppends) -> None:
        self._context = context
        self._appends = appends
        # The requests that wait, by call.
        self._waiting: dict[int, ProduceCall] = {}
        # The sets of records with acks=0 that were refused because too much waits: their senders are not told.
        self.dropped = 0

    def on_request(self, now_ms: int, call: int, request: ProduceRequest) -> None:
        """Appends all batches of the request; it is answered when each is as safe as `acks` asks, or is refused.

        Raises StorageError if the disk under the last log directory fails.
        """
        try:
            self.check_acks(request.acks)
            self.check_room()
        except ClusterError as error:
            self._refuse_all(call, request, error)
            return
        produced = ProduceCall(call, request)
        for place, asked in enumerate(request.partitions):
            number = self._appends.append(
                now_ms,
                asked.topic_partition,
                asked.records,
                partial(self._on_done, produced, place),
                timeout_ms=request.timeout_ms,
                acks=request.acks,
                topic_id=asked.topic_id,
            )
            if number is not None:
                produced.numbers.append(number)
        if produced.numbers:
            self._waiting[call] = produced
        elif not request.partitions:
            self._answer(produced)

    def check_acks(self, acks: int) -> None:
        if acks not in (ACKS_ALL, ACKS_LEADER, ACKS_NONE):
            raise ClusterError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks={acks}: must be -1, 0 or 1")

    def check_room(self) -> None:
        """Raises ClusterError if too many requests wait: before the append, so that the refusal is definite."""
        if len(self._waiting) >= self._context.config.max_parked_requests:
            raise ClusterError(ErrorCode.REQUEST_TIMED_OUT, "too many produce requests wait")

    @property
    def waiting_count(self) -> int:
        """How many requests wait."""
        return len(self._waiting)

    def forget(self, call: int) -> None:
        """Drops a request that waits, because its sender has left; does nothing if it does not wait."""
        produced = self._waiting.pop(call, None)
        if produced is not None:
            for number in produced.numbers:
                self._appends.forget(number)

    def _on_done(self, produced: ProduceCall, place: int, now_ms: int, outcome: Outcome) -> None:
        assert produced.answers[place] is None, (produced.call, place, outcome)
        produced.answers[place] = self._answer_of(outcome)
        produced.missing -= 1
        if produced.missing == 0:
            self._waiting.pop(produced.call, None)
            self._answer(produced)

    def _answer_of(self, outcome: Outcome) -> ProducePartitionResponse:
        if not isinstance(outcome, Appended):
            return self._refusal(outcome.topic_partition, outcome.error, outcome.detail)
        return _partition_response(
            topic_partition=outcome.topic_partition,
            base_offset=outcome.base_offset,
            last_offset=outcome.last_offset,
            log_append_time_ms=outcome.log_append_time_ms,
            log_start_offset=outcome.log_start_offset,
            leader_id=outcome.leader_id,
            leader_epoch=outcome.leader_epoch,
        )

    def _refuse_all(self, call: int, request: ProduceRequest, error: ClusterError) -> None:
        produced = ProduceCall(call, request)
        produced.answers = [
            self._refusal(asked.topic_partition, error.code, error.detail) for asked in request.partitions
        ]
        self._answer(produced)

    def _refusal(
        self, topic_partition: TopicPartition, error: ErrorCode, message: str
    ) -> ProducePartitionResponse:
        return ProducePartitionResponse(topic_partition=topic_partition, error=error, message=message)

    def _named(self, answer: ProducePartitionResponse) -> ProducePartitionResponse:
        """Returns a refusal with the leader that is known as the answer leaves: other parts may have waited long."""
        leader_id, leader_epoch = self._context.leader_hint(answer.topic_partition, answer.error)
        return replace(answer, leader_id=leader_id, leader_epoch=leader_epoch)

    def _count_dropped(self, produced: ProduceCall) -> None:
        """Counts what was refused of a request without a reply, and logs the first, second, fourth … of them."""
        for answer in produced.answers:
            if answer is None or answer.error is not ErrorCode.REQUEST_TIMED_OUT:
                continue
            self.dropped += 1
            if self.dropped & (self.dropped - 1) == 0:
                logger.warning(
                    "produce dropped: acks=0 topic_partition=%s dropped=%d reason=%s",
                    answer.topic_partition,
                    self.dropped,
                    answer.message,
                )

    def _answer(self, produced: ProduceCall) -> None:
        if produced.acks == ACKS_NONE:
            self._count_dropped(produced)
            return
        answers = []
        for answer in produced.answers:
            assert answer is not None, (produced.call, produced.answers)
            answers.append(answer if answer.error is ErrorCode.NONE else self._named(answer))
            if answer.error is ErrorCode.NONE:
                self._context.outbox.observe(
                    "produce.acknowledged",
                    topic_partition=str(answer.topic_partition),
                    base_offset=answer.base_offset,
                    last_offset=answer.last_offset,
                    acks=produced.acks,
                )
        self._context.outbox.reply(produced.call, _response(partitions=tuple(answers)))
