"""Appending to a partition's log, as its leader and as a follower. Kafka: UnifiedLog.append; rules AP1 to AP15."""

from __future__ import annotations

from typing import Final

from storage.batch import iterate_batches
from storage.buffer import Buffer
from storage.config import INT_MAX, LONG_MAX
from storage.errors import InvalidRecord, OffsetsExhausted, RecordBatchTooLarge, UnexpectedAppendOffset
from storage.log_append import (
    Analysis,
    AppendInfo,
    analyze,
    analyze_stamped,
    check_batch_size,
    check_in_order,
    check_produced,
    one_batch_appended,
)
from storage.log_flush import LogFlushes
from storage.plain_batch import PlainBatch, result_of
from storage.producer_append import AppendOrigin, BatchMetadata
from storage.producer_state import PreparedAppend
from storage.transaction_verification import VerificationGuard
from storage.validator import ValidationResult, validate_and_assign

# A member of an enumeration takes as long to look up as a short call.
_CLIENT: Final = AppendOrigin.CLIENT
_RAFT_LEADER: Final = AppendOrigin.RAFT_LEADER


class LogAppends(LogFlushes):
    def append_as_leader(
        self,
        records: Buffer,
        *,
        leader_epoch: int,
        now_ms: int,
        origin: AppendOrigin = _CLIENT,
        guard: VerificationGuard | None = None,
    ) -> AppendInfo:
        """Give the records offsets from the log end on, stamp the epoch, and write them.

        A known retry of a client writes nothing and gives the offsets of then. With origin RAFT_LEADER offsets and
        epoch are in the records already. Raises CorruptBatch, RecordTooLarge, RecordBatchTooLarge, InvalidRecord and
        its children, OutOfOrderSequence, InvalidProducerEpoch, InvalidTransactionState,
        TransactionCoordinatorFenced, UnsupportedCompression, OffsetsExhausted; nothing is written then.
        """
        if self._offline_reason is not None:  # `_begin`, without the cost of a call
            self._check_online()
        self._now_ms = now_ms
        if origin is _RAFT_LEADER:
            return self._append_numbered(records, leader_epoch, origin)
        result = None
        if origin is _CLIENT:
            first_offset = self._local.log_end_offset
            plain = self._plain.take(records, first_offset, leader_epoch, now_ms)
            if plain is not None:
                written = self._append_plain(plain, first_offset, leader_epoch)
                if written is not None:
                    return written
                result = result_of(plain, first_offset)
        if result is None:
            result = self._validate(records, leader_epoch, origin)
        if result is None:
            return self._nothing()
        analysis = analyze_stamped(result, leader_epoch)
        return self._write(
            result.records, analysis, origin, guard=guard, log_append_time_ms=result.log_append_time_ms
        )

    def _validate(self, records: Buffer, leader_epoch: int, origin: AppendOrigin) -> ValidationResult | None:
        """AP2 to AP8; None where there is no batch."""
        max_message_bytes = self.config.max_message_bytes
        batches = check_produced(
            records, max_message_bytes=max_message_bytes, is_client=origin == AppendOrigin.CLIENT
        )
        if not batches:
            return None
        result = validate_and_assign(
            records,
            self._rules,
            base_offset=self.log_end_offset,
            leader_epoch=leader_epoch,
            now_ms=self._now_ms,
            origin=origin,
            only=batches[0] if batches[0].size_bytes == len(records) else None,
        )
        if result.sizes_may_have_changed:
            check_batch_size(len(result.records), max_message_bytes)
        return result

    def _append_plain(self, batch: PlainBatch, first_offset: int, leader_epoch: int) -> AppendInfo | None:
        """`_write` for a batch of no producer that needs no roll; None, and nothing is written, for another."""
        records, last_offset, max_timestamp, has_producer_id = batch
        if has_producer_id or last_offset >= LONG_MAX:
            return None
        try:
            self.leader_epochs.assign(leader_epoch, first_offset)
            if not self._local.append_batch(
                last_offset, max_timestamp, records, self._now_ms, self._max_segment_ms
            ):
                return None
        except OSError as error:
            raise self._go_offline("append", error) from error
        self.producer_state.map_end_offset = last_offset + 1
        if self._first_unstable is not None:  # what has no producer makes nothing unstable
            self._refresh_first_unstable()
        return one_batch_appended(
            first_offset, last_offset, max_timestamp, self.log_start_offset, leader_epoch, len(records)
        )

    def append_as_follower(self, records: Buffer, *, leader_epoch: int, now_ms: int) -> AppendInfo:
        """Write whole batches as the leader has them: offsets kept, gaps upward allowed, an incomplete tail dropped.

        Batches of an epoch above `leader_epoch`, the one the fetch was sent in, and all behind them are skipped
        (FET-9, KAFKA-18723). Raises CorruptBatch, OffsetsOutOfOrder, UnexpectedAppendOffset for a first offset below
        the log end, RecordBatchTooLarge, InvalidTransactionState, OffsetsExhausted; nothing is written then.
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
            first_offset = next(iterate_batches(records)).first_offset()
            last_offset = analysis.last_offset
            raise UnexpectedAppendOffset(
                f"{self.directory}: offsets {first_offset} to {last_offset} "
                f"lie below the log end offset {self.log_end_offset}",
                first_offset,
                last_offset,
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
        self,
        records: Buffer,
        analysis: Analysis,
        origin: AppendOrigin,
        *,
        guard: VerificationGuard | None = None,
        log_append_time_ms: int = -1,
    ) -> AppendInfo:
        """AP9 to AP15, in this order: epochs, size, roll, producers, bytes, log end, then what follows from it."""
        before = self.log_end_offset
        if analysis.last_offset >= LONG_MAX:
            raise OffsetsExhausted(
                f"{self.directory}: the log end offset {before} cannot move behind {analysis.last_offset}, "
                f"{LONG_MAX} is the last there is"
            )
        try:
            self._note_epochs(analysis)
            if len(records) > self.config.segment_bytes:
                raise RecordBatchTooLarge(
                    f"a set of {len(records)} bytes is above segment.bytes={self.config.segment_bytes}"
                )
            has_rolled = self._maybe_roll(analysis, len(records))
            prepared = self._check_producers(analysis, origin, guard)
            if prepared is not None and prepared.duplicate is not None:
                return self._duplicate(prepared.duplicate, analysis)
            self._local.append(analysis.last_offset, records, analysis.columns)
            if prepared is not None:
                self._commit_producers(prepared)
        except OSError as error:
            raise self._go_offline("append", error) from error
        self.producer_state.map_end_offset = analysis.last_offset + 1
        self._refresh_first_unstable()
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
            max_segment_ms=self._max_segment_ms,
        ):
            return False
        self._roll(analysis.roll_offset)
        return True

    def _check_producers(
        self, analysis: Analysis, origin: AppendOrigin, guard: VerificationGuard | None
    ) -> PreparedAppend | None:
        if not analysis.producer_batches:
            return None
        return self.producer_state.prepare_append(
            analysis.producer_batches,
            origin=origin,
            segment_base_offset=self.active_segment.base_offset,
            position=self.active_segment.size_bytes,
            guard=guard,
        )

    def _commit_producers(self, prepared: PreparedAppend) -> None:
        """After the bytes: when the transaction index cannot be written they stay, and the next start's recovery
        writes it from them (AP14, T35)."""
        self.producer_state.commit(prepared)
        for completed in prepared.completed:
            aborted = self.producer_state.index_entry_of(completed)
            if aborted is not None:
                self.active_segment.note_aborted(aborted)
            self.producer_state.complete_transaction(completed)

    def _duplicate(self, found: BatchMetadata, analysis: Analysis) -> AppendInfo:
        """The offsets and the time are those of then; the largest timestamp is the set's that came now (AP12)."""
        return AppendInfo(
            first_offset=found.first_offset,
            last_offset=found.last_offset,
            max_timestamp=analysis.max_timestamp,
            log_append_time_ms=found.timestamp,
            log_start_offset=self.log_start_offset,
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
        """Before the transaction coordinator is asked; what it gives goes with the append (PS23).

        Raises InvalidProducerEpoch.
        """
        self._begin(now_ms)
        return self.producer_state.maybe_start_verification(
            producer_id,
            sequence=sequence,
            producer_epoch=producer_epoch,
            supports_epoch_bump=supports_epoch_bump,
            now_ms=now_ms,
        )

    def remove_expired_producers(self, now_ms: int) -> None:
        """Forget those idle for producer.id.expiration.ms; to be called every ten minutes, as Kafka does (PS13)."""
        self._begin(now_ms)
        self.producer_state.remove_expired(now_ms)
