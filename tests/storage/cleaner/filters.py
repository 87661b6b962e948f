"""A filter of batches as a round of compaction makes it."""

from __future__ import annotations

from collections.abc import Iterable

from storage.batch import Record, RecordBatch, iterate_batches
from storage.cleaner.filter import CleanerStats, FilteredChunk, LastRecord, RecordFilter
from storage.cleaner.marks import DirtyMarks
from storage.cleaner.offset_map import SLOT_BYTES, OffsetMap
from storage.cleaner.transactions import CleanedTransactions
from tests.storage.cleaner.compacted_logs import DAY_MS
from tests.storage.logs import NOW_MS

# No round ends here.
FAR = 10**9


def filter_of(
    superseded: Iterable[bytes] = (), *, latest: int = 10**6, now_ms: int = NOW_MS, retention_ms: int = DAY_MS,
    last_records: dict[int, LastRecord] | None = None, end: int = FAR,
) -> RecordFilter:  # fmt: skip
    """Return the filter of a round that knows a record at `latest` for each of the `superseded` keys.

    Records above `latest` stay.
    """
    offsets = OffsetMap(100 * SLOT_BYTES)
    for key in superseded:
        offsets.put(key, latest)
    offsets.latest_offset = latest
    return RecordFilter(
        offsets=offsets,
        marks=DirtyMarks(0, 0),
        transactions=CleanedTransactions(),
        last_records=last_records or {},
        round_end_offset=end,
        delete_retention_ms=retention_ms,
        now_ms=now_ms,
        stats=CleanerStats(),
    )


def output(result: FilteredChunk) -> bytes:
    return b"".join(result.parts)


def filtered(record_filter: RecordFilter, data: bytes, limit_bytes: int = 1 << 20) -> list[RecordBatch]:
    return list(iterate_batches(output(record_filter.filter_chunk(data, limit_bytes, "x.log", 0))))


def record(offset: int, key: bytes | None = b"k", value: bytes | None = b"v", timestamp: int = 5) -> Record:
    return Record(offset, timestamp, key, value)
