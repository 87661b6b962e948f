"""One partition's log: what a leader and a follower append to, what is read, truncated and recovered.

It joins the segments (`local_log.py`) with what their records mean: leader epochs, producers, the high watermark and
the log start offset. One thread owns it. Kafka: UnifiedLog; rules AP, RO, FL, RD, RT.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import final

from storage.config import INT_MAX, LogConfig
from storage.draws import Draws
from storage.errors import (
    InvalidRecord,
    OffsetOutOfRange,
    RecordBatchTooLarge,
    StorageError,
    UnexpectedAppendOffset,
)
from storage.fetch_data import FetchData, Isolation
from storage.file_records import TimestampAndOffset
from storage.filesystem import Buffer, FileSystem, basename
from storage.leader_epochs import LeaderEpochCache
from storage.loader import LoadedLog, LoadRequest, load_log
from storage.local_log import LocalLog
from storage.log_append import (
    Analysis,
    AppendInfo,
    analyze,
    analyze_stamped,
    check_batch_size,
    check_in_order,
    check_produced,
)
from storage.log_files import delete_log_files
from storage.log_flush import PreparedFlush
from storage.offset_metadata import LogOffsetMetadata
from storage.producer_append import AppendOrigin
from storage.producer_rebuild import rebuild_producer_state
from storage.producer_state import PreparedAppend, ProducerStateManager
from storage.recovery_cut import RecoveryCut, ReportCut, ignore_cut
from storage.segment import LogSegment
from storage.segments import LogSegments
from storage.topics import parse_directory_name
from storage.validator import ValidationRules, validate_and_assign

__all__ = [
    "AppendInfo",
    "AppendOrigin",
    "FetchData",
    "Isolation",
    "LogOffsetMetadata",
    "PartitionLog",
    "PreparedFlush",
    "RecoveryCut",
]

logger = logging.getLogger(__name__)

LATEST_TIMESTAMP = -1
EARLIEST_TIMESTAMP = -2
MAX_TIMESTAMP = -3

_NO_DRAWS = Draws(0)


def _do_nothing() -> None:
    return


@final
class PartitionLog:
    """`log_start_offset` <= `high_watermark` <= `log_end_offset`, always.

    After an OSError the log is offline: that call and every later one raises StorageError (AP16). A failed sync must
    never be tried again: the kernel may have dropped the pages.
    """

    def __init__(
        self,
        request: LoadRequest,
        loaded: LoadedLog,
        on_recovery_point_lowered: Callable[[], None] = _do_nothing,
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
        self._rules = ValidationRules.from_config(request.config)
        self._now_ms = request.now_ms
        self._rolled_to = -1
        self._unsynced_snapshots: list[int] = []
        self._flushes: list[PreparedFlush] = []
        self._offline_reason: str | None = None

    @classmethod
    def open(
        cls,
        file_system: FileSystem,
        directory: str,
        config: LogConfig,
        *,
        log_start_offset: int = 0,
        recovery_point: int = 0,
        clean: bool,
        now_ms: int,
        draws: Draws = _NO_DRAWS,
        report: ReportCut = ignore_cut,
        on_recovery_point_lowered: Callable[[], None] = _do_nothing,
    ) -> PartitionLog:
        """Create or load the log in `directory`, named TOPIC-PARTITION; `report` is told of every cut.

        `log_start_offset` and `recovery_point` are what the checkpoints say. `on_recovery_point_lowered` is called
        after a truncation below the recovery point: the checkpoint must go down before an append passes it again.
        Raises StorageError with file and place for what can be neither cut nor rebuilt.
        """
        request = LoadRequest(
            file_system=file_system,
            directory=directory,
            config=config,
            now_ms=now_ms,
            is_clean=clean,
            log_start_offset=log_start_offset,
            recovery_point=recovery_point,
            draws=draws,
            report=report,
        )
        try:
            return cls(request, load_log(request), on_recovery_point_lowered)
        except OSError as error:
            raise StorageError(f"{directory} cannot be loaded: {error}") from error

    # What it is

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
        return self._local.log_end.offset

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

    # Append

    def append_as_leader(
        self,
        records: Buffer,
        *,
        leader_epoch: int,
        now_ms: int,
        origin: AppendOrigin = AppendOrigin.CLIENT,
    ) -> AppendInfo:
        """Give the records offsets from the log end on, stamp the epoch, and write them.

        A known retry of a client writes nothing and gives the offsets of then. With origin RAFT_LEADER offsets and
        epoch are in the records already. Raises CorruptBatch, RecordTooLarge, RecordBatchTooLarge, InvalidRecord and
        its children, OutOfOrderSequence, InvalidProducerEpoch, InvalidTransactionState,
        TransactionCoordinatorFenced, UnsupportedCompression; nothing is written then.
        """
        self._begin(now_ms)
        if origin == AppendOrigin.RAFT_LEADER:
            return self._append_numbered(records, leader_epoch, origin)
        max_message_bytes = self.config.max_message_bytes
        count = check_produced(
            records, max_message_bytes=max_message_bytes, is_client=origin == AppendOrigin.CLIENT
        )
        if count == 0:
            return self._nothing()
        result = validate_and_assign(
            records,
            self._rules,
            base_offset=self.log_end_offset,
            leader_epoch=leader_epoch,
            now_ms=now_ms,
            origin=origin,
        )
        if result.sizes_may_have_changed:
            check_batch_size(len(result.records), max_message_bytes)
        analysis = analyze_stamped(result)
        return self._write(result.records, analysis, origin, log_append_time_ms=result.log_append_time_ms)

    def append_as_follower(self, records: Buffer, *, leader_epoch: int, now_ms: int) -> AppendInfo:
        """Write whole batches as the leader has them: offsets kept, gaps upward allowed, an incomplete tail dropped.

        Batches of an epoch above `leader_epoch`, the one the fetch was sent in, and all behind them are skipped
        (FET-9, KAFKA-18723). Raises CorruptBatch, OffsetsOutOfOrder, UnexpectedAppendOffset for a first offset below
        the log end, RecordBatchTooLarge, InvalidTransactionState; nothing is written then.
        """
        self._begin(now_ms)
        analysis = analyze(records, leader_epoch)
        return self._append_analyzed(records, analysis, AppendOrigin.REPLICATION)

    def _append_numbered(self, records: Buffer, leader_epoch: int, origin: AppendOrigin) -> AppendInfo:
        analysis = analyze(records, INT_MAX)
        for epoch, offset in analysis.epoch_starts:
            if epoch != leader_epoch:
                raise InvalidRecord(f"epoch {epoch} at offset {offset} is not the leader's {leader_epoch}")
        check_batch_size(analysis.largest_batch_bytes, self.config.max_message_bytes)
        return self._append_analyzed(records, analysis, origin)

    def _append_analyzed(self, records: Buffer, analysis: Analysis, origin: AppendOrigin) -> AppendInfo:
        if analysis.batch_count == 0:
            return self._nothing(analysis)
        check_in_order(analysis)
        if analysis.first_offset < self.log_end_offset:
            raise UnexpectedAppendOffset(
                f"{self.directory}: offsets {analysis.first_offset} to {analysis.last_offset} "
                f"lie below the log end offset {self.log_end_offset}"
            )
        if analysis.size_bytes < len(records):
            records = memoryview(records)[: analysis.size_bytes]
        return self._write(records, analysis, origin)

    def _nothing(self, analysis: Analysis | None = None) -> AppendInfo:
        skipped_bytes = 0 if analysis is None else analysis.skipped_bytes
        return AppendInfo(
            first_offset=-1,
            last_offset=-1,
            log_start_offset=self.log_start_offset,
            skipped_bytes=skipped_bytes,
        )

    def _write(
        self, records: Buffer, analysis: Analysis, origin: AppendOrigin, log_append_time_ms: int = -1
    ) -> AppendInfo:
        """AP9 to AP15, in this order: epochs, size, roll, producers, bytes, log end, then what follows from it."""
        before = self.log_end_offset
        try:
            self._note_epochs(analysis)
            if len(records) > self.config.segment_bytes:
                raise RecordBatchTooLarge(
                    f"a set of {len(records)} bytes is above segment.bytes={self.config.segment_bytes}"
                )
            has_rolled = self._maybe_roll(analysis, len(records))
            prepared = self._check_producers(analysis, origin)
            if prepared is not None and prepared.duplicate is not None:
                return self._duplicate(prepared)
            self._local.append(
                analysis.last_offset, analysis.max_timestamp, analysis.offset_of_max_timestamp, records
            )
        except OSError as error:
            raise self._go_offline("append", error) from error
        if prepared is not None:
            self._commit_producers(prepared)
        self.producer_state.map_end_offset = analysis.last_offset + 1
        assert before <= analysis.first_offset or analysis.first_offset < 0, (before, analysis.first_offset)
        assert self.log_end_offset == analysis.last_offset + 1, (self.log_end, analysis.last_offset)
        return AppendInfo(
            first_offset=analysis.first_offset,
            last_offset=analysis.last_offset,
            max_timestamp=analysis.max_timestamp,
            offset_of_max_timestamp=analysis.offset_of_max_timestamp,
            log_append_time_ms=log_append_time_ms,
            log_start_offset=self.log_start_offset,
            last_leader_epoch=analysis.last_leader_epoch,
            batch_count=analysis.batch_count,
            size_bytes=len(records),
            has_rolled=has_rolled,
            skipped_bytes=analysis.skipped_bytes,
        )

    def _note_epochs(self, analysis: Analysis) -> None:
        """AP9. Raises InvalidRecord for a batch that no leader has stamped (T32)."""
        for epoch, start_offset in analysis.epoch_starts:
            if epoch is not None:
                self.leader_epochs.assign(epoch, start_offset)
            elif len(
                self.leader_epochs
            ):  # magic 0 and 1 carry none: what is known would be wrong from here on
                self.leader_epochs.clear_and_flush()

    def _maybe_roll(self, analysis: Analysis, size_bytes: int) -> bool:
        config = self.config
        if not self.active_segment.should_roll(
            messages_size=size_bytes,
            max_timestamp=analysis.max_timestamp,
            max_offset=analysis.last_offset,
            now_ms=self._now_ms,
            max_segment_bytes=config.segment_bytes,
            max_segment_ms=config.max_segment_ms,
        ):
            return False
        self._roll(analysis.roll_offset)
        return True

    def _check_producers(self, analysis: Analysis, origin: AppendOrigin) -> PreparedAppend | None:
        if not analysis.producer_batches:
            return None
        return self.producer_state.prepare_append(
            analysis.producer_batches,
            origin=origin,
            segment_base_offset=self.active_segment.base_offset,
            position=self.active_segment.size_bytes,
        )

    def _commit_producers(self, prepared: PreparedAppend) -> None:
        self.producer_state.commit(prepared)
        for completed in prepared.completed:
            self.producer_state.complete_transaction(completed)

    def _duplicate(self, prepared: PreparedAppend) -> AppendInfo:
        found = prepared.duplicate
        assert found is not None
        return AppendInfo(
            first_offset=found.first_offset,
            last_offset=found.last_offset,
            max_timestamp=found.timestamp,
            log_append_time_ms=found.timestamp,
            log_start_offset=self.log_start_offset,
            is_duplicate=True,
        )

    # Roll and flush

    def roll(self, expected_next_offset: int | None = None, *, now_ms: int | None = None) -> LogSegment:
        """Begin a new segment; what came before wants a flush then (`flush_wanted`). Raises StorageError."""
        self._begin(self._now_ms if now_ms is None else now_ms)
        try:
            return self._roll(expected_next_offset)
        except OSError as error:
            raise self._go_offline("roll", error) from error

    def _roll(self, expected_next_offset: int | None) -> LogSegment:
        segment = self._local.roll(expected_next_offset, self._now_ms)
        self.producer_state.map_end_offset = segment.base_offset
        if self.producer_state.take_snapshot(sync=False) is not None:
            self._unsynced_snapshots.append(segment.base_offset)
        self._keep_high_watermark_within_log()
        self._rolled_to = segment.base_offset
        logger.info("rolled: log=%s base_offset=%d", self.directory, segment.base_offset)
        return segment

    @property
    def unflushed_messages(self) -> int:
        return self._local.unflushed_messages

    @property
    def flush_wanted(self) -> int | None:
        """Up to where a flush is due: by flush.messages, or because a segment has been rolled; else None."""
        if self.unflushed_messages >= self.config.flush_messages:
            return self.log_end_offset
        return self._rolled_to if self._rolled_to > self.recovery_point else None

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
        assert 0 <= offset <= self.log_end_offset or offset == self._rolled_to, (offset, self.log_end_offset)
        bound = (
            offset + 1 if up_to is None else offset
        )  # an empty active segment counts when all is asked for
        segments = self._local.segments_to_flush(bound)
        has_new = any(segment.base_offset >= self.recovery_point for segment in segments)
        snapshots = [each for each in self._unsynced_snapshots if each <= offset]
        self._unsynced_snapshots = [each for each in self._unsynced_snapshots if each > offset]
        syncs = [self._snapshot_sync(each) for each in snapshots]
        prepared = PreparedFlush(
            self._file_system, offset, segments, syncs, self.directory if has_new else None
        )
        self._flushes.append(prepared)
        return prepared

    def _snapshot_sync(self, offset: int) -> Callable[[], None]:
        return lambda: self.producer_state.sync_snapshot(offset)

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

    # Read

    def read(
        self,
        start_offset: int,
        *,
        max_size: int,
        isolation: Isolation = Isolation.LOG_END,
        min_one_message: bool = True,
    ) -> FetchData:
        """Bytes from the batch that holds `start_offset`, up to the bound that `isolation` names (RD1 to RD4).

        Raises OffsetOutOfRange outside [log start, log end], ValueError for a negative size.
        """
        if max_size < 0:
            raise ValueError(f"a read of {max_size} bytes")
        self._check_online()
        if not self.log_start_offset <= start_offset <= self.log_end_offset:
            raise OffsetOutOfRange(start_offset, self.log_start_offset, self.log_end_offset)
        try:
            return self._local.read(start_offset, max_size, self._read_bound(isolation), min_one_message)
        except OSError as error:
            raise self._go_offline("read", error) from error

    def _read_bound(self, isolation: Isolation) -> LogOffsetMetadata:
        if isolation is Isolation.LOG_END:
            return self.log_end
        if isolation is Isolation.HIGH_WATERMARK:
            return self.high_watermark_metadata
        return self._local.place_of(self.last_stable_offset)

    def place_of(self, offset: int) -> LogOffsetMetadata:
        """Where the batch with `offset`, or the next one there is, lies. Raises OffsetOutOfRange."""
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise OffsetOutOfRange(offset, self.log_start_offset, self.log_end_offset)
        return self._local.place_of(offset)

    def offset_for_timestamp(self, timestamp: int) -> TimestampAndOffset | None:
        """The first record at least that late; -1 asks for the end, -2 for the start, -3 for the latest record (RD8)."""
        epochs = self.leader_epochs
        if timestamp == EARLIEST_TIMESTAMP:
            entry = epochs.earliest_entry
            is_known = entry is not None and entry.start_offset <= self.log_start_offset
            epoch = entry.epoch if entry is not None and is_known else None
            return TimestampAndOffset(timestamp=-1, offset=self.log_start_offset, leader_epoch=epoch)
        if timestamp == LATEST_TIMESTAMP:
            return TimestampAndOffset(
                timestamp=-1, offset=self.log_end_offset, leader_epoch=epochs.latest_epoch
            )
        if timestamp == MAX_TIMESTAMP:
            latest = max(self.segments, key=lambda segment: segment.max_timestamp.timestamp)
            found_at = latest.max_timestamp
            if found_at.timestamp < 0:
                return None
            return latest.find_offset_by_timestamp(found_at.timestamp, self.log_start_offset)
        for segment in self.segments:
            if segment.largest_timestamp_ms >= timestamp:
                found = segment.find_offset_by_timestamp(timestamp, self.log_start_offset)
                if found is not None:
                    return found
        return None

    # High watermark, log start, epochs

    @property
    def high_watermark(self) -> int:
        return self._high_watermark.offset

    @property
    def high_watermark_metadata(self) -> LogOffsetMetadata:
        """With its place, looked up when only the offset is known."""
        if self._high_watermark.is_message_only:
            self._high_watermark = self._local.place_of(self._high_watermark.offset)
        return self._high_watermark

    def update_high_watermark(self, offset: int) -> int:
        """As a leader told its follower, kept within [log start, log end]; gives the value taken (RD11).

        It may go back. AssertionError below 0.
        """
        assert offset >= 0, offset
        offset = max(offset, self.log_start_offset)
        if offset >= self.log_end_offset:
            self._set_high_watermark(self.log_end)
        elif offset != self._high_watermark.offset:
            self._set_high_watermark(LogOffsetMetadata(offset))
        return self.high_watermark

    def maybe_increment_high_watermark(self, new: LogOffsetMetadata) -> bool:
        """Whether it moved: only forward, or onto a newer segment at the same offset (RD11)."""
        assert new.offset <= self.log_end_offset, (new, self.log_end)
        old = self.high_watermark_metadata
        is_newer_place = new.offset == old.offset and not new.is_message_only and old.is_on_older_segment(new)
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
        assert self.log_start_offset <= new.offset <= self.log_end_offset, (new, self.log_end)

    def _keep_high_watermark_within_log(self) -> None:
        """After a roll or truncation its place may be gone, and it must not stand above the end (AP15)."""
        if self._high_watermark.offset >= self.log_end_offset:
            self._set_high_watermark(self.log_end)

    @property
    def last_stable_offset(self) -> int:
        """Below it every transaction is decided and replicated; at most the high watermark (RD7)."""
        unstable = self.producer_state.first_unstable_transaction
        if unstable is None:
            return self.high_watermark
        return min(max(unstable.first_offset, self.log_start_offset), self.high_watermark)

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

    # Truncate

    def truncate_to(self, offset: int, *, now_ms: int | None = None) -> bool:
        """Whether records went: the batch that holds `offset`, whole, and all behind it (RT9).

        The log ends at exactly `offset` then. At or beyond the end only epochs without records are forgotten.
        ValueError below 0.
        """
        if offset < 0:
            raise ValueError(f"a truncation to offset {offset}")
        self._begin(self._now_ms if now_ms is None else now_ms)
        try:
            if offset >= self.log_end_offset:
                self.leader_epochs.truncate_from_end(self.log_end_offset)
                self.leader_epochs.flush()
                return False
            if self.segments.base_offsets[0] > offset:
                self._truncate_fully(offset, None)
            else:
                self._truncate(offset)
        except OSError as error:
            raise self._go_offline("truncate", error) from error
        return True

    def _truncate(self, offset: int) -> None:
        before, recovery_point = self.log_end_offset, self.recovery_point
        self._lower_flushes(offset)
        removed = self._local.truncate_to(offset, self._now_ms)
        self._delete_snapshots_of(removed)
        self.leader_epochs.truncate_from_end(offset)
        self.leader_epochs.flush()
        self.log_start_offset = min(offset, self.log_start_offset)
        self._rebuild_producers(offset)
        self._keep_high_watermark_within_log()
        self._note_truncation(before, recovery_point)

    def truncate_fully_and_start_at(
        self, offset: int, log_start_offset: int | None = None, *, now_ms: int | None = None
    ) -> None:
        """Drop everything; the next record is `offset`, the first readable one that or `log_start_offset` (RT12)."""
        self._begin(self._now_ms if now_ms is None else now_ms)
        try:
            self._truncate_fully(offset, log_start_offset)
        except OSError as error:
            raise self._go_offline("truncate", error) from error

    def _truncate_fully(self, offset: int, log_start_offset: int | None) -> None:
        before, recovery_point = self.log_end_offset, self.recovery_point
        self._lower_flushes(0)
        self._local.truncate_fully_and_start_at(offset, self._now_ms)
        self.leader_epochs.clear_and_flush()
        self.producer_state.truncate_fully_and_start_at(offset)
        self._unsynced_snapshots.clear()
        self.log_start_offset = offset if log_start_offset is None else log_start_offset
        self._rebuild_producers(offset)
        self._high_watermark = self.log_end
        self._note_truncation(before, recovery_point)

    def _note_truncation(self, log_end_before: int, recovery_point_before: int) -> None:
        self._rolled_to = min(self._rolled_to, self.log_end_offset)
        logger.info("truncated: log=%s from=%d to=%d", self.directory, log_end_before, self.log_end_offset)
        if self.recovery_point < recovery_point_before:
            self._on_recovery_point_lowered()
        assert self.recovery_point <= self.log_end_offset, (self.recovery_point, self.log_end)
        assert self.high_watermark <= self.log_end_offset, (self._high_watermark, self.log_end)

    def _lower_flushes(self, offset: int) -> None:
        for prepared in self._flushes:
            prepared.valid_up_to = min(prepared.valid_up_to, offset)

    def _delete_snapshots_of(self, segments: list[LogSegment]) -> None:
        for segment in segments:
            path = self.producer_state.mark_snapshot_for_deletion(segment.base_offset)
            if path is not None:
                self._file_system.unlink(path)

    def _rebuild_producers(self, last_offset: int) -> None:
        rebuild_producer_state(
            self.producer_state,
            self.segments,
            log_start_offset=self.log_start_offset,
            last_offset=last_offset,
            now_ms=self._now_ms,
            is_clean=False,
        )

    # End

    def close(self, now_ms: int | None = None) -> None:
        """An orderly stop: a synced producer snapshot at the log end, files trimmed and synced (RT14)."""
        self._begin(self._now_ms if now_ms is None else now_ms)
        self.producer_state.take_snapshot()
        self._local.close()

    def close_handles(self) -> None:
        """No trim and no sync, as in a crash."""
        self._local.close_handlers()

    def delete(self) -> None:
        """Remove the segments, what lies beside them and the directory (RT13)."""
        self._local.delete_all_segments()
        self.leader_epochs.clear()
        delete_log_files(self._file_system, self.directory)

    # Helpers

    def _begin(self, now_ms: int) -> None:
        self._check_online()
        self._now_ms = now_ms

    def _check_online(self) -> None:
        if self._offline_reason is not None:
            raise StorageError(f"{self.directory} is offline: {self._offline_reason}")

    def _go_offline(self, action: str, error: OSError) -> StorageError:
        self._offline_reason = f"{action} failed: {error}"
        logger.error("log offline: log=%s action=%s reason=%s", self.directory, action, error)
        return StorageError(f"{self.directory}: {self._offline_reason}")

    def _flush_epochs(self) -> None:
        try:
            self.leader_epochs.flush()
        except OSError as error:
            raise self._go_offline("flush epochs", error) from error

    def __repr__(self) -> str:
        return f"PartitionLog({self.directory}, [{self.log_start_offset}, {self.log_end_offset}))"
