"""The transactions of a walk over a log: which of their batches and markers may be deleted.

Kafka: CleanedTransactionMetadata; rules CL12, CL21, CL26.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from typing import Final, final

from storage.batch import RecordBatch
from storage.batch.control_records import ControlType, read_control_record
from storage.batch.format import CONTROL_FLAG, CURRENT_MAGIC, TRANSACTIONAL_FLAG
from storage.batch.pieces import HEADS_HELD
from storage.index.transaction_index import AbortedTransaction

_IN_TRANSACTION: Final = TRANSACTIONAL_FLAG | CONTROL_FLAG

KeepAborted = Callable[[AbortedTransaction], None]


def _keep_nothing(transaction: AbortedTransaction) -> None:
    return


@final
class CleanedTransactions:
    """Follows the transactions of a walk. It must see every batch in order, over all groups of a round (KAFKA-8351)."""

    __slots__ = ("_committed", "_ongoing", "_seen", "_upcoming", "keep_aborted")

    def __init__(self, keep_aborted: KeepAborted = _keep_nothing) -> None:
        # Called with each aborted transaction that still has data when its marker is reached.
        self.keep_aborted = keep_aborted
        # A heap ordered by first offset.
        self._upcoming: list[tuple[int, AbortedTransaction]] = []
        # Keys are producer ids.
        self._ongoing: dict[int, AbortedTransaction] = {}
        # Producers with a batch of an ongoing transaction.
        self._seen: set[int] = set()
        # Producers with a batch of a transaction that was not aborted.
        self._committed: set[int] = set()

    def add_aborted(self, transactions: Iterable[AbortedTransaction]) -> None:
        """Announce the aborted transactions of the offsets that come next; adding one again has no effect."""
        for transaction in transactions:
            heapq.heappush(self._upcoming, (transaction.first_offset, transaction))

    def can_discard(self, batch: RecordBatch) -> bool:
        """Whether `batch` is not needed: data of an aborted transaction, or a marker whose data is deleted (CL12).

        Raises InvalidRecord for a control record that cannot be read.
        """
        if not batch.attributes & _IN_TRANSACTION or batch.magic < CURRENT_MAGIC:
            # A transaction that begins at this offset is noticed at the next transactional batch.
            return False
        self._begin_up_to(batch.last_offset)
        return self._on_control(batch) if batch.is_control else self._on_data(batch)

    def _begin_up_to(self, offset: int) -> None:
        while self._upcoming and self._upcoming[0][0] <= offset:
            transaction = heapq.heappop(self._upcoming)[1]
            self._ongoing.setdefault(transaction.producer_id, transaction)

    def _on_data(self, batch: RecordBatch) -> bool:
        if batch.producer_id in self._ongoing:
            self._seen.add(batch.producer_id)
            return True
        self._committed.add(batch.producer_id)
        return False

    def _on_control(self, batch: RecordBatch) -> bool:
        record = next(batch.records(held=HEADS_HELD), None)
        # An earlier round deleted the marker and kept the header of its batch.
        if record is None:
            return True
        match read_control_record(record).control_type:
            case ControlType.ABORT:
                return self._on_abort(batch.producer_id)
            case ControlType.COMMIT:
                had_data = batch.producer_id in self._committed
                self._committed.discard(batch.producer_id)
                return not had_data
            case _:
                return False

    def _on_abort(self, producer_id: int) -> bool:
        transaction = self._ongoing.pop(producer_id, None)
        assert transaction is not None or producer_id not in self._seen, producer_id
        if transaction is None or producer_id not in self._seen:
            return True
        self._seen.discard(producer_id)
        self.keep_aborted(transaction)
        return False
