"""Judges what producers tell their users: a record counts as delivered once a broker has said where it is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, final

from cluster.core.client.config import ACKS_NONE
from cluster.core.client.effects import Delivered
from cluster.core.errors import ErrorCode
from cluster.core.events import Event, Response
from cluster.core.messages import ProduceRequest, ProduceResponse, RequestBody, TopicPartition
from sim.checkers.base import Jury
from storage.batch import RecordBatch

# A client, and its life.
Client = tuple[str, int]
_IN_LOG = (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)


class _Appended(NamedTuple):
    """A batch of which an answer says that it is in the log; -1: it does not say where, or stamped it with no time."""

    record_count: int
    base_offset: int
    log_append_time_ms: int

    def is_told_by(self, deliveries: Sequence[Delivered]) -> bool:
        """Whether these are the records of the batch, each with its offset, and with the leader's time if it set it."""
        return len(deliveries) == self.record_count and all(
            each.offset == (self.base_offset + index if self.base_offset >= 0 else -1)
            and self.log_append_time_ms in (-1, each.timestamp_ms)
            for index, each in enumerate(deliveries)
        )


@final
class Deliveries:
    """A rule for each step of a producer that asks for acknowledgements.

    What it tells its user as delivered are whole batches whose answers came in this step, from the offset on that the
    answer names, with the time of the leader's log where the answer has one.
    """

    name = "deliveries"

    def __init__(self, jury: Jury) -> None:
        self._jury = jury
        # By client and call without an answer: the number of records that go to each partition.
        self._open: dict[Client, dict[int, dict[TopicPartition, int]]] = {}

    def on_sent(self, client: Client, call: int, body: RequestBody) -> None:
        """Receives a request as it leaves a client."""
        if type(body) is ProduceRequest and body.acks != ACKS_NONE:
            counts = {
                each.topic_partition: RecordBatch(each.records, 0, len(each.records)).record_count
                for each in body.partitions
            }
            self._open.setdefault(client, {})[call] = counts

    def on_step(self, client: Client, acks: int, events: Iterable[Event], effects: Iterable[object]) -> None:
        """Judges what a producer makes of the events of a step."""
        if acks == ACKS_NONE:
            return
        told: dict[TopicPartition, list[Delivered]] = {}
        for effect in effects:
            if type(effect) is Delivered and effect.error is ErrorCode.NONE:
                told.setdefault(effect.topic_partition, []).append(effect)
        appended = self._appended(client, events)
        for topic_partition, deliveries in told.items():
            self._judge(client, topic_partition, deliveries, appended.get(topic_partition, []))

    def _appended(self, client: Client, events: Iterable[Event]) -> dict[TopicPartition, list[_Appended]]:
        found: dict[TopicPartition, list[_Appended]] = {}
        calls = self._open.get(client, {})
        for event in events:
            counts = calls.pop(event.call, None) if type(event) is Response else None
            if counts is None or type(event) is not Response or type(event.body) is not ProduceResponse:
                continue
            if event.body.error is not ErrorCode.NONE:
                continue
            for answer in event.body.partitions:
                if answer.error in _IN_LOG and answer.topic_partition in counts:
                    batch = _Appended(
                        counts[answer.topic_partition], answer.base_offset, answer.log_append_time_ms
                    )
                    found.setdefault(answer.topic_partition, []).append(batch)
        return found

    def _judge(
        self,
        client: Client,
        topic_partition: TopicPartition,
        deliveries: list[Delivered],
        appended: list[_Appended],
    ) -> None:
        place = 0
        while place < len(deliveries):
            batch = next(
                (each for each in appended if each.is_told_by(deliveries[place : place + each.record_count])),
                None,
            )
            if batch is None:
                told = deliveries[place]
                where = f"at offset {told.offset} with time {told.timestamp_ms}"
                what = f"tells its user of a record {where}; {_shown(appended)}"
                self._jury.report(self.name, f"{topic_partition}: {client[0]} {what}")
                return
            appended.remove(batch)
            place += batch.record_count


def _shown(appended: list[_Appended]) -> str:
    if not appended:
        return "no answer of this step says that a batch is in the log"
    batches = [
        f"{each.record_count} records from offset {each.base_offset}, time {each.log_append_time_ms}"
        for each in appended
    ]
    return f"the answers of this step say: {'; '.join(batches)}"
