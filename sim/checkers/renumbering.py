"""The sequences of a producer's batches: one that may be in the log, or reach it yet, gets no second one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import final

from cluster.core.errors import ErrorCode
from cluster.core.events import Event, Response
from cluster.core.messages import ProduceRequest, ProduceResponse, RequestBody, TopicPartition
from sim.checkers.base import Jury
from storage.batch import RecordBatch
from storage.batch.format import HEADER_SIZE

# A client, and its life.
Client = tuple[str, int]
# A producer's id and epoch.
Identity = tuple[int, int]
_IN_LOG = (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
_LOST = (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID)


@final
@dataclass(slots=True, kw_only=True, eq=False)
class Sent:
    """A batch under one sequence: its attempts without an answer, and what the answers to others leave open."""

    identity: Identity
    base_sequence: int
    content: bytes
    # By call: whether no earlier batch was without an answer when this attempt was sent.
    attempts: dict[int, bool] = field(default_factory=dict)
    is_in_log: bool = False
    # An attempt had no answer, or one after which the batch may be appended all the same.
    is_in_doubt: bool = False

    @property
    def is_refused(self) -> bool:
        """Whether every attempt was refused for certain."""
        return not (self.attempts or self.is_in_log or self.is_in_doubt)

    def is_not_after(self, other: Sent) -> bool:
        """Whether a leader has this batch where it has appended the other one."""
        return self.identity == other.identity and self.base_sequence <= other.base_sequence

    def on_answer(self, call: int, error: ErrorCode) -> None:
        """Notes the answer to an attempt."""
        was_in_turn = self.attempts.pop(call)
        self.is_in_log |= error in _IN_LOG
        is_open = error.is_retriable or error in (ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.NETWORK_EXCEPTION)
        # The network may have overtaken a batch before it, which has arrived since.
        self.is_in_doubt |= is_open or (error in _LOST and not was_in_turn)


@final
class Renumbering:
    """Judges when a producer sends a batch under another sequence than before.

    It may where every attempt under the old one was refused for certain, or where an earlier batch of the same id and
    epoch was: then no leader appends a late copy. In every other case the records may be in the log twice (KIP-360).
    That a batch before is missing is no certain refusal if one was under way when this batch was sent.
    """

    name = "second-sequence"

    def __init__(self, jury: Jury) -> None:
        self._jury = jury
        # By client and partition: the batches that are not known to be in the log, in order of their first sending.
        self._sent: dict[Client, dict[TopicPartition, list[Sent]]] = {}
        # By client and call: the batches of a request without an answer.
        self._open: dict[Client, dict[int, dict[TopicPartition, Sent]]] = {}

    def on_sent(self, client: Client, call: int, body: RequestBody) -> None:
        """Receives a request as it leaves a client."""
        if not isinstance(body, ProduceRequest):
            return
        for topic_partition, batch, content in _batches(body):
            batches = self._sent.setdefault(client, {}).setdefault(topic_partition, [])
            identity = (batch.producer_id, batch.producer_epoch)
            sent = self._find(batches, identity, batch.base_sequence, content)
            if sent is None:
                self._judge(client[0], topic_partition, batches, content, batch)
                sent = Sent(identity=identity, base_sequence=batch.base_sequence, content=content)
                batches.append(sent)
            under_way = [each for each in batches if each.attempts and each.is_not_after(sent)]
            sent.attempts[call] = under_way in ([], [sent])
            self._open.setdefault(client, {}).setdefault(call, {})[topic_partition] = sent

    def _find(
        self, batches: Iterable[Sent], identity: Identity, base_sequence: int, content: bytes
    ) -> Sent | None:
        for each in batches:
            if (each.identity, each.base_sequence, each.content) == (identity, base_sequence, content):
                return each
        return None

    def _judge(
        self,
        name: str,
        topic_partition: TopicPartition,
        batches: list[Sent],
        content: bytes,
        batch: RecordBatch,
    ) -> None:
        before = next((each for each in reversed(batches) if each.content == content), None)
        if before is None:
            return
        if any(each.is_refused and each.is_not_after(before) for each in batches):
            return
        was = f"sequence {before.base_sequence} in epoch {before.identity[1]}"
        now = f"sequence {batch.base_sequence} in epoch {batch.producer_epoch}"
        what = f"{name} sends the batch of {was} again as {now}; the first may be appended"
        self._jury.report(self.name, f"{topic_partition}: {what}")

    def on_step(self, client: Client, events: Iterable[Event]) -> None:
        """Receives what a client's core takes in one step, before what it sends then."""
        for event in events:
            open_calls = self._open.get(client)
            if type(event) is Response and open_calls is not None and event.call in open_calls:
                self._on_answer(client, event.call, open_calls.pop(event.call), event.body)

    def _on_answer(self, client: Client, call: int, asked: dict[TopicPartition, Sent], body: object) -> None:
        errors = {}
        if isinstance(body, ProduceResponse) and body.error is ErrorCode.NONE:
            errors = {each.topic_partition: each.error for each in body.partitions}
        for topic_partition, sent in asked.items():
            sent.on_answer(call, errors.get(topic_partition, ErrorCode.NETWORK_EXCEPTION))
            if sent.is_in_log:
                # All earlier batches are in the log too.
                batches = self._sent[client]
                batches[topic_partition] = [
                    each for each in batches[topic_partition] if not each.is_not_after(sent)
                ]


def _batches(body: ProduceRequest) -> Iterator[tuple[TopicPartition, RecordBatch, bytes]]:
    """Yields the batches of idempotent producers, each with its bytes after the header, which no sequence changes."""
    for each in body.partitions:
        batch = RecordBatch(each.records, 0, len(each.records))
        if batch.producer_id >= 0:
            yield each.topic_partition, batch, bytes(each.records[HEADER_SIZE:])
