"""Producer, consumer and admin for asyncio programs: the cores of `cluster.core.client` on gRPC.

async with Producer("127.0.0.1:19092") as producer:
    delivered = await producer.send_and_wait("lines", b"hello")
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import AsyncIterator, Iterable, Sequence
from types import TracebackType
from typing import Self, TypeVar, cast, final

from cluster.core.client.admin import AdminCore, AdminRequest
from cluster.core.client.config import AdminConfig, ConsumerConfig, OffsetReset, ProducerConfig
from cluster.core.client.consumer import ConsumerCore, Start
from cluster.core.client.descriptions import is_led
from cluster.core.client.effects import (
    Answered,
    Delivered,
    Described,
    EndOfPartition,
    Fetched,
    Flushed,
    PositionLost,
    PositionReset,
    TopicMissing,
    Truncated,
)
from cluster.core.client.producer import ProducerCore
from cluster.core.client.waiting_records import size_bound
from cluster.core.errors import ClusterError, ErrorCode
from cluster.core.messages import (
    AlterTopicConfigsRequest,
    CreateTopicRequest,
    CreateTopicResponse,
    DeleteTopicRequest,
    MetadataRequest,
    MetadataResponse,
    ResponseBody,
    TopicPartition,
)
from cluster.shell.runtime import Core, Entry, Runtime
from cluster.shell.transport import Address
from storage.batch.record import Header, Record
from storage.draws import Draws

_SETTLE_S = 0.02
T = TypeVar("T")
ConsumerEvent = Fetched | PositionReset | Truncated | PositionLost | EndOfPartition | TopicMissing

# The first three nodes of `replog up`: one that runs is enough, also when the first one was killed.
DEFAULT_BOOTSTRAP = "127.0.0.1:19092,127.0.0.1:19093,127.0.0.1:19094"
# Counts of records fetched and not yet read: fetching pauses above the first and continues below the second.
_PAUSE_AT_RECORDS, _RESUME_AT_RECORDS = 50_000, 10_000


def parse_bootstrap(servers: str) -> list[Address]:
    """Parses `host:port[,host:port…]`. Raises ValueError with the reason."""
    addresses = []
    for server in servers.split(","):
        host, colon, port = server.strip().rpartition(":")
        if not colon or not host or not port.isdecimal() or not 0 < int(port) < 65_536:
            raise ValueError(f"bootstrap server: expected HOST:PORT, got {server!r}")
        addresses.append((host, int(port)))
    return addresses


def system_draws() -> Draws:
    """Returns draws for a real process, seeded by the operating system."""
    return Draws(int.from_bytes(os.urandom(8), "big"))


class Shell:
    """The base of the three clients: the runtime around the core, and an orderly end."""

    def __init__(self, core: Core, bootstrap: str, start: Entry | None = None) -> None:
        self._core_of_runtime = core
        self._start = start
        self._bootstrap = parse_bootstrap(bootstrap)
        self._runtime: Runtime | None = None

    @property
    def runtime(self) -> Runtime:
        assert self._runtime is not None, "use `async with` first"
        return self._runtime

    async def __aenter__(self) -> Self:
        self._runtime = Runtime(self._core_of_runtime, bootstrap=self._bootstrap, notify=self._on_notice)
        self._runtime.start(self._start)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            await self._finish()
        await self.runtime.close()

    def _on_notice(self, effect: object) -> None:
        raise NotImplementedError

    async def _finish(self) -> None:
        """Ends the client in order; `async with` awaits it where its body raised nothing."""

    async def until(self, future: asyncio.Future[T]) -> T:
        """Returns the future's result. Raises ClusterError when the core stops first, after which it never answers."""
        stopped = self.runtime.stopped
        waiting: set[asyncio.Future[object]] = {
            cast("asyncio.Future[object]", item) for item in (future, stopped)
        }
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        if not future.done():
            raise ClusterError(ErrorCode.UNKNOWN_SERVER_ERROR, stopped.result().reason)
        return future.result()


@final
class Producer(Shell):
    """Sends records to the leaders of their partitions. Leaving `async with` first delivers all that were sent."""

    def __init__(self, bootstrap: str = DEFAULT_BOOTSTRAP, config: ProducerConfig | None = None) -> None:
        self.config = config or ProducerConfig()
        self.core = ProducerCore(self.config, system_draws())
        super().__init__(self.core, bootstrap, self.core.start)
        self._tickets = 0
        self._deliveries: dict[int, asyncio.Future[Delivered]] = {}
        self._flushes: dict[int, asyncio.Future[None]] = {}
        self._room = asyncio.Event()

    async def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        partition: int | None = None,
        headers: Sequence[Header] = (),
        timestamp_ms: int | None = None,
    ) -> asyncio.Future[Delivered]:
        """Sends one record once the buffer has room; the future gets its outcome, which may be an error.

        Raises ClusterError(REQUEST_TIMED_OUT), having sent nothing, when there is no room within max_block_ms.
        """
        await self._wait_for_room(size_bound(key, value, tuple(headers)))
        self._tickets += 1
        ticket = self._tickets
        assert ticket not in self._deliveries, ticket
        future = self._deliveries[ticket] = asyncio.get_running_loop().create_future()
        self.runtime.run(
            lambda now_ms: self.core.send(
                now_ms,
                topic,
                key,
                value,
                partition=partition,
                headers=headers,
                timestamp_ms=timestamp_ms,
                ticket=ticket,
            )
        )
        # The core has the record, or has refused it at once.
        assert ticket in self._deliveries or future.done(), ticket
        return future

    async def send_and_wait(self, topic: str, value: bytes | None, *, key: bytes | None = None) -> Delivered:
        """Sends one record and waits for its outcome.

        Raises ClusterError with Kafka's code when the record was refused or its outcome is unknown.
        """
        future = await self.send(topic, value, key=key)
        delivered = await self.until(future)
        if delivered.error is not ErrorCode.NONE:
            raise ClusterError(delivered.error, delivered.message)
        return delivered

    async def flush(self) -> None:
        """Sends without lingering; returns once every record sent before has its outcome."""
        self._tickets += 1
        ticket = self._tickets
        assert ticket not in self._flushes, ticket
        future = self._flushes[ticket] = asyncio.get_running_loop().create_future()
        self.runtime.run(lambda now_ms: self.core.flush(now_ms, ticket))
        await self.until(future)
        # Records were sent in the order of their tickets: the first one left is the oldest.
        oldest = next(iter(self._deliveries), ticket + 1)
        assert oldest > ticket, (oldest, ticket)

    async def _wait_for_room(self, size_bytes: int) -> None:
        limit = self.config.buffer_memory
        if self.core.buffered_bytes + size_bytes <= limit or size_bytes > limit:
            return
        try:
            async with asyncio.timeout(self.config.max_block_ms / 1000):
                while self.core.buffered_bytes + size_bytes > limit:
                    self._room.clear()
                    await self._room.wait()
        except TimeoutError as error:
            raise ClusterError(
                ErrorCode.REQUEST_TIMED_OUT, "the buffer stayed full for max.block.ms"
            ) from error

    def _on_notice(self, effect: object) -> None:
        match effect:
            case Delivered():
                future = self._deliveries.pop(effect.ticket)
                if not future.done():
                    future.set_result(effect)
                self._room.set()
            case Flushed():
                flushed = self._flushes.pop(effect.ticket)
                if not flushed.done():
                    flushed.set_result(None)
            case _:
                raise TypeError(f"no shell carries out {effect!r}")

    async def _finish(self) -> None:
        await self.flush()
        self.runtime.shut_down()
        await self.runtime.stopped


@final
class Consumer(Shell):
    """Reads records below the high watermark, in order within a partition, after `assign` or `subscribe`."""

    def __init__(self, bootstrap: str = DEFAULT_BOOTSTRAP, config: ConsumerConfig | None = None) -> None:
        self.core = ConsumerCore(config or ConsumerConfig())
        super().__init__(self.core, bootstrap)
        self._events: deque[ConsumerEvent] = deque()
        self._waiting_records = 0
        self._paused: tuple[TopicPartition, ...] = ()
        self._lost: set[TopicPartition] = set()
        self._arrived = asyncio.Event()

    def assign(self, positions: Iterable[tuple[TopicPartition, Start]]) -> None:
        self._lost.clear()
        self.runtime.run(lambda now_ms: self.core.assign(now_ms, tuple(positions)))

    def subscribe(self, topics: Sequence[str], start: OffsetReset = OffsetReset.LATEST) -> None:
        self.runtime.run(lambda now_ms: self.core.subscribe(now_ms, topics, start))

    async def next_event(self) -> ConsumerEvent:
        """Waits for the next event: records, the end of a partition, a reset, a truncation or a lost position.

        Raises ClusterError once the core has stopped and all events were returned.
        """
        while not self._events:
            if self.runtime.stopped.done():
                raise ClusterError(ErrorCode.UNKNOWN_SERVER_ERROR, self.runtime.stopped.result().reason)
            self._arrived.clear()
            await self._arrived.wait()
        event = self._events.popleft()
        if isinstance(event, Fetched):
            self._waiting_records -= len(event.records)
            assert self._waiting_records >= 0, (self._waiting_records, len(event.records))
            assert self._events or self._waiting_records == 0, self._waiting_records
            self._maybe_resume()
        return event

    async def records(self) -> AsyncIterator[tuple[TopicPartition, Record]]:
        """Yields records with their partition, without end. Raises ClusterError at a lost position or missing topic."""
        while True:
            match await self.next_event():
                case Fetched() as fetched:
                    for record in fetched.records:
                        yield fetched.topic_partition, record
                case PositionLost() as lost:
                    raise ClusterError(lost.error, f"{lost.topic_partition} at offset {lost.offset}")
                case TopicMissing() as missing:
                    raise ClusterError(missing.error, f"topic {missing.topic}")
                case _:
                    pass

    def _on_notice(self, effect: object) -> None:
        if not isinstance(effect, ConsumerEvent):
            raise TypeError(f"no shell carries out {effect!r}")
        assert self._events or self._waiting_records == 0, self._waiting_records
        self._events.append(effect)
        self._arrived.set()
        if isinstance(effect, PositionLost):
            self._lost.add(effect.topic_partition)
        if isinstance(effect, Fetched):
            self._waiting_records += len(effect.records)
            self._maybe_pause()
        assert not self._paused or self._waiting_records >= _RESUME_AT_RECORDS, self._waiting_records

    def _maybe_pause(self) -> None:
        if self._waiting_records > _PAUSE_AT_RECORDS and not self._paused:
            self._paused = tuple(self.core.positions())
            for topic_partition in self._paused:
                self.core.pause(topic_partition)

    def _maybe_resume(self) -> None:
        """Resumes the paused partitions, except lost positions: only the user decides where to read on there."""
        if self._waiting_records < _RESUME_AT_RECORDS:
            paused, self._paused = self._paused, ()
            for topic_partition in paused:
                if topic_partition not in self._lost:
                    self._resume(topic_partition)
        assert not self._paused or self._waiting_records >= _RESUME_AT_RECORDS, self._waiting_records

    def _resume(self, topic_partition: TopicPartition) -> None:
        self.runtime.run(lambda now_ms: self.core.resume(now_ms, topic_partition))


@final
class Admin(Shell):
    """Creates, changes, deletes and describes topics. A refusal is raised as ClusterError with Kafka's code."""

    def __init__(self, bootstrap: str = DEFAULT_BOOTSTRAP, config: AdminConfig | None = None) -> None:
        self.core = AdminCore(config or AdminConfig())
        super().__init__(self.core, bootstrap)
        self._tickets = 0
        self._asked: dict[int, asyncio.Future[Answered | Described]] = {}

    async def create_topic(self, request: CreateTopicRequest) -> str:
        """Creates a topic and returns its id."""
        body = await self._ask(request, request.name)
        assert isinstance(body, CreateTopicResponse)
        return body.topic_id

    async def delete_topic(self, name: str) -> None:
        await self._ask(DeleteTopicRequest(name=name), name)

    async def alter_topic_configs(self, name: str, configs: tuple[tuple[str, str], ...]) -> None:
        await self._ask(AlterTopicConfigsRequest(name=name, configs=configs), name)

    async def metadata(self, topics: tuple[str, ...] | None = None) -> MetadataResponse:
        """Returns brokers and topics (None: all); errors of single topics are in the result, not raised."""
        body = await self._ask(MetadataRequest(topics=topics), "metadata")
        assert isinstance(body, MetadataResponse)
        return body

    async def describe(self, topics: tuple[str, ...] | None = None) -> Described:
        """Returns the metadata of the topics (None: all) and the replicas of each broker that answers."""
        ticket, future = self._ticket()
        self.runtime.run(lambda now_ms: self.core.describe(now_ms, topics, ticket=ticket))
        described = await self.until(future)
        assert isinstance(described, Described)
        if described.error is not ErrorCode.NONE:
            raise ClusterError(described.error, described.message)
        return described

    async def until_led(self, topic: str, *, timeout_s: float = 10.0) -> bool:
        """Waits until every partition has a leader and every replica's broker has it; returns False when time is up."""
        deadline = asyncio.get_running_loop().time() + timeout_s
        while not is_led(await self.describe((topic,)), topic):
            if asyncio.get_running_loop().time() >= deadline:
                return False
            await asyncio.sleep(_SETTLE_S)
        return True

    async def _ask(self, body: AdminRequest, subject: str) -> ResponseBody:
        ticket, future = self._ticket()
        self.runtime.run(lambda now_ms: self.core.ask(now_ms, body, ticket=ticket))
        answered = await self.until(future)
        assert isinstance(answered, Answered)
        if answered.error is not ErrorCode.NONE or answered.body is None:
            raise ClusterError(answered.error, answered.message or subject)
        return answered.body

    def _ticket(self) -> tuple[int, asyncio.Future[Answered | Described]]:
        self._tickets += 1
        future = self._asked[self._tickets] = asyncio.get_running_loop().create_future()
        return self._tickets, future

    def _on_notice(self, effect: object) -> None:
        if not isinstance(effect, Answered | Described):
            raise TypeError(f"no shell carries out {effect!r}")
        future = self._asked.pop(effect.ticket)
        if not future.done():
            future.set_result(effect)
