"""The producer for asyncio programs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import cast, final

from cluster.core.client.config import ACKS_NONE, ProducerConfig
from cluster.core.client.effects import Delivered, Flushed
from cluster.core.client.producer import ProducerCore
from cluster.core.client.waiting_records import size_bound
from cluster.core.errors import ClusterError, ErrorCode
from cluster.core.messages import TopicPartition
from cluster.shell.clients.arguments import config_of, content, header_pairs, integer, topic_name
from cluster.shell.clients.base import DEFAULT_BOOTSTRAP, AsyncClient, fail, system_draws
from cluster.shell.clients.delivery import DeliveryError, Outcome, RecordMetadata, outcome_of
from cluster.shell.clients.waiting_lines import TaskLine
from cluster.shell.transport import Alarm, loop_ms
from storage.batch.record import MAX_INT64, Header

Headers = Sequence[Header] | Mapping[str, bytes | None]


@final
class OutgoingRecord:
    """A record as its sender passed it, checked. `size_bytes` is an upper bound of the room that it takes."""

    __slots__ = ("headers", "key", "partition", "size_bytes", "timestamp_ms", "topic", "value")

    def __init__(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        partition: int | None,
        headers: Headers,
        timestamp_ms: int | None,
    ) -> None:
        self.topic = topic_name(topic)
        self.value = content("value", value)
        self.key = content("key", key)
        self.partition = None if partition is None else integer("partition", partition)
        self.headers = header_pairs(headers)
        self.timestamp_ms = None
        if timestamp_ms is not None:
            self.timestamp_ms = integer("timestamp_ms", timestamp_ms, at_most=MAX_INT64)
        self.size_bytes = size_bound(self.key, self.value, self.headers)


@final
class AsyncProducer(AsyncClient):
    """Sends records to the leaders of their partitions. Leaving `async with` first delivers all that were sent."""

    def __init__(
        self, bootstrap_servers: str = DEFAULT_BOOTSTRAP, config: ProducerConfig | None = None
    ) -> None:
        self.config = config_of(config, ProducerConfig)
        self.core = ProducerCore(self.config, system_draws())
        super().__init__(self.core, bootstrap_servers, self.core.start)
        self._tickets = 0
        self._is_silent = self.config.acks == ACKS_NONE
        self._open: dict[int, Callable[[Outcome], None]] = {}
        # With acks=0 the core takes a record for delivered as it emits its request. What it says of that is told once
        # the request is written: of a record by its request, of a flush with the requests that it waits for. Until then
        # each record keeps its room, its size by its ticket.
        self._held: dict[int, list[Delivered]] = {}
        self._held_flushes: list[tuple[Flushed, dict[int, None]]] = []
        self._sizes: dict[int, int] = {}
        self._silent_bytes = 0
        self._flushes: dict[int, asyncio.Future[None]] = {}
        self._line = TaskLine()
        # Wakes the first of those that wait for room when it has waited for max.block.ms; made in the loop.
        self._room_alarm: Alarm | None = None
        # From here on nobody is left who fetches an error: asyncio shall not report each.
        self._is_aborted = False

    async def start(self) -> None:
        """Starts the client; `async with` does it. The nodes are called when there is something to ask."""
        await super().start()
        self.runtime.peers.after_writing = self._after_writing

    def _after_writing(self, calls: Sequence[int]) -> None:
        """Ends the wait for these requests; those of a connection that has ended count as written."""
        if self._is_closed or not self._held:
            return
        for call in calls:
            for effect in self._held.pop(call, ()):
                self._tell(effect)
        self._end_flushes(calls)

    def _end_flushes(self, calls: Sequence[int]) -> None:
        held, self._held_flushes = self._held_flushes, []
        for effect, awaited in held:
            left = {call: None for call in awaited if call not in calls}
            if left:
                self._held_flushes.append((effect, left))
            else:
                self._tell(effect)

    async def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        partition: int | None = None,
        headers: Headers = (),
        timestamp_ms: int | None = None,
    ) -> asyncio.Future[RecordMetadata]:
        """Sends one record once the buffer has room; returns a future of its place in the log.

        A value of None is a tombstone. Without `partition` the key decides, or without a key the producer.
        `timestamp_ms` is in milliseconds since the Unix epoch, now if None. The future raises DeliveryError when the
        record was refused, or when its outcome is unknown. Raises TypeError or ValueError for a wrong argument, and
        ClusterError(REQUEST_TIMED_OUT) when there is no room within max_block_ms; nothing is sent then.
        """
        record = OutgoingRecord(topic, value, key, partition, headers, timestamp_ms)
        await self._wait_for_room(record.size_bytes)
        future: asyncio.Future[RecordMetadata] = asyncio.get_running_loop().create_future()
        self.send_now(record, lambda outcome: self._settle(future, outcome))
        return future

    async def send_and_wait(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        partition: int | None = None,
        headers: Headers = (),
        timestamp_ms: int | None = None,
    ) -> RecordMetadata:
        """Sends one record and waits for its outcome; returns its place in the log. Raises what `send` does and
        what its future raises.
        """
        return await (
            await self.send(
                topic, value, key=key, partition=partition, headers=headers, timestamp_ms=timestamp_ms
            )
        )

    def send_now(self, record: OutgoingRecord, on_outcome: Callable[[Outcome], None]) -> None:
        """Passes a record to the core, room or not; `on_outcome` is called exactly once, perhaps before the return."""
        self._tickets += 1
        ticket = self._tickets
        assert ticket not in self._open, ticket
        self._open[ticket] = on_outcome
        if self._is_silent:
            self._sizes[ticket] = record.size_bytes
            self._silent_bytes += record.size_bytes
        try:
            self._run(
                lambda now_ms: self.core.send(
                    now_ms,
                    record.topic,
                    record.key,
                    record.value,
                    partition=record.partition,
                    headers=record.headers,
                    timestamp_ms=record.timestamp_ms,
                    ticket=ticket,
                )
            )
        except (ClusterError, RuntimeError) as error:
            self._silent_bytes -= self._sizes.pop(ticket, 0)
            if self._open.pop(ticket, None) is not None:
                place = TopicPartition(record.topic, -1)
                on_outcome(_failure(error, place, is_unknown=isinstance(error, ClusterError)))

    async def flush(self) -> None:
        """Sends without lingering; returns once every record sent before has its outcome."""
        self._tickets += 1
        ticket = self._tickets
        assert ticket not in self._flushes, ticket
        future = self._flushes[ticket] = asyncio.get_running_loop().create_future()
        self._run(lambda now_ms: self.core.flush(now_ms, ticket))
        await future
        # Records were sent in the order of their tickets: the first one left is the oldest.
        oldest = next(iter(self._open), ticket + 1)
        assert oldest > ticket, (oldest, ticket)

    async def _wait_for_room(self, size_bytes: int) -> None:
        limit = self.config.buffer_memory
        self._check_open()
        if size_bytes > limit or (self._line.is_empty and self._taken_bytes + size_bytes <= limit):
            return
        deadline_ms = loop_ms() + self.config.max_block_ms
        with self._line.turn(size_bytes) as turn:
            while not self._line.is_first(turn) or self._taken_bytes + size_bytes > limit:
                # Before the records are pressed: those that end at once set it again.
                turn.clear()
                if self._line.is_first(turn):
                    self.press(size_bytes)
                    self._set_room_alarm(deadline_ms)
                await turn.wait()
                self._check_open()

    def _set_room_alarm(self, deadline_ms: int) -> None:
        """Lets the first of those that wait for room look again at its deadline. Raises ClusterError where that passed.

        The others have later ones.
        """
        if loop_ms() >= deadline_ms:
            raise ClusterError(ErrorCode.REQUEST_TIMED_OUT, "the buffer stayed full for max.block.ms")
        if self._room_alarm is None:
            self._room_alarm = Alarm(self._line.wake)
        # Mostly it is set already, for one that waited before: no timer is made and cancelled for each record.
        self._room_alarm.set(deadline_ms)

    def press(self, size_bytes: int) -> None:
        """Lets the core send without lingering: a record of this size waits for room."""
        if not self.runtime.stopped.done():
            self.runtime.run(lambda now_ms: self.core.press(now_ms, size_bytes))

    @property
    def _taken_bytes(self) -> int:
        """The room that records take which have no outcome yet."""
        # Each record of the core is among the silent ones too, and counts once.
        return max(self.core.unfinished.size_bytes, self._silent_bytes)

    def _on_notice(self, effect: object) -> None:
        match effect:
            case Delivered(error=ErrorCode.NONE) if self._is_silent:
                # The core has emitted its request just before.
                self._held.setdefault(self.runtime.peers.last_silent, []).append(effect)
            case Flushed() if self._held:
                self._held_flushes.append((effect, dict.fromkeys(self._held)))
            case _:
                self._tell(effect)

    def _tell(self, effect: object) -> None:
        match effect:
            case Delivered():
                self._silent_bytes -= self._sizes.pop(effect.ticket, 0)
                self._open.pop(effect.ticket)(outcome_of(effect))
                if not self._line.is_empty:
                    self._line.wake(self.config.buffer_memory - self._taken_bytes)
            case Flushed():
                flushed = self._flushes.pop(effect.ticket)
                if not flushed.done():
                    flushed.set_result(None)
            case _:
                raise TypeError(f"no shell carries out {effect!r}")

    def fail_records(self, error: ClusterError) -> None:
        """Ends every record without an outcome with this error; the core never answers for it."""
        self._is_aborted = True
        waiting, self._open = self._open, {}
        self._held, self._held_flushes = {}, []
        self._sizes, self._silent_bytes = {}, 0
        for on_outcome in waiting.values():
            on_outcome(_failure(error, TopicPartition("", -1), is_unknown=True))
        assert not self._open, len(self._open)

    def _fail_open(self, error: ClusterError) -> None:
        self.fail_records(error)
        flushes, self._flushes = self._flushes, {}
        for future in flushes.values():
            fail(cast("asyncio.Future[object]", future), error)
        if self._room_alarm is not None:
            self._room_alarm.cancel()
        self._line.wake_all()
        assert not self._flushes, len(self._flushes)

    async def _finish(self) -> None:
        await self.flush()
        self.runtime.shut_down()
        await self.runtime.stopped

    def _abort(self) -> None:
        self._is_aborted = True
        self.runtime.run(self.core.abort)

    def _settle(self, future: asyncio.Future[RecordMetadata], outcome: Outcome) -> None:
        if isinstance(outcome, DeliveryError):
            if self._is_aborted:
                fail(cast("asyncio.Future[object]", future), outcome)
            elif not future.done():
                future.set_exception(outcome)
        elif not future.done():
            future.set_result(outcome)


def _failure(error: Exception, place: TopicPartition, *, is_unknown: bool) -> DeliveryError:
    detail = error.detail if isinstance(error, ClusterError) else str(error)
    return DeliveryError(ErrorCode.UNKNOWN_SERVER_ERROR, detail, place, is_unknown=is_unknown)
