"""What the batches of one set are to a segment's indexes, column by column.

A set of a follower may hold a thousand batches, of which few get an index entry: with columns the few are found by
bisection, and the greatest timestamp between them by one call for all.
"""

from __future__ import annotations

import struct
from typing import final

from storage.batch import iterate_batches
from storage.batch_format import CURRENT_MAGIC, HEADER_SIZE, LOG_OVERHEAD, MAGIC_AT

# Of magic 2: base offset, size field, last offset delta, max timestamp.
_FIELDS = struct.Struct(">qi11xi8xq")


@final
class BatchColumns:
    """One row a batch, in order: where it starts in the set, its last offset, its greatest timestamp."""

    __slots__ = ("last_offsets", "max_timestamps", "starts")

    def __init__(self) -> None:
        self.starts: list[int] = []
        self.last_offsets: list[int] = []
        self.max_timestamps: list[int] = []

    def __len__(self) -> int:
        return len(self.starts)


def columns_of(data: memoryview, path: str) -> BatchColumns:
    """Of whole, sound batches. Raises CorruptBatch, with `path`, at a frame that is none."""
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
