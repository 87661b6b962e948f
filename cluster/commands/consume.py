"""Prints the records of `replog consume` as they come, until there are enough, time is up or the end is reached."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import IO, final

from cluster.core.client.effects import EndOfPartition, Fetched, PositionLost, TopicMissing
from cluster.core.errors import ClusterError
from cluster.core.messages import TopicPartition
from cluster.shell.clients import AsyncConsumer, ConsumerEvent
from storage.batch.record import Record


@final
class Printer:
    """Prints records as they come; ends after `max_messages`, or after a silence of `timeout_ms`."""

    def __init__(
        self, output: IO[bytes], max_messages: int | None, timeout_ms: int | None, as_json: bool
    ) -> None:
        self._output = output
        self._max_messages = max_messages
        self._timeout_s = None if timeout_ms is None else timeout_ms / 1000
        self._as_json = as_json
        self.count = 0

    async def run(self, consumer: AsyncConsumer, *, ends: set[int] | None) -> int:
        """Prints until there are enough records or a silence; returns how many were printed.

        Ends, too, once all partitions of `ends` (their numbers) have been read to their end; None: continue there.
        Raises ClusterError when a position or the topic is lost.
        """
        loop = asyncio.get_running_loop()
        last_s = loop.time()
        while not self._has_enough and ends != set():
            try:
                async with asyncio.timeout_at(None if self._timeout_s is None else last_s + self._timeout_s):
                    event = await consumer.next_event()
            except TimeoutError:
                break
            if isinstance(event, Fetched):
                self._print(event)
                last_s = loop.time()
            elif isinstance(event, EndOfPartition) and ends is not None:
                ends.discard(event.topic_partition.partition)
            else:
                _check(event)
        return self.count

    @property
    def _has_enough(self) -> bool:
        return self._max_messages is not None and self.count >= self._max_messages

    def _print(self, fetched: Fetched) -> None:
        room = None if self._max_messages is None else self._max_messages - self.count
        assert room is None or room > 0, (self.count, self._max_messages)
        chosen = fetched.records[:room]
        self._output.writelines(self._line(fetched.topic_partition, record) for record in chosen)
        self._output.flush()
        self.count += len(chosen)
        assert self._max_messages is None or self.count <= self._max_messages, (
            self.count,
            self._max_messages,
        )

    def _line(self, topic_partition: TopicPartition, record: Record) -> bytes:
        if not self._as_json:
            return (b"null" if record.value is None else bytes(record.value)) + b"\n"
        shown = {
            "partition": topic_partition.partition,
            "offset": record.offset,
            "timestamp": record.timestamp,
            "key": _text(record.key),
            "value": _text(record.value),
        }
        return json.dumps(shown, ensure_ascii=False).encode() + b"\n"


def _check(event: ConsumerEvent) -> None:
    match event:
        case PositionLost():
            raise ClusterError(event.error, f"{event.topic_partition} at offset {event.offset}")
        case TopicMissing():
            raise ClusterError(event.error, f"topic {event.topic}")
        case _:
            pass


def _text(data: bytes | None) -> str | dict[str, str] | None:
    """Returns UTF-8 bytes as text, other bytes as `{"base64": …}`, so that no byte is lost."""
    if data is None:
        return None
    try:
        return bytes(data).decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}
