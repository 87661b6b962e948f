"""Builds message sets of magic 0 and 1 from records (Kafka: MemoryRecordsBuilder, LegacyRecord; rules BB1 to BB5)."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import final

from storage.batch.format import LOG_APPEND_TIME_FLAG, LOG_OVERHEAD, TimestampType
from storage.batch.record import MAX_INT32, NO_TIMESTAMP, Record
from storage.codec.compression import Compression, compress
from storage.errors import InvalidRecord, UnsupportedCompression

_FRAME = struct.Struct(">qi")
_CRC = struct.Struct(">I")
_LENGTH = struct.Struct(">i")
# The bytes of magic 0 and of magic 1 after the size field, without key and value.
_MESSAGE_OVERHEAD = (14, 22)


def message_size(magic: int, key: bytes | None, value: bytes | None) -> int:
    """The size of a message in bytes, with its offset and size fields."""
    return LOG_OVERHEAD + _MESSAGE_OVERHEAD[magic] + len(key or b"") + len(value or b"")


def build_message(
    offset: int,
    *,
    magic: int,
    timestamp: int,
    key: bytes | None,
    value: bytes | None,
    attributes: int = 0,
) -> bytes:
    """Build one message with its offset and size fields; magic 0 has no place for `timestamp`."""
    content = b"".join((message_head(magic, timestamp, attributes), _sized(key), _sized(value)))
    checksum = _CRC.pack(zlib.crc32(content))
    return _FRAME.pack(offset, len(checksum) + len(content)) + checksum + content


def message_head(magic: int, timestamp: int, attributes: int = 0) -> bytes:
    """Returns what a message has between its checksum and the size of its key."""
    assert magic in (0, 1), magic
    if magic:
        return struct.pack(">bBq", magic, attributes, timestamp)
    return struct.pack(">bB", magic, attributes)


def _sized(data: bytes | None) -> bytes:
    return _LENGTH.pack(-1) if data is None else _LENGTH.pack(len(data)) + data


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageSetFields:
    """The properties of a message set to be built. `timestamp_type` is NO in magic 0 and only there; `base_offset`
    matters only to wrapped messages of magic 1, whose offsets are relative to it.
    """

    magic: int
    base_offset: int = 0
    compression: Compression = Compression.NONE
    # None for the codec's default.
    compression_level: int | None = None
    timestamp_type: TimestampType = TimestampType.CREATE
    log_append_time_ms: int = NO_TIMESTAMP

    def __post_init__(self) -> None:
        assert self.magic in (0, 1), self.magic
        assert self.magic == 0 or self.timestamp_type is not TimestampType.NO, "magic 1 has a timestamp type"
        if self.compression is Compression.ZSTD:
            raise UnsupportedCompression(f"compression codec zstd does not exist in magic {self.magic}")

    @property
    def is_log_append(self) -> bool:
        return self.timestamp_type is TimestampType.LOG_APPEND

    @property
    def attributes(self) -> int:
        return LOG_APPEND_TIME_FLAG if self.is_log_append and self.magic else 0

    def stored_offset(self, offset: int) -> int:
        """Returns what a message stores for its offset: within a wrapper of magic 1 it is relative."""
        is_relative = self.magic > 0 and self.compression is not Compression.NONE
        return offset - self.base_offset if is_relative else offset

    def stored_timestamp(self, timestamp: int) -> int:
        return self.log_append_time_ms if self.is_log_append else timestamp

    def check_next(self, record: Record, last_offset: int) -> None:
        """Raise InvalidRecord unless `record` can follow one at `last_offset` (BB1)."""
        if record.offset <= last_offset or record.offset - self.base_offset > MAX_INT32:
            raise InvalidRecord(
                f"offset {record.offset} cannot follow {last_offset} in a set at {self.base_offset}"
            )
        if record.timestamp < NO_TIMESTAMP:
            raise InvalidRecord(f"timestamp {record.timestamp} is negative")
        if record.headers:
            raise InvalidRecord(f"records of magic {self.magic} cannot have headers")

    def message(self, record: Record) -> bytes:
        """Returns the record as a message of the set."""
        return build_message(
            self.stored_offset(record.offset),
            magic=self.magic,
            timestamp=self.stored_timestamp(record.timestamp),
            key=record.key,
            value=record.value,
            attributes=self.attributes,
        )

    def wrapper(self, last_offset: int, max_timestamp: int, packed: bytes) -> bytes:
        """Returns the wrapper around the packed messages, the last of which is at `last_offset`."""
        return build_message(
            last_offset,
            magic=self.magic,
            timestamp=self.stored_timestamp(max_timestamp),
            key=None,
            value=packed,
            attributes=self.attributes | self.compression,
        )


def build_message_set(
    records: Iterable[Record],
    *,
    magic: int,
    base_offset: int = 0,
    compression: Compression = Compression.NONE,
    compression_level: int | None = None,
    timestamp_type: TimestampType = TimestampType.CREATE,
    log_append_time_ms: int = NO_TIMESTAMP,
) -> bytes:
    """Build one message per record, or with a codec one wrapper around all; without records the result is empty (BB3,
    BB4).

    Raises what `MessageSetBuilder.append` raises, and UnsupportedCompression for zstd.
    """
    builder = MessageSetBuilder(
        MessageSetFields(
            magic=magic,
            base_offset=base_offset,
            compression=compression,
            compression_level=compression_level,
            timestamp_type=timestamp_type,
            log_append_time_ms=log_append_time_ms,
        )
    )
    for record in records:
        builder.append(record)
    return builder.build()


@final
class MessageSetBuilder:
    """A message set that fills up to `limit_bytes`; the first record may be of any size (Kafka: hasRoomFor)."""

    __slots__ = ("_last_offset", "_messages", "_size_bytes", "fields", "limit_bytes", "max_timestamp")

    def __init__(self, fields: MessageSetFields, *, limit_bytes: int = MAX_INT32) -> None:
        self.fields = fields
        self.limit_bytes = limit_bytes
        # The greatest timestamp of the records, even where the log append time is stored instead.
        self.max_timestamp = NO_TIMESTAMP
        self._last_offset = fields.base_offset - 1
        self._messages: list[bytes] = []
        self._size_bytes = 0

    @property
    def record_count(self) -> int:
        return len(self._messages)

    @property
    def last_offset(self) -> int:
        """The offset of the newest record; one below the base offset while there is none."""
        return self._last_offset

    @property
    def size_estimate(self) -> int:
        """The size of the set so far in bytes, before compression: exact without a codec (BB5)."""
        wrapper = 0
        if self.fields.compression is not Compression.NONE:
            wrapper = message_size(self.fields.magic, None, None)
        return wrapper + self._size_bytes

    def try_append(self, record: Record) -> bool:
        """Append `record`. Returns False, and changes nothing, when the set would exceed its limit.

        Raises what `append` raises.
        """
        size = message_size(self.fields.magic, record.key, record.value)
        if self._messages and self.size_estimate + size > self.limit_bytes:
            return False
        before = self._size_bytes
        self.append(record)
        assert self._size_bytes == before + size, (self._size_bytes, before, size)
        return True

    def append(self, record: Record) -> None:
        """Append `record`.

        Raises InvalidRecord, having changed nothing, for an offset that is not above the last one or not within 31 bits
        of the base offset, for a timestamp below -1, and for headers (BB1).
        """
        fields = self.fields
        fields.check_next(record, self._last_offset)
        message = fields.message(record)
        assert self._size_bytes > 0 or not self._messages, (self._size_bytes, len(self._messages))
        self._messages.append(message)
        self._size_bytes += len(message)
        self._last_offset = record.offset
        self.max_timestamp = max(self.max_timestamp, record.timestamp)
        assert self._last_offset >= fields.base_offset, (self._last_offset, fields.base_offset)

    def build(self) -> bytes:
        """Returns the bytes of the set; more records may be appended afterwards."""
        fields, content = self.fields, b"".join(self._messages)
        assert len(content) == self._size_bytes, (len(content), self._size_bytes)
        if fields.compression is Compression.NONE or not content:
            return content
        packed = compress(fields.compression, content, magic=fields.magic, level=fields.compression_level)
        return fields.wrapper(self._last_offset, self.max_timestamp, packed)
