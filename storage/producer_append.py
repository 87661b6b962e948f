"""What one append does to one producer: sequence, epoch and transaction checks on a copy of its state.

The copy is merged into the manager's entry only after the bytes are written, so a refused or failed append
leaves no trace. Kafka: ProducerStateEntry, ProducerAppendInfo, EndTransactionMarker (KIP-98).
"""

from __future__ import annotations

import logging
import struct
from collections import deque
from enum import IntEnum
from typing import NamedTuple, final

from storage.batch import NO_PRODUCER_EPOCH, NO_SEQUENCE, NO_TIMESTAMP, Record, RecordBatch
from storage.batch_format import CONTROL_FLAG, TRANSACTIONAL_FLAG
from storage.errors import (
    InvalidProducerEpoch,
    InvalidRecord,
    InvalidTransactionState,
    OutOfOrderSequence,
    TransactionCoordinatorFenced,
)
from storage.record import MAX_INT32, subtract_from_sequence

logger = logging.getLogger(__name__)

BATCHES_KEPT = 5  # as many as a producer may have in flight, so a retry of any is known again: KAFKA-5494
NO_COORDINATOR_EPOCH = -1

# (last sequence, last offset, offset delta, timestamp): a plain tuple, for a recovery makes one of every
# batch.
CachedBatch = tuple[int, int, int, int]

_MARKER_KEY = struct.Struct(">hh")
_MARKER_VALUE = struct.Struct(">hi")


class AppendOrigin(IntEnum):
    """Who hands the records in; it decides which checks hold."""

    REPLICATION = 0  # a leader has checked them: state follows, nothing is refused
    COORDINATOR = 1  # offsets and transaction markers: epochs count, sequences do not
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
    """A transaction that had data and now has its marker, which stands at `last_offset`."""

    producer_id: int
    first_offset: int
    last_offset: int
    is_aborted: bool


class EndMarker(NamedTuple):
    is_abort: bool
    coordinator_epoch: int


@final
class OngoingTransaction:
    """An open transaction, or one decided whose marker the high watermark has not passed (`last_offset` is
    set).

    `segment_base_offset` and `position` tell where its first batch lies, -1 when unknown.
    """

    __slots__ = ("first_offset", "last_offset", "position", "producer_id", "segment_base_offset")

    def __init__(
        self, producer_id: int, first_offset: int, *, segment_base_offset: int = -1, position: int = -1
    ) -> None:
        self.producer_id, self.first_offset = producer_id, first_offset
        self.segment_base_offset, self.position = segment_base_offset, position
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
        self.batches: deque[CachedBatch] = deque(maxlen=BATCHES_KEPT)

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
        return self.batch_metadata[0].first_sequence if self.batches else NO_SEQUENCE

    @property
    def batch_metadata(self) -> list[BatchMetadata]:
        return [BatchMetadata(*batch) for batch in self.batches]

    def set_epoch(self, producer_epoch: int) -> None:
        """Another epoch, lower or higher, forgets the cached batches: their sequences began anew (PS5)."""
        if self.producer_epoch != producer_epoch:
            self.batches.clear()
            self.producer_epoch = producer_epoch

    def find_duplicate(self, batch: RecordBatch) -> BatchMetadata | None:
        """The cached batch of the same epoch with exactly this first and last sequence (PS10)."""
        if batch.producer_epoch != self.producer_epoch:
            return None
        wanted = (batch.base_sequence, batch.last_sequence)
        for cached in self.batch_metadata:
            if (cached.first_sequence, cached.last_sequence) == wanted:
                return cached
        return None

    def merge(self, newer: ProducerStateEntry) -> None:
        """Take over what an append made of a copy (PS9)."""
        assert newer.producer_id == self.producer_id, (newer.producer_id, self.producer_id)
        self.set_epoch(newer.producer_epoch)
        self.batches.extend(newer.batches)
        self.coordinator_epoch = newer.coordinator_epoch
        self.last_timestamp = newer.last_timestamp
        self.transaction_first_offset = newer.transaction_first_offset

    def copy_without_batches(self) -> ProducerStateEntry:
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


def read_end_marker(record: Record) -> EndMarker:
    """The decision in a control record, of version 0 or read as such. Raises InvalidRecord.

    Kafka: ControlRecordType.parse, EndTransactionMarker.deserialize.
    """
    key, value = record.key or b"", record.value or b""
    if len(key) < _MARKER_KEY.size:
        raise InvalidRecord(f"a control record key of {len(key)} bytes at offset {record.offset}")
    key_version, control_type = _MARKER_KEY.unpack_from(key)
    if key_version < 0 or control_type not in (0, 1):
        raise InvalidRecord(
            f"no end marker at offset {record.offset}: key version {key_version}, type {control_type}"
        )
    if len(value) < _MARKER_VALUE.size:
        raise InvalidRecord(f"an end marker of {len(value)} bytes at offset {record.offset}")
    version, coordinator_epoch = _MARKER_VALUE.unpack_from(value)
    if version < 0:
        raise InvalidRecord(f"an end marker of version {version} at offset {record.offset}")
    return EndMarker(control_type == 0, coordinator_epoch)


def last_sequence_of(base_sequence: int, last_offset_delta: int) -> int:
    """-1 without a sequence; counts from 2^31-1 to 0."""
    if base_sequence == NO_SEQUENCE:
        return NO_SEQUENCE
    return (base_sequence + last_offset_delta) & MAX_INT32


def is_in_sequence(last_sequence: int, next_sequence: int) -> bool:
    return next_sequence == last_sequence + 1 or (next_sequence == 0 and last_sequence == MAX_INT32)


@final
class ProducerAppendInfo:
    """The copy of one producer's state that the batches of one append are checked against and added to.

    `updated` holds only the batches of this append; `transactions` those it opened. Made by
    `ProducerStateManager.prepare_update`, handed back to its `update` once the bytes are written.
    """

    __slots__ = ("_checks_sequence", "_current", "origin", "transactions", "updated")

    def __init__(self, current: ProducerStateEntry, origin: AppendOrigin) -> None:
        self._current = current
        self._checks_sequence = origin == AppendOrigin.CLIENT
        self.origin = origin
        self.updated = current.copy_without_batches()
        self.transactions: list[OngoingTransaction] = []

    @property
    def producer_id(self) -> int:
        return self.updated.producer_id

    def append(
        self, batch: RecordBatch, *, segment_base_offset: int = -1, position: int = -1
    ) -> CompletedTransaction | None:
        """Check `batch` and add it to the copy; the transaction it ended, if any (PS2).

        Raises InvalidProducerEpoch, OutOfOrderSequence, InvalidTransactionState, TransactionCoordinatorFenced
        and, for a damaged marker, InvalidRecord. After a raise the whole append is refused: drop this object.
        """
        if batch.attributes & CONTROL_FLAG:
            marker = next(iter(batch.records()), None)
            if marker is None:  # compaction took the transaction away and kept the empty batch
                return None
            decision = read_end_marker(marker)
            return self.append_end_marker(
                decision,
                producer_epoch=batch.producer_epoch,
                offset=batch.base_offset,
                timestamp=marker.timestamp,
            )
        self.append_data(
            batch.producer_epoch,
            batch.base_sequence,
            batch.last_offset_delta,
            batch.base_offset,
            batch.max_timestamp,
            batch.attributes,
            segment_base_offset,
            position,
        )
        return None

    def append_data(
        self,
        producer_epoch: int,
        base_sequence: int,
        last_offset_delta: int,
        base_offset: int,
        timestamp: int,
        attributes: int,
        segment_base_offset: int = -1,
        position: int = -1,
    ) -> None:
        """One data batch by its header fields, in the order of the header; positional, for speed. Raises as
        `append`.
        """
        updated = self.updated
        if producer_epoch < updated.producer_epoch:
            self._check_epoch(producer_epoch, base_offset)
        if self._checks_sequence:
            self._check_sequence(producer_epoch, base_sequence, base_offset)
        if attributes & TRANSACTIONAL_FLAG:
            if updated.transaction_first_offset is None:
                updated.transaction_first_offset = base_offset
                self.transactions.append(
                    OngoingTransaction(
                        updated.producer_id,
                        base_offset,
                        segment_base_offset=segment_base_offset,
                        position=position,
                    )
                )
        elif updated.transaction_first_offset is not None:
            raise outside_transaction(updated, base_offset)
        if producer_epoch != updated.producer_epoch:
            updated.set_epoch(producer_epoch)
        last_sequence = (base_sequence + last_offset_delta) & MAX_INT32 if base_sequence >= 0 else NO_SEQUENCE
        updated.batches.append((last_sequence, base_offset + last_offset_delta, last_offset_delta, timestamp))
        updated.last_timestamp = timestamp

    def append_end_marker(
        self, marker: EndMarker, *, producer_epoch: int, offset: int, timestamp: int
    ) -> CompletedTransaction | None:
        """Close the open transaction; None when no data lay in it (PS7). A higher epoch is taken over
        (PS8).
        """
        self._check_epoch(producer_epoch, offset)
        self._check_coordinator_epoch(marker.coordinator_epoch, offset)
        updated = self.updated
        first_offset = updated.transaction_first_offset
        updated.set_epoch(producer_epoch)
        updated.coordinator_epoch = marker.coordinator_epoch
        updated.last_timestamp = timestamp
        updated.transaction_first_offset = None
        if first_offset is None:
            return None
        return CompletedTransaction(updated.producer_id, first_offset, offset, marker.is_abort)

    def _check_epoch(self, producer_epoch: int, offset: int) -> None:
        if producer_epoch >= self.updated.producer_epoch:
            return
        message = (
            f"producer {self.producer_id} epoch {producer_epoch} at offset {offset} is older than the "
            f"last seen epoch {self.updated.producer_epoch}"
        )
        if self.origin == AppendOrigin.REPLICATION:
            logger.debug("%s", message)  # what the leader took is followed (PS3)
            return
        raise InvalidProducerEpoch(message)

    def _check_sequence(self, producer_epoch: int, base_sequence: int, offset: int) -> None:
        updated, current = self.updated, self._current
        if producer_epoch != updated.producer_epoch:
            if base_sequence != 0 and updated.producer_epoch != NO_PRODUCER_EPOCH:
                raise OutOfOrderSequence(
                    f"producer {self.producer_id} begins epoch {producer_epoch} at offset {offset} with "
                    f"sequence {base_sequence}, expected 0 (epoch before {updated.producer_epoch})"
                )
            return
        if current.producer_epoch == NO_PRODUCER_EPOCH:  # unknown or forgotten: it may go on at any sequence
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
    return InvalidTransactionState(
        f"producer {entry.producer_id} writes outside its transaction at offset {offset}; the "
        f"transaction begun at {entry.transaction_first_offset} is open"
    )
