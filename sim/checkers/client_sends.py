"""Judges when clients send: the first batch of a producer alone, and what a leader refused not again at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple, final

from cluster.core.connection.codec import STREAM_RESPONSES
from cluster.core.errors import ErrorCode
from cluster.core.events import Event, Response
from cluster.core.messages import (
    FetchRequest,
    ProduceRequest,
    RequestBody,
    TopicPartition,
)
from sim.checkers.base import Jury
from storage.batch import RecordBatch

# The refusals that say nothing but who leads.
ABOUT_LEADERS = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)  # fmt: skip
# A client, and its life.
Client = tuple[str, int]
# Returns the leader epoch that a client knows of a partition, -1 if none.
KnownEpoch = Callable[[TopicPartition], int]


class Asked(NamedTuple):
    """What a request asks of one partition: the append of an idempotent producer's batch, or a consumer's fetch.

    `place` is the batch's first sequence, or the fetch offset. A fetch has the producer id and epoch -1.
    """

    partition: str
    producer: tuple[int, int]
    place: int


@final
class ClientSends:
    """Two rules for each client and partition.

    Until the partition has acknowledged a batch of a producer's id and epoch, no second one is in flight: a broker that
    knows nothing of the producer would append it before the first. What was refused because another broker leads is
    asked again at once only where the refusal names a newer epoch (KIP-951), and else after `retry.backoff.ms`.
    """

    first_name = "lone-first-batch"
    hasty_name = "hasty-retries"

    def __init__(self, jury: Jury) -> None:
        self._jury = jury
        # By client and call: what was asked of each partition, and the leader epoch that the client knew.
        self._open: dict[Client, dict[int, dict[TopicPartition, tuple[Asked, int]]]] = {}
        # By client and partition: the last id and epoch of a producer of which a batch was acknowledged.
        self._proven: dict[tuple[Client, str], tuple[int, int]] = {}
        # By client: when what was refused may be asked again.
        self._refused: dict[Client, dict[Asked, int]] = {}

    def on_sent(
        self, client: Client, call: int, body: RequestBody, now_ms: int, known_epoch: KnownEpoch
    ) -> None:
        """Receives a request as it leaves a client."""
        asked: dict[TopicPartition, tuple[Asked, int]] = {}
        for topic_partition, each in _asked(body):
            self._judge_first(client, each)
            self._judge_hasty(client, each, now_ms)
            asked[topic_partition] = each, known_epoch(topic_partition)
        if asked:
            self._open.setdefault(client, {})[call] = asked

    def _judge_first(self, client: Client, asked: Asked) -> None:
        if asked.producer[0] < 0 or self._proven.get((client, asked.partition)) == asked.producer:
            return
        for others in self._open.get(client, {}).values():
            for other, _ in others.values():
                if other[:2] == asked[:2] and other.place != asked.place:
                    what = f"sends the batch of sequence {asked.place} beside that of {other.place}"
                    why = f"nothing of producer {asked.producer[0]}, epoch {asked.producer[1]}, was acknowledged"
                    self._jury.report(self.first_name, f"{asked.partition}: {client[0]} {what}; {why}")
                    return

    def _judge_hasty(self, client: Client, asked: Asked, now_ms: int) -> None:
        refused = self._refused.get(client)
        if refused and asked in refused and now_ms < refused.pop(asked):
            what = "asks again at once for what was refused without news of the leader"
            self._jury.report(self.hasty_name, f"{asked.partition}: {client[0]} {what}, {asked.place}")

    def on_step(self, client: Client, events: Iterable[Event], retry_ms: int) -> None:
        """Receives what a client's core takes in one step, before what it sends then.

        Not before `retry_ms` it may ask again for what an answer of this step refuses.
        """
        for event in events:
            open_calls = self._open.get(client)
            if type(event) is Response and open_calls is not None and event.call in open_calls:
                self._on_answer(client, open_calls.pop(event.call), event.body, retry_ms)

    def _on_answer(
        self, client: Client, asked: dict[TopicPartition, tuple[Asked, int]], body: object, retry_ms: int
    ) -> None:
        if not isinstance(body, STREAM_RESPONSES):
            return
        for answer in body.partitions:
            if answer.topic_partition not in asked:
                continue
            each, known_epoch = asked[answer.topic_partition]
            if answer.error is ErrorCode.NONE:
                self._proven[client, each.partition] = each.producer
            elif answer.error in ABOUT_LEADERS and answer.leader_epoch <= known_epoch:
                self._refused.setdefault(client, {})[each] = retry_ms

    def on_sought(self, client: Client, topic_partition: TopicPartition) -> None:
        """Receives that a user sends a consumer elsewhere, perhaps to where it is: it may ask at once.

        An answer to what it has asked before is dropped.
        """
        for asked in self._open.get(client, {}).values():
            asked.pop(topic_partition, None)
        refused = self._refused.get(client, {})
        for each in [each for each in refused if each.partition == str(topic_partition)]:
            del refused[each]


def _asked(body: RequestBody) -> list[tuple[TopicPartition, Asked]]:
    """Returns what is judged of a request: not the batches of producers that are not idempotent."""
    if isinstance(body, FetchRequest):
        return [
            (each.topic_partition, Asked(str(each.topic_partition), (-1, -1), each.fetch_offset))
            for each in body.partitions
        ]
    if not isinstance(body, ProduceRequest):
        return []
    batches = [
        (each.topic_partition, RecordBatch(each.records, 0, len(each.records))) for each in body.partitions
    ]
    return [
        (
            topic_partition,
            Asked(str(topic_partition), (batch.producer_id, batch.producer_epoch), batch.base_sequence),
        )
        for topic_partition, batch in batches
        if batch.producer_id >= 0
    ]
