"""The choice of the batches and records that are kept when a log is cleaned.

Kafka: Cleaner.cleanInto with its record filter, MemoryRecords.filterTo; rules CL12 to CL19.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple, final

from storage.batch import RecordBatch
from storage.batch.format import CONTROL_FLAG, CURRENT_MAGIC, TRANSACTIONAL_FLAG
from storage.batch.record import MAX_INT64
from storage.cleaner.chunks import batches_in
from storage.cleaner.keys import (
    MOST_KEYS_AT_ONCE,
    MOST_RECORDS_AT_ONCE,
    RecordKey,
    portions_of_keys,
    read_keys,
)
from storage.cleaner.marks import DirtyMarks
from storage.cleaner.offset_map import OffsetMap
from storage.cleaner.rebuild import empty_batch, has_foreign_messages, rebuild_batch, rebuild_from
from storage.cleaner.transactions import CleanedTransactions


class LastRecord(NamedTuple):
    """A producer's last entry in a log: the last offset of its last data batch, None if unknown, and its epoch."""

    last_data_offset: int | None
    producer_epoch: int


class Retention(Enum):
    """What is done with a batch (CL14)."""

    # Delete it without reading its records.
    DELETE = "delete"
    # Delete it only if none of its records is kept.
    DELETE_EMPTY = "delete_empty"
    # Keep its header even then.
    RETAIN_EMPTY = "retain_empty"


class Verdict(NamedTuple):
    """How one batch is to be filtered."""

    retention: Retention
    # Whether all of its records are dropped, whatever their keys (CL13).
    drops_records: bool
    # Whether it is a marker whose transaction has no data left: its delete horizon begins now (CL17).
    is_marker_of_nothing: bool


_ORDINARY: Final = Verdict(Retention.DELETE_EMPTY, drops_records=False, is_marker_of_nothing=False)
_SPECIAL: Final = TRANSACTIONAL_FLAG | CONTROL_FLAG


@final
@dataclass(slots=True, kw_only=True)
class CleanerStats:
    """Counts of one round. A record is counted each time it is read."""

    map_bytes_read: int = 0
    map_records_read: int = 0
    bytes_read: int = 0
    records_read: int = 0
    bytes_written: int = 0
    records_written: int = 0
    # Records without a key are dropped (T50).
    records_without_key: int = 0


@final
class FilteredChunk:
    """The bytes of a chunk that are kept: `parts`, to be written in one append.

    `last_offset` is the last offset of the last batch kept, -1 without one.
    """

    __slots__ = ("bytes_read", "last_offset", "parts", "records_read", "size_bytes")

    def __init__(self) -> None:
        self.parts: list[bytes | memoryview] = []
        self.size_bytes = self.bytes_read = self.records_read = 0
        self.last_offset = -1

    def add(self, part: bytes | memoryview, last_offset: int) -> None:
        """Add the bytes of one batch, whose last offset is `last_offset`."""
        self.parts.append(part)
        self.size_bytes += len(part)
        self.last_offset = last_offset


@final
class RecordFilter:
    """Filters the batches of one source segment after the other, in the order of the log."""

    def __init__(
        self,
        *,
        offsets: OffsetMap,
        marks: DirtyMarks,
        transactions: CleanedTransactions,
        last_records: Mapping[int, LastRecord],
        round_end_offset: int,
        delete_retention_ms: int,
        now_ms: int,
        stats: CleanerStats,
    ) -> None:
        """Set up a filter for one group of a round.

        `last_records` has producer ids as keys. `round_end_offset` is exclusive; it and `now_ms` are the same for all
        groups of a round.
        """
        self._offsets: Final = offsets
        self._marks: Final = marks
        self._transactions: Final = transactions
        self._last_records: Final = last_records
        self._round_end_offset: Final = round_end_offset
        self._delete_retention_ms: Final = delete_retention_ms
        self._now_ms: Final = now_ms
        self._stats: Final = stats
        # Set for each source segment: magic 0 and 1 have no delete horizon (CL16).
        self.retains_legacy_deletes = True

    def filter_chunk(self, chunk: bytes, limit_bytes: int, path: str, position: int) -> FilteredChunk:
        """Filter the whole batches of `chunk`, which is at byte `position` of the file `path`.

        Ends early after the batch with which the output exceeds `limit_bytes` (CL20, KAFKA-5316), or the records that
        were read are very many.
        Raises CorruptBatch, InvalidRecord; StorageError for what magic 0 and 1 cannot express.
        """
        assert limit_bytes > 0, (path, position, limit_bytes)
        result, before = FilteredChunk(), self._stats.records_read
        for batch in batches_in(chunk, path, position):
            result.bytes_read += batch.size_bytes
            self._filter_batch(batch, result)
            if result.size_bytes > limit_bytes or self._stats.records_read - before > MOST_RECORDS_AT_ONCE:
                break
        result.records_read = self._stats.records_read - before
        assert result.bytes_read <= len(chunk), (path, position, result.bytes_read, len(chunk))
        assert (result.size_bytes > 0) == bool(result.parts), (path, position, result.size_bytes)
        self._stats.bytes_read += result.bytes_read
        self._stats.bytes_written += result.size_bytes
        return result

    def _filter_batch(self, batch: RecordBatch, result: FilteredChunk) -> None:
        verdict = _ORDINARY
        if (
            batch.attributes & _SPECIAL
            or batch.producer_id >= 0
            or batch.next_offset == self._round_end_offset
        ):
            verdict = self.judge(batch)
        if verdict.retention is Retention.DELETE:
            return
        all_kept = self._all_kept(batch, verdict)
        if all_kept is None:
            self._filter_records(batch, verdict, result)
            return
        # The marks tell nothing of a batch above the map.
        assert batch.last_offset <= self._offsets.latest_offset, (batch, self._offsets.latest_offset)
        self._stats.records_read += batch.record_count
        if all_kept:
            self._stats.records_written += batch.record_count
            self._copy(batch, result)
        elif verdict.retention is Retention.RETAIN_EMPTY:
            result.add(empty_batch(batch), batch.last_offset)
        assert self._stats.records_written <= self._stats.records_read, (batch, self._stats)

    def _all_kept(self, batch: RecordBatch, verdict: Verdict) -> bool | None:
        """Whether all records of `batch` are kept, known by the marks alone; None where the records must be read."""
        is_marked = (
            batch.magic >= CURRENT_MAGIC
            and batch.last_offset <= self._offsets.latest_offset
            and not verdict.drops_records
            and not batch.attributes & CONTROL_FLAG
        )
        return self._marks.all_kept(batch) if is_marked else None

    def _filter_records(self, batch: RecordBatch, verdict: Verdict, result: FilteredChunk) -> None:
        assert verdict.retention is not Retention.DELETE, batch
        if batch.record_count > MOST_KEYS_AT_ONCE:
            self._filter_portions(batch, verdict, result)
            return
        keys = read_keys(batch)
        kept = self._keep(batch, verdict, keys)
        assert len(kept) <= len(keys), (batch, len(kept), len(keys))
        self._stats.records_read += len(keys)
        self._stats.records_written += len(kept)
        if kept:
            self._write_kept(batch, verdict, keys, kept, result)
        elif verdict.retention is Retention.RETAIN_EMPTY:
            result.add(empty_batch(batch), batch.last_offset)

    def _filter_portions(self, batch: RecordBatch, verdict: Verdict, result: FilteredChunk) -> None:
        """Filter a batch of very many records, which are read up to three times and never held together."""
        kept_count, lacks_value, stats = 0, False, self._stats
        for keys in portions_of_keys(batch):
            kept = self._keep(batch, verdict, keys)
            kept_count += len(kept)
            lacks_value = lacks_value or not all(has_value for _, _, has_value in kept)
        stats.records_read += batch.record_count
        stats.records_written += kept_count
        horizon_ms = batch.delete_horizon_ms
        needs_horizon = horizon_ms is None and (verdict.is_marker_of_nothing or lacks_value)
        if kept_count == 0:
            if verdict.retention is Retention.RETAIN_EMPTY:
                result.add(empty_batch(batch), batch.last_offset)
        elif kept_count == batch.record_count and not needs_horizon:
            self._copy(batch, result)
        else:
            if needs_horizon:
                horizon_ms = self._new_horizon_ms()
            without_key = stats.records_without_key
            are_kept = self._are_kept(batch, verdict)
            data = rebuild_from(batch, lambda _: next(are_kept), horizon_ms)
            # They were counted by the first reading.
            stats.records_without_key = without_key
            result.add(data, RecordBatch(data, 0, len(data)).last_offset)

    def _are_kept(self, batch: RecordBatch, verdict: Verdict) -> Iterator[bool]:
        for keys in portions_of_keys(batch):
            wanted = {offset for offset, _, _ in self._keep(batch, verdict, keys)}
            yield from (offset in wanted for offset, _, _ in keys)

    def _copy(self, batch: RecordBatch, result: FilteredChunk) -> None:
        part = memoryview(batch.buffer)[batch.start : batch.start + batch.size_bytes]
        result.add(part, batch.last_offset)

    def _write_kept(
        self,
        batch: RecordBatch,
        verdict: Verdict,
        keys: list[RecordKey],
        kept: list[RecordKey],
        result: FilteredChunk,
    ) -> None:
        """Copy the batch where nothing of it changes (CL18), else rebuild it."""
        horizon_ms = batch.delete_horizon_ms
        needs_horizon = (
            batch.magic >= CURRENT_MAGIC
            and horizon_ms is None
            and (verdict.is_marker_of_nothing or not all(has_value for _, _, has_value in kept))
        )
        if len(kept) == len(keys) and not needs_horizon and not has_foreign_messages(batch):
            self._copy(batch, result)
            return
        if needs_horizon:
            horizon_ms = self._new_horizon_ms()
        data = rebuild_batch(batch, [offset for offset, _, _ in kept], horizon_ms)
        result.add(data, RecordBatch(data, 0, len(data)).last_offset)

    def _new_horizon_ms(self) -> int | None:
        """The time from which tombstones may be deleted that this round sees first (CL17).

        None where it would not fit its field: then no horizon is written and they stay. Kafka's sum wraps to a negative
        number, which counts as none.
        """
        horizon_ms = self._now_ms + self._delete_retention_ms
        return horizon_ms if horizon_ms <= MAX_INT64 else None

    def judge(self, batch: RecordBatch) -> Verdict:
        """Decide how to filter `batch` (CL12 to CL14).

        This advances the transactions: it must be called once per batch, in order. Raises InvalidRecord for a control
        record that cannot be read.
        """
        can_discard = self._transactions.can_discard(batch)
        if batch.is_control:
            horizon_ms = batch.delete_horizon_ms
            drops_records = can_discard and horizon_ms is not None and horizon_ms <= self._now_ms
        else:
            drops_records = can_discard
        if self._is_last_of_producer(batch) or batch.next_offset == self._round_end_offset:
            retention = Retention.RETAIN_EMPTY
        else:
            retention = Retention.DELETE if drops_records else Retention.DELETE_EMPTY
        return Verdict(retention, drops_records, can_discard and batch.is_control)

    def _is_last_of_producer(self, batch: RecordBatch) -> bool:
        """Whether a producer's last sequence or its fencing epoch is stored in this batch alone (CL14, CL27)."""
        last = self._last_records.get(batch.producer_id) if batch.has_producer_id else None
        if last is None:
            return False
        if last.last_data_offset is not None:
            return batch.last_offset == last.last_data_offset
        return batch.is_control and batch.producer_epoch == last.producer_epoch

    def _keep(self, batch: RecordBatch, verdict: Verdict, keys: list[RecordKey]) -> list[RecordKey]:
        """The records to keep: the last one of each key, tombstones up to their horizon, markers (CL15, CL16)."""
        if verdict.drops_records:
            return []
        if batch.attributes & CONTROL_FLAG and batch.is_control:
            return keys
        latest_offset, last_offset_of = self._offsets.latest_offset, self._offsets.get
        retains_deletes = self._retains_deletes(batch)
        kept = []
        for record in keys:
            offset, key, has_value = record
            if offset > latest_offset:
                kept.append(record)
            elif key is None:
                self._stats.records_without_key += 1
            elif (has_value or retains_deletes) and offset >= last_offset_of(key):
                kept.append(record)
        return kept

    def _retains_deletes(self, batch: RecordBatch) -> bool:
        if batch.magic < CURRENT_MAGIC:
            return self.retains_legacy_deletes
        horizon_ms = batch.delete_horizon_ms
        return horizon_ms is None or self._now_ms < horizon_ms
