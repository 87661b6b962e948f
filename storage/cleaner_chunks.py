"""A segment's file read in chunks of whole batches, as the cleaner reads it.

Kafka: Cleaner.growBuffersOrFail, ByteBufferLogInputStream; rules CL20, FR10.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import final

from storage.batch import RecordBatch
from storage.batch_format import (
    CURRENT_MAGIC,
    HEADER_SIZE_UP_TO_MAGIC,
    LOG_OVERHEAD,
    MAGIC_AT,
    MIN_SIZE_FIELD,
    SIZE_FIELD,
    SIZE_FIELD_AT,
)
from storage.errors import CorruptBatch, StorageError


def frame_size(chunk: bytes, at: int, path: str, position: int) -> int | None:
    """Bytes of the batch that begins at `at`, which need not be whole; None where too few are there to tell (FR10).

    Raises CorruptBatch for a size below the least and an unknown magic; `position` is the place of `chunk` in `path`.
    """
    present = len(chunk) - at
    if present < LOG_OVERHEAD:
        return None
    (size_field,) = SIZE_FIELD.unpack_from(chunk, at + SIZE_FIELD_AT)
    if size_field < MIN_SIZE_FIELD:
        reason = f"a size field of {size_field}, below the least of {MIN_SIZE_FIELD}"
        raise CorruptBatch(path, position + at, reason)
    if present < HEADER_SIZE_UP_TO_MAGIC:
        return None
    if chunk[at + MAGIC_AT] > CURRENT_MAGIC:  # negative ones show as 128 and above
        raise CorruptBatch(path, position + at, f"magic {chunk[at + MAGIC_AT]} is unknown")
    return LOG_OVERHEAD + int(size_field)


def batches_in(chunk: bytes, path: str, position: int) -> Iterator[RecordBatch]:
    """The whole batches of a chunk, each with its checksum looked at.

    Kafka's cleaner looks at none; a batch that it rebuilds from damaged bytes gets a checksum that is right.
    Raises CorruptBatch.
    """
    at = 0
    while True:
        size_bytes = frame_size(chunk, at, path, position)
        if size_bytes is None or size_bytes > len(chunk) - at:
            return
        batch = RecordBatch(chunk, at, size_bytes, position + at)
        batch.check_valid(path)
        yield batch
        at += size_bytes


@final
class ChunkBuffer:
    """How much is read at a time: it doubles while no whole batch fits, and returns to `size_bytes` later."""

    __slots__ = ("_max_bytes", "_size_bytes", "capacity_bytes")

    def __init__(self, size_bytes: int, max_bytes: int) -> None:
        assert size_bytes > 0, size_bytes
        self._size_bytes, self._max_bytes = size_bytes, max_bytes
        self.capacity_bytes = size_bytes

    def restore(self) -> None:
        self.capacity_bytes = self._size_bytes

    def grow(self, chunk: bytes, path: str, position: int, bytes_left: int, max_message_bytes: int) -> None:
        """`chunk`, all that fits, holds no whole batch. Above `max_message_bytes` it grows to the one batch it needs.

        `bytes_left` are those from `position` to the end of the file. Raises CorruptBatch when the batch does not
        end in the file, StorageError when the buffer may not grow.
        """
        limit_bytes = max_message_bytes
        if self.capacity_bytes >= max_message_bytes:
            size_bytes = frame_size(chunk, 0, path, position)
            if size_bytes is None or size_bytes > bytes_left:
                reason = f"a batch of {size_bytes or 'unknown'} bytes with {bytes_left} bytes left"
                raise CorruptBatch(path, position, reason)
            limit_bytes = size_bytes
        limit_bytes = max(limit_bytes, self._max_bytes)
        if self.capacity_bytes >= limit_bytes:
            raise StorageError(f"{path} at byte {position}: a batch larger than {limit_bytes} bytes")
        self.capacity_bytes = min(2 * self.capacity_bytes, limit_bytes)
