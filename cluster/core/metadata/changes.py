"""Reads the batches of the metadata log as changes: several records of one decision apply together or not at all.

A change is one batch, unless it is larger than a batch may be. Then each of its batches but the last has a header that
says so, and the reader keeps the records until the change is whole. A change whose end was lost in a crash is dropped
by an `AbortTransactionRecord`, which the next life of the controller writes. Kafka: MetadataBatchLoader (KIP-868,
where records of their own begin and end such a change).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import final

from cluster.core.metadata.batches import MORE_HEADER
from cluster.core.metadata.records import AbortTransactionRecord, MetadataRecord, decode_record
from storage.batch import RecordBatch, iterate_batches
from storage.batch.record import Header
from storage.errors import CorruptBatch, InvalidRecord, StorageError

NumberedRecord = tuple[int, MetadataRecord]


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """The records of one decision, each with its offset. `end_offset` (exclusive) is where the next change begins."""

    records: tuple[NumberedRecord, ...]
    end_offset: int


@final
class ChangeReader:
    """Reads batches in order. All below `next_offset` was read; all below `boundary` belongs to whole changes."""

    def __init__(self, boundary: int = 0) -> None:
        self.next_offset = self.boundary = boundary
        self._open: list[NumberedRecord] = []

    @property
    def is_within_a_change(self) -> bool:
        return self.next_offset != self.boundary

    def restart(self, boundary: int) -> None:
        """Forgets what was read of a change that is not whole, and reads on at `boundary`."""
        self.next_offset = self.boundary = boundary
        self._open = []

    def read(self, data: bytes) -> Iterator[Change]:
        """Yields each change that is whole after the batches in `data`, which must follow those read before.

        Batches that were read before are skipped. Raises CorruptBatch, InvalidRecord.
        """
        for batch in iterate_batches(data):
            batch.check_valid()
            if batch.next_offset <= self.next_offset:
                continue
            if batch.base_offset != self.next_offset:
                raise InvalidRecord(
                    f"offset {batch.base_offset} of the metadata log where {self.next_offset} must follow"
                )
            headers = self._take(batch)
            if self.ends_change(headers):
                assert self._open, batch.base_offset
                change = Change(records=tuple(self._open), end_offset=self.next_offset)
                self._open, self.boundary = [], self.next_offset
                yield change

    def ends_change(self, headers: tuple[Header, ...]) -> bool:
        """Returns whether the batch whose first record has these headers is the last one of its change."""
        return all(name != MORE_HEADER for name, _ in headers)

    def _take(self, batch: RecordBatch) -> tuple[Header, ...]:
        """Keeps the batch's records, and returns the headers of the first one."""
        headers: tuple[Header, ...] = ()
        offset = batch.base_offset
        try:
            for record in batch.records():
                if record.offset != offset:
                    raise InvalidRecord(f"a record of offset {record.offset}")
                if offset == batch.base_offset:
                    headers = record.headers
                decoded = decode_record(record.value)
                if isinstance(decoded, AbortTransactionRecord):
                    self._open = []
                self._open.append((offset, decoded))
                offset += 1
            # No compaction has left a gap: the log is never compacted.
            if offset != batch.next_offset:
                raise InvalidRecord(f"no record, in a batch that ends at {batch.next_offset}")
        except CorruptBatch:
            raise
        except StorageError as error:
            raise InvalidRecord(f"offset {offset} of the metadata log: {error}") from error
        self.next_offset = offset
        return headers
