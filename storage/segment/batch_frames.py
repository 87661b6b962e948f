"""Walks over the frames of a set without columns, and computes the columns that its indexes need."""

from __future__ import annotations

import struct

from storage.batch import CURRENT_MAGIC, HEADER_SIZE, LOG_OVERHEAD, iterate_batches
from storage.batch.columns import BatchColumns
from storage.batch.format import MAGIC_AT

# Base offset, size field, last offset delta and max timestamp of magic 2.
_FIELDS = struct.Struct(">qi11xi8xq")


def columns_of(data: memoryview, path: str) -> BatchColumns:
    """The columns of the batches in `data`, which are whole and sound.

    Raises CorruptBatch, naming `path`, at bytes that are no batch.
    """
    columns, at, size = BatchColumns(), 0, len(data)
    while at < size:
        if data[at + MAGIC_AT] < CURRENT_MAGIC:
            batch = next(iterate_batches(data[at:], path))
            end, last_offset, timestamp = at + batch.size_bytes, batch.last_offset, batch.max_timestamp
        else:
            base_offset, size_field, delta, timestamp = _FIELDS.unpack_from(data, at)
            end, last_offset = at + LOG_OVERHEAD + size_field, base_offset + delta
        columns.starts.append(at)
        columns.last_offsets.append(last_offset)
        columns.max_timestamps.append(timestamp)
        assert at + HEADER_SIZE <= end <= size or data[at + MAGIC_AT] < CURRENT_MAGIC, (path, at, end, size)
        at = end
    assert at == size, (path, at, size)
    return columns
