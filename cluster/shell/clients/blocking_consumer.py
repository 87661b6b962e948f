"""The consumer for programs without asyncio."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from types import TracebackType
from typing import Self, TypeVar, final

from cluster.core.client.config import ConsumerConfig, OffsetReset
from cluster.core.client.consumer import Start
from cluster.core.messages import TopicPartition
from cluster.shell.clients.arguments import Positions, integer, seconds
from cluster.shell.clients.async_consumer import (
    MAX_POLL_RECORDS,
    AsyncConsumer,
    ConsumerEvent,
    ConsumerRecord,
    put_back,
)
from cluster.shell.clients.base import DEFAULT_BOOTSTRAP
from cluster.shell.clients.loop_thread import LoopThread

# The longest single wait of an iteration.
_WAIT_S = 60.0
T = TypeVar("T")


@final
class Consumer:
    """Reads records below the high watermark, in order within a partition, after `assign` or `subscribe`.

    It is for one thread at a time. Iterating it yields records without end.
    """

    def __init__(
        self, bootstrap_servers: str = DEFAULT_BOOTSTRAP, config: ConsumerConfig | None = None
    ) -> None:
        self._consumer = AsyncConsumer(bootstrap_servers, config)
        self._loop = LoopThread("Consumer")
        # Records taken from the asyncio client and not yet returned: an iteration that ended early, or a poll whose
        # caller was interrupted, leaves some.
        self._taken: deque[ConsumerRecord] = deque()
        # Events taken from the asyncio client for `next_event`. What an interrupted caller leaves goes back.
        self._next: deque[ConsumerEvent] = deque()
        self._loop.call(self._consumer.start())

    def assign(self, wanted: Positions, *, new_partitions: bool = False) -> None:
        """Reads these partitions from now on and no others, each from an offset, an end of its log, a time or a
        distance from the end.

        With `new_partitions` also those that their topics get later, each from its start. What was fetched before and
        not yet returned is dropped. Raises TypeError or ValueError for a wrong shape.
        """
        self._do(lambda: self._consumer.assign(wanted, new_partitions=new_partitions))
        self._taken.clear()

    def subscribe(self, topics: Iterable[str], start: OffsetReset = OffsetReset.LATEST) -> None:
        """Reads all partitions of the topics from now on, also those created later, and no others.

        What was fetched before and not yet returned is dropped. Raises TypeError or ValueError for a wrong argument.
        """
        self._do(lambda: self._consumer.subscribe(topics, start))
        self._taken.clear()

    def seek(self, topic_partition: TopicPartition, start: Start) -> None:
        """Reads the partition from `start` on; a paused one stays paused. Raises ValueError if it is not read."""
        self._do(lambda: self._consumer.seek(topic_partition, start))
        self._taken = deque(item for item in self._taken if item[0] != topic_partition)

    def pause(self, topic_partition: TopicPartition) -> None:
        """Stops fetching the partition until `resume`; what was fetched is still returned. Raises ValueError if it is
        not read.
        """
        self._do(lambda: self._consumer.pause(topic_partition))

    def resume(self, topic_partition: TopicPartition) -> None:
        """Fetches the partition again. Raises ValueError if it is not read."""
        self._do(lambda: self._consumer.resume(topic_partition))

    def positions(self) -> dict[TopicPartition, int | None]:
        """Returns the offset of the next record to be returned, by partition; None while it is being looked up.

        A deleted partition has none, also while records of it are still returned.
        """
        found = self._do(self._consumer.positions)
        for place, record in reversed(self._taken):
            if place in found:
                found[place] = record.offset
        return found

    def poll(self, timeout_s: float = 1.0, *, max_records: int = MAX_POLL_RECORDS) -> list[ConsumerRecord]:
        """Returns the next records with their partitions, at least one if any comes in time; an empty list if none.

        Raises ClusterError at a lost position or a missing topic, RuntimeError if there is nothing to read.
        """
        duration_s, limit = seconds("timeout_s", timeout_s), integer("max_records", max_records, at_least=1)
        if not self._taken:
            self._loop.call(self._take(duration_s, limit))
        return [self._taken.popleft() for _ in range(min(limit, len(self._taken)))]

    def next_event(self, timeout_s: float | None = None) -> ConsumerEvent | None:
        """Waits for the next event, such as records, the end of a partition, a truncation or a lost position.

        Returns None when none came within `timeout_s` seconds (None: no limit). Records that `poll` has begun to
        return are not among the events.
        """
        duration_s = None if timeout_s is None else seconds("timeout_s", timeout_s)
        self._loop.call(self._take_event(duration_s))
        return self._next.popleft() if self._next else None

    def __iter__(self) -> Iterator[ConsumerRecord]:
        """Yields records with their partition, without end. Raises what `poll` raises."""
        while True:
            if not self._taken:
                self._loop.call(self._take(_WAIT_S, MAX_POLL_RECORDS))
            while self._taken:
                yield self._taken.popleft()

    def close(self) -> None:
        """Ends the client. Does nothing at the second call."""
        self._loop.end(self._consumer.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _do(self, work: Callable[[], T]) -> T:
        """Runs `work` on the loop's thread, where the core is."""

        async def run() -> T:
            self._put_back()
            return work()

        return self._loop.call(run())

    async def _take(self, timeout_s: float, limit: int) -> None:
        self._put_back()
        self._taken.extend(await self._consumer.poll(timeout_s, max_records=limit))

    async def _take_event(self, timeout_s: float | None) -> None:
        self._put_back()
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                self._next.append(await self._consumer.next_event())

    def _put_back(self) -> None:
        """Puts back the events whose callers were interrupted. On the loop's thread, where they are taken."""
        while self._next:
            put_back(self._consumer, self._next.pop())
