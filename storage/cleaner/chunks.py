"""A segment's file read in chunks of whole batches, as the cleaner reads it.

Kafka: Cleaner.growBuffersOrFail, ByteBufferLogInputStream; rules CL20, FR10.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, final

from storage.batch import RecordBatch
from storage.batch.format import (
    CRC_COVERS_FROM,
    CURRENT_MAGIC,
    HEADER_SIZE,
    HEADER_SIZE_UP_TO_MAGIC,
    LOG_OVERHEAD,
    MAGIC_AT,
    MIN_SIZE_FIELD,
    SIZE_FIELD,
    SIZE_FIELD_AT,
)
from storage.cleaner.plan import Source
from storage.codec.crc32c import crc32c
from storage.disk.filesystem import File, FileSystem, OpenMode
from storage.errors import CorruptBatch, StorageError

# The size field and the magic.
_FRAME: Final = struct.Struct(">8xi4xb").unpack_from
# Stands for the magic where `RecordBatch.check_valid` must decide.
_ODD: Final = -1


def frame_size(chunk: bytes, at: int, path: str, position: int) -> int | None:
    """The size in bytes of the batch that begins at `at`; None where too few bytes are left to find it (FR10).

    The batch itself need not be whole. `position` is the place of `chunk` in `path`. Raises CorruptBatch for a size
    below the least and for an unknown magic.
    """
    present = len(chunk) - at
    if present >= HEADER_SIZE_UP_TO_MAGIC:
        size_field, magic = _FRAME(chunk, at)
        if size_field >= MIN_SIZE_FIELD and 0 <= magic <= CURRENT_MAGIC:
            return LOG_OVERHEAD + int(size_field)
    if present < LOG_OVERHEAD:
        return None
    (size_field,) = SIZE_FIELD.unpack_from(chunk, at + SIZE_FIELD_AT)
    if size_field < MIN_SIZE_FIELD:
        reason = f"a size field of {size_field}, below the least of {MIN_SIZE_FIELD}"
        raise CorruptBatch(path, position + at, reason)
    if present < HEADER_SIZE_UP_TO_MAGIC:
        return None
    raise CorruptBatch(path, position + at, f"magic {chunk[at + MAGIC_AT]} is unknown")


def batches_in(chunk: bytes, path: str, position: int) -> Iterator[RecordBatch]:
    """The whole batches of a chunk, each with its checksum verified.

    Kafka's cleaner verifies none: a batch that it rebuilds from damaged bytes gets a checksum that matches them.
    Raises CorruptBatch.
    """
    at, view = 0, memoryview(chunk)
    frame, checksum, chunk_end = _FRAME, crc32c, len(chunk)
    last_whole = chunk_end - HEADER_SIZE
    while True:
        size_field, magic = frame(chunk, at) if at <= last_whole else (0, 0)
        end = at + LOG_OVERHEAD + size_field
        if magic != CURRENT_MAGIC or size_field < HEADER_SIZE - LOG_OVERHEAD or end > chunk_end:
            size_bytes = frame_size(chunk, at, path, position)
            if size_bytes is None or size_bytes > chunk_end - at:
                return
            end, magic = at + size_bytes, _ODD
        batch = RecordBatch(chunk, at, end - at, position + at)
        if magic != CURRENT_MAGIC or checksum(view[at + CRC_COVERS_FROM : end]) != batch.crc:
            # A batch of magic 0 or 1, or one that is damaged: then this raises the reason.
            batch.check_valid(path)
        yield batch
        at = end


@final
class SourceReader:
    """Reads one source after the other, `capacity_bytes` at a time, over a handle of its own.

    The log may close its own handles at any time. The capacity doubles while no whole batch fits, up to `max_bytes` or
    to the size of a larger batch; it returns to `size_bytes` when a source was read to its end.
    """

    def __init__(self, file_system: FileSystem, size_bytes: int, max_bytes: int) -> None:
        assert size_bytes > 0, size_bytes
        self._file_system = file_system
        self._size_bytes, self._max_bytes = size_bytes, max_bytes
        self._file: File | None = None
        self.capacity_bytes = size_bytes

    def open(self, source: Source) -> None:
        assert self._file is None, self._file
        self._file = self._file_system.open(source.path, OpenMode.READ)

    def read(self, position: int) -> bytes:
        assert self._file is not None, position
        return self._file.read_at(position, self.capacity_bytes)

    def finish(self) -> None:
        """Close a source that was read to its end."""
        assert self._file is not None, self.capacity_bytes
        self.capacity_bytes = self._size_bytes
        self.close()

    def close(self) -> None:
        """Close the file, if one is open; may be called again."""
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def grow(self, source: Source, chunk: bytes, position: int, max_message_bytes: int) -> None:
        """Double the capacity, because `chunk`, all that fits from `position` on, holds no whole batch.

        Raises CorruptBatch when the batch does not end in the file, StorageError when the capacity may not grow.
        """
        assert len(chunk) <= self.capacity_bytes, (source.path, position, len(chunk), self.capacity_bytes)
        limit_bytes = max_message_bytes
        if self.capacity_bytes >= max_message_bytes:
            size_bytes = frame_size(chunk, 0, source.path, position)
            bytes_left = source.size_bytes - position
            if size_bytes is None or size_bytes > bytes_left:
                reason = f"a batch of {size_bytes or 'unknown'} bytes with {bytes_left} bytes left"
                raise CorruptBatch(source.path, position, reason)
            limit_bytes = size_bytes
        limit_bytes = max(limit_bytes, self._max_bytes)
        if self.capacity_bytes >= limit_bytes:
            raise StorageError(
                f"{source.path} at byte {position}: the batch is larger than {limit_bytes} bytes"
            )
        before_bytes = self.capacity_bytes
        self.capacity_bytes = min(2 * self.capacity_bytes, limit_bytes)
        assert before_bytes < self.capacity_bytes <= limit_bytes, (
            before_bytes,
            self.capacity_bytes,
            limit_bytes,
        )
