"""Builds a wrapper of magic 0 or 1 from a stream of messages, of which only the compressed form is held."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable
from typing import Final, final

from storage.batch.cut_record import CutRecord
from storage.batch.legacy.builder import MessageSetFields, message_head
from storage.batch.pieces import LargeFields
from storage.batch.record import NO_TIMESTAMP, Record
from storage.codec.packing import packed_stream

# As much is handed to the codec at once.
_PENDING_BYTES: Final = 1 << 16
_FRAME: Final = struct.Struct(">qiI")
_LENGTH: Final = struct.Struct(">i")
_CRC_BYTES: Final = 4


@final
class StreamedMessages:
    """A wrapper that grows; it becomes what `MessageSetBuilder` builds of the same records."""

    __slots__ = ("_fields", "_last_offset", "_max_timestamp", "_pending", "_stream")

    def __init__(self, fields: MessageSetFields) -> None:
        """`fields` name a codec."""
        assert fields.compression, fields
        self._fields, self._last_offset, self._max_timestamp = fields, fields.base_offset - 1, NO_TIMESTAMP
        self._stream = packed_stream(fields.compression, fields.compression_level, magic=fields.magic)
        self._pending = bytearray()

    def append(self, record: Record) -> None:
        """Append the record. Raises InvalidRecord as `MessageSetBuilder.append` does."""
        self._pending += self._count(record).message(record)
        self._pass_on(_PENDING_BYTES)

    def append_large(self, record: CutRecord, looked_at: LargeFields, fields_of: LargeFields) -> None:
        """Append a record of which only the beginning is held; its fields are read from the one, then from the other.

        The checksum comes before what it covers. Raises InvalidRecord as `append` does.
        """
        fields = self._count(record)
        head = message_head(fields.magic, fields.stored_timestamp(record.timestamp), fields.attributes)
        sizes = (record.key_size, record.value_size)
        checksum = zlib.crc32(head)
        for piece in _sized(sizes, looked_at):
            checksum = zlib.crc32(piece, checksum)
        size_field = _CRC_BYTES + len(head) + sum(_LENGTH.size + max(size, 0) for size in sizes)
        self._pending += _FRAME.pack(fields.stored_offset(record.offset), size_field, checksum) + head
        for piece in _sized(sizes, fields_of):
            self._pending += piece
            self._pass_on(0)

    def _count(self, record: Record) -> MessageSetFields:
        fields = self._fields
        fields.check_next(record, self._last_offset)
        self._last_offset = record.offset
        self._max_timestamp = max(self._max_timestamp, record.timestamp)
        return fields

    def _pass_on(self, least_bytes: int) -> None:
        if len(self._pending) >= least_bytes:
            self._stream.write(self._pending)
            self._pending = bytearray()

    def build(self) -> bytes:
        """Returns the bytes of the wrapper, which has a message; nothing can be appended afterwards."""
        assert self._last_offset >= self._fields.base_offset, self._fields
        self._pass_on(0)
        self._stream.finish()
        return self._fields.wrapper(self._last_offset, self._max_timestamp, bytes(self._stream.output))


def _sized(sizes: tuple[int, int], fields: LargeFields) -> Iterable[bytes]:
    """Yields key and value as a message has them, each after its size."""
    for size in sizes:
        yield _LENGTH.pack(size)
        pieces = next(fields)
        if pieces is not None:
            yield from pieces
