"""Reads a segment file into Arrow batches with the columns of Kafka's Spark source, in Spark's Python workers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pipeline.directory import SegmentRange
from pipeline.errors import SourceError
from storage.batch import RecordBatch
from storage.batch.record import Record
from storage.directory.manager import LOCK_FILE
from storage.disk.filesystem import dirname, join
from storage.disk.os_filesystem import OsFileSystem
from storage.errors import CorruptBatch, StorageError
from storage.segment.file_records import FileRecords

if TYPE_CHECKING:
    import pyarrow

# A session may take `timestamp` for a time without a zone (spark.sql.timestampType). No blank is within a type.
SCHEMA = (
    "key binary, value binary, topic string, partition int, offset bigint, "
    "timestamp timestamp_ltz, timestampType int"
)
HEADERS_COLUMN = ", headers array<struct<key:string,value:binary>>"
# An Arrow batch ends at 1,000 rows or about 1 MiB: Spark takes batches of this size fastest.
ROWS_A_BATCH = 1_000
BYTES_A_BATCH = 1 << 20
# What 64 bits of microseconds hold. A record has 64 bits of milliseconds.
LEAST_US, GREATEST_US = -(1 << 63), (1 << 63) - 1


def segment_batches(
    wanted: SegmentRange, *, include_headers: bool, fail_on_data_loss: bool
) -> Iterator[pyarrow.RecordBatch]:
    """Yield the records of a range, without control records; every batch's CRC is checked.

    At damage raises SourceError with file and position; without `fail_on_data_loss` the segment ends there instead.
    """
    columns = _Columns(wanted, include_headers)
    try:
        for batch in _sound_batches(wanted):
            if batch.last_offset < wanted.start_offset or batch.is_control:
                continue
            # A wrapper of magic 0 or 1 stores only its last offset; `first_offset` has to read its messages.
            if batch.last_offset >= wanted.end_offset and batch.first_offset() >= wanted.end_offset:
                break
            for record in batch.records():
                if wanted.start_offset <= record.offset < wanted.end_offset:
                    columns.add(record, batch)
            if columns.is_full:
                yield columns.take()
    except FileNotFoundError as error:
        if fail_on_data_loss:
            what = "was deleted, or compacted, after load(): call load() again"
            raise SourceError(f"{wanted.path} {what}") from error
    except StorageError as error:
        if fail_on_data_loss:
            place = "" if wanted.path in str(error) else f"{wanted.path}: "
            raise SourceError(f"{place}{error}") from error
    if columns.rows:
        yield columns.take()


def _sound_batches(wanted: SegmentRange) -> Iterator[RecordBatch]:
    file_system = OsFileSystem()
    records = FileRecords(file_system, wanted.path, read_only=True)
    try:
        position = 0
        try:
            for batch in records.batches():
                batch.check_valid(wanted.path)
                yield batch
                position = batch.position + batch.size_bytes
        except CorruptBatch:
            # A node that writes a preallocated file has not come to its end yet.
            if not (wanted.is_last and records.has_only_zeros_from(position)):
                raise
            return
        if position == records.size_bytes or (wanted.is_last and records.has_only_zeros_from(position)):
            return
        if not wanted.is_last:
            raise CorruptBatch(wanted.path, position, "bytes after the last whole batch of a sealed segment")
        # A batch that a node is writing. That it has the lock is only looked up: a reader never takes it.
        if not file_system.is_locked(join(dirname(dirname(wanted.path)), LOCK_FILE)):
            left = records.size_bytes - position
            what = f"the last {left} bytes are no whole batch, and no node of this machine writes there"
            raise CorruptBatch(wanted.path, position, what)
    finally:
        records.close_handlers()


class _Columns:
    """Rows collected in columns, the form in which Arrow takes them."""

    def __init__(self, wanted: SegmentRange, include_headers: bool) -> None:
        self.wanted, self.include_headers = wanted, include_headers
        self._clear()

    def _clear(self) -> None:
        self.keys: list[bytes | None] = []
        self.values: list[bytes | None] = []
        self.offsets: list[int] = []
        self.timestamps_us: list[int] = []
        self.types: list[int] = []
        self.headers: list[list[dict[str, object]] | None] = []
        self.size_bytes = 0

    @property
    def rows(self) -> int:
        return len(self.offsets)

    @property
    def is_full(self) -> bool:
        return self.rows >= ROWS_A_BATCH or self.size_bytes >= BYTES_A_BATCH

    def add(self, record: Record, batch: RecordBatch) -> None:
        self.keys.append(record.key)
        self.values.append(record.value)
        self.offsets.append(record.offset)
        self.timestamps_us.append(min(max(record.timestamp * 1_000, LEAST_US), GREATEST_US))
        self.types.append(int(batch.timestamp_type))
        if self.include_headers:
            # Kafka's source has null, not an empty array, for none.
            found: list[dict[str, object]] = [{"key": key, "value": value} for key, value in record.headers]
            self.headers.append(found or None)
        self.size_bytes += len(record.key or b"") + len(record.value or b"")

    def take(self) -> pyarrow.RecordBatch:
        import pyarrow as pa

        rows = self.rows
        assert rows > 0, self.wanted
        assert rows == len(self.keys) == len(self.types), (rows, len(self.keys), len(self.types))
        arrays = {
            "key": pa.array(self.keys, pa.binary()),
            "value": pa.array(self.values, pa.binary()),
            "topic": pa.array([self.wanted.topic] * rows, pa.string()),
            "partition": pa.array([self.wanted.partition] * rows, pa.int32()),
            "offset": pa.array(self.offsets, pa.int64()),
            "timestamp": pa.array(self.timestamps_us, pa.timestamp("us", tz="UTC")),
            "timestampType": pa.array(self.types, pa.int32()),
        }
        if self.include_headers:
            header = pa.struct([("key", pa.string()), ("value", pa.binary())])
            arrays["headers"] = pa.array(self.headers, pa.list_(header))
        self._clear()
        return pa.RecordBatch.from_pydict(arrays)
