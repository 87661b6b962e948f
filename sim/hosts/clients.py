"""Simulated clients: the product's client cores in shells of virtual time, which record the history of a run."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, final

from cluster.core.client.config import OffsetReset
from cluster.core.client.consumer import ConsumerCore, Start
from cluster.core.client.effects import (
    ConsumerEffect,
    Delivered,
    EndOfPartition,
    Fetched,
    Flushed,
    PartitionDeleted,
    PositionLost,
    PositionReset,
    TopicMissing,
    Truncated,
)
from cluster.core.client.producer import ProducerCore
from cluster.core.effects import Effect, Send, SetTimer
from cluster.core.errors import ErrorCode
from cluster.core.events import Event, Response, TimerFired
from cluster.core.messages import (
    CONTROLLER_ID,
    AlterTopicConfigsRequest,
    AlterTopicConfigsResponse,
    CreateTopicRequest,
    CreateTopicResponse,
    DeleteTopicRequest,
    DeleteTopicResponse,
    ProduceRequest,
    TopicPartition,
)
from sim.buggify.settings import consumer_config, producer_config
from sim.hosts.history import (
    FILL,
    TOMBSTONE_HEADER,
    History,
    Move,
    Outcome,
    ReadOperation,
    SendOperation,
    stamp_of,
    text_of,
)
from sim.hosts.key_places import place_of_key
from sim.hosts.lives import ClientShell
from sim.hosts.shell import Shell, Watcher
from sim.scenario import settings as scenario_settings
from sim.scenario.model import ConsumerModel, ProducerModel
from sim.world.clock import Clock
from sim.world.network import Network
from sim.world.streams import Stream
from sim.world.time import World
from sim.world.trace import Trace
from storage.batch import TimestampType, iterate_batches
from storage.batch.record import Header

RETRY_MS = 200
# What a broker answers of records that its disk has changed.
DAMAGE_ERRORS = (ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD)
# A leader refuses with the first two what a topic of other properties takes. What a producer has split then, and never
# sent again, ends with the third.
_PERHAPS_TOO_LARGE = (
    ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.REQUEST_TIMED_OUT
)  # fmt: skip
# The time that a producer may take beyond its time-out: steps take time, and clocks may go a tenth too slow.
_DELIVERY_BOUND_US, _DELIVERY_SHARE = 1_000_000, 8
# How often it is looked whether a suspended process goes on.
_SUSPENDED_US = 50_000


def _given_up_us(timeout_us: int) -> int:
    """Returns the time by which a producer of that time-out must know what became of a record."""
    return timeout_us + max(_DELIVERY_BOUND_US, timeout_us // _DELIVERY_SHARE)


class ProducerWatcher(Watcher, Protocol):
    """The watcher of a producer, which also receives acknowledgements."""

    def on_acknowledged(self, partition: str) -> None:
        """Receives the partition of a record whenever a producer gets its acknowledgement."""


class ConsumerWatcher(Watcher, Protocol):
    """The watcher of a consumer, which also receives what passes between the consumer and its user."""

    def on_begun(self, shell: Shell, policy: OffsetReset) -> None:
        """Receives the begin of a life of a consumer, with its auto.offset.reset."""

    def on_sought(self, shell: Shell, topic_partition: TopicPartition, start: Start) -> None:
        """Receives where the user sends the consumer."""

    def on_told(self, shell: Shell, effect: ConsumerEffect) -> None:
        """Receives what the consumer tells its user, before the user acts on it."""


TopicRequest = CreateTopicRequest | DeleteTopicRequest | AlterTopicConfigsRequest
# The answers after which a request is not repeated: it is done, or an earlier try has done it.
_DONE: Mapping[type, frozenset[ErrorCode]] = {
    CreateTopicResponse: frozenset({ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS}),
    DeleteTopicResponse: frozenset({ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}),
    AlterTopicConfigsResponse: frozenset({ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}),
}


def _is_final(error: object) -> bool:
    """Whether a refusal of a change says that it is refused each time: of its own properties, or of its size."""
    return error in (ErrorCode.INVALID_CONFIG, ErrorCode.MESSAGE_TOO_LARGE)


# What each request asks for, in a word.
ASKED: Mapping[type, str] = {
    CreateTopicRequest: "created",
    DeleteTopicRequest: "deleted",
    AlterTopicConfigsRequest: "altered",
}


@final
class TopicAdmin:
    """A core that sends the controller one request about a topic after the other, each until it is done."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[TopicRequest, Callable[[], None] | None]] = deque()
        self._call = 0
        # How the first of them was refused last.
        self._refused_with = ""
        # The changes of topics that were refused for good, in words.
        self.refused: list[str] = []

    @property
    def open_request(self) -> str:
        """What the first request asks for that is not done yet, in words, and how it was refused; empty without one."""
        if not self._waiting:
            return ""
        request, _ = self._waiting[0]
        refused = f", refused with {self._refused_with}" if self._refused_with else ""
        return f"topic {request.name} is still to be {ASKED[type(request)]}{refused}"

    def ask(self, request: TopicRequest, on_done: Callable[[], None] | None) -> list[Effect]:
        """Queues the request; `on_done` is called once it is done."""
        self._waiting.append((request, on_done))
        return self._send() if len(self._waiting) == 1 else []

    def step(self, now_ms: int, event: Event) -> list[Effect]:
        """Takes an answer or a timer; asks again after a failure, or for the next request."""
        if isinstance(event, TimerFired):
            return self._send()
        assert isinstance(event, Response), event
        assert event.call == self._call, (event.call, self._call)
        body = event.body
        error = getattr(body, "error", None)
        request, on_done = self._waiting[0]
        is_final = isinstance(request, AlterTopicConfigsRequest) and _is_final(error)
        if is_final and isinstance(error, ErrorCode):
            self.refused.append(f"alter_topic {request.name}: refused with {error.name}")
        elif error not in _DONE.get(type(body), frozenset()):
            self._refused_with = error.name if isinstance(error, ErrorCode) else ""
            return [SetTimer(key="again", at_ms=now_ms + RETRY_MS)]
        self._refused_with = ""
        self._waiting.popleft()
        effects = self._send() if self._waiting else []
        if on_done is not None:
            on_done()
        return effects

    def _send(self) -> list[Effect]:
        assert self._waiting, self._call
        self._call += 1
        return [Send(to=CONTROLLER_ID, call=self._call, body=self._waiting[0][0], timeout_ms=2_000)]


@final
class TopicAdminShell(Shell):
    """The shell of the client that creates the scenario's topics, and that steps use."""

    def begin(self, requests: list[CreateTopicRequest], on_done: Callable[[], None]) -> None:
        """Start a core that makes the topics of `requests` and then calls `on_done`."""
        assert self.core is None, f"{self.name} began twice"
        self.life_number = 1
        self._admin = TopicAdmin()
        self.core = self._admin
        if not requests:
            on_done()
        for request in requests:
            self.ask(request, on_done if request is requests[-1] else None)

    @property
    def refused(self) -> Sequence[str]:
        """The changes of topics that were refused for good, in words."""
        return self._admin.refused if self.core is not None else ()

    @property
    def open_request(self) -> str:
        """What is still to be done to a topic, in words; empty if nothing is."""
        return self._admin.open_request if self.core is not None else ""

    def ask(self, request: TopicRequest, on_done: Callable[[], None] | None = None) -> None:
        self._wait_us = 0
        self.perform(self._admin.ask(request, on_done))


@final
class ProducerShell(ClientShell):
    """A producer that sends unique values at a steady rate with a drawn jitter, until `finish`.

    What was open when it was killed stays unknown for ever; the next life sends new values, under a new producer id.
    """

    def __init__(
        self, world: World, network: Network, trace: Trace, watcher: ProducerWatcher, *, name: str,
        node_id: int, bootstrap: tuple[int, ...], model: ProducerModel, history: History,
        clock: Clock | None = None,
    ) -> None:  # fmt: skip
        super().__init__(
            world, network, trace, watcher, name=name, node_id=node_id, bootstrap=bootstrap, clock=clock
        )
        self._producer_watcher = watcher
        self.model, self._history = model, history
        self._acks = -1 if model.acks == "all" else model.acks
        self._interval_us = 1_000_000 // model.rate
        self._jitter = Stream(world.draws, "pace", name)
        # Draws which of the records are tombstones.
        self._tombs = Stream(world.draws, "tombstones", name) if model.tombstones else None
        self._open: dict[int, SendOperation] = {}
        self._sent = self._paused_at_us = self._flushes = 0
        # The key of each open record whose partition the producer chooses by it, and where the records of each key go.
        self._keys: dict[int, bytes] = {}
        self._places: dict[bytes, str] = {}
        # The last record before each flush that has not ended.
        self._flushing: dict[int, int] = {}
        self._is_sending = self._is_finished = False
        self._actions[Delivered] = self._on_delivered
        self._actions[Flushed] = self._on_flushed
        self._config = scenario_settings.producer_config(model)

    def _live(self) -> None:
        assert not self._open, f"{self.name} sent before it began"
        name = ("core", self.name) if self.starts == 1 else ("core", self.name, self.starts)
        config = self._config
        if self.points is not None:
            config = producer_config(self.points.buggify, self.name, config)
        self.producer = ProducerCore(config, self.world.draws.child(*name))
        self.core = self.producer
        self.perform(self.producer.start(self.clock.now_ms()))
        self._is_sending = not self._is_finished
        self._next_send()

    def finish(self) -> None:
        """Send no new records, in this life and later ones; those sent already still get their outcome."""
        self._is_sending, self._is_finished = False, True

    def stop(self, then: Callable[[], None] | None = None) -> None:
        """Ask for an orderly stop: nothing new is sent, and what was sent still gets its outcome."""
        self._is_sending = False
        super().stop(then)

    def _may_stop(self) -> bool:
        return not self._open and not self._flushing and super()._may_stop()

    def _forget_all(self, *, is_orderly: bool) -> None:
        assert not is_orderly or not self._open, (self.name, len(self._open))
        self._is_sending = False
        self._give_back()
        for operation in self._open.values():
            self._history.finish(
                operation, Outcome.INFO, at_us=self.world.now_us, partition="", offset=-1, error="KILLED"
            )
        self._open.clear()
        self._keys.clear()
        self._flushing.clear()

    @property
    def is_done(self) -> bool:
        return not self._is_sending and not self._open and not self._flushing

    @property
    def _has_room(self) -> bool:
        """Whether so few records wait for their outcome that a new one may be sent."""
        most = self.model.unanswered
        return most is None or len(self._open) < most

    def _next_send(self) -> None:
        half = self._interval_us // 2
        delay_us = half + self._jitter.below(2 * half + 1)
        if self.points is not None:
            delay_us += self.points.lull_us()
        self.world.after(self.actor, delay_us, self._on_pace, self.life_number)

    def _on_pace(self, life_number: int) -> None:
        if self._is_sending and life_number == self.life_number:
            if not self.paused and self._has_room:
                self._send_some()
            if self.model.records is not None and self._sent >= self.model.records:
                self.finish()
            self._next_send()

    def _send_some(self) -> None:
        """Send a record of the steady rate, and perhaps a burst where the scenario does not count them."""
        is_endless = self.model.records is None
        burst = self.points.burst() if self.points is not None and is_endless else 0
        for _ in range(1 + burst):
            # What one record sets off may end the process.
            if self._is_sending and self._has_room:
                self.send_one(skew_ms=0 if self.points is None else self.points.skew_ms())
        if self._is_sending and self.points is not None and self.points.flushes():
            self.flush_records()

    def pause(self) -> None:
        # One pause may begin within another: the process stands still from the first one on.
        if not self.paused:
            self._paused_at_us = self.world.now_us
        super().pause()

    def resume(self) -> None:
        """Go on. What is open has as much more time for its outcome as the producer stood still."""
        if self.paused:
            self._lengthen(self._paused_at_us)
        super().resume()

    def _lengthen(self, since_us: int) -> None:
        """Give what is open as much more time for its outcome as has passed since then."""
        for operation in self._open.values():
            operation.within_us += self.world.now_us - since_us

    def _give_back(self) -> None:
        """Give what is open the time for which a life that ends now stands still."""
        if self.paused:
            self._lengthen(self._paused_at_us)
        if self.clock.frozen_us is not None:
            self._lengthen(self.clock.frozen_us)

    def thaw_clock(self, *, catches_up: bool) -> None:
        """Let the clock go on. What is open has as much more time for its outcome as the clock stood still."""
        assert self.clock.frozen_us is not None, self.name
        self._lengthen(self.clock.frozen_us)
        super().thaw_clock(catches_up=catches_up)

    def send_one(
        self, value: str | None = None, *, partition: int | None = None, skew_ms: int = 0
    ) -> SendOperation:
        """Send a record now, beside those of the steady rate: with that value, or with one that is made up.

        It goes to `partition`, or where the partitioner sends it, and is stamped `skew_ms` after now, which may be less
        than 0. Returns what the history says of it. Raises ValueError for a value that was sent before: it is by its
        value that a record is recognised.
        """
        self._sent += 1
        ticket = self._sent
        if value is None:
            value = f"{self.name}/{ticket}".ljust(self.model.size, FILL)
        elif any(value == each.value for each in self._history.sends):
            raise ValueError(f"value {value!r} was sent before: a record is recognised by its value")
        # What cannot be written fails here, before the history knows of it.
        data = value.encode()
        key = f"k{ticket % self.model.keys}".encode() if self.model.keys else None
        is_tombstone = self._tombs is not None and self._tombs.below(100) < self.model.tombstones
        assert key is not None or not is_tombstone, self.name
        headers: list[Header] = [(TOMBSTONE_HEADER, data)] if is_tombstone else []
        timestamp_ms = self.clock.now_ms() + skew_ms
        operation = SendOperation(
            producer=self.name, value=self._history.texts.shared(value), acks=self._acks, invoked_us=self.world.now_us,
            is_idempotent=self.producer.config.is_idempotent, is_one_at_a_time=self.model.in_flight == 1,
            within_us=_given_up_us(self.model.delivery_timeout), life=self.starts,
            stamp=stamp_of(key, len(headers), timestamp_ms),
        )  # fmt: skip
        assert ticket not in self._open, (self.name, ticket)
        self._history.sends.append(operation)
        self._open[ticket] = operation
        self.trace.event(self.world.now_us, self.name, "send", f'"ticket":{ticket}')
        self._wait_us = 0
        if key is not None and partition is None:
            self._keys[ticket] = key
        self.perform(
            self.producer.send(
                self.clock.now_ms(), self.model.topic, key, None if is_tombstone else data, partition=partition,
                headers=headers, ticket=ticket, timestamp_ms=timestamp_ms,
            )
        )  # fmt: skip
        # The core may have refused it at once.
        assert ticket in self._open or operation.outcome is not Outcome.OPEN, (self.name, ticket)
        return operation

    def _send(self, effect: Send) -> None:
        """Sends a request. With acks=0 no answer and no log says later what was in it, so that is noted here."""
        if self._acks == 0 and isinstance(effect.body, ProduceRequest):
            for asked in effect.body.partitions:
                for batch in iterate_batches(asked.records):
                    self._history.handed_over.update([text_of(each) for each in batch.records()])
        super()._send(effect)

    def flush_records(self) -> None:
        """Ask for all that was sent to be sent on at once, and to learn when it has its outcome."""
        self._flushes += 1
        self._flushing[self._flushes] = self._sent
        self._wait_us = 0
        self.perform(self.producer.flush(self.clock.now_ms(), self._flushes))

    def _check_place(self, effect: Delivered) -> None:
        """Check that all records of a key go to one partition, that of Kafka's other clients.

        No topic of a scenario gets more partitions.
        """
        key = self._keys.pop(effect.ticket, None)
        if key is None or effect.error is not ErrorCode.NONE:
            return
        place, known = str(effect.topic_partition), self._places.setdefault(key, str(effect.topic_partition))
        count = len(self.producer.metadata.cache.partitions(effect.topic_partition.topic))
        if count and effect.topic_partition.partition != (due := place_of_key(key, count)):
            text = f"a record of key {key.decode()} went to {place}; of {count} partitions its hash chooses {due}"
            self._fail(AssertionError(text))
        elif place != known:
            self._fail(AssertionError(f"records of key {key.decode()} went to {known}, and now to {place}"))

    def _on_flushed(self, effect: Flushed) -> None:
        """Receive the end of a flush: nothing that was sent before it may be open."""
        last = self._flushing.pop(effect.ticket)
        early = [ticket for ticket in self._open if ticket <= last]
        if early:
            self._fail(AssertionError(f"flush {effect.ticket} has ended, and records {early} are open"))
        if self.is_stopping and self._may_stop():
            self.world.after(self.actor, 0, self._try_to_stop, self.life_number)

    def _on_delivered(self, effect: Delivered) -> None:
        operation = self._open.pop(effect.ticket)
        self._check_place(effect)
        if self.clock.frozen_us is not None:
            # An answer may come while the clock stands still, of which `thaw_clock` knows nothing.
            operation.within_us += self.world.now_us - self.clock.frozen_us
        if effect.error is ErrorCode.NONE:
            outcome = Outcome.OK
        else:
            # A copy that the network has made may come when the topic has other properties.
            may_come = effect.error in _PERHAPS_TOO_LARGE and self.network.duplicate_percent > 0
            outcome = Outcome.INFO if effect.is_unknown or may_come else Outcome.FAIL
        self.trace.fields(
            self.world.now_us, self.name, "delivered",
            (("ticket", effect.ticket), ("outcome", outcome.value), ("partition", str(effect.topic_partition)),
             ("offset", effect.offset), ("error", effect.error.name)),
        )  # fmt: skip
        self._history.finish(
            operation, outcome, at_us=self.world.now_us, partition=str(effect.topic_partition),
            offset=effect.offset, error=effect.error.name,
        )  # fmt: skip
        if self.is_stopping and not self._open:
            self.world.after(self.actor, 0, self._try_to_stop, self.life_number)
        if outcome is Outcome.OK:
            self._producer_watcher.on_acknowledged(str(effect.topic_partition))


def _stamped_by_leader(effect: Fetched) -> list[bool]:
    """Returns whether the leader has set the time, for each record."""
    return [
        batch.timestamp_type is TimestampType.LOG_APPEND
        for batch in effect.batches
        for _ in range(batch.record_count)
    ]


@final
class ConsumerShell(ClientShell):
    """A consumer that reads every partition of a topic from its first record on.

    After an orderly stop it goes on where it was; after a crash it begins again.
    """

    def __init__(
        self, world: World, network: Network, trace: Trace, watcher: ConsumerWatcher, *, name: str, node_id: int,
        bootstrap: tuple[int, ...], model: ConsumerModel, partitions: int, history: History,
        clock: Clock | None = None,
    ) -> None:  # fmt: skip
        super().__init__(
            world, network, trace, watcher, name=name, node_id=node_id, bootstrap=bootstrap, clock=clock
        )
        self.partitions = [TopicPartition(model.topic, partition) for partition in range(partitions)]
        self._history = history
        self._consumer_watcher = watcher
        self.positions: dict[str, int] = {}
        # Those that this shell has paused, and has to resume.
        self._pauses: set[TopicPartition] = set()
        self._actions[Fetched] = self._on_fetched
        self._actions[PositionReset] = self._on_position
        self._actions[Truncated] = self._on_truncated
        self._actions[PositionLost] = self._on_lost
        self._actions[EndOfPartition] = self._on_end
        self._actions[TopicMissing] = self._on_missing
        self._actions[PartitionDeleted] = self._on_deleted
        self._config = scenario_settings.consumer_config(model)

    def _live(self) -> None:
        assert self.partitions, f"{self.name} reads nothing"
        config = self._config
        if self.points is not None:
            config = consumer_config(self.points.buggify, self.name, config)
        self.consumer = ConsumerCore(config)
        self.core = self.consumer
        self._pauses.clear()
        starts: list[tuple[TopicPartition, Start]] = [
            (each, self.positions.get(str(each), OffsetReset.EARLIEST)) for each in self.partitions
        ]
        self._consumer_watcher.on_begun(self, config.auto_offset_reset)
        for each, start in starts:
            self._consumer_watcher.on_sought(self, each, start)
        if not self.positions and self.points is not None and self.points.subscribes():
            topics = (self.partitions[0].topic,)
            self.perform(self.consumer.subscribe(self.clock.now_ms(), topics, OffsetReset.EARLIEST))
        else:
            self.perform(self.consumer.assign(self.clock.now_ms(), starts))

    def _forget_all(self, *, is_orderly: bool) -> None:
        if not is_orderly:
            self.positions.clear()

    def _on_fetched(self, effect: Fetched) -> None:
        texts = self._history.texts
        partition = texts.shared(str(effect.topic_partition))
        position = self.positions[partition]
        assert position < effect.next_offset, (self.name, partition, position, effect.next_offset)
        self._consumer_watcher.on_told(self, effect)
        self.trace.fields(
            self.world.now_us, self.name, "read",
            (("partition", partition), ("next_offset", effect.next_offset), ("records", len(effect.records)),
             ("high_watermark", effect.high_watermark)),
        )  # fmt: skip
        after = position - 1
        is_stamped_by_leader = _stamped_by_leader(effect)
        for number, record in enumerate(effect.records):
            assert record.offset < effect.next_offset, (partition, record.offset, effect.next_offset)
            # What nobody sent need not be text; the judges shall say so.
            value = texts.shared(text_of(record))
            sent_ms = None if is_stamped_by_leader[number] else record.timestamp
            self._history.reads.append(
                ReadOperation(
                    consumer=self.name, partition=partition, offset=record.offset,
                    value=value, high_watermark=effect.high_watermark,
                    at_us=self.world.now_us, after=after, stamp=stamp_of(record.key, len(record.headers), sent_ms),
                )
            )  # fmt: skip
            after = record.offset
        self._move_to(partition, effect.next_offset)
        if self.points is not None and (pause_us := self.points.pause_us()):
            self._pause(effect.topic_partition, pause_us)

    def has_paused(self, effect: Fetched) -> bool:
        """Whether the user has paused the partition of these records."""
        return effect.topic_partition in self._pauses

    def _pause(self, topic_partition: TopicPartition, pause_us: int) -> None:
        """Read no more of a partition for a while. The answer that is on its way comes to nothing (FET-4)."""
        self.consumer.pause(topic_partition)
        self._pauses.add(topic_partition)
        self.world.after(self.actor, pause_us, self._on_paused, (topic_partition, self.life_number))

    def _on_paused(self, paused: tuple[TopicPartition, int]) -> None:
        topic_partition, life_number = paused
        if life_number != self.life_number or topic_partition not in self._pauses or self.is_stopping:
            return
        if self.paused:
            self.world.after(self.actor, _SUSPENDED_US, self._on_paused, paused)
            return
        self._pauses.remove(topic_partition)
        self._wait_us = 0
        self.perform(self.consumer.resume(self.clock.now_ms(), topic_partition))

    def _move_to(self, partition: str, position: int) -> None:
        self.positions[partition] = self._history.positions[self.name, partition] = position

    def _jump_to(self, partition: str, position: int) -> None:
        """Go on somewhere else, which the history notes."""
        self._history.moves.append(Move(consumer=self.name, partition=partition, at_us=self.world.now_us))
        self._move_to(partition, position)

    def _on_position(self, effect: PositionReset) -> None:
        self._consumer_watcher.on_told(self, effect)
        self._jump_to(str(effect.topic_partition), effect.offset)

    def _on_truncated(self, effect: Truncated) -> None:
        partition = str(effect.topic_partition)
        position = self.positions[partition]
        assert effect.from_offset == position, (self.name, partition, effect.from_offset, position)
        assert effect.to_offset <= position, (self.name, partition, effect.to_offset, position)
        self._consumer_watcher.on_told(self, effect)
        self._jump_to(partition, effect.to_offset)
        self.trace.fields(
            self.world.now_us, self.name, "consumer_truncated",
            (("partition", partition), ("from", effect.from_offset), ("to", effect.to_offset)),
        )  # fmt: skip

    def _on_end(self, effect: EndOfPartition) -> None:
        """Read on: more may come."""
        self._consumer_watcher.on_told(self, effect)

    def _on_missing(self, effect: TopicMissing) -> None:
        """Wait: the topic may be created, or created again."""
        self._consumer_watcher.on_told(self, effect)

    def _on_deleted(self, effect: PartitionDeleted) -> None:
        """Read no more of the partition: nothing of it is left to resume."""
        self._pauses.discard(effect.topic_partition)

    def _on_lost(self, effect: PositionLost) -> None:
        """Read no more of the partition, where a broker may have answered what nobody asked, or where its log stays
        damaged; else that is a bug.
        """
        # It is paused for good now.
        self._pauses.discard(effect.topic_partition)
        if self.network.counts.unchecked or effect.error in DAMAGE_ERRORS:
            return
        raise AssertionError(
            f"{self.name} lost its position in {effect.topic_partition}: {effect.error.name}"
        )
