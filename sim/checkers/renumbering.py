"""The sequences of a producer's batches: one that may be in the log, or reach it yet, gets no second one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, final

from cluster.core.errors import ErrorCode
from cluster.core.events import Event, Response
from cluster.core.messages import (
    ProducePartition,
    ProduceRequest,
    ProduceResponse,
    RequestBody,
    TopicPartition,
)
from sim.checkers.base import Jury
from storage.batch import RecordBatch
from storage.batch.format import HEADER_SIZE

# A client, and its life.
Client = tuple[str, int]
# A producer's id and epoch.
Identity = tuple[int, int]
# The batches of a producer that a broker remembers.
MOST_BATCHES = 5
_IN_LOG = (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
_LOST = (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID)


class Attempt(NamedTuple):
    """One sending of a batch, to a leader of the topic of that id."""

    # Whether no earlier batch was without an answer then.
    was_in_turn: bool
    leader: int
    topic_id: str


@final
@dataclass(slots=True, kw_only=True, eq=False)
class Sent:
    """A batch under one sequence: its attempts without an answer, and what the answers to others leave open."""

    identity: Identity
    base_sequence: int
    last_sequence: int
    content: bytes
    # Those without an answer, by call.
    attempts: dict[int, Attempt] = field(default_factory=dict)
    is_in_log: bool = False
    # An attempt had no answer, or one after which the batch may be appended all the same.
    is_in_doubt: bool = False
    # It may have been split, also where an attempt before left it in doubt.
    was_too_large: bool = False
    # The leader that has found a gap before it, though nothing was under way that could fill it; -1: none has.
    gap_at: int = -1

    @property
    def is_refused(self) -> bool:
        """Whether every attempt was refused for certain."""
        return not (self.attempts or self.is_in_log or self.is_in_doubt)

    def is_not_after(self, other: Sent) -> bool:
        """Whether a leader has this batch where it has appended the other one."""
        return self.identity == other.identity and self.base_sequence <= other.base_sequence

    def on_answer(self, call: int, error: ErrorCode) -> None:
        """Notes the answer to an attempt."""
        attempt = self.attempts.pop(call)
        was_in_turn = attempt.was_in_turn
        if error in _LOST and was_in_turn:
            self.gap_at = attempt.leader
        self.is_in_log |= error in _IN_LOG
        self.was_too_large |= error is ErrorCode.MESSAGE_TOO_LARGE
        is_open = error.is_retriable or error in (ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.NETWORK_EXCEPTION)
        # The network may have overtaken a batch before it, which has arrived since.
        self.is_in_doubt |= is_open or (error in _LOST and not was_in_turn)


@final
class Renumbering:
    """Judges when a producer sends a batch under another sequence than before, and how many it has under way.

    It may send one so where every attempt under the old one was refused for certain, or where an earlier batch of the
    same id and epoch was, or where a sequence in between can be in no log: then no leader appends a late copy. In every
    other case the records may be in the log twice (KIP-360). That a batch before is missing is no certain refusal if
    one was under way when this batch was sent. Of one id and epoch, five batches may be without an outcome: a broker
    remembers five, and would not know an older one again. While any of them is under way to one leader, none is sent to
    another one, nor to a topic that was created again: two leaders could append them out of order. A batch before which
    its leader has found a gap, though nothing was under way that could fill it, does not go there again under its
    sequence; while others are under way, whose answers decide, it may ask in vain.
    """

    name = "second-sequence"
    most_name = "batches-under-way"
    place_name = "one-leader-asked"
    gap_name = "hopeless-retries"

    def __init__(self, jury: Jury) -> None:
        self._jury = jury
        # By client and partition: the batches that are not known to be in the log, in order of their first sending.
        self._sent: dict[Client, dict[TopicPartition, list[Sent]]] = {}
        # By client and call: the batches of a request without an answer.
        self._open: dict[Client, dict[int, dict[TopicPartition, Sent]]] = {}
        # The sequence after the last one that is known to be in the log; none: 0.
        self._ends: dict[tuple[Client, TopicPartition, Identity], int] = {}

    def on_sent(self, client: Client, call: int, body: RequestBody, target: int) -> None:
        """Receives a request as it leaves a client for the node `target`."""
        if not isinstance(body, ProduceRequest):
            return
        for asked, batch, content in _batches(body):
            topic_partition = asked.topic_partition
            batches = self._sent.setdefault(client, {}).setdefault(topic_partition, [])
            identity = (batch.producer_id, batch.producer_epoch)
            sent = self._find(batches, identity, batch.base_sequence, content)
            if sent is None:
                self._judge_number(client, topic_partition, batches, identity)
                self._judge(client, topic_partition, batches, content, batch)
                sent = Sent(
                    identity=identity, base_sequence=batch.base_sequence, last_sequence=batch.last_sequence,
                    content=content,
                )  # fmt: skip
                batches.append(sent)
            under_way = [each for each in batches if each.attempts and each.is_not_after(sent)]
            attempt = Attempt(under_way in ([], [sent]), target, asked.topic_id)
            self._judge_place(client[0], topic_partition, batches, attempt)
            if sent.gap_at == target and not any(each.attempts for each in batches):
                what = f"sends sequence {sent.base_sequence} of epoch {identity[1]} again to broker {target}"
                what = f"{topic_partition}: {client[0]} {what}, which lacks what comes before"
                self._jury.report(self.gap_name, what)
            sent.attempts[call] = attempt
            self._open.setdefault(client, {}).setdefault(call, {})[topic_partition] = sent

    def _find(
        self, batches: Iterable[Sent], identity: Identity, base_sequence: int, content: bytes
    ) -> Sent | None:
        for each in batches:
            if (each.identity, each.base_sequence, each.content) == (identity, base_sequence, content):
                return each
        return None

    def _judge_place(
        self, name: str, topic_partition: TopicPartition, batches: list[Sent], attempt: Attempt
    ) -> None:
        for each in [other for sent in batches for other in sent.attempts.values()]:
            if each[1:] != attempt[1:]:
                what = f"{name} sends to {attempt[1:]} while a batch is under way to {each[1:]}"
                self._jury.report(self.place_name, f"{topic_partition}: {what}")
                return

    def _judge_number(
        self, client: Client, topic_partition: TopicPartition, batches: list[Sent], identity: Identity
    ) -> None:
        """Judge whether a batch may be sent for the first time.

        One that was refused may have been split: its parts count as one, and are not known here. One that has a later
        one in the log takes no place unless it is under way: it may have been given up, and then the sequences go on.
        """
        name, end = client[0], self._ends.get((client, topic_partition, identity), 0)
        mine = [
            each
            for each in batches
            if each.identity == identity and (each.base_sequence >= end or each.attempts)
        ]
        may_be_split = any(each.is_refused or each.was_too_large for each in mine)
        if len(mine) >= MOST_BATCHES and not may_be_split:
            what = f"{name} sends a batch beside {len(mine)} others of its epoch {identity[1]} without an outcome"
            self._jury.report(self.most_name, f"{topic_partition}: {what}")

    def _judge(
        self,
        client: Client,
        topic_partition: TopicPartition,
        batches: list[Sent],
        content: bytes,
        batch: RecordBatch,
    ) -> None:
        before = next((each for each in reversed(batches) if each.content == content), None)
        if before is None:
            return
        # What a leader has accepted after one that it lacks, it may follow with the rest.
        end = self._ends.get((client, topic_partition, before.identity), 0)
        gaps = [each for each in batches if each is before or each.base_sequence >= end]
        if any(each.is_refused and each.is_not_after(before) for each in gaps):
            return
        if self._reach(client, topic_partition, batches, before) < before.base_sequence:
            return
        was = f"sequence {before.base_sequence} in epoch {before.identity[1]}"
        now = f"sequence {batch.base_sequence} in epoch {batch.producer_epoch}"
        what = f"{client[0]} sends the batch of {was} again as {now}; the first may be appended"
        self._jury.report(self.name, f"{topic_partition}: {what}")

    def _reach(
        self, client: Client, topic_partition: TopicPartition, batches: list[Sent], before: Sent
    ) -> int:
        """Returns the first sequence below that of `before` that can be in no log: the parts of a batch that was split
        are sent one after the other, and some never.
        """
        reach = self._ends.get((client, topic_partition, before.identity), 0)
        mine = [
            each
            for each in batches
            if each.identity == before.identity and each is not before and not each.is_refused
        ]
        for each in sorted(mine, key=lambda each: each.base_sequence):
            if each.base_sequence <= reach:
                reach = max(reach, each.last_sequence + 1)
        return reach

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
                key = (client, topic_partition, sent.identity)
                self._ends[key] = max(self._ends.get(key, 0), sent.last_sequence + 1)
                # An earlier one need not be there: its leader may have refused it, and then forgotten the producer.
                self._sent[client][topic_partition].remove(sent)


def _batches(body: ProduceRequest) -> Iterator[tuple[ProducePartition, RecordBatch, bytes]]:
    """Yields the batches of idempotent producers, each with its bytes after the header, which no sequence changes."""
    for each in body.partitions:
        batch = RecordBatch(each.records, 0, len(each.records))
        if batch.producer_id >= 0:
            yield each, batch, bytes(each.records[HEADER_SIZE:])
