"""Builds a batch of magic 2 from a stream of records, of which only the compressed form is held.

The offsets of its records are 0, 1, 2 … above its base offset.
"""

from __future__ import annotations

from typing import Final, final

from storage.batch.builder import BatchFields, frame_batch
from storage.batch.format import HEADER_SIZE
from storage.batch.record import MAX_INT32, NO_TIMESTAMP, Record, encode_record, wrap_int64
from storage.codec.packing import packed_stream
from storage.codec.varint import encode_varint, encode_varlong, size_of_varint
from storage.errors import InvalidRecord

# As much is handed to the codec at once.
_PENDING_BYTES: Final = 1 << 16


@final
class StreamedBatch:
    """A batch that grows; `size_bytes` is its size so far, without what the codec has not put out yet."""

    __slots__ = (
        "_base_timestamp",
        "_fields",
        "_pending",
        "_stream",
        "max_timestamp",
        "offset_of_max",
        "record_count",
    )

    def __init__(self, fields: BatchFields) -> None:
        assert not fields.is_control and fields.delete_horizon_ms is None, fields
        self._fields = fields
        self._stream = packed_stream(fields.compression, fields.compression_level)
        self._pending = bytearray()
        self._base_timestamp = NO_TIMESTAMP
        # The greatest timestamp, and the number of the first record that has it.
        self.max_timestamp, self.offset_of_max = NO_TIMESTAMP, -1
        self.record_count = 0

    @property
    def size_bytes(self) -> int:
        return HEADER_SIZE + len(self._stream.output)

    def append(self, record: Record) -> None:
        """Append the record under the next offset. Raises InvalidRecord for a timestamp below -1."""
        delta, timestamp_delta = self._count(record.timestamp)
        self._pending += encode_record(delta, timestamp_delta, record.key, record.value, record.headers)
        if len(self._pending) >= _PENDING_BYTES:
            self._pass_on()

    def begin_large(self, timestamp: int, rest_bytes: int) -> None:
        """Begin a record whose bytes after the offset delta, `rest_bytes` of them, follow by `append_piece`."""
        delta, timestamp_delta = self._count(timestamp)
        length = 1 + size_of_varint(timestamp_delta) + size_of_varint(delta) + rest_bytes
        self._pending += (
            encode_varint(length) + b"\x00" + encode_varlong(timestamp_delta) + encode_varint(delta)
        )

    def append_piece(self, piece: bytes) -> None:
        self._pending += piece
        self._pass_on()

    def _count(self, timestamp: int) -> tuple[int, int]:
        """Count another record. Returns its offset and timestamp delta, which wraps as a Java long does (BB2)."""
        delta = self.record_count
        if timestamp < NO_TIMESTAMP:
            raise InvalidRecord(f"timestamp {timestamp} is negative")
        if not delta:
            # The timestamp of the first record, not the least (BB2).
            self._base_timestamp = timestamp
        if timestamp > self.max_timestamp:
            self.max_timestamp, self.offset_of_max = timestamp, delta
        self.record_count += 1
        assert self.record_count <= MAX_INT32, self.record_count
        return delta, wrap_int64(timestamp - self._base_timestamp)

    def _pass_on(self) -> None:
        self._stream.write(self._pending)
        self._pending = bytearray()

    def build(self) -> bytes:
        """Returns the bytes of the batch, which has a record; nothing can be appended afterwards."""
        assert self.record_count > 0, self.record_count
        self._pass_on()
        self._stream.finish()
        return frame_batch(
            self._fields,
            self._stream.output,
            last_offset_delta=self.record_count - 1,
            base_timestamp=self._base_timestamp,
            max_timestamp=self.max_timestamp,
            record_count=self.record_count,
        )
