"""Appending to a partition's log, as its leader and as a follower.

A leader's set is checked and stamped, by the quick check if it is plain, else by the rules; a follower's is only
analyzed. One method then writes what was checked. Kafka: UnifiedLog.append; rules AP1 to AP15.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, final

from storage.batch import CURRENT_MAGIC, RecordBatch, is_one_batch, iterate_batches
from storage.codec.buffer import Buffer
from storage.config import INT_MAX, LONG_MAX, LogConfig
from storage.disk.handle_pool import is_out_of_handles
from storage.disk.lack import refusing_lack
from storage.errors import (
    InvalidRecord,
    OffsetsExhausted,
    OffsetsOutOfOrder,
    OutOfHandles,
    RecordBatchTooLarge,
    StorageError,
    UnexpectedAppendOffset,
    ValidationTakesLong,
)
from storage.leader_epochs import LeaderEpochCache
from storage.log.append_info import AppendInfo
from storage.log.flushes import Flushes
from storage.log.local_log import LocalLog
from storage.log.marks import Marks
from storage.log.online import Online
from storage.producers.entry import AppendOrigin, BatchMetadata
from storage.producers.state import PreparedAppend, ProducerStateManager
from storage.producers.verification import VerificationGuard
from storage.segment import LogSegment
from storage.segment.place import LogOffsetMetadata
from storage.validation.analysis import analyze, check_in_order, check_produced, largest_batch_bytes
from storage.validation.batch import validate_and_assign
from storage.validation.checked import CheckedSet, EpochStart, NumberedSet, renumbered
from storage.validation.plain import PlainBatches
from storage.validation.rules import ValidationRules, check_batch_size
from storage.validation.sliced import SlicedValidation
from storage.validation.work import STEP_REBUILT_BYTES, StepWork

# Module names, because looking up a member of an enumeration takes as long as a short call.
_CLIENT: Final = AppendOrigin.CLIENT
_RAFT_LEADER: Final = AppendOrigin.RAFT_LEADER
_REPLICATION: Final = AppendOrigin.REPLICATION
_NEW: Final = tuple.__new__


@final
class Appends:
    """Checks sets of batches and writes them: every append to the log is made here, by the rules of its topic."""

    __slots__ = (
        "_epochs",
        "_flushes",
        "_local",
        "_marks",
        "_max_segment_ms",
        "_online",
        "_plain",
        "_producers",
        "_rules",
        "_segment_bytes",
        "_write_lowered_offsets",
    )

    def __init__(
        self,
        local: LocalLog,
        epochs: LeaderEpochCache,
        producers: ProducerStateManager,
        marks: Marks,
        flushes: Flushes,
        online: Online,
        write_lowered_offsets: Callable[[], None],
    ) -> None:
        self._local, self._epochs, self._producers = local, epochs, producers
        self._marks, self._flushes, self._online = marks, flushes, online
        self._write_lowered_offsets = write_lowered_offsets
        self.configure(local.config)

    def configure(self, config: LogConfig) -> None:
        """Check all later appends by the rules of `config`."""
        self._rules = ValidationRules.from_config(config)
        self._plain = PlainBatches(self._rules)
        self._segment_bytes, self._max_segment_ms = config.segment_bytes, config.max_segment_ms

    def as_leader(
        self,
        records: Buffer,
        *,
        leader_epoch: int,
        now_ms: int,
        origin: AppendOrigin = _CLIENT,
        guard: VerificationGuard | None = None,
        work: StepWork | None = None,
    ) -> AppendInfo:
        """Number the records from the log end on, stamp them with the leader epoch, and write them.

        A known retry of a client writes nothing and returns the offsets of the first append. With origin RAFT_LEADER
        the records have their offsets and epoch already. A bytearray is stamped in place, even if an error is raised
        afterwards. Raises CorruptBatch, RecordTooLarge, RecordBatchTooLarge, InvalidRecord and its children,
        OutOfOrderSequence, InvalidProducerEpoch, InvalidTransactionState, TransactionCoordinatorFenced,
        UnsupportedCompression, OffsetsExhausted; nothing is written then. Raises StorageError when the disk fails:
        the log is offline then, and some of the bytes may be written.

        With `work`, what is left to this step, a client's set whose checks would take longer raises
        ValidationTakesLong, and nothing has changed: `validation` checks it in slices, and `validated_as_leader`
        appends it then.
        """
        if self._online.reason is not None:
            self._online.check()
        if self._local.log_end_offset > LONG_MAX:
            # A damaged batch may end with the last possible offset.
            raise self._exhausted(self._local.log_end_offset)
        if origin is _RAFT_LEADER:
            return self._append_numbered(records, leader_epoch, now_ms)
        if origin is _CLIENT:
            plain = self._plain.check(records, self._local.log_end_offset, leader_epoch, now_ms)
            if plain is not None:
                return self._write(plain, now_ms, origin, guard)
        try:
            checked = self._validate(records, leader_epoch, now_ms, origin, work or StepWork())
        except ValidationTakesLong:
            if work is not None:
                raise
            validation = self.validation(records, now_ms)
            validation.run()
            return self.validated_as_leader(validation, leader_epoch=leader_epoch, now_ms=now_ms, guard=guard)
        return self._nothing() if checked is None else self._write(checked, now_ms, origin, guard)

    def validation(self, records: Buffer, now_ms: int) -> SlicedValidation:
        """Returns the checks of a client's set by the rules of this topic; they touch nothing of the log."""
        return SlicedValidation(records, self._rules, now_ms)

    def validated_as_leader(
        self,
        validation: SlicedValidation,
        *,
        leader_epoch: int,
        now_ms: int,
        guard: VerificationGuard | None = None,
    ) -> AppendInfo:
        """Number, stamp and write a set whose checks have ended. Raises what `as_leader` raises after its checks."""
        assert validation.is_done, "the checks have not ended"
        self._online.check()
        if validation.result is None:
            return self._nothing()
        checked = renumbered(validation.result, self._local.log_end_offset, leader_epoch)
        return self._write(checked, now_ms, _CLIENT, guard)

    def _validate(
        self, records: Buffer, leader_epoch: int, now_ms: int, origin: AppendOrigin, work: StepWork
    ) -> CheckedSet | None:
        """Check and stamp any set by the rules AP2 to AP8. Returns None for a set without a batch.

        Raises ValidationTakesLong for a client's set that is to be checked in slices.
        """
        is_in_slices = origin is _CLIENT and self._rules.target_magic == CURRENT_MAGIC
        if is_in_slices and len(records) > STEP_REBUILT_BYTES and not is_one_batch(records):
            raise ValidationTakesLong(f"a set of {len(records)} bytes that is not one batch")
        batches = check_produced(records, self._rules, is_client=origin is _CLIENT)
        if not batches:
            return None
        return validate_and_assign(
            records,
            self._rules,
            base_offset=self._local.log_end_offset,
            leader_epoch=leader_epoch,
            now_ms=now_ms,
            origin=origin,
            only=batches[0] if batches[0].size_bytes == len(records) else None,
            work=work if is_in_slices else None,
        )

    def as_follower(
        self, records: Buffer, *, leader_epoch: int, now_ms: int, may_exceed_segment: bool = False
    ) -> AppendInfo:
        """Write whole batches with the leader's offsets, which may have gaps between them.

        An incomplete batch at the end is dropped. `leader_epoch` is the epoch in which the fetch was sent: the first
        batch of a later epoch and all batches after it are skipped (FET-9, KAFKA-18723). Raises CorruptBatch,
        OffsetsOutOfOrder, UnexpectedAppendOffset for a first offset below the log end, RecordBatchTooLarge,
        InvalidTransactionState, OffsetsExhausted; nothing is written then. Raises StorageError when the disk fails:
        the log is offline then, and some of the bytes may be written.

        With `may_exceed_segment` a set larger than segment.bytes gets a segment of its own, in place of
        RecordBatchTooLarge as in Kafka: segment.bytes may have been lowered after the leader's append.
        """
        self._online.check()
        checked = analyze(records, leader_epoch)
        return self._append_in_order(checked, now_ms, _REPLICATION, may_exceed_segment=may_exceed_segment)

    def _append_numbered(self, records: Buffer, leader_epoch: int, now_ms: int) -> AppendInfo:
        """Write batches that the leader of a quorum has numbered and stamped itself."""
        checked = analyze(records, INT_MAX)
        for epoch, offset in checked.epoch_starts:
            if epoch != leader_epoch:
                raise InvalidRecord(
                    f"epoch {epoch} at offset {offset} differs from the leader's epoch {leader_epoch}"
                )
        if checked.columns:
            check_batch_size(largest_batch_bytes(checked), self._rules)
        return self._append_in_order(checked, now_ms, _RAFT_LEADER)

    def _append_in_order(
        self, checked: NumberedSet, now_ms: int, origin: AppendOrigin, *, may_exceed_segment: bool = False
    ) -> AppendInfo:
        """Write batches that have offsets already: these must increase and be at or above the log end (AP4, AP8).

        A batch that ends below its own begin is refused too: its length is a field that a broken leader may have set
        to anything.
        """
        if not checked.columns:
            return self._nothing(checked.skipped_bytes)
        check_in_order(checked.columns)
        log_end_offset = self._local.log_end_offset
        if checked.first_offset < log_end_offset:
            first_offset = next(iterate_batches(checked.records)).first_offset()
            last_offset = checked.last_offset
            raise UnexpectedAppendOffset(
                f"{self._local.directory}: offsets {first_offset} to {last_offset} "
                f"are below the log end offset {log_end_offset}",
                first_offset,
                last_offset,
            )
        if checked.columns.last_offsets[0] < checked.first_offset:
            raise OffsetsOutOfOrder(
                f"{self._local.directory}: the first batch begins at offset {checked.first_offset} "
                f"and ends below it, at {checked.columns.last_offsets[0]}"
            )
        return self._write(checked, now_ms, origin, may_exceed_segment=may_exceed_segment)

    def _nothing(self, skipped_bytes: int = 0) -> AppendInfo:
        return AppendInfo(
            first_offset=-1,
            last_offset=-1,
            log_start_offset=self._marks.log_start_offset,
            skipped_bytes=skipped_bytes,
        )

    def _write(
        self, checked: CheckedSet, now_ms: int, origin: AppendOrigin, guard: VerificationGuard | None = None, *,
        may_exceed_segment: bool = False,
    ) -> AppendInfo:  # fmt: skip
        """Write a checked set: epochs, size, roll, producers, bytes, log end, then what depends on it (AP9 to AP15).

        Raises what `as_leader` and `as_follower` raise; only with StorageError some of it is written.
        """
        local, before = self._local, self._local.log_end_offset
        last_offset, size_bytes = checked.last_offset, len(checked.records)
        end, max_timestamp, columns = last_offset + 1, checked.max_timestamp, checked.columns
        if last_offset >= LONG_MAX:
            raise self._exhausted(last_offset)
        try:
            leader_epoch, epoch_starts = checked.leader_epoch, checked.epoch_starts
            if epoch_starts is not None:
                self._note_epochs(epoch_starts)
            elif (
                leader_epoch != self._epochs.last_epoch
                # A follower's set that was refused may have begun after a gap.
                or checked.first_offset < self._epochs.last_start
                or leader_epoch < 0
            ):
                self._epochs.assign(leader_epoch, checked.first_offset)
            active, has_rolled = local.segments.last, False
            assert active is not None, "a log without a segment"
            if not active.has_room_for(
                size_bytes, last_offset, max_timestamp, self._segment_bytes, self._max_segment_ms
            ):
                has_rolled = self._maybe_roll(checked, now_ms, may_exceed_segment)
                active = local.segments.active
            prepared = None
            if checked.producer_batches:
                prepared = self._check_producers(checked.producer_batches, active, origin, guard)
                if prepared.duplicate is not None:
                    return self._duplicate(prepared.duplicate, checked)
            assert last_offset >= before, (last_offset, before)
            if local.is_below_checkpoints:
                self._lower_checkpoints()
            active.append(last_offset, checked.records, columns, max_timestamp)
            # Whatever fails from here on, these offsets are used (T35).
            local.end_at(end, active.base_offset, active.records.size_bytes)
            if prepared is not None:
                self._commit_producers(prepared)
            self._producers.reached(end)
            # A set without a producer id opens no transaction, so the first unstable offset stays.
            if prepared is not None or self._marks.first_unstable is not None:
                self._marks.refresh_first_unstable()
            assert local.log_end_offset == end, (local.log_end, end)
        except Exception as error:
            self._on_failure(error, before)
            raise
        # All fields in order: the constructor would take twice as long.
        return _NEW(
            AppendInfo,
            (
                checked.first_offset,
                last_offset,
                max_timestamp,
                checked.offset_of_max_timestamp,
                checked.log_append_time_ms,
                self._marks.log_start_offset,
                leader_epoch,
                1 if columns is None else len(columns),
                size_bytes,
                False,
                has_rolled,
                checked.skipped_bytes,
            ),
        )

    def _on_failure(self, error: Exception, log_end_before: int) -> None:
        """Take the log offline, unless a rule has refused the set and nothing was written.

        Raises StorageError for a disk that failed; OutOfHandles, while the log stays online, for a file that could not
        be opened before anything was written.
        """
        if is_out_of_handles(error) and not self._has_written(log_end_before):
            raise OutOfHandles(str(error)) from error
        if isinstance(error, OSError):
            raise self._online.failed("append", error) from error
        if not isinstance(error, StorageError) or self._has_written(log_end_before):
            self._online.failed("append", error)

    def _lower_checkpoints(self) -> None:
        """Write the offsets that a truncation lowered, before bytes that are not synced follow the cut (RT16).

        The truncation itself need not write them: until an append the log ends at the cut. A start takes that in place
        of a higher recovery point or high watermark, and below a higher log start there is no record that may be read.
        """
        self._write_lowered_offsets()
        self._local.is_below_checkpoints = False

    def _exhausted(self, last_offset: int) -> OffsetsExhausted:
        return OffsetsExhausted(
            f"{self._local.directory}: the log end offset {self._local.log_end_offset} cannot move past {last_offset}, "
            f"the last possible offset is {LONG_MAX}"
        )

    def _has_written(self, log_end_before: int) -> bool:
        """Whether an append that failed has moved the log end, or has left bytes after it."""
        active = self._local.segments.active
        end = LogOffsetMetadata(log_end_before, active.base_offset, active.records.size_bytes)
        return self._local.log_end != end

    def _note_epochs(self, epoch_starts: Sequence[EpochStart]) -> None:
        """Note where leader epochs begin (AP9). Raises InvalidRecord for a batch that no leader has stamped (T32)."""
        for epoch, start_offset in epoch_starts:
            if epoch is not None:
                self._epochs.assign(epoch, start_offset)
            elif len(self._epochs):
                # Magic 0 and 1 have no leader epochs, so the known epochs would be wrong for these records.
                self._epochs.clear_and_flush()

    def _maybe_roll(self, checked: CheckedSet, now_ms: int, may_exceed_segment: bool) -> bool:
        """Begin a new segment if the active one cannot take `checked` (LS4). Returns whether it did. Raises
        RecordBatchTooLarge, unless the set may exceed segment.bytes."""
        local, size_bytes = self._local, len(checked.records)
        segment_bytes = self._segment_bytes
        if size_bytes > segment_bytes and not may_exceed_segment:
            raise RecordBatchTooLarge(
                f"a set of {size_bytes} bytes is larger than segment.bytes={segment_bytes}"
            )
        if not local.segments.active.should_roll(
            messages_size=size_bytes,
            max_timestamp=checked.max_timestamp,
            max_offset=checked.last_offset,
            now_ms=now_ms,
            max_segment_bytes=segment_bytes,
            max_segment_ms=self._max_segment_ms,
        ):
            return False
        self._flushes.roll_unguarded(checked.roll_offset, now_ms)
        return True

    def _check_producers(
        self,
        batches: Sequence[RecordBatch],
        active: LogSegment,
        origin: AppendOrigin,
        guard: VerificationGuard | None,
    ) -> PreparedAppend:
        return self._producers.prepare_append(
            batches,
            origin=origin,
            segment_base_offset=active.base_offset,
            position=active.records.size_bytes,
            guard=guard,
        )

    def _commit_producers(self, prepared: PreparedAppend) -> None:
        """Take over the producers' new state, after the bytes of the append are written.

        The bytes stay even if the transaction index cannot be written: recovery at the next start writes the index
        from them (AP14, T35).
        """
        self._producers.commit(prepared)
        for completed in prepared.completed:
            aborted = self._producers.index_entry_of(completed)
            if aborted is not None:
                self._local.segments.active.note_aborted(aborted)
            self._producers.complete_transaction(completed)

    def _duplicate(self, found: BatchMetadata, checked: CheckedSet) -> AppendInfo:
        """Returns the result for a known retry: the offsets and the time of the first append, and the retry's
        timestamp (AP12)."""
        return AppendInfo(
            first_offset=found.first_offset,
            last_offset=found.last_offset,
            max_timestamp=checked.max_timestamp,
            log_append_time_ms=found.timestamp,
            log_start_offset=self._marks.log_start_offset,
            is_duplicate=True,
        )

    def maybe_start_transaction_verification(
        self,
        producer_id: int,
        *,
        sequence: int,
        producer_epoch: int,
        supports_epoch_bump: bool = True,
        now_ms: int,
    ) -> VerificationGuard | None:
        """Begin to verify a transaction, before the coordinator is asked. Returns the guard to append with (PS23).

        Returns None where no guard is needed, because the transaction has begun in this log already. Raises
        InvalidProducerEpoch, StorageError.
        """
        self._online.check()
        return self._producers.maybe_start_verification(
            producer_id,
            sequence=sequence,
            producer_epoch=producer_epoch,
            supports_epoch_bump=supports_epoch_bump,
            now_ms=now_ms,
        )

    def remove_expired_producers(self, now_ms: int) -> None:
        """Forget producers idle for producer.id.expiration.ms; Kafka does so every ten minutes (PS13).

        Raises StorageError.
        """
        self._online.check()
        self._producers.remove_expired(now_ms)

    def assign_epoch(self, epoch: int, offset: int | None = None) -> None:
        """Note that a leader's epoch begins at `offset`, before the leader has written anything (KIP-101).

        `offset` is the log end offset by default. The epoch is on disk on return. Raises StorageError; OutOfHandles,
        with nothing changed, if a file cannot be opened for want of a descriptor.
        """
        self._online.check()
        with self._online.during("assign epoch"), refusing_lack(f"leader epoch {epoch} not noted"):
            self._epochs.assign(epoch, self._local.log_end_offset if offset is None else offset)
