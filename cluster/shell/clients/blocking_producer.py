"""The producer for programs without asyncio."""

from __future__ import annotations

import logging
import threading
from collections import deque
from concurrent.futures import Future
from functools import partial
from types import TracebackType
from typing import NamedTuple, Self, final

from cluster.core.client.config import ProducerConfig
from cluster.core.errors import ClusterError, ErrorCode
from cluster.core.messages import TopicPartition
from cluster.shell.clients.async_producer import AsyncProducer, Headers, OutgoingRecord
from cluster.shell.clients.base import DEFAULT_BOOTSTRAP
from cluster.shell.clients.delivery import DeliveryError, Outcome, RecordMetadata
from cluster.shell.clients.loop_thread import LoopThread
from cluster.shell.clients.waiting_lines import ThreadLine

logger = logging.getLogger(__name__)
# The number of records after which the loop gets a turn.
_TURN_RECORDS = 256


class _Outgoing(NamedTuple):
    """A record that was not passed to the core yet. `total_bytes` counts all that were ever sent, up to this one."""

    record: OutgoingRecord
    future: Future[RecordMetadata]
    total_bytes: int


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
        # Guards what follows. Ctrl-C cannot strike between the moment in which it is taken and the block that frees it
        # again; with a Condition it can.
        self._lock = threading.RLock()
        self._line = ThreadLine(self._lock)
        # The bytes of all records that were ever passed to the core, and of those that have their outcome. The room of
        # a record is taken from its `send` to its outcome, so the core's own buffer is never fuller than that.
        self._passed_bytes = self._ended_bytes = 0
        self._is_closing = False
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
        with self._lock:
            self._wait_for_room(record.size_bytes)
            if not self._outgoing:
                # Before the record is there: a Ctrl-C in between would leave one that nobody passes on. The loop waits
                # for the lock.
                self._loop.soon(self._pass_on_some)
            # All in one call, for the same reason.
            self._outgoing.append(_Outgoing(record, future, self._total_bytes + record.size_bytes))
        return future

    @property
    def _total_bytes(self) -> int:
        """The bytes of all records that were ever sent."""
        return self._outgoing[-1].total_bytes if self._outgoing else self._passed_bytes

    @property
    def _taken_bytes(self) -> int:
        """The bytes of the records that have no outcome yet."""
        taken_bytes = self._total_bytes - self._ended_bytes
        assert taken_bytes >= 0, (self._total_bytes, self._ended_bytes)
        return taken_bytes

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
        """Waits in the line, with the lock held, until the record fits.

        One that is larger than the whole buffer is left to the core.
        """
        limit = self._producer.config.buffer_memory
        self._check_open()
        if size_bytes > limit:
            return
        # A callback must not wait, so it need not wait for those in the line, either.
        may_pass = self._line.is_empty or self._loop.is_own_thread
        if may_pass and self._taken_bytes + size_bytes <= limit:
            return
        self._loop.check_caller()
        # Kafka's greatest max.block.ms is more than a thread can wait for.
        timeout_s = min(self._producer.config.max_block_ms / 1000, threading.TIMEOUT_MAX)
        if not self._line.wait(partial(self._has_room_or_ends, size_bytes), timeout_s):
            raise ClusterError(ErrorCode.REQUEST_TIMED_OUT, "the buffer stayed full for max.block.ms")
        self._check_open()

    def _has_room_or_ends(self, size_bytes: int) -> bool:
        """Whether a sender need not wait any more; lets the core send without lingering where it has to."""
        if self._is_closing or self._taken_bytes + size_bytes <= self._producer.config.buffer_memory:
            return True
        # Each time: a callback may have sent again what lingers, and taken the room.
        self._loop.soon(lambda: self._producer.press(size_bytes))
        return False

    def _check_open(self) -> None:
        self._loop.check_open()
        if self._is_closing:
            raise RuntimeError("the Producer is closed")

    def _pass_on_some(self) -> None:
        """Passes records that wait to the core, in order, and the rest in the next turns of the loop.

        A turn for all of them would keep the loop from the answers of the nodes.
        """
        self._pass_on(_TURN_RECORDS)
        if self._outgoing:
            self._loop.soon(self._pass_on_some)

    def _pass_on(self, limit: int | None = None) -> None:
        """Passes the first `limit` records that wait (None: all) to the core; it runs on the loop's thread."""
        for record, future, _ in self._taken(limit):
            self._producer.send_now(record, partial(self._on_outcome, record, future))

    def _taken(self, limit: int | None) -> list[_Outgoing]:
        """Removes and returns the first `limit` records that wait (None: all)."""
        with self._lock:
            count = len(self._outgoing) if limit is None else min(limit, len(self._outgoing))
            outgoing = [self._outgoing.popleft() for _ in range(count)]
            if outgoing:
                self._passed_bytes = outgoing[-1].total_bytes
            return outgoing

    def _on_outcome(self, record: OutgoingRecord, future: Future[RecordMetadata], outcome: Outcome) -> None:
        with self._lock:
            self._ended_bytes += record.size_bytes
            assert self._taken_bytes >= 0, record.size_bytes
            self._line.wake_first()
        try:
            if isinstance(outcome, RecordMetadata):
                future.set_result(outcome)
            else:
                future.set_exception(outcome)
        except BaseException:
            # The future logs an Exception of a callback itself. sys.exit() in one would end the client's thread, and
            # no other future would ever end.
            logger.exception("a callback of a future raised")

    async def _flush(self) -> None:
        self._pass_on()
        await self._producer.flush()

    def _close(self, *, is_orderly: bool) -> None:
        if self._loop.is_closed:
            return
        if self._loop.is_own_thread:
            self._loop.check_caller()
        with self._lock:
            # From here on nothing is sent: threads that go on sending would keep the last flush from its end.
            self._is_closing = True
            # Whoever leaves the line wakes the next one.
            self._line.wake_first()
        try:
            self._loop.end(partial(self._end, is_orderly=is_orderly))
        finally:
            self._fail_left()
            assert not self._taken_bytes, self._taken_bytes

    def _fail_left(self) -> None:
        """Ends what an interrupted end left open. The loop's thread is over, so nothing else does."""
        closed = ClusterError(ErrorCode.UNKNOWN_SERVER_ERROR, "the client was closed")
        self._producer.fail_records(closed)
        for record, future, _ in self._taken(None):
            place = TopicPartition(record.topic, -1)
            self._on_outcome(
                record, future, DeliveryError(closed.code, closed.detail, place, is_unknown=False)
            )

    async def _end(self, *, is_orderly: bool) -> None:
        self._pass_on()
        await (self._producer.close() if is_orderly else self._producer.abort())
