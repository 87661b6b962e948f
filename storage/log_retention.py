"""Old segments go: below the log start offset, above retention.bytes, older than retention.ms.

Kafka: UnifiedLog.deleteOldSegments, deletableSegments, deleteSegments, LocalLog.removeAndDeleteSegments; rules RT2 to
RT8.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from storage.load_request import LoadedLog, LoadRequest
from storage.log_flush import LogFlushes
from storage.log_state import do_nothing
from storage.replace_segments import delete_now
from storage.segment import LogSegment
from storage.segment_names import DELETED_SUFFIX

logger = logging.getLogger(__name__)

# Of a segment and the one behind it, None behind the last.
IsDeletable = Callable[[LogSegment, LogSegment | None], bool]


class LogRetention(LogFlushes):
    def __init__(
        self,
        request: LoadRequest,
        loaded: LoadedLog,
        on_recovery_point_lowered: Callable[[], None] = do_nothing,
    ) -> None:
        super().__init__(request, loaded, on_recovery_point_lowered)
        self._delete_files: Callable[[LogSegment], None] = delete_now

    def delete_files_with(self, delete: Callable[[LogSegment], None]) -> None:
        """Hand what retention takes out of the log to `delete`, instead of removing the files at once.

        The segment is still open and readable, under `.deleted` names; who is handed it calls its `delete()` after
        file.delete.delay.ms (RT3). A start removes what is left.
        """
        self._delete_files = delete

    def delete_old_segments(self, now_ms: int) -> int:
        """How many segments went, or were to go and began anew: the oldest, as far as nothing uncommitted is in them.

        Without `delete` in cleanup.policy only what lies below the log start offset (RT4). Raises StorageError.
        """
        self._begin(now_ms)
        try:
            deleted = self._delete_while(self._is_below_log_start)
            if "delete" in self.config.cleanup_policies:
                deleted += self._delete_above_size() + self._delete_expired(now_ms)
            return deleted
        except OSError as error:
            raise self._go_offline("delete old segments", error) from error

    def _is_below_log_start(self, segment: LogSegment, following: LogSegment | None) -> bool:
        """RT7; not the last one, whatever the log start offset is."""
        return following is not None and following.base_offset <= self.log_start_offset

    def _delete_above_size(self) -> int:
        """As many as leave at least retention.bytes (RT6)."""
        excess_bytes = self.size_bytes - self.config.retention_bytes
        if self.config.retention_bytes < 0 or excess_bytes < 0:
            return 0

        def is_excess(segment: LogSegment, _: LogSegment | None) -> bool:
            nonlocal excess_bytes
            if segment.size_bytes > excess_bytes:
                return False
            excess_bytes -= segment.size_bytes
            return True

        return self._delete_while(is_excess)

    def _delete_expired(self, now_ms: int) -> int:
        """By the latest record; a time in the future keeps the segment and all behind it (RT5)."""
        retention_ms = self.config.retention_ms
        if retention_ms < 0:
            return 0
        return self._delete_while(lambda segment, _: now_ms - segment.largest_timestamp_ms > retention_ms)

    def _delete_while(self, is_deletable: IsDeletable) -> int:
        deletable = self.deletable_segments(is_deletable)
        if deletable:
            self.delete_segments(deletable)
        return len(deletable)

    def deletable_segments(self, is_deletable: IsDeletable) -> list[LogSegment]:
        """From the oldest on, up to the first that is not, or that reaches above the high watermark (RT2, KAFKA-5634).

        The active one may be among them, unless it is empty.
        """
        found: list[LogSegment] = []
        segments = list(self.segments)
        for segment, following in zip(segments, [*segments[1:], None], strict=True):
            end_offset = self.log_end_offset if following is None else following.base_offset
            is_committed = self.high_watermark >= end_offset
            if not is_committed or not is_deletable(segment, following):
                break
            if following is None and segment.size_bytes == 0:
                break
            found.append(segment)
        return found

    def delete_segments(self, oldest: list[LogSegment]) -> None:
        """Take the oldest segments out; the log starts behind them. It rolls first if none would be left (RT3, RT8)."""
        doomed = oldest
        if len(doomed) == len(self.segments):
            active = self._roll(None)
            if doomed[-1].base_offset == active.base_offset:  # empty: it began anew in its place (KAFKA-6388)
                doomed = doomed[:-1]
        if not doomed:
            return
        first_left = self.segments.higher(doomed[-1].base_offset)
        assert first_left is not None, self
        # Before the segments leave: a read between would find offsets without a segment (KAFKA-16073).
        self.maybe_increment_log_start_offset(first_left.base_offset)
        for segment in doomed:
            self._retire(segment)
        self._delete_snapshots_of(doomed)
        logger.info("old segments deleted: log=%s segments=%d", self.directory, len(doomed))
        assert self.segments.base_offsets[0] == first_left.base_offset, self

    def _retire(self, segment: LogSegment) -> None:
        """For good before the next: a crash between leaves the end of the log, without a hole."""
        self.segments.remove(segment.base_offset)
        segment.change_file_suffixes("", DELETED_SUFFIX)
        self._file_system.sync_directory(self.directory)
        self._delete_files(segment)

    def _delete_snapshots_of(self, segments: list[LogSegment]) -> None:
        for segment in segments:
            path = self.producer_state.mark_snapshot_for_deletion(segment.base_offset)
            if path is not None:
                self._file_system.unlink(path)
