"""The state of one producer, and the checks of an append on a copy of it: sequence, epoch and transaction.

The copy is merged into the manager's entry only after the bytes are written, so a refused or failed append
changes nothing. Kafka: ProducerStateEntry, ProducerAppendInfo, EndTransactionMarker (KIP-98).
"""

from __future__ import annotations

import logging
from enum import IntEnum
from typing import NamedTuple, final

from storage.batch import NO_PRODUCER_EPOCH, NO_SEQUENCE, NO_TIMESTAMP, RecordBatch
from storage.batch.control_records import ControlType, read_control_record
from storage.batch.format import CONTROL_FLAG, TRANSACTIONAL_FLAG
from storage.batch.pieces import HEADS_HELD
from storage.batch.record import MAX_INT32, subtract_from_sequence
from storage.errors import (
    InvalidProducerEpoch,
    InvalidRecord,
    InvalidTransactionState,
    OutOfOrderSequence,
    TransactionCoordinatorFenced,
)
from storage.producers.verification import VerificationEntry
from storage.segment.place import UNKNOWN_POSITION, UNKNOWN_SEGMENT, LogOffsetMetadata

logger = logging.getLogger(__name__)

# As many batches as a producer may have in flight, so that a retry of any of them is recognized: KAFKA-5494.
BATCHES_KEPT = 5
NO_COORDINATOR_EPOCH = -1

# (last sequence, last offset, offset delta, timestamp): a plain tuple, because a recovery makes one for every batch.
CachedBatch = tuple[int, int, int, int]


class AppendOrigin(IntEnum):
    """The origin of appended records, which decides which checks are made."""

    # A leader has checked the records: the state follows them, and nothing is refused.
    REPLICATION = 0
    # Offsets and transaction markers: epochs are checked, sequences are not.
    COORDINATOR = 1
    CLIENT = 2
    RAFT_LEADER = 3


class BatchMetadata(NamedTuple):
    """One of a producer's last batches."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def first_sequence(self) -> int:
        return subtract_from_sequence(self.last_sequence, self.offset_delta)

    @property
    def first_offset(self) -> int:
        return self.last_offset - self.offset_delta


class CompletedTransaction(NamedTuple):
    """A transaction that had data and now has its marker, which is at `last_offset`."""

    producer_id: int
    first_offset: int
    last_offset: int
    is_aborted: bool


@final
class OngoingTransaction:
    """An open transaction, or a decided one whose marker is not below the high watermark yet.

    `place` is that of its first batch, message-only when it is not known. `last_offset` is the offset of the marker,
    None while the transaction is open.
    """

    __slots__ = ("first_offset", "last_offset", "place", "producer_id")

    def __init__(self, producer_id: int, place: LogOffsetMetadata) -> None:
        self.producer_id, self.place = producer_id, place
        self.first_offset = place.offset
        self.last_offset: int | None = None


@final
class ProducerStateEntry:
    """What a log remembers of one producer. `batches` holds up to five, oldest first."""

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "last_timestamp",
        "producer_epoch",
        "producer_id",
        "recalled",
        "transaction_first_offset",
    )

    def __init__(
        self,
        producer_id: int,
        *,
        producer_epoch: int = NO_PRODUCER_EPOCH,
        coordinator_epoch: int = NO_COORDINATOR_EPOCH,
        last_timestamp: int = NO_TIMESTAMP,
        transaction_first_offset: int | None = None,
    ) -> None:
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.coordinator_epoch = coordinator_epoch
        self.last_timestamp = last_timestamp
        self.transaction_first_offset = transaction_first_offset
        # A tuple: a deque takes ten times the memory of the one batch that most producers have.
        self.batches: tuple[CachedBatch, ...] = ()
        # Batches that a reload found in the log directly before `batches`; apart, because Kafka does not have them.
        self.recalled: tuple[CachedBatch, ...] = ()

    @property
    def is_empty(self) -> bool:
        return not self.batches

    @property
    def last_sequence(self) -> int:
        return self.batches[-1][0] if self.batches else NO_SEQUENCE

    @property
    def last_offset(self) -> int:
        return self.batches[-1][1] if self.batches else -1

    @property
    def last_offset_delta(self) -> int:
        return self.batches[-1][2] if self.batches else 0

    @property
    def first_sequence(self) -> int:
        return BatchMetadata(*self._last_batches()[0]).first_sequence if self.batches else NO_SEQUENCE

    @property
    def batch_metadata(self) -> list[BatchMetadata]:
        """The last five batches, oldest first, including recalled ones."""
        return [BatchMetadata(*batch) for batch in self._last_batches()]

    def _last_batches(self) -> tuple[CachedBatch, ...]:
        return (*self.recalled, *self.batches)[-BATCHES_KEPT:]

    def set_epoch(self, producer_epoch: int) -> None:
        """Set the epoch. A change, up or down, forgets the cached batches: each epoch has its own sequences (PS5)."""
        if self.producer_epoch != producer_epoch:
            self.batches = ()
            self.recalled = ()
            self.producer_epoch = producer_epoch

    def find_duplicate(self, batch: RecordBatch) -> BatchMetadata | None:
        """The cached batch of the same epoch with the same first and last sequence as `batch`, if any (PS10)."""
        if batch.producer_epoch != self.producer_epoch:
            return None
        base_sequence, last_sequence = batch.base_sequence, batch.last_sequence
        # Batches are recalled only by a reload; without one the newest are all there are.
        for cached in self._last_batches() if self.recalled else self.batches:
            if cached[0] == last_sequence:
                found = BatchMetadata(*cached)
                if found.first_sequence == base_sequence:
                    return found
        return None

    def merge(self, newer: ProducerStateEntry) -> None:
        """Take over the copy that an append has changed, after its bytes were written (PS9)."""
        assert newer is not self, self
        assert newer.producer_id == self.producer_id, (newer.producer_id, self.producer_id)
        self.set_epoch(newer.producer_epoch)
        self.batches = (*self.batches, *newer.batches)[-BATCHES_KEPT:]
        self.coordinator_epoch = newer.coordinator_epoch
        self.last_timestamp = newer.last_timestamp
        self.transaction_first_offset = newer.transaction_first_offset

    def copy_without_batches(self) -> ProducerStateEntry:
        """A copy of all but the batches, for an append to change."""
        return ProducerStateEntry(
            self.producer_id,
            producer_epoch=self.producer_epoch,
            coordinator_epoch=self.coordinator_epoch,
            last_timestamp=self.last_timestamp,
            transaction_first_offset=self.transaction_first_offset,
        )

    def __repr__(self) -> str:
        return (
            f"ProducerStateEntry({self.producer_id}, epoch={self.producer_epoch}, "
            f"batches={list(self.batches)}, coordinator_epoch={self.coordinator_epoch}, "
            f"last_timestamp={self.last_timestamp}, transaction_first_offset={self.transaction_first_offset})"
        )


def is_in_sequence(last_sequence: int, next_sequence: int) -> bool:
    """Whether `next_sequence` directly follows `last_sequence`: after 2^31-1 comes 0."""
    return next_sequence == last_sequence + 1 or (next_sequence == 0 and last_sequence == MAX_INT32)


@final
class ProducerAppendInfo:
    """The copy of one producer's state that the batches of one append are checked against and added to.

    `updated` holds only the batches of this append, `transactions` the transactions that it opens.
    `ProducerStateManager.prepare_update` makes it, and `update` takes it over once the bytes are written.
    """

    __slots__ = ("_checks_sequence", "_current", "_verification", "origin", "transactions", "updated")

    def __init__(
        self,
        current: ProducerStateEntry,
        origin: AppendOrigin,
        verification: VerificationEntry | None = None,
    ) -> None:
        self._current, self._verification = current, verification
        self._checks_sequence = origin == AppendOrigin.CLIENT
        self.origin = origin
        self.updated = current.copy_without_batches()
        self.transactions: list[OngoingTransaction] = []

    @property
    def producer_id(self) -> int:
        return self.updated.producer_id

    def append(
        self,
        batch: RecordBatch,
        *,
        segment_base_offset: int = UNKNOWN_SEGMENT,
        position: int = UNKNOWN_POSITION,
    ) -> CompletedTransaction | None:
        """Check `batch` and add it to the copy. Returns the transaction that `batch` ends, if any (PS2).

        Raises InvalidProducerEpoch, OutOfOrderSequence, InvalidTransactionState, TransactionCoordinatorFenced
        and, for a damaged marker, InvalidRecord. After a raise the whole append is refused: drop this object.
        """
        if batch.attributes & CONTROL_FLAG:
            marker = next(batch.records(held=HEADS_HELD), None)
            # Compaction deleted the marker with its transaction, and kept the header.
            if marker is None:
                return None
            control = read_control_record(marker)
            if control.control_type not in (ControlType.ABORT, ControlType.COMMIT):
                raise InvalidRecord(
                    f"the control record at offset {marker.offset} ends no transaction: its type is {control.type_id}"
                )
            return self.append_end_marker(
                is_abort=control.control_type is ControlType.ABORT,
                coordinator_epoch=control.coordinator_epoch,
                producer_epoch=batch.producer_epoch,
                offset=batch.base_offset,
                timestamp=marker.timestamp,
            )
        self.append_data(
            batch.attributes,
            batch.last_offset_delta,
            batch.max_timestamp,
            batch.producer_epoch,
            batch.base_sequence,
            batch.base_offset,
            segment_base_offset,
            position,
        )
        return None

    def append_data(
        self,
        attributes: int,
        last_offset_delta: int,
        max_timestamp: int,
        producer_epoch: int,
        base_sequence: int,
        base_offset: int,
        segment_base_offset: int = UNKNOWN_SEGMENT,
        position: int = UNKNOWN_POSITION,
    ) -> None:
        """Do what `append` does for a data batch, given the fields of its header in their order.

        Raises what `append` raises for a data batch.
        """
        updated = self.updated
        if producer_epoch < updated.producer_epoch:
            self._check_epoch(producer_epoch, base_offset)
        if self._checks_sequence:
            self._check_sequence(producer_epoch, base_sequence, base_offset)
        if attributes & TRANSACTIONAL_FLAG:
            if updated.transaction_first_offset is None:
                updated.transaction_first_offset = base_offset
                place = LogOffsetMetadata(base_offset, segment_base_offset, position)
                self.transactions.append(OngoingTransaction(updated.producer_id, place))
        elif updated.transaction_first_offset is not None:
            raise outside_transaction(updated, base_offset)
        if producer_epoch != updated.producer_epoch:
            updated.set_epoch(producer_epoch)
        last_sequence = (base_sequence + last_offset_delta) & MAX_INT32 if base_sequence >= 0 else NO_SEQUENCE
        cached = (last_sequence, base_offset + last_offset_delta, last_offset_delta, max_timestamp)
        updated.batches = (*updated.batches, cached)[-BATCHES_KEPT:]
        updated.last_timestamp = max_timestamp

    def append_end_marker(
        self, *, is_abort: bool, coordinator_epoch: int, producer_epoch: int, offset: int, timestamp: int
    ) -> CompletedTransaction | None:
        """End the open transaction. Returns it, or None if it has no data (PS7); takes over a higher epoch (PS8).

        Raises InvalidProducerEpoch, TransactionCoordinatorFenced; nothing has changed then.
        """
        self._check_epoch(producer_epoch, offset)
        self._check_coordinator_epoch(coordinator_epoch, offset)
        updated = self.updated
        first_offset = updated.transaction_first_offset
        updated.set_epoch(producer_epoch)
        updated.coordinator_epoch = coordinator_epoch
        updated.last_timestamp = timestamp
        updated.transaction_first_offset = None
        if first_offset is None:
            return None
        return CompletedTransaction(updated.producer_id, first_offset, offset, is_abort)

    def _check_epoch(self, producer_epoch: int, offset: int) -> None:
        if producer_epoch >= self.updated.producer_epoch:
            return
        message = (
            f"producer {self.producer_id} epoch {producer_epoch} at offset {offset} is older than the "
            f"last seen epoch {self.updated.producer_epoch}"
        )
        if self.origin == AppendOrigin.REPLICATION:
            # A follower accepts what its leader has accepted (PS3).
            logger.debug("%s", message)
            return
        raise InvalidProducerEpoch(message)

    def _check_sequence(self, producer_epoch: int, base_sequence: int, offset: int) -> None:
        self._check_verified_sequence(base_sequence, offset)
        updated, current = self.updated, self._current
        if producer_epoch != updated.producer_epoch:
            if base_sequence != 0 and updated.producer_epoch != NO_PRODUCER_EPOCH:
                raise OutOfOrderSequence(
                    f"producer {self.producer_id} begins epoch {producer_epoch} at offset {offset} with "
                    f"sequence {base_sequence}, expected 0 (the epoch before was {updated.producer_epoch})"
                )
            return
        # An unknown or forgotten producer may continue at any sequence.
        if current.producer_epoch == NO_PRODUCER_EPOCH:
            return
        if updated.batches:
            last_sequence = updated.last_sequence
        else:
            last_sequence = current.last_sequence if producer_epoch == current.producer_epoch else NO_SEQUENCE
        if not is_in_sequence(last_sequence, base_sequence):
            raise OutOfOrderSequence(
                f"producer {self.producer_id} at offset {offset} in epoch {producer_epoch}: sequence "
                f"{base_sequence} does not follow {last_sequence}"
            )

    def _check_verified_sequence(self, base_sequence: int, offset: int) -> None:
        """Check the first sequence of a transaction that the coordinator has confirmed (PS4a).

        Raises OutOfOrderSequence.

        The transaction has to begin with the least sequence for which the coordinator was asked: a later one would hide
        an earlier batch that has not arrived yet. A producer that may bump its own epoch must start at sequence 0.
        """
        verification = self._verification
        if verification is None:
            return
        if verification.supports_epoch_bump and base_sequence != 0 and self._current.is_empty:
            raise OutOfOrderSequence(
                f"producer {self.producer_id} is unknown and begins at offset {offset} with sequence "
                f"{base_sequence}, expected 0"
            )
        if base_sequence > verification.lowest_sequence:
            raise OutOfOrderSequence(
                f"producer {self.producer_id} at offset {offset}: sequence {base_sequence} is above the least "
                f"one verified, {verification.lowest_sequence}"
            )

    def _check_coordinator_epoch(self, coordinator_epoch: int, offset: int) -> None:
        if self.updated.coordinator_epoch <= coordinator_epoch:
            return
        message = (
            f"coordinator epoch {coordinator_epoch} of the marker of producer {self.producer_id} "
            f"at offset {offset} is older than {self.updated.coordinator_epoch}"
        )
        if self.origin == AppendOrigin.REPLICATION:
            logger.info("%s", message)
            return
        raise TransactionCoordinatorFenced(message)


def outside_transaction(entry: ProducerStateEntry, offset: int) -> InvalidTransactionState:
    """The error for a batch at `offset` outside the producer's open transaction."""
    return InvalidTransactionState(
        f"producer {entry.producer_id} writes outside its transaction at offset {offset}; the "
        f"transaction begun at {entry.transaction_first_offset} is open"
    )
