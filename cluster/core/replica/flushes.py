"""Flushes of partition logs as jobs, and the promises that wait for them.

Kafka flushes inside the append; here the append returns and the promise waits: the leader counts itself, and a
follower names its fetch offset, only up to what is flushed where flush.messages=1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import final

from cluster.core.replica.context import ReplicaContext
from cluster.core.replica.leader import promises_flush
from cluster.core.replica.replica import Replica
from storage.config import LONG_MAX
from storage.errors import StorageError

FLUSH_TIMER = "logs.flush"

OnFailure = Callable[[str], None]


@final
class Flushes:
    """One flush in flight a partition; what is appended meanwhile shares the next one."""

    def __init__(self, context: ReplicaContext, on_failure: OnFailure) -> None:
        self._context = context
        self._on_failure = on_failure

    def start(self, now_ms: int) -> None:
        """Looks at flush.ms as often as log.flush.scheduler.interval.ms says: by default never, as in Kafka."""
        interval_ms = self._context.config.log_flush_scheduler_interval_ms
        if interval_ms < LONG_MAX:
            self._context.outbox.set_timer(FLUSH_TIMER, now_ms + interval_ms, self._on_timer)

    def _on_timer(self, now_ms: int) -> None:
        """Kafka: LogManager.flushDirtyLogs."""
        replicas = self._context.replicas
        for topic_partition in sorted(replicas):
            # A flush that fails takes the other replicas of its directory along.
            replica = replicas.get(topic_partition)
            if replica is None or replica.is_flushing or replica.log.local.unflushed_messages == 0:
                continue
            log = replica.log
            if now_ms - replica.flushed_ms >= log.local.config.flush_ms:
                self._flush(replica, log.local.log_end_offset)
        self.start(now_ms)

    def maybe_flush(self, replica: Replica) -> bool:
        """After an append: flush.messages is reached, or a segment was closed and its bytes are due."""
        up_to = replica.log.flushes.wanted
        if replica.is_flushing or up_to is None:
            return False
        self._flush(replica, up_to)
        return True

    def on_new_role(self, replica: Replica) -> None:
        """After a start, the end of the log may be in the page cache only."""
        if self.is_behind(replica) and not replica.is_flushing:
            self._flush(replica, replica.log.local.log_end_offset)

    def is_behind(self, replica: Replica) -> bool:
        """A promise has to wait for a flush."""
        log = replica.log
        return promises_flush(log) and log.local.recovery_point < log.local.log_end_offset

    def _flush(self, replica: Replica, up_to: int) -> None:
        try:
            prepared = replica.log.flushes.prepare(up_to)
        except StorageError as error:
            self._context.logs.on_disk_failed(replica.log, error)
            return
        replica.is_flushing = True

        def then(now_ms: int, error: Exception | None) -> None:
            self._on_flushed(now_ms, replica, prepared.offset, error)

        self._context.outbox.run_job("flush", prepared, then)

    def _on_flushed(self, now_ms: int, replica: Replica, up_to: int, error: Exception | None) -> None:
        replica.is_flushing = False
        if self._context.replicas.get(replica.topic_partition) is not replica:
            # The replica was deleted meanwhile.
            return
        if error is not None:
            self._fail(replica, error)
            return
        replica.flushed_ms = now_ms
        # A truncation that came between leaves less to be noted.
        replica.log.flushes.done(up_to)
        if self.is_behind(replica):
            self._flush(replica, replica.log.local.log_end_offset)
        else:
            self.maybe_flush(replica)
        self._context.advance_high_watermark(replica, now_ms)
        self._context.touch(replica.topic_partition)

    def _fail(self, replica: Replica, error: Exception) -> None:
        """PRO-9: what the disk holds is not known any more."""
        told = StorageError(f"flush of {replica.topic_partition}: {error}")
        told.__cause__ = error
        try:
            self._context.logs.on_disk_failed(replica.log, told)
        except StorageError:
            self._on_failure(str(told))
