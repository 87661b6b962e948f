"""Deletion of old segments: below the log start offset, above retention.bytes, older than retention.ms.

Kafka: UnifiedLog.deleteOldSegments, deletableSegments, deleteSegments, LocalLog.removeAndDeleteSegments; rules RT2 to
RT8.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import final

from storage.disk.lack import refusing_lack
from storage.log.flushes import Flushes
from storage.log.local_log import LocalLog
from storage.log.marks import Marks
from storage.log.online import Online
from storage.producers.state import ProducerStateManager
from storage.segment import LogSegment
from storage.segment.names import DELETED_SUFFIX
from storage.segment.replace import DeleteFiles, delete_now

logger = logging.getLogger(__name__)

# Called with a segment and the segment that follows it, which is None after the last.
IsDeletable = Callable[[LogSegment, LogSegment | None], bool]


@final
class Retention:
    """Deletes old segments of one log."""

    __slots__ = ("_delete_files", "_flushes", "_local", "_marks", "_online", "_producers")

    def __init__(
        self,
        local: LocalLog,
        producers: ProducerStateManager,
        marks: Marks,
        flushes: Flushes,
        online: Online,
    ) -> None:
        self._local, self._producers, self._marks = local, producers, marks
        self._flushes, self._online = flushes, online
        self._delete_files: DeleteFiles = delete_now

    def delete_files_with(self, delete: DeleteFiles) -> None:
        """Call `delete` with each segment that leaves the log, instead of deleting its files at once.

        The segment is still open and readable, under `.deleted` names; `delete` must arrange for a call of
        `LogSegment.delete` after file.delete.delay.ms (RT3). Files that are left are deleted at the next start.
        """
        self._delete_files = delete

    def delete_files(self, segment: LogSegment) -> None:
        """Delete the files of `segment`, which has left the log and has `.deleted` names, now or later (RT3)."""
        self._delete_files(segment)

    def delete_old(self, now_ms: int, *, at_most: int | None = None) -> int:
        """Delete expired segments, oldest first, up to the first uncommitted one; `at_most` so many, if it is given.

        Returns how many were deleted or restarted empty. Without `delete` in cleanup.policy only segments below the
        log start offset are deleted (RT4). Raises StorageError; OutOfHandles, after the deletion of some segments at
        most, if a file cannot be opened for want of a descriptor.
        """
        self._online.check()
        with self._online.during("delete old segments"):
            room = len(self._local.segments) if at_most is None else at_most
            deleted = self._delete_while(self._is_below_log_start, now_ms, room)
            if "delete" in self._local.config.cleanup_policies:
                deleted += self._delete_above_size(now_ms, room - deleted)
                deleted += self._delete_expired(now_ms, room - deleted)
            assert at_most is None or deleted <= at_most, (deleted, at_most)
            return deleted

    def _is_below_log_start(self, segment: LogSegment, following: LogSegment | None) -> bool:
        """Whether `segment` is wholly below the log start offset; never true for the last segment (RT7)."""
        return following is not None and following.base_offset <= self._marks.log_start_offset

    def _delete_above_size(self, now_ms: int, at_most: int) -> int:
        """Delete the oldest segments as long as at least retention.bytes are left (RT6)."""
        retention_bytes = self._local.config.retention_bytes
        # Before the sum of all sizes, which takes longer the more segments there are.
        if retention_bytes < 0:
            return 0
        excess_bytes = self._local.segments.size_bytes - retention_bytes
        if excess_bytes < 0:
            return 0

        def is_excess(segment: LogSegment, _: LogSegment | None) -> bool:
            nonlocal excess_bytes
            if segment.size_bytes > excess_bytes:
                return False
            excess_bytes -= segment.size_bytes
            return True

        return self._delete_while(is_excess, now_ms, at_most)

    def _delete_expired(self, now_ms: int, at_most: int) -> int:
        """Delete segments whose latest record is too old. One with a time in the future stops this (RT5)."""
        retention_ms = self._local.config.retention_ms
        if retention_ms < 0:
            return 0
        return self._delete_while(
            lambda segment, _: now_ms - segment.kept_until_ms > retention_ms, now_ms, at_most
        )

    def _delete_while(self, is_deletable: IsDeletable, now_ms: int, at_most: int) -> int:
        # The times of a segment are in a file that must be opened.
        with refusing_lack(f"{self._local.directory}: no old segment deleted"):
            deletable = self.deletable(is_deletable, at_most)
        if deletable:
            self.delete(deletable, now_ms)
        return len(deletable)

    def deletable(self, is_deletable: IsDeletable, at_most: int | None = None) -> list[LogSegment]:
        """Returns the oldest segments up to the first one that must stay or reaches above the high watermark (RT2).

        The active segment may be among them, unless it is empty (KAFKA-5634).
        """
        found: list[LogSegment] = []
        for segment, following in self._local.segments.oldest():
            if len(found) == at_most:
                break
            end_offset = self._local.log_end_offset if following is None else following.base_offset
            is_committed = self._marks.high_watermark >= end_offset
            if not is_committed or not is_deletable(segment, following):
                break
            if following is None and segment.size_bytes == 0:
                break
            found.append(segment)
        return found

    def delete(self, oldest: list[LogSegment], now_ms: int) -> None:
        """Remove the oldest segments from the log and raise the log start offset above them.

        The log rolls first if no segment would be left (RT3, RT8). Raises StorageError, OSError; OutOfHandles, with
        nothing deleted, if there are too few descriptors.
        """
        with self._local.with_descriptors():
            self._delete(oldest, now_ms)

    def _delete(self, oldest: list[LogSegment], now_ms: int) -> None:
        doomed, segments = oldest, self._local.segments
        if len(doomed) == len(segments):
            active = self._flushes.roll_unguarded(None, now_ms)
            # The roll restarted an empty segment in place, which is now the active one (KAFKA-6388).
            if doomed[-1].base_offset == active.base_offset:
                doomed = doomed[:-1]
        if not doomed:
            return
        first_left = segments.higher(doomed[-1].base_offset)
        assert first_left is not None, self._local.directory
        # This comes before the removal: a read between the two would find offsets without a segment (KAFKA-16073).
        self._marks.maybe_increment_log_start_offset(first_left.base_offset)
        with self._online.during("delete old segments", refuses=False):
            for segment in doomed:
                self._retire(segment)
            self._producers.snapshots.delete_of(doomed)
        logger.info("old segments deleted: log=%s segments=%d", self._local.directory, len(doomed))
        assert segments.first_base_offset == first_left.base_offset, (self._local.directory, first_left)

    def _retire(self, segment: LogSegment) -> None:
        """Remove one segment durably before the next one, so that a crash leaves no hole in the log."""
        assert self._local.segments.first is segment, (self._local.segments.first, segment)
        self._local.segments.remove(segment.base_offset)
        assert self._local.segments.first is not None, segment
        segment.change_file_suffixes("", DELETED_SUFFIX)
        self._local.file_system.sync_directory(self._local.directory)
        self.delete_files(segment)
