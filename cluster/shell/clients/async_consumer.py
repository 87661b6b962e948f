"""The consumer for asyncio programs."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterable
from typing import final

from cluster.core.client.config import ConsumerConfig, OffsetReset
from cluster.core.client.consumer import ConsumerCore, Start
from cluster.core.client.effects import (
    EndOfPartition,
    Fetched,
    PartitionDeleted,
    PositionLost,
    PositionReset,
    TopicMissing,
    Truncated,
)
from cluster.core.errors import ClusterError
from cluster.core.messages import TopicPartition
from cluster.shell.clients.arguments import (
    Positions,
    config_of,
    integer,
    partition_of,
    positions,
    reset,
    seconds,
    start_of,
    topic_names,
)
from cluster.shell.clients.backlog import Backlog
from cluster.shell.clients.base import DEFAULT_BOOTSTRAP, AsyncClient
from storage.batch.record import Record

ConsumerEvent = (
    Fetched | PositionReset | Truncated | PositionLost | EndOfPartition | TopicMissing | PartitionDeleted
)
ConsumerRecord = tuple[TopicPartition, Record]

# The most records of one `poll`. Kafka: max.poll.records.
MAX_POLL_RECORDS = 500


@final
class AsyncConsumer(AsyncClient):
    """Reads records below the high watermark, in order within a partition, after `assign` or `subscribe`."""

    def __init__(
        self, bootstrap_servers: str = DEFAULT_BOOTSTRAP, config: ConsumerConfig | None = None
    ) -> None:
        self.core = ConsumerCore(config_of(config, ConsumerConfig))
        super().__init__(self.core, bootstrap_servers)
        self._events: deque[ConsumerEvent] = deque()
        # The records of the event that `poll` and `records` are returning.
        self._unread: deque[ConsumerRecord] = deque()
        # What is in `_events`.
        self._backlog = Backlog()
        # The partitions whose fetching waits until more records were read. Some may be deleted by now.
        self._full: tuple[TopicPartition, ...] = ()
        # The partitions that only the user starts again: those that it paused, until it resumes them, and those whose
        # position is lost, until it moves them. A deleted one is in neither: a later one of its number is another.
        self._held: set[TopicPartition] = set()
        self._lost: set[TopicPartition] = set()
        self._arrived = asyncio.Event()
        self._has_wanted = False

    def assign(self, wanted: Positions, *, new_partitions: bool = False) -> None:
        """Reads these partitions from now on and no others, each from an offset, an end of its log, a time or a
        distance from the end.

        With `new_partitions` also those that their topics get later, each from its start. What was fetched before and
        not yet returned is dropped. Raises TypeError or ValueError for a wrong shape.
        """
        checked = positions(wanted)
        self._forget()
        self._has_wanted = bool(checked)
        self._run(lambda now_ms: self.core.assign(now_ms, checked, new_partitions=new_partitions))

    def subscribe(self, topics: Iterable[str], start: OffsetReset = OffsetReset.LATEST) -> None:
        """Reads all partitions of the topics from now on, also those created later, and no others.

        What was fetched before and not yet returned is dropped. Raises TypeError or ValueError for a wrong argument.
        """
        names, checked = topic_names(topics), reset(start)
        self._forget()
        self._has_wanted = bool(names)
        self._run(lambda now_ms: self.core.subscribe(now_ms, names, checked))

    def seek(self, topic_partition: TopicPartition, start: Start) -> None:
        """Reads the partition from `start` on; a paused one stays paused. Raises ValueError if it is not read."""
        place, checked = self._known(topic_partition), start_of(start)
        self._drop(place)
        self._lost.discard(place)
        self._run(lambda now_ms: self.core.seek(now_ms, place, checked))
        if place in self._held:
            self.core.pause(place)

    def pause(self, topic_partition: TopicPartition) -> None:
        """Stops fetching the partition until `resume`; what was fetched is still returned. Raises ValueError if it is
        not read.
        """
        place = self._known(topic_partition)
        self._held.add(place)
        self.core.pause(place)

    def resume(self, topic_partition: TopicPartition) -> None:
        """Fetches the partition again. Raises ValueError if it is not read."""
        place = self._known(topic_partition)
        self._held.discard(place)
        self._lost.discard(place)
        self._resume(place)

    def positions(self) -> dict[TopicPartition, int | None]:
        """Returns the offset of the next record to be returned, by partition; None while it is being looked up.

        A deleted partition has none, also while records of it are still returned.
        """
        found = self.core.positions()
        for event in reversed(self._events):
            if isinstance(event, Fetched) and event.records and event.topic_partition in found:
                found[event.topic_partition] = event.records[0].offset
        for place, record in reversed(self._unread):
            if place in found:
                found[place] = record.offset
        return found

    async def next_event(self) -> ConsumerEvent:
        """Waits for the next event, such as records, the end of a partition, a truncation or a lost position.

        Raises ClusterError once the core has stopped and all events were returned.
        """
        runtime = self.runtime
        while not self._events:
            self._check_alive(runtime)
            self._arrived.clear()
            await self._arrived.wait()
        event = self._events.popleft()
        if isinstance(event, Fetched):
            self._backlog.take(event)
            assert self._events or self._backlog.records == 0, self._backlog.records
            self._maybe_resume()
        return event

    async def poll(
        self, timeout_s: float = 1.0, *, max_records: int = MAX_POLL_RECORDS
    ) -> list[ConsumerRecord]:
        """Returns the next records with their partitions, at least one if any comes in time; an empty list if none.

        Raises ClusterError at a lost position or a missing topic whose partitions are followed, RuntimeError if there
        is nothing to read.
        """
        limit = integer("max_records", max_records, at_least=1)
        duration_s = seconds("timeout_s", timeout_s)
        self._check_wanted()
        if not self._unread:
            try:
                async with asyncio.timeout(duration_s):
                    await self._fill()
            except TimeoutError:
                return []
        return [self._unread.popleft() for _ in range(min(limit, len(self._unread)))]

    async def records(self) -> AsyncIterator[ConsumerRecord]:
        """Yields records with their partition, without end. Raises what `poll` raises."""
        while True:
            self._check_wanted()
            if not self._unread:
                await self._fill()
            yield self._unread.popleft()

    async def _fill(self) -> None:
        """Waits for records, and makes them the unread ones."""
        while not self._unread:
            match await self.next_event():
                case Fetched() as fetched:
                    self._unread.extend((fetched.topic_partition, record) for record in fetched.records)
                case PositionLost() as lost:
                    raise ClusterError(lost.error, f"{lost.topic_partition} at offset {lost.offset}")
                case TopicMissing() as missing:
                    raise ClusterError(missing.error, f"topic {missing.topic}")
                case _:
                    pass

    def _check_wanted(self) -> None:
        """Raises RuntimeError where a caller would wait for records that cannot come. Kafka: IllegalStateException."""
        if not self._has_wanted:
            raise RuntimeError("the consumer reads no topic and no partition: call subscribe or assign first")

    def _known(self, topic_partition: object) -> TopicPartition:
        place = partition_of(topic_partition)
        if place not in self.core.positions():
            raise ValueError(f"{place} is not among the partitions that are read")
        return place

    def _forget(self) -> None:
        self._events.clear()
        self._unread.clear()
        self._held.clear()
        self._lost.clear()
        self._backlog, self._full = Backlog(), ()

    def _drop(self, place: TopicPartition) -> None:
        """Drops what was fetched of one partition."""
        assert self._events or self._backlog.records == 0, self._backlog.records
        self._unread = deque(item for item in self._unread if item[0] != place)
        for event in self._events:
            if isinstance(event, Fetched) and event.topic_partition == place:
                self._backlog.take(event)
        self._events = deque(
            event
            for event in self._events
            if isinstance(event, TopicMissing) or event.topic_partition != place
        )
        self._maybe_resume()

    def _on_notice(self, effect: object) -> None:
        if not isinstance(effect, ConsumerEvent):
            raise TypeError(f"no shell carries out {effect!r}")
        assert self._events or self._backlog.records == 0, self._backlog.records
        self._events.append(effect)
        self._arrived.set()
        if isinstance(effect, PositionLost):
            self._lost.add(effect.topic_partition)
        if isinstance(effect, PartitionDeleted):
            self._held.discard(effect.topic_partition)
            self._lost.discard(effect.topic_partition)
        if isinstance(effect, Fetched):
            self._backlog.add(effect)
            self._maybe_pause()
        # With less, nothing would resume them: only a drop below the mark does.
        assert not self._full or not self._backlog.is_low, self._full

    def _maybe_pause(self) -> None:
        if self._backlog.is_high:
            # Each time all of them: `seek`, `resume` and a new partition of a topic start fetches in between.
            self._full = tuple(self.core.positions())
            for topic_partition in self._full:
                self.core.pause(topic_partition)

    def _maybe_resume(self) -> None:
        """Resumes the paused partitions, except those that wait for the user."""
        if self._backlog.is_low:
            full, self._full = self._full, ()
            # Without those that were deleted since they were paused.
            known = self.core.positions() if full else {}
            waiting = self._held | self._lost
            wanted = [each for each in full if each in known and each not in waiting]
            if wanted:
                self._resume(*wanted)
        assert not self._full or not self._backlog.is_low, self._full

    def _resume(self, *topic_partitions: TopicPartition) -> None:
        self.runtime.run(lambda now_ms: self.core.resume(now_ms, *topic_partitions))

    def _fail_open(self, error: ClusterError) -> None:
        """Wakes who waits for an event: `next_event` raises the reason."""
        self._arrived.set()


def put_back(consumer: AsyncConsumer, event: ConsumerEvent) -> None:
    """Makes an event, which `next_event` has returned last and nobody has got, the next one again."""
    consumer._events.appendleft(event)
    consumer._arrived.set()
    if isinstance(event, Fetched):
        consumer._backlog.add(event)
        consumer._maybe_pause()
