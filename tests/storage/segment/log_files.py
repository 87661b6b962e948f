"""A `.log` file with batches in it, on a simulated disk."""

from __future__ import annotations

from collections.abc import Iterable

from storage.batch import RecordBatch, build_batch
from storage.batch.record import Record
from storage.disk.filesystem import FileSystem, OpenMode
from storage.segment.file_records import FileRecords
from tests.storage.index.indexes import simulated

PATH = "0.log"


def batch_of(*offsets: int, value: bytes = b"value", timestamp: int = 10, epoch: int = 0) -> bytes:
    records = [Record(offset=offset, timestamp=timestamp, key=None, value=value) for offset in offsets]
    return build_batch(records, base_offset=offsets[0], partition_leader_epoch=epoch)


THREE = [batch_of(0, value=b"abcd"), batch_of(1, value=b"efgh"), batch_of(2, value=b"ijkl")]


def holding(content: bytes, fs: FileSystem | None = None) -> FileRecords:
    fs = fs or simulated()[1]
    fs.open(PATH, OpenMode.CREATE).append(content)
    return FileRecords(fs, PATH)


def with_three() -> FileRecords:
    records = holding(b"")
    for batch in THREE:
        records.append(batch)
    return records


def bytes_of(batches: Iterable[RecordBatch]) -> list[bytes]:
    return [batch.tobytes() for batch in batches]
