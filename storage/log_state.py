"""What one partition's log holds, and its marks: log start, high watermark, last stable offset, leader epochs.

`log.py` puts the verbs on it. Kafka: UnifiedLog; rules RD7, RD11, RT1, AP15, AP16.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from storage.config import LogConfig
from storage.errors import OffsetOutOfRange, StorageError
from storage.filesystem import basename
from storage.leader_epochs import LeaderEpochCache
from storage.load_request import LoadedLog, LoadRequest
from storage.local_log import LocalLog
from storage.offset_metadata import LogOffsetMetadata
from storage.plain_batch import PlainBatches
from storage.producer_state import ProducerStateManager
from storage.segment import LogSegment
from storage.segments import LogSegments
from storage.topics import parse_directory_name
from storage.validator import ValidationRules

logger = logging.getLogger(__name__)


def do_nothing() -> None:
    return


class LogState:
    """`high_watermark` <= `log_end_offset`, always; below the log start only within the batch that holds that.

    After an OSError the log is offline: that call and every later one raises StorageError (AP16). A failed sync must
    never be tried again: the kernel may have dropped the pages.
    """

    def __init__(
        self,
        request: LoadRequest,
        loaded: LoadedLog,
        on_recovery_point_lowered: Callable[[], None] = do_nothing,
    ) -> None:
        directory = parse_directory_name(basename(request.directory))
        self.topic, self.partition = directory.topic, directory.partition
        self._file_system = request.file_system
        self._local = LocalLog(
            request.file_system,
            request.directory,
            request.config,
            request.draws,
            loaded.segments,
            log_end_offset=loaded.log_end_offset,
            recovery_point=loaded.recovery_point,
        )
        self._on_recovery_point_lowered = on_recovery_point_lowered
        self.leader_epochs: LeaderEpochCache = loaded.leader_epochs
        self.producer_state: ProducerStateManager = loaded.producers
        self.log_start_offset = loaded.log_start_offset
        self.recovered_bytes_removed = loaded.removed_bytes
        self._high_watermark = LogOffsetMetadata(loaded.log_start_offset)
        self._first_unstable: LogOffsetMetadata | None = None
        self._rules = ValidationRules.from_config(request.config)
        self._plain = PlainBatches(self._rules)
        self._max_segment_ms = request.config.max_segment_ms
        self._recalls_batches = request.recalls_batches
        self._now_ms = request.now_ms
        self._offline_reason: str | None = None
        self._refresh_first_unstable()

    @property
    def directory(self) -> str:
        return self._local.directory

    @property
    def config(self) -> LogConfig:
        return self._local.config

    @property
    def segments(self) -> LogSegments:
        return self._local.segments

    @property
    def active_segment(self) -> LogSegment:
        return self._local.segments.active

    @property
    def size_bytes(self) -> int:
        return self._local.segments.size_bytes

    @property
    def log_end(self) -> LogOffsetMetadata:
        return self._local.log_end

    @property
    def log_end_offset(self) -> int:
        return self._local.log_end_offset

    @property
    def recovery_point(self) -> int:
        """All below it is on disk."""
        return self._local.recovery_point

    @property
    def latest_epoch(self) -> int | None:
        return self.leader_epochs.latest_epoch

    @property
    def offline_reason(self) -> str | None:
        return self._offline_reason

    def update_config(self, config: LogConfig) -> None:
        """For what follows; the active segment keeps its jitter and its index interval until the next roll."""
        self._local.config = config
        self._rules = ValidationRules.from_config(config)
        self._plain = PlainBatches(self._rules)
        self._max_segment_ms = config.max_segment_ms

    # Marks

    @property
    def high_watermark(self) -> int:
        return self._high_watermark.offset

    @property
    def high_watermark_metadata(self) -> LogOffsetMetadata:
        """With its place, looked up when only the offset is known.

        It moves to the base offset of that batch then, down or, across a gap, up: no batch is cut by it, and no record
        lies between (Kafka 4.1).
        """
        if self._high_watermark.is_message_only:
            self._set_high_watermark(self._maybe_resolve(self._high_watermark.offset))
        return self._high_watermark

    def _maybe_resolve(self, offset: int) -> LogOffsetMetadata:
        try:
            return self._local.resolve(offset)
        except OffsetOutOfRange:
            return LogOffsetMetadata(offset)

    def update_high_watermark(self, offset: int) -> int:
        """As a leader told its follower, kept within [log start, log end]; gives the value taken (RD11).

        It may go back. AssertionError below 0.
        """
        assert offset >= 0, offset
        offset = max(offset, self.log_start_offset)
        if offset >= self.log_end_offset:
            self._set_high_watermark(self.log_end)
        else:
            self._set_high_watermark(LogOffsetMetadata(offset))
        return self.high_watermark

    def maybe_increment_high_watermark(self, new: LogOffsetMetadata) -> bool:
        """Whether it moved: only forward, or onto a newer segment at the same offset (RD11)."""
        assert new.offset <= self.log_end_offset, (new, self.log_end)
        old = self.high_watermark_metadata
        is_newer_place = new.offset == old.offset and old.is_on_older_segment(new)
        if new.offset <= old.offset and not is_newer_place:
            return False
        self._set_high_watermark(new)
        return True

    def _set_high_watermark(self, new: LogOffsetMetadata) -> None:
        if new.offset < self._high_watermark.offset:
            logger.info(
                "high watermark back: log=%s from=%d to=%d",
                self.directory,
                self._high_watermark.offset,
                new.offset,
            )
        self._high_watermark = new
        self.producer_state.on_high_watermark_updated(new.offset)
        self._refresh_first_unstable()
        assert 0 <= new.offset <= self.log_end_offset, (new, self.log_end)

    def _keep_high_watermark_within_log(self) -> None:
        """After a roll or truncation its place may be gone, and it must not stand above the end (AP15)."""
        if self._high_watermark.offset >= self.log_end_offset:
            self._set_high_watermark(self.log_end)

    @property
    def last_stable_offset(self) -> int:
        """Below it every transaction is decided and replicated; at most the high watermark (RD7)."""
        unstable = self._first_unstable
        return self.high_watermark if unstable is None else min(unstable.offset, self.high_watermark)

    @property
    def last_stable_metadata(self) -> LogOffsetMetadata:
        """With its place, looked up when only the offset is known."""
        high_watermark, unstable = self.high_watermark_metadata, self._first_unstable
        if unstable is None or unstable.offset >= high_watermark.offset:
            return high_watermark
        if unstable.is_message_only:
            unstable = self._first_unstable = self._maybe_resolve(unstable.offset)
        return unstable

    def _refresh_first_unstable(self) -> None:
        """After what may move it: an append, the high watermark, the log start offset.

        Not after a truncation that the high watermark does not notice: what lies below that is decided, though a
        rebuilt producer state takes it for not yet replicated.
        """
        unstable = self.producer_state.first_unstable_transaction
        if unstable is None:
            self._first_unstable = None
            return
        place = unstable.place
        if place.is_message_only or place.offset < self.log_start_offset:
            place = self._maybe_resolve(max(place.offset, self.log_start_offset))
        self._first_unstable = place

    def maybe_increment_log_start_offset(self, offset: int) -> bool:
        """Whether it moved: records below are gone for readers (RT1). Raises OffsetOutOfRange above the HW."""
        if offset > self.high_watermark:
            raise OffsetOutOfRange(offset, self.log_start_offset, self.high_watermark)
        if offset <= self.log_start_offset:
            return False
        self.log_start_offset = offset
        self._local.recovery_point = max(self._local.recovery_point, offset)
        self.leader_epochs.truncate_from_start(offset)
        self._flush_epochs()
        self.producer_state.on_log_start_offset_incremented(offset)
        self._refresh_first_unstable()
        return True

    def assign_epoch(self, epoch: int, offset: int | None = None) -> None:
        """A leader's epoch begins at `offset`, the log end without one, before it has written anything (KIP-101)."""
        self._check_online()
        try:
            self.leader_epochs.assign(epoch, self.log_end_offset if offset is None else offset)
        except OSError as error:
            raise self._go_offline("assign epoch", error) from error

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """(greatest epoch at most `epoch`, its end offset), (-1, -1) when unknown (EP5)."""
        return self.leader_epochs.end_offset_for(epoch, self.log_end_offset)

    # Helpers

    def _begin(self, now_ms: int) -> None:
        if self._offline_reason is not None:
            self._check_online()
        self._now_ms = now_ms

    def _check_online(self) -> None:
        if self._offline_reason is not None:
            raise StorageError(f"{self.directory} is offline: {self._offline_reason}")

    def mark_offline(self, action: str, error: OSError) -> StorageError:
        """For who ran a prepared flush that failed; gives what to raise."""
        return self._go_offline(action, error)

    def _go_offline(self, action: str, error: OSError) -> StorageError:
        self._offline_reason = f"{action} failed: {error}"
        logger.error("log offline: log=%s action=%s reason=%s", self.directory, action, error)
        return StorageError(f"{self.directory}: {self._offline_reason}")

    def _flush_epochs(self) -> None:
        try:
            self.leader_epochs.flush()
        except OSError as error:
            raise self._go_offline("flush epochs", error) from error
