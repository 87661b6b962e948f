"""Judges when clients send: a producer's first batch alone, what was refused not at once, nor without new metadata."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple, final

from cluster.core.connection.codec import STREAM_RESPONSES
from cluster.core.errors import ErrorCode
from cluster.core.events import Event, Response
from cluster.core.messages import (
    FetchRequest,
    InitProducerIdRequest,
    ListOffsetsRequest,
    MetadataRequest,
    MetadataResponse,
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
# The request for metadata waits for its own back-off, in which a retry or two may fail.
MOST_BLIND_RETRIES = 3
# What a client asks for with one request at a time.
_LONE = (MetadataRequest, InitProducerIdRequest)
# A client, and its life.
Client = tuple[str, int]
# Returns the leader epoch that a client knows of a partition, -1 if none.
KnownEpoch = Callable[[TopicPartition], int]


class Asked(NamedTuple):
    """What a request asks of one partition: the append of an idempotent producer's batch, or a consumer's fetch.

    `producer` is the producer's id and epoch, -1 for a fetch, and `place` the batch's first sequence, or the fetch
    offset.
    """

    partition: str
    producer: tuple[int, int]
    topic_id: str
    place: int


class _Sent(NamedTuple):
    """What a request asked of one partition, and the leader epoch that the client knew as it sent it.

    `known_epoch` is what the client knows of it by now: -1 if it was told meanwhile that there is no such topic.
    """

    asked: Asked
    known_epoch: int
    sent_in: int


@final
class ClientSends:
    """Four rules for each client and partition.

    Until the partition has acknowledged a batch of a producer's id and epoch in the leader epoch that the producer
    knows, no second one is in flight: a leader that knows nothing of the producer would append it before the first, or
    although it has refused that. What was refused because another broker leads
    is asked again at once only where the refusal names a newer epoch (KIP-951), and else after `retry.backoff.ms`, as
    are metadata and the id of a producer. Who was refused so, or got no answer, asks for metadata: without it, it
    would ask the wrong broker until the age of what it knows is over. No client goes back to an earlier leader epoch
    of a topic, whichever broker still believes in it (KIP-320), unless it was told meanwhile that there is no such
    topic. What a consumer asks names the epoch that it knows: a leader of the past must refuse it. And it knows no
    epoch of which nobody has told it: those of a topic end with it, also where another one of its name follows.
    """

    first_name = "lone-first-batch"
    hasty_name = "hasty-retries"
    blind_name = "blind-retries"
    epoch_name = "client-epochs"

    def __init__(self, jury: Jury) -> None:
        self._jury = jury
        # By client and call: what was asked of each partition.
        self._open: dict[Client, dict[int, dict[TopicPartition, _Sent]]] = {}
        # By client and partition: the id and epoch of the producer whose batch was sent last, the topic, and the leader
        # epoch that the client knew.
        self._in_use: dict[tuple[Client, str], tuple[tuple[int, int], str, int]] = {}
        # The same of the one of which a batch was acknowledged while it was in use. A late answer to an earlier epoch
        # proves nothing, and takes nothing back.
        self._proven: dict[tuple[Client, str], tuple[tuple[int, int], str, int]] = {}
        # By client: when what was refused may be asked again.
        self._refused: dict[Client, dict[Asked, int]] = {}
        # By client: how often what it asks has failed since it asked for metadata last.
        self._failed: dict[Client, dict[Asked, int]] = {}
        # By client and kind of request: the call of one that asks for no partition, and when the next may follow.
        self._lone_calls: dict[tuple[Client, type], int] = {}
        self._lone_again: dict[tuple[Client, type], int] = {}
        # By client and partition: the topic's id, and the latest leader epoch that the client knew when it sent.
        self._known: dict[Client, dict[TopicPartition, tuple[str, int]]] = {}
        # By client, partition and topic's id: the latest leader epoch that an answer has told.
        self._told: dict[Client, dict[tuple[TopicPartition, str], int]] = {}

    def on_sent(
        self, client: Client, call: int, body: RequestBody, now_ms: int, known_epoch: KnownEpoch
    ) -> None:
        """Receives a request as it leaves a client."""
        if isinstance(body, _LONE):
            self._judge_lone(client, type(body), now_ms)
            self._lone_calls[client, type(body)] = call
        if isinstance(body, MetadataRequest):
            self._failed.pop(client, None)
        for topic_partition, named in _named_epochs(body):
            if named != (epoch := known_epoch(topic_partition)):
                what = f"names leader epoch {named} in a {type(body).__name__}, and knows epoch {epoch}"
                self._jury.report(self.epoch_name, f"{topic_partition}: {client[0]} {what}")
        asked: dict[TopicPartition, _Sent] = {}
        for topic_partition, each in _asked(body):
            epoch = known_epoch(topic_partition)
            self._judge_first(client, each, epoch)
            self._judge_hasty(client, each, now_ms)
            self._judge_epoch(client, topic_partition, each.topic_id, epoch)
            told = self._told.get(client, {}).get((topic_partition, each.topic_id), -1)
            if epoch > told:
                what = f"knows leader epoch {epoch} of topic {each.topic_id}; it was told of {told}"
                self._jury.report(self.epoch_name, f"{topic_partition}: {client[0]} {what}")
            asked[topic_partition] = _Sent(each, epoch, epoch)
        if asked:
            self._open.setdefault(client, {})[call] = asked

    def _judge_lone(self, client: Client, kind: type, now_ms: int) -> None:
        if now_ms < self._lone_again.get((client, kind), now_ms):
            what = "asks again before retry.backoff.ms has passed since its last answer or failure"
            self._jury.report(self.hasty_name, f"{client[0]} {what}: {kind.__name__}")

    def _judge_first(self, client: Client, asked: Asked, epoch: int) -> None:
        if asked.producer[0] < 0:
            return
        key, in_use = (client, asked.partition), (asked.producer, asked.topic_id, epoch)
        self._in_use[key] = in_use
        if self._proven.get(key) == in_use:
            return
        for others in self._open.get(client, {}).values():
            for other, *_ in others.values():
                if other[:3] == asked[:3] and other.place != asked.place:
                    what = f"sends the batch of sequence {asked.place} beside that of {other.place}"
                    why = (
                        f"nothing of producer {asked.producer[0]}, epoch {asked.producer[1]}, was acknowledged in "
                        f"leader epoch {epoch}"
                    )
                    self._jury.report(self.first_name, f"{asked.partition}: {client[0]} {what}; {why}")
                    return

    def _judge_epoch(
        self, client: Client, topic_partition: TopicPartition, topic_id: str, epoch: int
    ) -> None:
        known = self._known.setdefault(client, {})
        before_id, before = known.get(topic_partition, (topic_id, -1))
        if before_id == topic_id and epoch < before:
            what = f"sends to the leader of epoch {epoch}, and knew epoch {before} of the same topic"
            self._jury.report(self.epoch_name, f"{topic_partition}: {client[0]} {what}")
        known[topic_partition] = topic_id, epoch

    def _judge_hasty(self, client: Client, asked: Asked, now_ms: int) -> None:
        refused = self._refused.get(client)
        if refused and asked in refused and now_ms < refused.pop(asked):
            what = "asks again at once for what was refused without news of the leader"
            self._jury.report(self.hasty_name, f"{asked.partition}: {client[0]} {what}, {asked.place}")

    def on_step(
        self,
        client: Client,
        events: Iterable[Event],
        retry_ms: int,
        paused: Collection[TopicPartition] = (),
    ) -> None:
        """Receives what a client's core takes in one step, before what it sends then.

        Not before `retry_ms` it may ask again for what an answer of this step refuses. What a fetch brings of a
        partition whose reading is `paused` is dropped, an error too (FET-4).
        """
        for event in events:
            open_calls = self._open.get(client)
            if type(event) is not Response:
                continue
            if type(event.body) is MetadataResponse:
                self._note_told(client, event.body)
            for kind in _LONE:
                if self._lone_calls.get((client, kind)) == event.call:
                    del self._lone_calls[client, kind]
                    self._lone_again[client, kind] = retry_ms
                    self._forget_missing(client, event.body)
            if open_calls is not None and event.call in open_calls:
                asked = open_calls.pop(event.call)
                for each in paused:
                    asked.pop(each, None)
                self._on_answer(client, asked, event.body, retry_ms)

    def _on_answer(
        self, client: Client, asked: dict[TopicPartition, _Sent], body: object, retry_ms: int
    ) -> None:
        if not isinstance(body, STREAM_RESPONSES):
            for each, *_ in asked.values():
                self._on_failed(client, each)
            return
        for answer in body.partitions:
            if answer.topic_partition not in asked:
                continue
            each, known_epoch, sent_in = asked[answer.topic_partition]
            self._note_epoch(client, answer.topic_partition, each.topic_id, answer.leader_epoch)
            if answer.error is ErrorCode.NONE:
                key, proven = (client, each.partition), (each.producer, each.topic_id, sent_in)
                if self._in_use.get(key) == proven:
                    self._proven[key] = proven
            elif answer.error in ABOUT_LEADERS and answer.leader_epoch <= known_epoch:
                self._refused.setdefault(client, {})[each] = retry_ms
                self._on_failed(client, each)

    def _note_told(self, client: Client, body: MetadataResponse) -> None:
        for topic in body.topics:
            for each in topic.partitions:
                topic_partition = TopicPartition(topic.name, each.partition)
                self._note_epoch(client, topic_partition, topic.topic_id, each.leader_epoch)

    def _note_epoch(self, client: Client, topic_partition: TopicPartition, topic_id: str, epoch: int) -> None:
        told = self._told.setdefault(client, {})
        key = topic_partition, topic_id
        told[key] = max(told.get(key, -1), epoch)

    def _forget_missing(self, client: Client, body: object) -> None:
        """Forget what a client knew of the topics that an answer does not know: so does the client.

        What a broker that lags tells it next may be older, and then what a refusal of its requests names is news.
        """
        topics = body.topics if isinstance(body, MetadataResponse) else ()
        missing = {topic.name for topic in topics if topic.error is not ErrorCode.NONE}
        if not missing:
            return
        for call in self._open.get(client, {}).values():
            for topic_partition in [each for each in call if each.topic in missing]:
                call[topic_partition] = call[topic_partition]._replace(known_epoch=-1)
        known = self._known.get(client, {})
        for topic_partition in [each for each in known if each.topic in missing]:
            del known[topic_partition]

    def _on_failed(self, client: Client, asked: Asked) -> None:
        """Judge whether a client has asked for metadata since the same has failed; a call for it may be under way."""
        if (client, MetadataRequest) in self._lone_calls:
            return
        failed = self._failed.setdefault(client, {})
        failed[asked] = failed.get(asked, 0) + 1
        if failed[asked] > MOST_BLIND_RETRIES:
            what = f"has asked in vain {failed[asked]} times, and not for metadata meanwhile"
            self._jury.report(self.blind_name, f"{asked.partition}: {client[0]} {what}")

    def on_sought(self, client: Client, topic_partition: TopicPartition) -> None:
        """Receives that a user sends a consumer elsewhere, perhaps to where it is: it may ask at once.

        An answer to what it has asked before is dropped.
        """
        for asked in self._open.get(client, {}).values():
            asked.pop(topic_partition, None)
        self._failed.pop(client, None)
        refused = self._refused.get(client, {})
        for each in [each for each in refused if each.partition == str(topic_partition)]:
            del refused[each]


def _asked(body: RequestBody) -> list[tuple[TopicPartition, Asked]]:
    """Returns what is judged of a request: not the batches of producers that are not idempotent."""
    if isinstance(body, FetchRequest):
        return [
            (
                each.topic_partition,
                Asked(str(each.topic_partition), (-1, -1), each.topic_id, each.fetch_offset),
            )
            for each in body.partitions
        ]
    if not isinstance(body, ProduceRequest):
        return []
    batches = [(each, RecordBatch(each.records, 0, len(each.records))) for each in body.partitions]
    return [
        (
            each.topic_partition,
            Asked(
                str(each.topic_partition),
                (batch.producer_id, batch.producer_epoch),
                each.topic_id,
                batch.base_sequence,
            ),
        )
        for each, batch in batches
        if batch.producer_id >= 0
    ]


def _named_epochs(body: RequestBody) -> list[tuple[TopicPartition, int]]:
    """Returns the leader epoch that a consumer's request names for each partition; producers name none."""
    if isinstance(body, FetchRequest):
        return [(each.topic_partition, each.current_leader_epoch) for each in body.partitions]
    if isinstance(body, ListOffsetsRequest):
        return [(body.topic_partition, body.current_leader_epoch)]
    return []
