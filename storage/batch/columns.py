"""The facts about the batches of one set that a segment's indexes need, column by column.

A follower's set may hold a thousand batches, of which few get an index entry: in columns these few are found by
bisection, and the greatest timestamp between two of them by one call.
"""

from __future__ import annotations

import struct
from typing import final

from storage.batch.format import CURRENT_MAGIC, HEADER_SIZE, LOG_OVERHEAD, MAGIC_AT
from storage.batch.view import iterate_batches

# Base offset, size field, last offset delta and max timestamp of magic 2.
_FIELDS = struct.Struct(">qi11xi8xq")


@final
class BatchColumns:
    """One row per batch, in order: its first byte in the set, its last offset, its greatest timestamp."""

    __slots__ = ("last_offsets", "max_timestamps", "starts")

    def __init__(self) -> None:
        self.starts: list[int] = []
        self.last_offsets: list[int] = []
        self.max_timestamps: list[int] = []

    def __len__(self) -> int:
        return len(self.starts)


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
