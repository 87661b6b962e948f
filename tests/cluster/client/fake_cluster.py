"""A cluster of fakes for client cores: brokers share perfect logs, and each request meets a fate that a test draws."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from cluster.core.client.effects import ConsumerEffect, Delivered, ProducerEffect
from cluster.core.effects import BOOTSTRAP, CancelTimer, Send, SetTimer
from cluster.core.errors import ErrorCode
from cluster.core.events import Event, Response, TimerFired, TransportError
from cluster.core.messages import (
    BrokerEndpoint,
    InitProducerIdRequest,
    InitProducerIdResponse,
    MetadataRequest,
    MetadataResponse,
    PartitionMetadata,
    ProducePartition,
    ProducePartitionResponse,
    ProduceRequest,
    ProduceResponse,
    RequestBody,
    ResponseBody,
    TopicMetadata,
    TopicPartition,
)
from storage.batch import RecordBatch, iterate_batches
from storage.batch.record import add_to_sequence

FATES = (
    "served", "lost", "unanswered", "slow", "not_enough", "not_enough_after", "moves", "moves_to_copy", "invalid",
    "others",
)  # fmt: skip
# A record of another producer.
OTHER = b""


@dataclass
class ProducerState:
    """The epoch of a producer and its last five batches: first and last sequence, offset."""

    epoch: int
    batches: deque[tuple[int, int, int]] = field(default_factory=lambda: deque(maxlen=5))


@dataclass
class FakePartition:
    """A partition that all brokers share: its leader, its records, its producers."""

    leader: int = 1
    leader_epoch: int = 0
    values: list[bytes] = field(default_factory=list)
    producers: dict[int, ProducerState] = field(default_factory=dict)
    max_message_bytes: int = 1 << 20

    def append(self, batch: RecordBatch) -> tuple[ErrorCode, int]:
        """Append a batch that is next in its producer's sequence; a repeated one gets its old offset (TXN-1).

        An unknown producer may begin at any sequence, as with Kafka. Returns the error and the offset.
        """
        if batch.size_bytes > self.max_message_bytes:
            return ErrorCode.MESSAGE_TOO_LARGE, -1
        if batch.has_producer_id:
            state = self.producers.get(batch.producer_id)
            if state is not None:
                for first, last, offset in state.batches:
                    is_same = (first, last) == (batch.base_sequence, batch.last_sequence)
                    if is_same and state.epoch == batch.producer_epoch:
                        return ErrorCode.DUPLICATE_SEQUENCE_NUMBER, offset
                if batch.producer_epoch < state.epoch:
                    return ErrorCode.INVALID_PRODUCER_EPOCH, -1
                expected = 0
                if batch.producer_epoch == state.epoch:
                    expected = add_to_sequence(state.batches[-1][1], 1)
                if batch.base_sequence != expected:
                    return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
            if state is None or state.epoch < batch.producer_epoch:
                state = self.producers[batch.producer_id] = ProducerState(batch.producer_epoch)
            state.batches.append((batch.base_sequence, batch.last_sequence, len(self.values)))
        base_offset = len(self.values)
        self.values += [record.value or b"" for record in batch.records()]
        return ErrorCode.NONE, base_offset

    def copy_from(self, offset: int) -> None:
        """Let the leader know of producers only what is in the log from `offset` on: it has copied that alone."""
        for producer_id, state in list(self.producers.items()):
            kept = [each for each in state.batches if each[2] >= offset]
            state.batches = deque(kept, maxlen=5)
            if not kept:
                del self.producers[producer_id]


class FakeCluster:
    """Brokers 1 to `broker_count` over shared logs. `fate` names what happens to the next ProduceRequest."""

    def __init__(self, topics: dict[str, int], *, broker_count: int = 2) -> None:
        self.broker_count = broker_count
        self.partitions = {
            TopicPartition(topic, number): FakePartition(leader=1 + number % broker_count)
            for topic, count in topics.items()
            for number in range(count)
        }
        self.next_producer_id = 7
        # Whether the sender of a value has heard its outcome: only then a log may begin beyond it.
        self.is_told: Callable[[bytes], bool] = lambda value: False
        # The number of times that a topic was created again, by topic.
        self.rebirths: dict[str, int] = {}

    def create_again(self, topic: str) -> None:
        """Delete the topic and create it under another id: its logs are empty and know no producer."""
        self.rebirths[topic] = self.rebirths.get(topic, 0) + 1
        for key, partition in self.partitions.items():
            if key.topic == topic:
                self.partitions[key] = FakePartition(leader=partition.leader)

    def move_leader(self, topic_partition: TopicPartition) -> None:
        partition = self.partitions[topic_partition]
        partition.leader = 1 + partition.leader % self.broker_count
        partition.leader_epoch += 1

    def answer(self, node: int, body: RequestBody, fate: str = "served") -> ResponseBody:
        """Answer a request to broker `node`, a produce request by its fate."""
        match body:
            case MetadataRequest():
                return self.metadata(body.topics or ())
            case InitProducerIdRequest():
                self.next_producer_id += 1
                return InitProducerIdResponse(producer_id=self.next_producer_id, producer_epoch=0)
            case ProduceRequest():
                return ProduceResponse(
                    partitions=tuple(self.produce(node, each, fate) for each in body.partitions)
                )
            case _:
                raise AssertionError(body)

    def metadata(self, topics: Iterable[str]) -> MetadataResponse:
        return MetadataResponse(
            cluster_id="fake",
            brokers=tuple(
                BrokerEndpoint(broker_id=number + 1, host="fake", port=number + 1)
                for number in range(self.broker_count)
            ),
            topics=tuple(self._topic(topic) for topic in topics),
            metadata_offset=sum(self.rebirths.values()),
        )

    def _topic(self, name: str) -> TopicMetadata:
        partitions = tuple(
            PartitionMetadata(
                partition=key.partition,
                leader=partition.leader,
                leader_epoch=partition.leader_epoch,
                replicas=(1, 2),
                isr=(1, 2),
            )
            for key, partition in self.partitions.items()
            if key.topic == name
        )
        error = ErrorCode.NONE if partitions else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        topic_id = f"{name} {self.rebirths.get(name, 0)}"
        return TopicMetadata(name=name, topic_id=topic_id, error=error, partitions=partitions)

    def produce(self, node: int, asked: ProducePartition, fate: str) -> ProducePartitionResponse:
        """Append to the partition, or refuse as the fate says. Only the leader appends."""
        key = asked.topic_partition
        partition = self.partitions[key]
        if partition.leader != node:
            return ProducePartitionResponse(
                topic_partition=key,
                error=ErrorCode.NOT_LEADER_OR_FOLLOWER,
                leader_id=partition.leader,
                leader_epoch=partition.leader_epoch,
            )
        if fate == "not_enough":
            return ProducePartitionResponse(topic_partition=key, error=ErrorCode.NOT_ENOUGH_REPLICAS)
        if fate == "invalid":
            return ProducePartitionResponse(topic_partition=key, error=ErrorCode.INVALID_RECORD)
        if fate == "others":
            partition.values.append(OTHER)
        (batch,) = iterate_batches(asked.records)
        batch.check_valid()
        error, base_offset = partition.append(batch)
        if fate == "not_enough_after" and error is ErrorCode.NONE:
            error = ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        if fate in ("moves", "moves_to_copy"):
            self.move_leader(key)
        if fate == "moves_to_copy":
            values = partition.values
            untold = [at for at, value in enumerate(values) if value != OTHER and not self.is_told(value)]
            partition.copy_from(untold[0] if untold else len(values))
        return ProducePartitionResponse(topic_partition=key, error=error, base_offset=base_offset)


Step = Callable[[int, Event], Sequence[ProducerEffect | ConsumerEffect]]


class FakeShell:
    """Carries out a core's effects against a `FakeCluster` in virtual time."""

    def __init__(self, cluster: FakeCluster, fates: Callable[[], str] = lambda: "served") -> None:
        self.cluster = cluster
        self.fates = fates
        self.now_ms = 0
        self.told: list[ProducerEffect | ConsumerEffect] = []
        self._events: list[tuple[int, int, Event | Send, str]] = []
        self._timers: dict[str, int] = {}
        self._order = 0
        self.sent: list[Send] = []

    @property
    def delivered(self) -> list[Delivered]:
        return [told for told in self.told if isinstance(told, Delivered)]

    def carry_out(self, effects: Sequence[ProducerEffect | ConsumerEffect]) -> None:
        """Carry out the effects. Those for the caller of the core are added to `told`."""
        for effect in effects:
            match effect:
                case Send():
                    self.sent.append(effect)
                    self._send(effect)
                case SetTimer(key=key, at_ms=at_ms):
                    self._timers[key] = at_ms
                    self._push(at_ms, TimerFired(key=key))
                case CancelTimer(key=key):
                    self._timers.pop(key, None)
                case _:
                    self.told.append(effect)

    def _send(self, send: Send) -> None:
        fate = self.fates() if isinstance(send.body, ProduceRequest) else "served"
        if fate == "lost":
            lost = Response(call=send.call, body=TransportError(reason="lost"))
            self._push(self.now_ms + send.timeout_ms, lost)
        else:
            self._push(self.now_ms + (40 if fate == "slow" else 1), send, fate)

    def _push(self, at_ms: int, event: Event | Send, fate: str = "") -> None:
        self._order += 1
        heapq.heappush(self._events, (at_ms, self._order, event, fate))

    def run(self, step: Step, until_ms: int) -> None:
        """Feed the core all events up to `until_ms` (inclusive)."""
        while self._events and self._events[0][0] <= until_ms:
            self.now_ms, _, event, fate = heapq.heappop(self._events)
            if isinstance(event, Send):
                self._serve(event, fate)
            elif isinstance(event, TimerFired):
                if self._timers.get(event.key) == self.now_ms:
                    del self._timers[event.key]
                    self.carry_out(step(self.now_ms, event))
            else:
                self.carry_out(step(self.now_ms, event))
        self.now_ms = max(self.now_ms, until_ms)

    def _serve(self, send: Send, fate: str) -> None:
        node = 1 if send.to == BOOTSTRAP else send.to
        body = self.cluster.answer(node, send.body, fate)
        if not send.expects_reply:
            return
        if fate == "unanswered":
            lost = Response(call=send.call, body=TransportError(reason="cut"))
            self._push(self.now_ms + send.timeout_ms, lost)
        else:
            self._push(self.now_ms + 1, Response(call=send.call, body=body))
