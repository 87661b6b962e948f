"""The producer for programs without asyncio."""

from __future__ import annotations

import threading
from collections import deque
from concurrent.futures import Future
from functools import partial
from types import TracebackType
from typing import Self, final

from cluster.core.client.config import ProducerConfig
from cluster.core.errors import ClusterError, ErrorCode
from cluster.shell.clients.async_producer import AsyncProducer, Headers, OutgoingRecord
from cluster.shell.clients.base import DEFAULT_BOOTSTRAP
from cluster.shell.clients.delivery import Outcome, RecordMetadata
from cluster.shell.clients.loop_thread import LoopThread

_Outgoing = tuple[OutgoingRecord, "Future[RecordMetadata]"]


@final
class Producer:
    """Sends records to the leaders of their partitions, from any thread.

    Leaving `with` first delivers all that were sent; where its body raised, the records without an outcome fail.
    Callbacks of the futures run on the client's own thread and must not wait for the client.
    """

    def __init__(
        self, bootstrap_servers: str = DEFAULT_BOOTSTRAP, config: ProducerConfig | None = None
    ) -> None:
        self._producer = AsyncProducer(bootstrap_servers, config)
        self._loop = LoopThread("Producer")
        # Guards what follows. The room of a record is taken from its `send` to its outcome, so the core's own buffer
        # is never fuller than this count.
        self._room = threading.Condition()
        self._taken_bytes = 0
        self._outgoing: deque[_Outgoing] = deque()
        self._loop.call(self._producer.start())

    def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        partition: int | None = None,
        headers: Headers = (),
        timestamp_ms: int | None = None,
    ) -> Future[RecordMetadata]:
        """Sends one record once the buffer has room; returns a future of its place in the log.

        A value of None is a tombstone. Without `partition` the key decides, or without a key the producer.
        `timestamp_ms` is in milliseconds since the Unix epoch, now if None. The future raises DeliveryError when the
        record was refused, or when its outcome is unknown. Raises TypeError or ValueError for a wrong argument,
        RuntimeError once the producer is closed, and ClusterError(REQUEST_TIMED_OUT) when there is no room within
        max_block_ms; nothing is sent then.
        """
        record = OutgoingRecord(topic, value, key, partition, headers, timestamp_ms)
        future: Future[RecordMetadata] = Future()
        # It cannot be cancelled: the record may be on its way.
        future.set_running_or_notify_cancel()
        with self._room:
            self._wait_for_room(record.size_bytes)
            is_first = not self._outgoing
            self._outgoing.append((record, future))
            self._taken_bytes += record.size_bytes
            if is_first:
                self._loop.soon(self._pass_on)
        return future

    def flush(self) -> None:
        """Sends without lingering; returns once every record sent before has its outcome."""
        self._loop.call(self._flush())

    def close(self) -> None:
        """Delivers all that were sent, then ends the client. Does nothing at the second call."""
        self._close(is_orderly=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close(is_orderly=kind is None)

    def _wait_for_room(self, size_bytes: int) -> None:
        """Waits, with the lock held, until the record fits; one larger than the whole buffer is left to the core."""
        limit = self._producer.config.buffer_memory
        if self._loop.is_closed:
            raise RuntimeError("the Producer is closed")
        if self._taken_bytes + size_bytes <= limit or size_bytes > limit:
            return
        self._loop.check_caller()
        timeout_s = self._producer.config.max_block_ms / 1000
        if not self._room.wait_for(lambda: self._taken_bytes + size_bytes <= limit, timeout_s):
            raise ClusterError(ErrorCode.REQUEST_TIMED_OUT, "the buffer stayed full for max.block.ms")
        if self._loop.is_closed:
            raise RuntimeError("the Producer is closed")

    def _pass_on(self) -> None:
        """Passes all records that wait to the core, in order; it runs on the loop's thread."""
        with self._room:
            outgoing, self._outgoing = self._outgoing, deque()
        for record, future in outgoing:
            self._producer.send_now(record, partial(self._on_outcome, record, future))

    def _on_outcome(self, record: OutgoingRecord, future: Future[RecordMetadata], outcome: Outcome) -> None:
        with self._room:
            self._taken_bytes -= record.size_bytes
            assert self._taken_bytes >= 0, (self._taken_bytes, record.size_bytes)
            self._room.notify_all()
        if isinstance(outcome, RecordMetadata):
            future.set_result(outcome)
        else:
            future.set_exception(outcome)

    async def _flush(self) -> None:
        self._pass_on()
        await self._producer.flush()

    def _close(self, *, is_orderly: bool) -> None:
        if self._loop.is_closed:
            return
        try:
            self._loop.call(self._end(is_orderly=is_orderly))
        finally:
            self._loop.close()

    async def _end(self, *, is_orderly: bool) -> None:
        self._pass_on()
        if is_orderly:
            await self._producer.close()
        else:
            await self._producer.abort()
        self._pass_on()
