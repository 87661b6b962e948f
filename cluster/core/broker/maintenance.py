"""The timed work of a broker on its logs: retention, compaction, deletion of files, expiry of producers.

A compaction is a chain of jobs, one slice each. What readers see changes only within a step, between two jobs.
Kafka: LogManager.cleanupLogs, LogCleaner.CleanerThread, LogManager.deleteLogs; rules CL6, CL23, RT3, RT16, PS13.
"""

from __future__ import annotations

import contextlib
import errno
import logging
from collections import deque
from collections.abc import Callable, Iterator
from typing import final

from cluster.core.broker.logs import BrokerLogs, note_unclosed
from cluster.core.broker.passes import Pass
from cluster.core.messages import TopicPartition
from cluster.core.replica.context import ReplicaContext
from cluster.core.replica.replica import Replica
from storage.cleaner.compaction import Compaction, Work
from storage.cleaner.plan import CleanerConfig
from storage.directory.cleaners import Candidate, CleanerManager, Key, key_of
from storage.directory.directories import errors_in
from storage.disk.filesystem import basename, dirname
from storage.disk.lack import is_lack, refusing_lack
from storage.errors import OutOfHandles, StorageError
from storage.log import PartitionLog
from storage.segment import LogSegment
from storage.topics import parse_directory_name

logger = logging.getLogger(__name__)

RETENTION_TIMER = "logs.retention"
CLEANER_TIMER = "logs.cleaner"
DELETION_TIMER = "logs.deletion"
PRODUCERS_TIMER = "logs.producers"
# What a round meets that a cut or a deletion has overtaken: its files are closed, or gone.
_OF_ABORTS = frozenset({errno.EBADF, errno.ENOENT})


@final
class _Round:
    """The round of compaction that is running."""

    def __init__(self, log: PartitionLog, compaction: Compaction, began_ms: int) -> None:
        self.log, self.compaction, self.began_ms = log, compaction, began_ms
        self.pieces: Iterator[Work] = iter(compaction)
        self.key: Key = key_of(log)
        self.bytes_before = log.local.segments.size_bytes


@final
class LogMaintenance:
    """Works on the logs whose topic is known; the configuration of any other log would be a guess.

    Call `start` when the logs are open. A disk error raises OSError or StorageError, as anywhere in a step.
    """

    def __init__(self, context: ReplicaContext, logs: BrokerLogs) -> None:
        self._context, self._logs = context, logs
        self._outbox, self._config = context.outbox, context.config
        # The cleaners by log directory; offline directories have none.
        self.cleaners: dict[str, CleanerManager] = {}
        self._round: _Round | None = None
        # Deleted segments, each with the time at which its files are to be deleted.
        self._doomed: deque[tuple[int, LogSegment]] = deque()
        # The least of these times.
        self._next_deletion_ms = 0
        self._now_ms = 0
        self._is_stopped = False
        config = self._config
        self._retention = Pass(
            context,
            RETENTION_TIMER,
            self._visit_for_retention,
            interval_ms=config.log_retention_check_interval_ms,
            room=config.steps.logs,
        )
        self._expiry = Pass(
            context,
            PRODUCERS_TIMER,
            self._visit_for_expiry,
            interval_ms=config.producer_id_expiration_check_interval_ms,
            room=config.steps.producers,
        )

    @property
    def round_under_way(self) -> tuple[PartitionLog, int] | None:
        """The log on which a round of compaction works now, and when the round began; None if there is none."""
        return None if self._round is None else (self._round.log, self._round.began_ms)

    def cleaner_of(self, log: PartitionLog) -> CleanerManager:
        """Returns the cleaner of the log's directory. Raises KeyError if the directory is offline."""
        return self.cleaners[dirname(log.directory)]

    def _is_of_replica(self, log: PartitionLog) -> bool:
        """Returns whether a replica has the log: others wait to be deleted or set aside, and end at any moment."""
        replica = self._context.replicas.get(TopicPartition(log.topic, log.partition))
        return replica is not None and replica.log is log

    def _has_disk(self, log: PartitionLog) -> bool:
        """Returns whether the disk under the log works. A log that was deleted does not learn that its disk fails."""
        return log.online.reason is None and dirname(log.directory) in self.cleaners

    def start(self, now_ms: int) -> None:
        """Sets the timers of all timed work; that of the cleaner only if it is enabled."""
        assert not self.cleaners, "started twice"
        config = self._config
        self.cleaners = self._logs.new_cleaners(self._is_of_replica)
        assert self.cleaners, "no log directory is online"
        first_ms = now_ms + config.log_initial_task_delay_ms
        self._retention.arm(first_ms)
        self._expiry.arm(first_ms)
        if config.log_cleaner_enable:
            self._arm_cleaner(now_ms)

    def prepare_stop(self) -> Callable[[], None]:
        """Returns what the job that closes the logs must do first: it deletes what a running round has written.

        A disk error of that ends the trust in the directory of the round alone: the others are closed in order.
        """
        assert not self._is_stopped, "stopped twice"
        self._is_stopped = True
        running, self._round = self._round, None

        def stop() -> None:
            if running is None:
                return
            try:
                running.compaction.abort()
            except (OSError, StorageError) as error:
                self._logs.distrust(dirname(running.log.directory), error)

        return stop

    def on_log_opened(self, replica: Replica) -> None:
        """Leaves to jobs what a log on its own does at once: deletions of files, large snapshots."""
        log = replica.log
        log.retention.delete_files_with(self._doom)
        log.flushes.most_in_a_roll = self._config.steps.snapshot_producers
        log.truncation.batches_a_slice = self._config.steps.batches
        log.local.searched_a_step = self._config.steps.searched_batches
        log.reads.segments_a_step = self._config.steps.searched_segments
        # The checkpoint may be left from an earlier topic of the same name.
        self.cleaner_of(log).truncate_checkpoint(key_of(log), log.log_end_offset)

    def on_log_truncated(self, replica: Replica) -> None:
        """Aborts a round that works on the cut records; the records that replace them are dirty (RT16)."""
        log = replica.log
        cleaner = self.cleaner_of(log)
        cleaner.abort(key_of(log))
        try:
            cleaner.truncate_checkpoint(key_of(log), log.local.segments.active.base_offset)
        except OSError as error:
            self._logs.on_disk_failed(log, error)

    def on_log_removed(self, replica: Replica) -> None:
        self.cleaner_of(replica.log).forget(key_of(replica.log))

    def on_directory_offline(self, directory: str) -> None:
        """Drops all work on the directory. A round that works there ends with its present slice."""
        # There are none yet where one of them cannot be made.
        assert not self.cleaners or directory in self.cleaners, (directory, sorted(self.cleaners))
        count = len(self._doomed)
        self.cleaners.pop(directory, None)
        dropped = [segment for _, segment in self._doomed if self._is_in(segment, directory)]
        self._doomed = deque(each for each in self._doomed if not self._is_in(each[1], directory))
        assert len(dropped) + len(self._doomed) == count, (len(dropped), len(self._doomed), count)

        def close() -> None:
            for segment in dropped:
                segment.close_handlers()

        if dropped:
            self._outbox.run_job("close", close, note_unclosed)

    def _is_in(self, segment: LogSegment, directory: str) -> bool:
        return dirname(segment.directory) == directory

    def _visit_for_retention(self, replica: Replica, now_ms: int, room: int) -> tuple[int, bool]:
        """Deletes old segments of one log; those of a compacted log only if no cleaner does that."""
        if replica.log.config.is_compacted and self._config.log_cleaner_enable:
            return 1, False
        steps = self._config.steps
        logs_a_segment = max(steps.logs // steps.segments, 1)
        at_most = max(room // logs_a_segment, 1)
        count = self._shorten(replica, now_ms, at_most)
        return 1 + count * logs_a_segment, count == at_most

    def _shorten(self, replica: Replica, now_ms: int, at_most: int) -> int:
        """Deletes at most so many old segments of one log. Returns how many."""
        self._now_ms = now_ms
        log = replica.log
        if log.online.reason is not None:
            # The replica's directory failed earlier in this step.
            return 0
        assert self._context.replicas.get(replica.topic_partition) is replica, replica.name
        before = log.log_start_offset
        try:
            count = log.retention.delete_old(now_ms, at_most=at_most)
        except OutOfHandles as error:
            # Some may be deleted, or the log could not roll; the next pass tries it again.
            logger.warning("old segments left: log=%s reason=%s", log.directory, error)
            self._context.touch(replica.topic_partition)
            # How many is not known.
            count = int(log.log_start_offset > before)
        except StorageError as error:
            self._logs.on_disk_failed(log, error)
            return 0
        assert before <= log.log_start_offset, (replica.name, before, log.log_start_offset)
        if count == 0:
            return 0
        self._context.touch(replica.topic_partition)
        self._outbox.observe(
            "log.segments_deleted",
            topic_partition=replica.name,
            segments=count,
            log_start_offset=log.log_start_offset,
        )
        return count

    def _visit_for_expiry(self, replica: Replica, now_ms: int, room: int) -> tuple[int, bool]:
        producers = replica.log.producers
        taken = max(self._config.steps.producers // self._config.steps.logs, 1) + len(producers.producers)
        producers.remove_expired(now_ms)
        return taken, False

    def _doom(self, segment: LogSegment) -> None:
        """Deletes the files of `segment` after file.delete.delay.ms; until then they stay readable (RT3)."""
        replica = self._replica_of(segment)
        delay_ms = 0 if replica is None else replica.log.config.file_delete_delay_ms
        due_ms = self._now_ms + delay_ms
        is_next = not self._doomed or due_ms < self._next_deletion_ms
        self._doomed.append((due_ms, segment))
        if is_next:
            self._next_deletion_ms = due_ms
            self._outbox.set_timer(DELETION_TIMER, due_ms, self._on_deletion_timer)

    def _replica_of(self, segment: LogSegment) -> Replica | None:
        named = parse_directory_name(basename(segment.directory))
        replica = self._context.replicas.get(TopicPartition(named.topic, named.partition))
        return replica if replica is not None and replica.log.directory == segment.directory else None

    def _on_deletion_timer(self, now_ms: int) -> None:
        count = len(self._doomed)
        due = [segment for at_ms, segment in self._doomed if at_ms <= now_ms]
        self._doomed = deque(each for each in self._doomed if each[0] > now_ms)
        assert len(due) + len(self._doomed) == count, (len(due), len(self._doomed), count)

        def delete() -> None:
            failed: list[OSError] = []
            for segment in due:
                try:
                    segment.delete()
                except OSError as error:
                    failed.append(error)
            if failed:
                raise ExceptionGroup("old segments cannot be deleted", failed)

        if due:
            self._outbox.run_job("delete", delete, self._on_deleted)
        if self._doomed:
            at_ms = min(at_ms for at_ms, _ in self._doomed)
            # A timer that is due already would come again and again.
            assert at_ms > now_ms, (at_ms, now_ms)
            self._next_deletion_ms = at_ms
            self._outbox.set_timer(DELETION_TIMER, at_ms, self._on_deletion_timer)

    def _on_deleted(self, now_ms: int, error: Exception | None) -> None:
        if error is None:
            return
        for each in errors_in(error):
            failure = StorageError(f"old segments cannot be deleted: {each}")
            failure.__cause__ = each
            self._logs.on_disk_failed(None, failure)

    def _arm_cleaner(self, now_ms: int) -> None:
        at_ms = now_ms + self._config.log_cleaner_backoff_ms
        self._outbox.set_timer(CLEANER_TIMER, at_ms, self._on_cleaner_timer)

    def _on_cleaner_timer(self, now_ms: int) -> None:
        if self._context.replicas and self._begin_round(now_ms):
            return
        self._shorten_compacted(now_ms)
        self._arm_cleaner(now_ms)

    def _begin_round(self, now_ms: int) -> bool:
        assert self._round is None, self._round
        assert not self._is_stopped, now_ms
        found = self._grab_filthiest(now_ms)
        if found is None:
            return False
        steps = self._config.steps
        config = CleanerConfig(
            dedupe_buffer_bytes=self._config.log_cleaner_dedupe_buffer_size,
            io_buffer_bytes=max(self._config.log_cleaner_io_buffer_size // 2, 1),
            slice_bytes=steps.compacted_bytes,
            planned_segments=steps.planned_segments,
            swapped_segments=steps.swapped_segments,
        )
        try:
            compaction = found.log.compactions.prepare(found.offsets, config, now_ms)
        except ValueError as error:
            # No whole segment can be cleaned yet; the log is found again when one can.
            logger.warning("log not cleaned: log=%s reason=%s", found.log.directory, error)
            self.cleaner_of(found.log).done_cleaning(key_of(found.log), None)
            return False
        except OSError as error:
            if is_lack(error):
                self.cleaner_of(found.log).done_cleaning(key_of(found.log), None)
            else:
                self._take_offline(found.log, error)
            return False
        self._round = _Round(found.log, compaction, now_ms)
        self._go_on(now_ms)
        return True

    def _grab_filthiest(self, now_ms: int) -> Candidate | None:
        """Claims the filthiest log of all directories for a round. Returns None if there is nothing to clean."""
        found: list[tuple[CleanerManager, Candidate]] = []
        for directory, cleaner in list(self.cleaners.items()):
            try:
                candidate = cleaner.find_filthiest(now_ms)
            except OSError as error:
                self._logs.directories.fail(directory, error)
                continue
            if candidate is not None:
                found.append((cleaner, candidate))
        if not found:
            return None
        cleaner, filthiest = max(found, key=lambda each: each[1].filth.cleanable_ratio)
        cleaner.grab(filthiest)
        return filthiest

    def _go_on(self, now_ms: int) -> None:
        """Starts the next slice of the round, after adopting what the last slice has prepared."""
        running = self._round
        assert running is not None
        offline_because = running.log.online.reason
        assert offline_because is None, (running.key, offline_because)
        self._now_ms = now_ms
        try:
            with refusing_lack(f"{running.log.directory} is not cleaned"):
                work = next(running.pieces, None)
        # Damage may show as a wrong value too, of an index for example.
        except (StorageError, OSError, ValueError) as error:
            if running.log.online.reason is None:
                self._fail(now_ms, running, error)
            else:
                self._logs.on_disk_failed(running.log, error)
                self._drop_round(now_ms, running)
            return
        if work is None:
            self._finish(now_ms, running)
        else:
            self._outbox.run_job("compact", work, self._on_slice_done)

    def _on_slice_done(self, now_ms: int, error: Exception | None) -> None:
        running = self._round
        if running is None or self._is_stopped:
            return
        if not self._has_disk(running.log):
            self._drop_round(now_ms, running)
        elif isinstance(error, OSError) and error.errno not in _OF_ABORTS:
            self._fail(now_ms, running, error)
        elif self.cleaner_of(running.log).is_aborted(running.key) or not running.log.config.is_compacted:
            # Any other error would come from the abort, not from the work.
            self._end_round(now_ms, running, None)
        elif error is not None:
            self._fail(now_ms, running, error)
        else:
            self._go_on(now_ms)

    def _fail(self, now_ms: int, running: _Round, error: Exception) -> None:
        """Ends a failed round: a damaged log is cleaned no more, a failed disk takes its directory offline (CL6).

        After a lack of descriptors, the log is cleaned by a later round.
        """
        assert self._round is running, running.key
        if is_lack(error):
            logger.warning("log not cleaned: log=%s reason=%s", running.log.directory, error)
            self._end_round(now_ms, running, None)
            return
        if isinstance(error, OSError):
            self._take_offline(running.log, error)
            self._drop_round(now_ms, running)
            return
        self.cleaner_of(running.log).mark_uncleanable(running.key, error)
        self._outbox.observe(
            "log.uncleanable", topic_partition=str(TopicPartition(*running.key)), reason=str(error)
        )
        # The next round waits for the timer.
        self._end_round(now_ms, running, None)

    def _take_offline(self, log: PartitionLog, error: OSError) -> None:
        failure = log.online.failed("compaction", error)
        failure.__cause__ = error
        self._logs.on_disk_failed(log, failure)

    def _finish(self, now_ms: int, running: _Round) -> None:
        end_offset = running.compaction.end_offset
        if end_offset is not None:
            self._outbox.observe(
                "log.compacted",
                topic_partition=str(TopicPartition(*running.key)),
                end_offset=end_offset,
                bytes_before=running.bytes_before,
                bytes_after=running.log.local.segments.size_bytes,
            )
        self._end_round(now_ms, running, end_offset)

    def _end_round(self, now_ms: int, running: _Round, end_offset: int | None) -> None:
        """Ends the round. The next one begins at once if this one cleaned its log, else after the back-off."""
        assert self._round is running, running.key
        self._round = None
        counts = False
        try:
            if end_offset is None:
                running.compaction.abort()
            counts = self.cleaner_of(running.log).done_cleaning(running.key, end_offset)
        except OSError as error:
            self._logs.on_disk_failed(running.log, error)
        assert not counts or end_offset is not None, running.key
        self._shorten_compacted(now_ms)
        if counts:
            self._on_cleaner_timer(now_ms)
        else:
            self._arm_cleaner(now_ms)

    def _drop_round(self, now_ms: int, running: _Round) -> None:
        """Ends a round whose disk failed; the next start deletes what the round has written so far (LL6)."""
        assert self._round is running, running.key
        assert not self._has_disk(running.log), running.key
        self._round = None
        with contextlib.suppress(OSError, StorageError):
            running.compaction.abort()
        self._arm_cleaner(now_ms)

    def _shorten_compacted(self, now_ms: int) -> None:
        logs = [log for cleaner in self.cleaners.values() for log in cleaner.logs_to_shorten()]
        # What does not fit waits for the next timer.
        room = self._config.steps.segments
        for log in logs:
            replica = self._context.replicas.get(TopicPartition(log.topic, log.partition))
            if replica is not None and room > 0:
                room -= self._shorten(replica, now_ms, room)
