"""Prints the records of `replog consume` as they come, until there are enough, time is up or the end is reached."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Iterator
from typing import final

from cluster.commands.output import Output
from cluster.commands.record_formats import Format
from cluster.core.client.effects import EndOfPartition, Fetched, PartitionDeleted, PositionLost, TopicMissing
from cluster.core.errors import ClusterError
from cluster.shell.clients import AsyncConsumer, ConsumerEvent


@final
class Printer:
    """Prints records as they come; ends after `max_messages`, or after a silence of `timeout_ms`."""

    def __init__(
        self,
        output: Output,
        max_messages: int | None,
        timeout_ms: int | None,
        format_record: Format,
        *,
        require_topic: Callable[[], Awaitable[object]],
    ) -> None:
        """`require_topic` raises ClusterError if the topic is missing: the broker that was asked may only lag."""
        self._output = output
        self._max_messages = max_messages
        self._timeout_s = None if timeout_ms is None else timeout_ms / 1000
        self._format = format_record
        self._require_topic = require_topic
        # The wait for the next event, which ends early when the reader of the output leaves.
        self._wait: asyncio.Timeout | None = None

    async def run(self, consumer: AsyncConsumer, *, ends: set[int] | None) -> None:
        """Prints until there are enough records, a silence, or no reader of the output any more.

        Ends, too, once all partitions of `ends` (their numbers) have been read to their end, except those that are
        deleted meanwhile; None: continue there.
        Raises ClusterError when a position or the topic is lost.
        """
        # `_on_closed` ends one wait only.
        assert self._wait is None, self._wait
        loop = asyncio.get_running_loop()
        last_s = loop.time()
        self._output.watch(self._on_closed)
        while not self._has_enough and ends != set():
            try:
                until_s = None if self._timeout_s is None else last_s + self._timeout_s
                async with asyncio.timeout_at(until_s) as self._wait:
                    event = await consumer.next_event()
            except TimeoutError:
                break
            finally:
                self._wait = None
            if isinstance(event, Fetched):
                await self._print(event)
                last_s = loop.time()
            elif isinstance(event, EndOfPartition | PartitionDeleted) and ends is not None:
                ends.discard(event.topic_partition.partition)
            elif isinstance(event, TopicMissing):
                await self._require_topic()
            else:
                _check(event)

    def _on_closed(self) -> None:
        if self._wait is not None and not self._wait.expired():
            self._wait.reschedule(asyncio.get_running_loop().time())

    @property
    def _has_enough(self) -> bool:
        is_done = self._max_messages is not None and self._output.count >= self._max_messages
        return is_done or self._output.is_closed

    async def _print(self, fetched: Fetched) -> None:
        before = self._output.count
        room = None if self._max_messages is None else self._max_messages - before
        await self._output.write(itertools.islice(self._lines(fetched), room))
        count = self._output.count - before
        assert room is None or count <= room, (count, room)
        assert count <= len(fetched.records), (count, len(fetched.records))

    def _lines(self, fetched: Fetched) -> Iterator[bytes]:
        records = iter(fetched.records)
        for batch in fetched.batches:
            for record in itertools.islice(records, batch.record_count):
                yield self._format(fetched.topic_partition, record, batch)


def _check(event: ConsumerEvent) -> None:
    match event:
        case PositionLost():
            raise ClusterError(event.error, f"{event.topic_partition} at offset {event.offset}")
        case _:
            pass
