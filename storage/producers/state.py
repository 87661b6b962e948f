"""What a log knows of the producers that wrote into it: last sequences and open transactions.

The state is rebuilt from the log's own batches, from the newest snapshot on. Kafka: ProducerStateManager (KIP-98).

An append calls `prepare_append`, which checks its batches against copies, and after the bytes are written `commit`,
which takes the copies over. (`prepare_update` and `ProducerAppendInfo.append` do the same batch by batch.)

A recovery calls `replay` for each batch. A loop over unpacked headers calls `replay_data` for data batches with a
producer id, `replay` for control batches and nothing for batches without a producer id. At the end either calls
`reached` once.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable, Sequence
from functools import partial
from typing import final

from storage.batch import RecordBatch
from storage.batch.format import CONTROL_FLAG, TRANSACTIONAL_FLAG
from storage.batch.record import MAX_INT32, wrap_int64
from storage.disk.filesystem import FileSystem
from storage.errors import InvalidProducerEpoch, InvalidTransactionState
from storage.index.transaction_index import AbortedTransaction
from storage.producers.entry import (
    BATCHES_KEPT,
    AppendOrigin,
    BatchMetadata,
    CompletedTransaction,
    OngoingTransaction,
    ProducerAppendInfo,
    ProducerStateEntry,
    outside_transaction,
)
from storage.producers.prepared_snapshot import PreparedSnapshot
from storage.producers.rows import SnapshotRows
from storage.producers.snapshot_files import SnapshotFiles
from storage.producers.table import ProducerTable
from storage.producers.verification import TransactionVerifications, VerificationGuard
from storage.segment.place import UNKNOWN_POSITION, UNKNOWN_SEGMENT, LogOffsetMetadata

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
    """The producers of one log, up to `map_end_offset` (exclusive), and their `snapshots` on the disk.

    The log calls `reached` to move `map_end_offset` after each batch, even after one without a producer.
    """

    __slots__ = (
        "_completed",
        "_map_end_offset",
        "_max_transaction_timeout_ms",
        "_ongoing",
        "_prepared",
        "_producer_id_expiration_ms",
        "_producers",
        "last_snapshot_offset",
        "snapshots",
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
        snapshot_offsets: Sequence[int] | None = None,
    ) -> None:
        """Set up an empty state. `snapshot_offsets` are those of the snapshots in the directory, ascending, if they are
        known already: a directory of many segments takes long to list.
        """
        assert producer_id_expiration_ms > 0, producer_id_expiration_ms
        self._producer_id_expiration_ms = producer_id_expiration_ms
        self._max_transaction_timeout_ms = max_transaction_timeout_ms
        self._producers = ProducerTable()
        # By first offset, ascending. A plain dict walks over what was deleted at its front to find its first item.
        self._ongoing: OrderedDict[int, OngoingTransaction] = OrderedDict()
        # Transactions whose marker is not below the high watermark yet, in the order of their markers. One that begins
        # after a later one is left out: it is never the first that is unstable. So first offsets ascend too.
        self._completed: deque[OngoingTransaction] = deque()
        self.snapshots = SnapshotFiles(file_system, directory, snapshot_offsets)
        self.last_snapshot_offset = 0
        self._prepared: PreparedSnapshot | None = None
        self._map_end_offset = 0
        self.verifications = TransactionVerifications()
        # Callers may change it while the log is open.
        self.verifies_transactions = verifies_transactions

    @property
    def map_end_offset(self) -> int:
        """The offset of this state: it includes all batches below, and none from there on."""
        return self._map_end_offset

    @property
    def producers(self) -> ProducerTable:
        """The entries by producer id, which the caller must not change."""
        return self._producers

    @property
    def ongoing_transactions(self) -> list[OngoingTransaction]:
        """The open transactions, by first offset."""
        return list(self._ongoing.values())

    @property
    def is_empty(self) -> bool:
        return not self._producers and not self._completed

    def last_entry(self, producer_id: int) -> ProducerStateEntry | None:
        return self._producers.find(producer_id)

    def find_duplicate(self, batch: RecordBatch) -> BatchMetadata | None:
        """The one of the producer's last five batches that `batch` repeats, if any (PS10)."""
        entry = self._producers.find(batch.producer_id)
        return None if entry is None else entry.find_duplicate(batch)

    @property
    def first_undecided_offset(self) -> int | None:
        """The first offset of the earliest open transaction; None without one."""
        return next(iter(self._ongoing), None)

    @property
    def first_unstable_transaction(self) -> OngoingTransaction | None:
        """The earliest transaction that is open, or whose marker is not below the high watermark yet (PS22)."""
        # The usual case, requested after every append.
        if not self._ongoing and not self._completed:
            return None
        ongoing = next(iter(self._ongoing.values()), None)
        completed = self._completed[0] if self._completed else None
        if ongoing is None or completed is None:
            return ongoing or completed
        return ongoing if ongoing.first_offset < completed.first_offset else completed

    @property
    def first_unstable_offset(self) -> int | None:
        transaction = self.first_unstable_transaction
        return None if transaction is None else transaction.first_offset

    def last_stable_offset(self, completed: CompletedTransaction) -> int:
        """The offset below which no other transaction is open when `completed` gets its marker (PS11)."""
        for transaction in self._ongoing.values():
            if transaction.producer_id != completed.producer_id:
                return transaction.first_offset
        return completed.last_offset + 1

    def reached(self, offset: int) -> None:
        """Note that all batches below `offset` were appended or replayed, or have no producer.

        The state is that at `offset` from now on.
        """
        assert offset >= 0, offset
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
        """Whether the oldest open transaction is idle for longer than the greatest timeout and a buffer (PS14)."""
        oldest = next(iter(self._ongoing.values()), None)
        entry = None if oldest is None else self._producers.find(oldest.producer_id)
        if entry is None or entry.last_timestamp <= 0:
            return False
        return now_ms - entry.last_timestamp > self._max_transaction_timeout_ms + LATE_TRANSACTION_BUFFER_MS

    def prepare_update(self, producer_id: int, origin: AppendOrigin) -> ProducerAppendInfo:
        """Make the copy that batches are checked against; `update` takes it over into the state (PS1)."""
        assert producer_id >= 0, producer_id
        entry = self._producers.find(producer_id)
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
        """Check the batches of one append: views of the bytes that will be written from `position` of the segment on.

        Those without a producer id may be left out.

        At a client's retry of one of the last five batches the checks end: `duplicate` is set and nothing is to be
        written, not even the rest of the set (AP12). `guard` is what `maybe_start_verification` returned for the
        append. Raises what `ProducerAppendInfo.append` raises; the producers' entries stay as they were.
        """
        # A position without its segment would be no place.
        assert position < 0 or segment_base_offset >= 0, (position, segment_base_offset)
        prepared = PreparedAppend()
        is_client = origin == AppendOrigin.CLIENT
        needs_verification = is_client or origin == AppendOrigin.COORDINATOR
        for batch in batches:
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
            at = position + batch.start if position >= 0 else UNKNOWN_POSITION
            completed = info.append(batch, segment_base_offset=segment_base_offset, position=at)
            if completed is not None:
                prepared.completed.append(completed)
            if is_transactional:
                self.verifications.forget(batch.producer_id)
        return prepared

    def _check_verified(self, batch: RecordBatch, guard: VerificationGuard | None) -> None:
        """Refuse to begin a transaction that the coordinator has not confirmed (AP13).

        Raises InvalidTransactionState.
        """
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
        """Whether the producer has an open transaction in that epoch."""
        entry = self._producers.find(producer_id)
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
        """Begin the verification of a transaction, before the coordinator is asked to confirm it (PS23).

        Returns the guard that the append has to show, or None where none is needed: the transaction has begun in this
        log already. Raises InvalidProducerEpoch; nothing has changed then.
        """
        entry = self._producers.find(producer_id)
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
        """Take over the copy that an append has changed; to be called once the bytes are written (PS9)."""
        self._merge(info)
        if info.transactions:
            self._begin(info.transactions)

    def _merge(self, info: ProducerAppendInfo) -> None:
        producer_id = info.updated.producer_id
        entry = self._producers.find(producer_id)
        if entry is None:
            entry = self._producers.find_or_add(producer_id)
        if self._prepared is not None:
            self._prepared.keep(entry)
        entry.merge(info.updated)
        assert entry.producer_epoch == info.updated.producer_epoch, (entry, info.updated)

    def commit(self, prepared: PreparedAppend) -> None:
        """Take over the copies of all producers of an append, once its bytes are written.

        The caller then calls, for each completed transaction, first `index_entry_of` and then `complete_transaction`.
        """
        assert prepared.duplicate is None, prepared.duplicate
        begun: list[OngoingTransaction] = []
        for info in prepared.infos.values():
            self._merge(info)
            if info.transactions:
                begun += info.transactions
        if begun:
            self._begin(begun)

    def complete_transaction(self, completed: CompletedTransaction) -> None:
        """Note that the marker of a transaction is written: it is closed, but unstable until replicated (PS12).

        Raises InvalidTransactionState for a transaction that is not open: a damaged log may end one twice. Nothing has
        changed then.
        """
        transaction = self._ongoing.pop(completed.first_offset, None)
        if transaction is None:
            raise InvalidTransactionState(
                f"producer {completed.producer_id} ends at offset {completed.last_offset} "
                f"a transaction that is not open (first offset {completed.first_offset})"
            )
        assert transaction.last_offset is None, (transaction.first_offset, transaction.last_offset, completed)
        transaction.last_offset = completed.last_offset
        waiting = self._completed
        while waiting and waiting[-1].first_offset >= transaction.first_offset:
            waiting.pop()
        waiting.append(transaction)
        assert len(waiting) < 2 or waiting[-2].first_offset < transaction.first_offset, (
            transaction.first_offset
        )

    def on_high_watermark_updated(self, high_watermark: int) -> None:
        """Note that transactions whose marker is below `high_watermark` are stable now."""
        if self._completed:
            self._remove_completed_below(high_watermark)

    def replay(self, batch: RecordBatch) -> CompletedTransaction | None:
        """Follow a batch that is in the log already: no sequence and no epoch is refused (PS24, PS25).

        Returns the transaction that the batch ends, if any: the caller writes its entry of the transaction index and
        calls `complete_transaction`. Raises InvalidTransactionState, InvalidRecord; nothing has changed then.
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
        """Do what `replay` does for a data batch, given the fields of its header in their order.

        The entry itself is changed, without a copy: the batch is in the log already. Raises InvalidTransactionState;
        nothing has changed then.
        """
        entry = self._producers.find(producer_id)
        if entry is None:
            entry = self._producers.find_or_add(producer_id)
        if attributes & TRANSACTIONAL_FLAG:
            if entry.transaction_first_offset is None:
                entry.transaction_first_offset = base_offset
                self._begin([OngoingTransaction(producer_id, LogOffsetMetadata(base_offset))])
        elif entry.transaction_first_offset is not None:
            raise outside_transaction(entry, base_offset)
        if entry.producer_epoch != producer_epoch:
            entry.set_epoch(producer_epoch)
        cached = (
            (base_sequence + last_offset_delta) & MAX_INT32 if base_sequence >= 0 else -1,
            base_offset + last_offset_delta,
            last_offset_delta,
            max_timestamp,
        )
        entry.batches = (*entry.batches, cached)[-BATCHES_KEPT:]
        entry.last_timestamp = max_timestamp

    def expire_after(self, producer_id_expiration_ms: int) -> None:
        """Let producers expire after that time from now on: the topic's setting has changed."""
        assert producer_id_expiration_ms > 0, producer_id_expiration_ms
        self._producer_id_expiration_ms = producer_id_expiration_ms

    def remove_expired(self, now_ms: int) -> None:
        """Forget producers that are idle for the expiration time and have no open transaction (PS13)."""
        self._drop_expired(self._producers, now_ms)
        self.verifications.remove_expired(now_ms, self._producer_id_expiration_ms)

    def _drop_expired(self, held: ProducerTable | SnapshotRows, now_ms: int) -> None:
        held.drop_old(
            now_ms=now_ms,
            expiration_ms=self._producer_id_expiration_ms,
            is_expired=partial(self._is_expired, now_ms=now_ms),
        )

    def _is_expired(self, entry: ProducerStateEntry, now_ms: int) -> bool:
        if entry.transaction_first_offset is not None:
            return False
        # A batch may carry any 64 bits as its timestamp. The difference wraps for one far below 0, which then counts as
        # in the future, as in Kafka.
        age_ms = now_ms - entry.last_timestamp
        # The usual case, without the call: a start asks this of every producer.
        if 0 <= age_ms < self._producer_id_expiration_ms:
            return False
        return wrap_int64(age_ms) >= self._producer_id_expiration_ms

    def empty_state(self, log_start_offset: int, log_end_offset: int) -> ProducerStateManager:
        """An empty state beside this one, for a reload at `log_end_offset`, which deletes only what does not load."""
        return ProducerStateManager(
            self.snapshots.file_system,
            self.snapshots.directory,
            producer_id_expiration_ms=self._producer_id_expiration_ms,
            snapshot_offsets=self.snapshots.offsets_within(log_start_offset, log_end_offset),
        )

    def truncate_and_reload(
        self,
        log_start_offset: int,
        log_end_offset: int,
        now_ms: int,
        reloaded: ProducerStateManager | None = None,
        *,
        newest: tuple[int, SnapshotRows] | None = None,
    ) -> None:
        """Bring the state to `log_end_offset` or to the newest snapshot that is not above it (PS16).

        The caller then replays the log from `map_end_offset` on. A `reloaded` state, which `empty_state` has returned
        and which was reloaded and replayed up to `log_end_offset`, is taken over instead. `newest` is that snapshot, if
        `read_newest` has read it before. Raises OSError.
        """
        self.snapshots.delete_outside(log_start_offset, log_end_offset)
        if log_end_offset == self.map_end_offset:
            self.on_log_start_offset_incremented(log_start_offset)
            return
        if reloaded is not None:
            self._take_over(reloaded)
            return
        self._clear()
        self._load_snapshot(newest or self.snapshots.read_newest(), log_start_offset, now_ms)

    def read_newest(self, log_start_offset: int, log_end_offset: int) -> tuple[int, SnapshotRows] | None:
        """Read the snapshot that `truncate_and_reload` would load, and delete those that it would. Raises OSError."""
        self.snapshots.delete_outside(log_start_offset, log_end_offset)
        return self.snapshots.read_newest()

    def _take_over(self, other: ProducerStateManager) -> None:
        # The list of snapshots stays: others may have come or gone since. One that did not load is deleted, and a later
        # reload finds that out.
        assert self._prepared is None, self._prepared
        directory = self.snapshots.directory
        assert other.snapshots.directory == directory, (other.snapshots.directory, directory)
        self._producers, self._ongoing, self._completed = other._producers, other._ongoing, other._completed
        self.last_snapshot_offset, self._map_end_offset = other.last_snapshot_offset, other._map_end_offset

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Forget all producers and delete all snapshots; the state is that of an empty log at `offset` (PS17).

        Raises OSError.
        """
        assert offset >= 0, offset
        self._clear()
        self.snapshots.delete_all()
        self.last_snapshot_offset = 0
        self._map_end_offset = offset
        assert self.is_empty, (self._producers, self._completed)

    def on_log_start_offset_incremented(self, log_start_offset: int) -> None:
        """Forget transactions that ended below the log start offset (PS18).

        Producers stay: a retry must still be recognized.
        """
        assert log_start_offset >= 0, log_start_offset
        self._remove_completed_below(log_start_offset)
        self._map_end_offset = max(self.map_end_offset, log_start_offset)
        latest = self.snapshots.latest_offset
        self.last_snapshot_offset = log_start_offset if latest is None else latest

    def _clear(self) -> None:
        self._producers.clear()
        self._ongoing.clear()
        self._completed.clear()

    def _load_snapshot(
        self, newest: tuple[int, SnapshotRows] | None, log_start_offset: int, now_ms: int
    ) -> None:
        assert self.is_empty, (self._producers, self._completed)
        assert not self._ongoing, self._ongoing
        offset = log_start_offset
        if newest is not None:
            offset, rows = newest
            self._drop_expired(rows, now_ms)
            self._load(rows)
        self.last_snapshot_offset = self._map_end_offset = offset

    def _load(self, rows: SnapshotRows) -> None:
        self._producers.load(rows)
        self._begin(
            OngoingTransaction(producer_id, LogOffsetMetadata(first_offset))
            for producer_id, first_offset in rows.with_open_transactions()
        )

    def take_snapshot(self) -> str | None:
        """Save the state at `map_end_offset`, on the disk on return. Returns the path; None if a snapshot from there on
        was taken (PS15).

        Raises OSError: a file that does not load may be left.
        """
        offset = self.map_end_offset
        if offset <= self.last_snapshot_offset:
            return None
        path = self.snapshots.write(offset, self._producers.encoded())
        self.last_snapshot_offset = offset
        return path

    def prepare_snapshot(self, recovery_point: int) -> PreparedSnapshot | None:
        """Begin to save the state at `map_end_offset` in a job; None where `take_snapshot` would take none.

        Until `end_snapshot` the entries that appends change are copied before.
        """
        assert self._prepared is None, self._prepared
        offset = self.map_end_offset
        if offset <= self.last_snapshot_offset:
            return None
        self._prepared = PreparedSnapshot(
            self.snapshots.file_system,
            self.snapshots.directory,
            offset,
            *self._producers.parts(),
            recovery_point=recovery_point,
        )
        return self._prepared

    def end_snapshot(self, *, is_kept: bool) -> None:
        """Give the file that the job has written its name, if it `is_kept`. Raises OSError."""
        prepared, self._prepared = self._prepared, None
        if prepared is not None and is_kept:
            prepared.finish()
            self.snapshots.note(prepared.offset)
            self.last_snapshot_offset = max(self.last_snapshot_offset, prepared.offset)

    def _remove_completed_below(self, offset: int) -> None:
        waiting = self._completed
        while waiting and (last_offset := waiting[0].last_offset) is not None and last_offset < offset:
            waiting.popleft()

    def _begin(self, begun: Iterable[OngoingTransaction]) -> None:
        """Add transactions to the open ones, which stay in ascending order of first offsets.

        New ones are nearly always above all that are open; then nothing is sorted but the new ones.
        """
        ongoing = self._ongoing
        newest = next(reversed(ongoing), -1)
        transactions = sorted(begun, key=_first_offset)
        for transaction in transactions:
            ongoing[transaction.first_offset] = transaction
        if transactions and transactions[0].first_offset < newest:
            ordered = sorted(ongoing.items())
            ongoing.clear()
            ongoing.update(ordered)
        assert not transactions or next(reversed(ongoing)) >= transactions[-1].first_offset, newest


def _first_offset(transaction: OngoingTransaction) -> int:
    return transaction.first_offset
