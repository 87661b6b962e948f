"""What a log knows of the producers that wrote into it: last sequences and open transactions.

Kafka: ProducerStateManager (KIP-98). It is rebuilt from the log's own batches, from the newest snapshot on.

How an append uses it: `prepare_append` (or `prepare_update` and `ProducerAppendInfo.append` batch by batch)
checks against copies; after the bytes are written `commit` takes the copies over. How a recovery uses it:
`replay` for each batch, or, in a loop over unpacked headers, `replay_data` for the batches whose producer id
is not negative and whose control bit is clear, `replay` for control batches, nothing at all for the rest;
then say once what was `reached`.
"""

from __future__ import annotations

import logging
from bisect import bisect_left, insort
from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType
from typing import final

from storage.batch import RecordBatch
from storage.batch.format import CONTROL_FLAG, TRANSACTIONAL_FLAG
from storage.batch.record import MAX_INT32, wrap_int64
from storage.disk.filesystem import FileSystem, OpenMode, join
from storage.errors import CorruptSnapshot, InvalidProducerEpoch, InvalidTransactionState
from storage.index.transaction_index import AbortedTransaction
from storage.producers.entry import (
    AppendOrigin,
    BatchMetadata,
    CompletedTransaction,
    OngoingTransaction,
    ProducerAppendInfo,
    ProducerStateEntry,
    outside_transaction,
)
from storage.producers.snapshot import list_snapshots, read_snapshot, snapshot_name, write_snapshot
from storage.producers.verification import TransactionVerifications, VerificationGuard
from storage.segment import LogSegment
from storage.segment.place import UNKNOWN_POSITION, UNKNOWN_SEGMENT, LogOffsetMetadata

logger = logging.getLogger(__name__)

LATE_TRANSACTION_BUFFER_MS = 300_000


@final
class PreparedAppend:
    """What the batches of one append would change. `duplicate` is set when the append is a known retry."""

    __slots__ = ("completed", "duplicate", "infos")

    def __init__(self) -> None:
        self.infos: dict[int, ProducerAppendInfo] = {}
        self.completed: list[CompletedTransaction] = []
        self.duplicate: BatchMetadata | None = None


@final
class ProducerStateManager:
    """The producers of one log, up to `map_end_offset` (exclusive), and the snapshots in its `directory`.

    The log moves `map_end_offset` past each batch by `reached`, with or without a producer.
    """

    __slots__ = (
        "_completed",
        "_directory",
        "_file_system",
        "_map_end_offset",
        "_max_transaction_timeout_ms",
        "_ongoing",
        "_producer_id_expiration_ms",
        "_producers",
        "_snapshots",
        "last_snapshot_offset",
        "verifications",
        "verifies_transactions",
    )

    def __init__(
        self,
        file_system: FileSystem,
        directory: str,
        *,
        producer_id_expiration_ms: int = 86_400_000,
        max_transaction_timeout_ms: int = 900_000,
        verifies_transactions: bool = False,
    ) -> None:
        assert producer_id_expiration_ms > 0, producer_id_expiration_ms
        self._file_system, self._directory = file_system, directory
        self._producer_id_expiration_ms = producer_id_expiration_ms
        self._max_transaction_timeout_ms = max_transaction_timeout_ms
        self._producers: dict[int, ProducerStateEntry] = {}
        # Both by first offset, ascending. Completed ones stay until the high watermark has passed their
        # marker.
        self._ongoing: dict[int, OngoingTransaction] = {}
        self._completed: dict[int, OngoingTransaction] = {}
        self._snapshots = list_snapshots(file_system, directory)
        self.last_snapshot_offset = 0
        self._map_end_offset = 0
        self.verifications = TransactionVerifications()
        self.verifies_transactions = verifies_transactions  # may be switched while the log is open

    # What is known

    @property
    def map_end_offset(self) -> int:
        """The offset whose state this is: all batches below it were followed."""
        return self._map_end_offset

    @property
    def producers(self) -> Mapping[int, ProducerStateEntry]:
        """Read-only, by producer id."""
        return MappingProxyType(self._producers)

    @property
    def ongoing_transactions(self) -> list[OngoingTransaction]:
        """Open ones, by first offset."""
        return list(self._ongoing.values())

    @property
    def is_empty(self) -> bool:
        return not self._producers and not self._completed

    def last_entry(self, producer_id: int) -> ProducerStateEntry | None:
        return self._producers.get(producer_id)

    def find_duplicate(self, batch: RecordBatch) -> BatchMetadata | None:
        """The one of the producer's last five batches that `batch` repeats (PS10)."""
        entry = self._producers.get(batch.producer_id)
        return None if entry is None else entry.find_duplicate(batch)

    @property
    def first_undecided_offset(self) -> int | None:
        """Of the earliest open transaction."""
        return next(iter(self._ongoing), None)

    @property
    def first_unstable_transaction(self) -> OngoingTransaction | None:
        """The earliest that is open, or whose marker is not below the high watermark yet (PS22)."""
        if not self._ongoing and not self._completed:  # asked after every append
            return None
        ongoing = next(iter(self._ongoing.values()), None)
        completed = next(iter(self._completed.values()), None)
        if ongoing is None or completed is None:
            return ongoing or completed
        return ongoing if ongoing.first_offset < completed.first_offset else completed

    @property
    def first_unstable_offset(self) -> int | None:
        transaction = self.first_unstable_transaction
        return None if transaction is None else transaction.first_offset

    def last_stable_offset(self, completed: CompletedTransaction) -> int:
        """As of this completion: below it no other transaction is open (PS11)."""
        for transaction in self._ongoing.values():
            if transaction.producer_id != completed.producer_id:
                return transaction.first_offset
        return completed.last_offset + 1

    def reached(self, offset: int) -> None:
        """Note that all batches below `offset` were handed in, or have no producer: the state is that at `offset`."""
        self._map_end_offset = offset

    def index_entry_of(self, completed: CompletedTransaction) -> AbortedTransaction | None:
        """The entry of `completed` for the transaction index, if it was an abort; None if it was a commit."""
        if not completed.is_aborted:
            return None
        return AbortedTransaction(
            producer_id=completed.producer_id,
            first_offset=completed.first_offset,
            last_offset=completed.last_offset,
            last_stable_offset=self.last_stable_offset(completed),
        )

    def has_late_transaction(self, now_ms: int) -> bool:
        """Whether the oldest open transaction has been idle beyond the longest timeout and a buffer
        (PS14).
        """
        oldest = next(iter(self._ongoing.values()), None)
        entry = None if oldest is None else self._producers.get(oldest.producer_id)
        if entry is None or entry.last_timestamp <= 0:
            return False
        return now_ms - entry.last_timestamp > self._max_transaction_timeout_ms + LATE_TRANSACTION_BUFFER_MS

    # Appends

    def prepare_update(self, producer_id: int, origin: AppendOrigin) -> ProducerAppendInfo:
        """A copy to check batches against; the state itself changes in `update` (PS1)."""
        assert producer_id >= 0, producer_id
        entry = self._producers.get(producer_id)
        verification = self.verifications.entry(producer_id)
        current = ProducerStateEntry(producer_id) if entry is None else entry
        return ProducerAppendInfo(current, origin, verification)

    def prepare_append(
        self,
        batches: Iterable[RecordBatch],
        *,
        origin: AppendOrigin,
        segment_base_offset: int = UNKNOWN_SEGMENT,
        position: int = UNKNOWN_POSITION,
        guard: VerificationGuard | None = None,
    ) -> PreparedAppend:
        """Check the batches of one append, which will be written from `position` of the segment on.

        A client's retry of one of the last five batches ends it: `duplicate` is set and nothing is to be
        written, nor the rest of the set (AP12). `guard` is what `maybe_start_verification` gave for it. Raises
        as `ProducerAppendInfo.append`; the state stays as it was.
        """
        prepared = PreparedAppend()
        is_client = origin == AppendOrigin.CLIENT
        needs_verification = is_client or origin == AppendOrigin.COORDINATOR
        start = None
        for batch in batches:
            start = batch.position if start is None else start
            if batch.producer_id < 0:
                continue
            if is_client and (duplicate := self.find_duplicate(batch)):
                prepared.duplicate = duplicate
                return prepared
            is_transactional = bool(batch.attributes & TRANSACTIONAL_FLAG)
            if is_transactional and needs_verification:
                self._check_verified(batch, guard)
            info = prepared.infos.get(batch.producer_id)
            if info is None:
                info = prepared.infos[batch.producer_id] = self.prepare_update(batch.producer_id, origin)
            at = position + batch.position - start if position >= 0 else UNKNOWN_POSITION
            completed = info.append(batch, segment_base_offset=segment_base_offset, position=at)
            if completed is not None:
                prepared.completed.append(completed)
            if is_transactional:
                self.verifications.forget(batch.producer_id)
        return prepared

    def _check_verified(self, batch: RecordBatch, guard: VerificationGuard | None) -> None:
        """AP13. Raises InvalidTransactionState."""
        if not self.verifies_transactions or batch.attributes & CONTROL_FLAG:
            return
        if self.has_ongoing_transaction(batch.producer_id, batch.producer_epoch):
            return
        if not self.verifications.is_verified(batch.producer_id, guard):
            raise InvalidTransactionState(
                f"producer {batch.producer_id} epoch {batch.producer_epoch} begins a transaction that the "
                "transaction coordinator has not confirmed"
            )

    def has_ongoing_transaction(self, producer_id: int, producer_epoch: int) -> bool:
        entry = self._producers.get(producer_id)
        return (
            entry is not None
            and entry.transaction_first_offset is not None
            and entry.producer_epoch == producer_epoch
        )

    def maybe_start_verification(
        self,
        producer_id: int,
        *,
        sequence: int,
        producer_epoch: int,
        supports_epoch_bump: bool = True,
        now_ms: int,
    ) -> VerificationGuard | None:
        """What an append has to show after the transaction coordinator was asked; None where none is needed, the
        transaction having been begun here (PS23). Raises InvalidProducerEpoch.
        """
        entry = self._producers.get(producer_id)
        if entry is not None and producer_epoch < entry.producer_epoch:
            raise InvalidProducerEpoch(
                f"producer {producer_id} epoch {producer_epoch} is older than the last seen epoch "
                f"{entry.producer_epoch}"
            )
        if self.has_ongoing_transaction(producer_id, producer_epoch):
            return None
        return self.verifications.note(
            producer_id,
            sequence=sequence,
            producer_epoch=producer_epoch,
            supports_epoch_bump=supports_epoch_bump,
            now_ms=now_ms,
        ).guard

    def update(self, info: ProducerAppendInfo) -> None:
        """Take over what an append made of the copy; call it once the bytes are written (PS9)."""
        producer_id = info.updated.producer_id
        entry = self._producers.get(producer_id)
        if entry is None:
            entry = self._producers[producer_id] = ProducerStateEntry(producer_id)
        entry.merge(info.updated)
        for transaction in info.transactions:
            _put_in_order(self._ongoing, transaction)

    def commit(self, prepared: PreparedAppend) -> None:
        """`update` for each producer of the append. Completed transactions are left to the caller, who first
        asks `last_stable_offset` for the transaction index and then calls `complete_transaction`."""
        assert prepared.duplicate is None, prepared.duplicate
        for info in prepared.infos.values():
            self.update(info)

    def complete_transaction(self, completed: CompletedTransaction) -> None:
        """Its marker is written: it is no longer open, but unstable until replicated (PS12).

        Raises InvalidTransactionState for one that is not open: a damaged log may end a transaction twice.
        """
        transaction = self._ongoing.pop(completed.first_offset, None)
        if transaction is None:
            raise InvalidTransactionState(
                f"producer {completed.producer_id} ends at {completed.last_offset} "
                f"a transaction from {completed.first_offset} on that is not open"
            )
        transaction.last_offset = completed.last_offset
        _put_in_order(self._completed, transaction)

    def on_high_watermark_updated(self, high_watermark: int) -> None:
        """Transactions whose marker lies below it are stable now."""
        if self._completed:
            self._remove_completed_below(high_watermark)

    # Replay of what is in the log already

    def replay(self, batch: RecordBatch) -> CompletedTransaction | None:
        """One batch of the log as recovery or a rebuild meets it: no sequence or epoch is refused (PS24,
        PS25).

        A transaction that it ended is given, for the transaction index; `complete_transaction` is the
        caller's. Raises InvalidTransactionState and InvalidRecord; the state stays as it was then.
        """
        if batch.producer_id < 0:
            return None
        if batch.attributes & CONTROL_FLAG:
            info = self.prepare_update(batch.producer_id, AppendOrigin.REPLICATION)
            completed = info.append(batch)
            self.update(info)
            return completed
        self.replay_data(
            batch.attributes,
            batch.last_offset_delta,
            batch.max_timestamp,
            batch.producer_id,
            batch.producer_epoch,
            batch.base_sequence,
            batch.base_offset,
        )
        return None

    def replay_data(
        self,
        attributes: int,
        last_offset_delta: int,
        max_timestamp: int,
        producer_id: int,
        producer_epoch: int,
        base_sequence: int,
        base_offset: int,
    ) -> None:
        """`replay` of a data batch by its header's fields, in their order; for loops over many headers.

        Changes the entry itself, without a copy: the batch is on disk already. Raises
        InvalidTransactionState.
        """
        entry = self._producers.get(producer_id)
        if entry is None:
            entry = self._producers[producer_id] = ProducerStateEntry(producer_id)
        if attributes & TRANSACTIONAL_FLAG:
            if entry.transaction_first_offset is None:
                entry.transaction_first_offset = base_offset
                _put_in_order(self._ongoing, OngoingTransaction(producer_id, LogOffsetMetadata(base_offset)))
        elif entry.transaction_first_offset is not None:
            raise outside_transaction(entry, base_offset)
        if entry.producer_epoch != producer_epoch:
            entry.set_epoch(producer_epoch)
        entry.batches.append(
            (
                (base_sequence + last_offset_delta) & MAX_INT32 if base_sequence >= 0 else -1,
                base_offset + last_offset_delta,
                last_offset_delta,
                max_timestamp,
            )
        )
        entry.last_timestamp = max_timestamp

    # Expiry, truncation, the log's start

    def remove_expired(self, now_ms: int) -> None:
        """Forget producers idle for the expiration time that have no open transaction (PS13)."""
        expired = [entry.producer_id for entry in self._producers.values() if self._is_expired(entry, now_ms)]
        for producer_id in expired:
            del self._producers[producer_id]
        self.verifications.remove_expired(now_ms, self._producer_id_expiration_ms)

    def _is_expired(self, entry: ProducerStateEntry, now_ms: int) -> bool:
        if entry.transaction_first_offset is not None:
            return False
        # A batch may carry any 64 bits as its time: one before -2^62 or so counts as of the future, as in Kafka.
        return wrap_int64(now_ms - entry.last_timestamp) >= self._producer_id_expiration_ms

    def truncate_and_reload(self, log_start_offset: int, log_end_offset: int, now_ms: int) -> None:
        """Be the state at `log_end_offset` or at a snapshot at most there (PS16).

        The caller replays from `map_end_offset` on.
        """
        self._delete_snapshots(
            [offset for offset in self._snapshots if offset > log_end_offset or offset <= log_start_offset]
        )
        if log_end_offset == self.map_end_offset:
            self.on_log_start_offset_incremented(log_start_offset)
            return
        self._clear()
        self._load_newest_snapshot(log_start_offset, now_ms)

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Forget everything, snapshots included (PS17)."""
        self._clear()
        self._delete_snapshots(self._snapshots)
        self.last_snapshot_offset = 0
        self._map_end_offset = offset

    def on_log_start_offset_incremented(self, log_start_offset: int) -> None:
        """Producers stay: their last sequence still guards against retries (PS18)."""
        self._remove_completed_below(log_start_offset)
        self._map_end_offset = max(self.map_end_offset, log_start_offset)
        self.last_snapshot_offset = self._snapshots[-1] if self._snapshots else log_start_offset

    def _clear(self) -> None:
        self._producers.clear()
        self._ongoing.clear()
        self._completed.clear()

    def _load_newest_snapshot(self, log_start_offset: int, now_ms: int) -> None:
        while self._snapshots:
            offset = self._snapshots[-1]
            path = join(self._directory, snapshot_name(offset))
            try:
                entries = read_snapshot(self._file_system, path)
            except (CorruptSnapshot, FileNotFoundError) as error:
                logger.warning("producer snapshot dropped: path=%s reason=%s", path, error)
                self._delete_snapshots([offset])
                continue
            for entry in entries:
                if not self._is_expired(entry, now_ms):
                    self._load(entry)
            self.last_snapshot_offset = self._map_end_offset = offset
            return
        self.last_snapshot_offset = self._map_end_offset = log_start_offset

    def _load(self, entry: ProducerStateEntry) -> None:
        self._producers[entry.producer_id] = entry
        if entry.transaction_first_offset is not None:
            place = LogOffsetMetadata(entry.transaction_first_offset)
            _put_in_order(self._ongoing, OngoingTransaction(entry.producer_id, place))

    # Snapshots

    @property
    def snapshot_offsets(self) -> list[int]:
        """Ascending."""
        return list(self._snapshots)

    @property
    def latest_snapshot_offset(self) -> int | None:
        return self._snapshots[-1] if self._snapshots else None

    @property
    def oldest_snapshot_offset(self) -> int | None:
        return self._snapshots[0] if self._snapshots else None

    def take_snapshot(self, *, sync: bool = True) -> str | None:
        """Save the state at `map_end_offset` unless one at or beyond it was taken; its path (PS15).

        Without `sync` the caller owes a `sync_snapshot` before the recovery point passes the offset (T12).
        """
        offset = self.map_end_offset
        if offset <= self.last_snapshot_offset:
            return None
        path = write_snapshot(
            self._file_system,
            self._directory,
            offset,
            self._producers.values(),
            sync=sync,
        )
        self._note_snapshot(offset)
        self.last_snapshot_offset = offset
        return path

    def sync_snapshot(self, offset: int) -> None:
        """fsync of the snapshot at `offset`; nothing when it has gone."""
        try:
            file = self._file_system.open(join(self._directory, snapshot_name(offset)), OpenMode.WRITE)
        except FileNotFoundError:
            return
        try:
            file.sync()
        finally:
            file.close()

    def update_parent_directory(self, directory: str) -> None:
        """The directory was renamed: only the remembered path changes."""
        self._directory = directory

    def reload_snapshots(self) -> None:
        """List the directory again: files came or went behind our back."""
        self._snapshots = list_snapshots(self._file_system, self._directory)

    def remove_stray_snapshots(self, segment_base_offsets: Collection[int]) -> None:
        """Keep those at a segment's base, and the newest beyond all bases: a clean shutdown's (PS19)."""
        self.reload_snapshots()
        bases = set(segment_base_offsets)
        stray = [offset for offset in self._snapshots if offset not in bases]
        if stray and (not bases or stray[-1] >= max(bases)):
            stray.pop()
        self._delete_snapshots(stray)

    def delete_snapshots_before(self, offset: int) -> None:
        """Those below `offset`, which itself stays (PS20)."""
        self._delete_snapshots(self._snapshots[: bisect_left(self._snapshots, offset)])

    def mark_snapshot_for_deletion(self, offset: int) -> str | None:
        """Rename the snapshot at `offset` to `.deleted` and forget it; the new path, None when there is none
        (PS20).
        """
        if offset not in self._snapshots:
            return None
        self._snapshots.remove(offset)
        path = join(self._directory, snapshot_name(offset))
        try:
            self._file_system.rename(path, path + ".deleted")
        except FileNotFoundError:
            return None
        return path + ".deleted"

    def delete_snapshots_of(self, segments: Iterable[LogSegment]) -> None:
        """Delete the snapshots at the base offsets of `segments`, which have left the log. Raises OSError."""
        for segment in segments:
            path = self.mark_snapshot_for_deletion(segment.base_offset)
            if path is not None:
                self._file_system.unlink(path)

    def _note_snapshot(self, offset: int) -> None:
        if offset not in self._snapshots:
            insort(self._snapshots, offset)

    def _delete_snapshots(self, offsets: Collection[int]) -> None:
        """For good: one that came back after a power loss would pass for the state of a log cut below it."""
        if not offsets:
            return
        gone = set(offsets)
        self._snapshots = [offset for offset in self._snapshots if offset not in gone]
        for offset in sorted(gone):
            try:
                self._file_system.unlink(join(self._directory, snapshot_name(offset)))
            except FileNotFoundError:
                logger.debug("producer snapshot already gone: offset=%d", offset)
        self._file_system.sync_directory(self._directory)

    def _remove_completed_below(self, offset: int) -> None:
        stable = [
            first
            for first, transaction in self._completed.items()
            if transaction.last_offset is not None and transaction.last_offset < offset
        ]
        for first in stable:
            del self._completed[first]


def _put_in_order(transactions: dict[int, OngoingTransaction], transaction: OngoingTransaction) -> None:
    """Keep a dictionary by first offset in ascending order; nearly always the new one is the last."""
    newest = next(reversed(transactions), -1)
    transactions[transaction.first_offset] = transaction
    if transaction.first_offset < newest:
        ordered = sorted(transactions.items())
        transactions.clear()
        transactions.update(ordered)
