"""Roll and flush. A flush has two halves: what to sync is fixed while nothing else runs, the syncs may wait.

A roll waits for its syncs: see `LocalLog.roll`. Kafka: UnifiedLog.roll, flush, LocalLog.flush; rules RO3, FL1 to FL4.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from typing import final

from storage.filesystem import FileSystem
from storage.load_request import LoadedLog, LoadRequest
from storage.log_state import LogState, do_nothing
from storage.segment import LogSegment

logger = logging.getLogger(__name__)


@final
class PreparedFlush:
    """Call it, once, on any thread; then hand `offset` to the log's `flushed`.

    Appends may go on meanwhile. A truncation below `offset` lowers `valid_up_to`: what was written anew above it
    is not what was synced.
    """

    __slots__ = ("_file_system", "_segments", "_sync_directory", "offset", "valid_up_to")

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
        for segment in segments:
            # Opened here, in the log's own step: the job must not create files while appends go on.
            segment.open_indexes()

    def __call__(self) -> None:
        """Raises OSError; then nothing of it may be taken as synced."""
        for segment in self._segments:
            try:
                segment.flush()
            except OSError:
                if not segment.is_deleted:  # a truncation took it meanwhile: there is nothing left to sync
                    raise
        if self._sync_directory is not None:
            with suppress(
                FileNotFoundError
            ):  # renamed meanwhile, for deletion or with a sync of its own (FL2)
                self._file_system.sync_directory(self._sync_directory)


class LogFlushes(LogState):
    def __init__(
        self,
        request: LoadRequest,
        loaded: LoadedLog,
        on_recovery_point_lowered: Callable[[], None] = do_nothing,
    ) -> None:
        super().__init__(request, loaded, on_recovery_point_lowered)
        self._flushes: list[PreparedFlush] = []

    def roll(self, expected_next_offset: int | None = None, *, now_ms: int | None = None) -> LogSegment:
        """Begin a new segment; what came before is on disk then, and the recovery point there. Raises StorageError."""
        self._begin(self._now_ms if now_ms is None else now_ms)
        try:
            return self._roll(expected_next_offset)
        except OSError as error:
            raise self._go_offline("roll", error) from error

    def _roll(self, expected_next_offset: int | None) -> LogSegment:
        recovery_point = self.recovery_point
        segment = self._local.roll(expected_next_offset, self._now_ms)
        self.producer_state.reached(segment.base_offset)
        try:
            self.producer_state.take_snapshot()
        except OSError:  # not on disk: the recovery point must not pass it (T12)
            self._local.recovery_point = recovery_point
            raise
        self._keep_high_watermark_within_log()
        logger.info("rolled: log=%s base_offset=%d", self.directory, segment.base_offset)
        return segment

    @property
    def unflushed_messages(self) -> int:
        return self._local.unflushed_messages

    @property
    def flush_wanted(self) -> int | None:
        """Up to where flush.messages asks for a flush now; None when it does not."""
        is_due = self.unflushed_messages >= self.config.flush_messages
        return self.log_end_offset if is_due else None

    def flush(self, offset: int | None = None) -> None:
        """Sync all below `offset`, everything without one, and move the recovery point there. It waits for the disk.

        Raises StorageError; the log is offline then.
        """
        prepared = self.prepare_flush(offset)
        try:
            prepared()
        except OSError as error:
            raise self._go_offline("flush", error) from error
        self.flushed(prepared.offset)

    def prepare_flush(self, up_to: int | None = None) -> PreparedFlush:
        """What `flush` would sync, to be called on another thread; then `flushed(prepared.offset)` (FL1 to FL4)."""
        self._check_online()
        offset = self.log_end_offset if up_to is None else up_to
        assert 0 <= offset <= self.log_end_offset, (offset, self.log_end_offset)
        bound = offset if up_to is not None else offset + 1  # all: an empty active segment, too
        segments = self._local.segments_to_flush(bound)
        has_new = any(segment.base_offset >= self.recovery_point for segment in segments)
        try:
            prepared = PreparedFlush(self._file_system, offset, segments, self.directory if has_new else None)
        except OSError as error:  # an index that was not open yet
            raise self._go_offline("flush", error) from error
        self._flushes.append(prepared)
        return prepared

    def flushed(self, offset: int) -> None:
        """The prepared flush up to `offset` has run: all it promised is on disk. Those before it count as done too."""
        valid_up_to = offset
        for index, prepared in enumerate(self._flushes):
            if prepared.offset == offset:
                valid_up_to = prepared.valid_up_to
                del self._flushes[: index + 1]
                break
        reached = min(valid_up_to, self.log_end_offset)
        self._local.recovery_point = max(self._local.recovery_point, reached)
