"""Rolls and flushes. A flush has two halves: `prepare` decides what to sync, in the log's own step; the syncs may run
later.

A roll waits for its syncs: see `LocalLog.roll`. Kafka: UnifiedLog.roll, flush, LocalLog.flush; rules RO3, FL1 to FL4.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import final

from storage.config import LONG_MAX
from storage.disk.filesystem import FileSystem
from storage.disk.handle_pool import is_out_of_handles
from storage.errors import OutOfHandles, StorageError
from storage.log.local_log import LocalLog
from storage.log.marks import Marks
from storage.log.online import Online
from storage.producers.prepared_snapshot import PreparedSnapshot
from storage.producers.state import ProducerStateManager
from storage.segment import LogSegment

logger = logging.getLogger(__name__)


@final
class PreparedFlush:
    """The files that one flush has to sync. Call the object once, on any thread, then call `Flushes.done(offset)`.

    Appends may continue meanwhile. A truncation below `offset` lowers `valid_up_to`: records written above it
    afterwards were not synced by this flush.
    """

    __slots__ = ("_file_system", "_lack", "_segments", "_sync_directory", "error", "offset", "valid_up_to")

    def __init__(
        self,
        file_system: FileSystem,
        offset: int,
        segments: list[LogSegment],
        directory_to_sync: str | None,
    ) -> None:
        self._file_system = file_system
        self.offset = self.valid_up_to = offset
        self._segments = segments
        self._sync_directory = directory_to_sync
        # The disk error that `__call__` has raised: its end may find nobody who hears of it.
        self.error: OSError | None = None
        # What `__call__` raises in place of a sync.
        self._lack: OSError | None = None
        try:
            for segment in segments:
                # This happens in the log's own step: the job must not create files while appends continue.
                segment.open_indexes()
        except OSError as error:
            if not is_out_of_handles(error):
                raise
            self._lack = error

    def __call__(self) -> None:
        """Sync the files. Raises OSError: then none of them may be taken as synced.

        Raises OutOfHandles if a file cannot be opened for want of a descriptor: no sync has failed, and another flush
        may sync them all.
        """
        try:
            self._sync_all()
        except OSError as error:
            if is_out_of_handles(error):
                raise OutOfHandles(f"not flushed up to offset {self.offset}: {error}") from error
            self.error = error
            raise

    def _sync_all(self) -> None:
        if self._lack is not None:
            raise self._lack
        for segment in self._segments:
            try:
                segment.flush()
            except OSError as error:
                if not _has_nothing_to_sync(segment, error):
                    raise
        if self._sync_directory is not None:
            # The directory may have been renamed meanwhile, for deletion or with a sync of its own (FL2).
            with suppress(FileNotFoundError):
                self._file_system.sync_directory(self._sync_directory)


def _has_nothing_to_sync(segment: LogSegment, error: OSError) -> bool:
    """Whether a segment of which a sync has failed has left the log meanwhile, and its files are gone.

    What a compaction put in its place was on the disk before.
    """
    return segment.is_deleted or segment.is_gone(error)


@final
class Flushes:
    """The rolls of one log, and its flushes; those that were prepared and have not ended are kept, oldest first."""

    __slots__ = ("_local", "_marks", "_online", "_prepared", "_producers", "most_in_a_roll", "snapshot")

    def __init__(
        self, local: LocalLog, producers: ProducerStateManager, marks: Marks, online: Online
    ) -> None:
        self._local, self._producers, self._marks, self._online = local, producers, marks, online
        self._prepared: list[PreparedFlush] = []
        # The roll of a log with more producers leaves their snapshot to a job. Whoever lowers it must look at
        # `snapshot` after each append.
        self.most_in_a_roll = LONG_MAX
        # The snapshot that a roll has left to a job, until `snapshot_done`.
        self.snapshot: PreparedSnapshot | None = None

    def roll(self, expected_next_offset: int | None = None, *, now_ms: int) -> LogSegment:
        """Begin a new segment. On return all earlier records are on disk, and the recovery point is its base offset.

        The base offset is the greater of the log end and `expected_next_offset` (RO2). Raises StorageError;
        OutOfHandles if a file cannot be opened for want of a descriptor: the active segment is the same then.
        """
        self._online.check()
        with self._online.during("roll"):
            return self.roll_unguarded(expected_next_offset, now_ms)

    def roll_unguarded(self, expected_next_offset: int | None, now_ms: int) -> LogSegment:
        """Do what `roll` does, for a caller that handles OSError itself by taking the log offline. Raises OSError."""
        self._local.check_roll(expected_next_offset)
        try:
            segment = self._roll(expected_next_offset, now_ms)
        except OutOfHandles:
            raise
        except StorageError as error:
            # It is no refusal any more, and the log has rolled in part.
            self._online.failed("roll", error)
            raise
        logger.info("rolled: log=%s base_offset=%d", self._local.directory, segment.base_offset)
        assert segment is self._local.segments.active, (segment, self._local.segments.active)
        assert self._marks.high_watermark <= self._local.log_end_offset, (
            self._marks.high_watermark,
            self._local.log_end,
        )
        return segment

    def _roll(self, expected_next_offset: int | None, now_ms: int) -> LogSegment:
        recovery_point = self._local.recovery_point
        segment = self._local.roll(expected_next_offset, now_ms)
        self._producers.reached(segment.base_offset)
        try:
            self._take_snapshot(recovery_point)
        except Exception as error:
            # The snapshot is not on disk, so the recovery point must not pass its offset (T12).
            self._local.lower_recovery_point(recovery_point)
            if not is_out_of_handles(error):
                raise
            # The log has rolled, and needs no snapshot: a start reads more of its batches.
            logger.warning("producer snapshot left out: log=%s reason=%s", self._local.directory, error)
        self._marks.keep_high_watermark_within_log()
        return segment

    def _take_snapshot(self, recovery_point: int) -> None:
        producers = self._producers
        # One at a time: a roll while one is being written takes its own.
        if self.snapshot is None and len(producers.producers) > self.most_in_a_roll:
            self.snapshot = producers.prepare_snapshot(recovery_point)
        else:
            producers.take_snapshot()

    def save_producers(self) -> None:
        """Save the producers of a log that was truncated, in this step or by a job as after a roll. Raises OSError.

        A job that still writes the file of a snapshot which the truncation has dropped goes on. Then there is none: a
        start reads more of the log's batches.
        """
        producers = self._producers
        if len(producers.producers) <= self.most_in_a_roll:
            producers.take_snapshot()
        elif self.snapshot is None:
            self.snapshot = producers.prepare_snapshot(self._local.recovery_point)

    def begin_snapshot(self) -> PreparedSnapshot | None:
        """Returns what a job must call, after which `snapshot_done` must be called; None if one is being written."""
        snapshot = self.snapshot
        if snapshot is None or snapshot.is_begun:
            return None
        snapshot.is_begun = True
        return snapshot

    def snapshot_done(self) -> None:
        """Put the file in place that the job has written, unless the snapshot was dropped meanwhile.

        Raises StorageError; the log is offline then.
        """
        snapshot, self.snapshot = self.snapshot, None
        assert snapshot is not None and snapshot.is_begun, snapshot
        # A segment that was deleted meanwhile needs none, and that of a truncation is outdated by a roll.
        segments, offset = self._local.segments, snapshot.offset
        is_wanted = offset in segments or offset > segments.active.base_offset
        is_kept = is_wanted and not snapshot.is_dropped
        with self._online.during("snapshot", refuses=False):
            self._producers.end_snapshot(is_kept=is_kept)
            if not is_kept:
                with suppress(FileNotFoundError):
                    self._local.file_system.unlink(snapshot.unfinished_path)

    @property
    def saved_recovery_point(self) -> int:
        """The recovery point for the checkpoint: not above the offset of a snapshot that is not on the disk (T12)."""
        point = self._local.recovery_point
        if self.snapshot is None or self.snapshot.is_dropped:
            return point
        return min(point, self.snapshot.recovery_point)

    @property
    def wanted(self) -> int | None:
        """The offset up to which a flush is due by flush.messages; None if none is due."""
        local = self._local
        unflushed_messages = local.log_end_offset - local.recovery_point
        return local.log_end_offset if unflushed_messages >= local.config.flush_messages else None

    def flush(self, offset: int | None = None) -> None:
        """Sync all records below `offset` (None: all), wait for the disk, and move the recovery point there.

        Raises StorageError; the log is offline then. Raises OutOfHandles if a file cannot be opened for want of a
        descriptor: the log is online then, and the recovery point where it was.
        """
        prepared, lack = self.prepare(offset), None
        with self._online.during("flush", refuses=False):
            try:
                prepared()
            except OutOfHandles as error:
                lack = error
        if lack is not None:
            self.failed(prepared)
            raise lack
        self.done(prepared.offset)

    def prepare(self, up_to: int | None = None) -> PreparedFlush:
        """Decide what `flush` would sync, for a call on another thread, after which `done(prepared.offset)` must be
        called.

        Rules FL1 to FL4. Raises StorageError, too if an earlier one has met a disk error of which the log was not told:
        a sync that failed is never tried again (AP16).
        """
        self._online.check()
        for earlier in self._prepared:
            if earlier.error is not None:
                raise self._online.failed("flush", earlier.error) from earlier.error
        local = self._local
        offset = local.log_end_offset if up_to is None else up_to
        assert 0 <= offset <= local.log_end_offset, (offset, local.log_end_offset)
        # A flush of all records includes an empty active segment.
        bound = offset if up_to is not None else offset + 1
        segments = local.segments_to_flush(bound)
        has_new = any(segment.base_offset >= local.recovery_point for segment in segments)
        # The constructor opens the indexes, which may raise OSError.
        with self._online.during("flush"):
            prepared = PreparedFlush(
                local.file_system, offset, segments, local.directory if has_new else None
            )
        self._prepared.append(prepared)
        return prepared

    def done(self, offset: int) -> None:
        """Move the recovery point, after the prepared flush up to `offset` has run.

        An earlier one that has not ended is kept: what a truncation cuts meanwhile must not count as synced by it.
        """
        assert offset >= 0, offset
        valid_up_to = offset
        for index, prepared in enumerate(self._prepared):
            if prepared.offset == offset:
                valid_up_to = prepared.valid_up_to
                del self._prepared[index]
                break
        # A truncation may have lowered it, nothing raises it.
        assert valid_up_to <= offset, (valid_up_to, offset)
        reached = min(valid_up_to, self._local.log_end_offset)
        self._local.raise_recovery_point(reached)

    def failed(self, prepared: PreparedFlush) -> None:
        """Forget a prepared flush that raised OutOfHandles; the recovery point stays where it is."""
        # A later one that is done counts for it, too.
        if prepared in self._prepared:
            self._prepared.remove(prepared)
        assert prepared not in self._prepared, prepared.offset

    def truncated_to(self, offset: int) -> None:
        """Note that the log was cut at `offset`: prepared flushes promise nothing above it any more."""
        assert offset >= 0, offset
        for prepared in self._prepared:
            prepared.valid_up_to = min(prepared.valid_up_to, offset)
        self.drop_snapshot()

    def drop_snapshot(self) -> None:
        """Make sure that no job puts a snapshot in place, because the log has changed below its offset or ends."""
        if self.snapshot is None:
            return
        self._producers.end_snapshot(is_kept=False)
        self.snapshot.is_dropped = True
        # One that is being written stays until it is done: another must not write the same file meanwhile.
        if not self.snapshot.is_begun:
            self.snapshot = None
