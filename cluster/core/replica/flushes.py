"""Flushes of partition logs as jobs, and the promises that wait for them.

Kafka flushes inside the append. Here the append returns at once and the promise waits: with flush.messages=1 the
leader counts only what it has flushed of its own log, and a follower fetches on only when its log is flushed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import final

from cluster.core.replica.context import ReplicaContext
from cluster.core.replica.leader import promises_flush
from cluster.core.replica.replica import Replica
from storage.config import LONG_MAX
from storage.directory.directories import is_late_disk_error
from storage.disk.handle_pool import is_out_of_handles
from storage.errors import OutOfHandles, StorageError
from storage.log.flushes import PreparedFlush

FLUSH_TIMER = "logs.flush"
RETRY_TIMER = "replica.flush:"
# A flush that found no descriptor is tried again after this time.
RETRY_MS = 1000

logger = logging.getLogger(__name__)

OnFailure = Callable[[str], None]


@final
class Flushes:
    """Runs at most one flush for each partition; what is appended meanwhile shares the next one."""

    def __init__(self, context: ReplicaContext, on_failure: OnFailure) -> None:
        self._context = context
        self._on_failure = on_failure

    def start(self, now_ms: int) -> None:
        """Sets the timer that checks flush.ms, every log.flush.scheduler.interval.ms: by default never, as in Kafka."""
        interval_ms = self._context.config.log_flush_scheduler_interval_ms
        if interval_ms < LONG_MAX:
            self._context.outbox.set_timer(FLUSH_TIMER, now_ms + interval_ms, self._on_timer)

    def _on_timer(self, now_ms: int) -> None:
        """Flushes the logs whose flush.ms has passed. Kafka: LogManager.flushDirtyLogs."""
        replicas = self._context.replicas
        for topic_partition in sorted(replicas):
            # A flush that fails removes the other replicas of its directory from the table.
            replica = replicas.get(topic_partition)
            if replica is None or replica.is_flushing or replica.log.local.unflushed_messages == 0:
                continue
            log = replica.log
            if now_ms - replica.flushed_ms >= log.local.config.flush_ms:
                self._flush(replica, log.local.log_end_offset)
        self.start(now_ms)

    def maybe_flush(self, replica: Replica) -> bool:
        """Starts a flush if flush.messages is reached and none runs. Returns whether it did.

        Starts to write a snapshot, too, that a roll has left to a job.
        """
        if replica.log.flushes.snapshot is not None:
            self._write_snapshot(replica)
        up_to = replica.log.flushes.wanted
        if replica.is_flushing or up_to is None:
            return False
        self._flush(replica, up_to)
        return True

    def on_new_role(self, replica: Replica) -> None:
        """Starts a flush if one is promised: after a start, the end of the log may be in the page cache only."""
        if self.is_behind(replica) and not replica.is_flushing:
            self._flush(replica, replica.log.local.log_end_offset)

    def is_behind(self, replica: Replica) -> bool:
        """Returns whether a promise has to wait for a flush."""
        log = replica.log
        return promises_flush(log) and log.local.recovery_point < log.local.log_end_offset

    def _flush(self, replica: Replica, up_to: int) -> None:
        assert not replica.is_flushing, replica.name
        assert up_to <= replica.log.local.log_end_offset, (up_to, replica.log.local.log_end_offset)
        try:
            prepared = replica.log.flushes.prepare(up_to)
        except StorageError as error:
            self._context.logs.on_disk_failed(replica.log, error)
            return
        replica.is_flushing = True

        def then(now_ms: int, error: Exception | None) -> None:
            self._on_flushed(now_ms, replica, prepared, error)

        self._context.outbox.run_job("flush", prepared, then)

    def _on_flushed(
        self, now_ms: int, replica: Replica, prepared: PreparedFlush, error: Exception | None
    ) -> None:
        assert replica.is_flushing, replica.name
        replica.is_flushing = False
        if self._context.replicas.get(replica.topic_partition) is not replica:
            self._on_failed_of_deleted(replica, "flush", error)
            return
        if isinstance(error, OutOfHandles):
            self._try_later(now_ms, replica, prepared, error)
            return
        if error is not None:
            self._fail(replica, "flush", error)
            return
        up_to = prepared.offset
        replica.flushed_ms = now_ms
        # After a truncation in between, less than `up_to` is noted.
        local = replica.log.local
        replica.log.flushes.done(up_to)
        assert local.recovery_point <= local.log_end_offset, (local.recovery_point, local.log_end_offset)
        self._flush_more(replica)
        self._context.advance_high_watermark(replica, now_ms)
        self._context.touch(replica.topic_partition)

    def _flush_more(self, replica: Replica) -> None:
        if self.is_behind(replica):
            self._flush(replica, replica.log.local.log_end_offset)
        else:
            self.maybe_flush(replica)

    def _try_later(self, now_ms: int, replica: Replica, prepared: PreparedFlush, error: OutOfHandles) -> None:
        """Sets the timer of another flush after one that could not open a file: no disk has failed."""
        logger.warning("not flushed: topic_partition=%s reason=%s", replica.name, error)
        replica.log.flushes.failed(prepared)

        def go_on(_: int) -> None:
            is_here = self._context.replicas.get(replica.topic_partition) is replica
            if is_here and not replica.is_flushing:
                self._flush_more(replica)

        self._context.outbox.set_timer(f"{RETRY_TIMER}{replica.name}", now_ms + RETRY_MS, go_on)

    def _write_snapshot(self, replica: Replica) -> None:
        snapshot = replica.log.flushes.begin_snapshot()
        if snapshot is None:
            return

        def then(_: int, error: Exception | None) -> None:
            # A replica that was deleted meanwhile needs no snapshot.
            if self._context.replicas.get(replica.topic_partition) is replica:
                self._on_snapshot_written(replica, error)
            else:
                self._on_failed_of_deleted(replica, "snapshot", error)

        self._context.outbox.run_job("snapshot", snapshot, then)

    def _on_snapshot_written(self, replica: Replica, error: Exception | None) -> None:
        flushes = replica.log.flushes
        if error is not None and is_out_of_handles(error):
            # The disk is sound, and a log needs no snapshot: a start reads more of its batches.
            flushes.drop_snapshot()
        elif error is not None:
            self._fail(replica, "snapshot", error)
            return
        try:
            flushes.snapshot_done()
        except StorageError as failure:
            self._fail(replica, "snapshot", failure)

    def _on_failed_of_deleted(self, replica: Replica, action: str, error: Exception | None) -> None:
        """Takes the directory offline if its disk has failed in a job of a replica that was deleted meanwhile (AP16).

        The other logs there are on the same disk. That files of the deleted one are closed or gone is no failure.
        """
        if error is not None and is_late_disk_error(error):
            self._fail(replica, action, error)

    def _fail(self, replica: Replica, action: str, error: Exception) -> None:
        """Takes the log's directory offline: it is not known any more what the disk holds (PRO-9)."""
        failure = StorageError(f"{action} of {replica.topic_partition}: {error}")
        failure.__cause__ = error
        try:
            self._context.logs.on_disk_failed(replica.log, failure)
        except StorageError:
            self._on_failure(str(failure))
