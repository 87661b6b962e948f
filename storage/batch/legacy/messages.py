"""Messages of magic 0 and 1, plain and wrapped: what a `.log` held before record batches existed.

| byte of magic 0 | of magic 1 | size | field |
| --- | --- | --- | --- |
| 0 | 0 | 8 | offset |
| 8 | 8 | 4 | size of what follows this field |
| 12 | 12 | 4 | CRC-32 of all from byte 16 on |
| 16 | 16 | 1 | magic |
| 17 | 17 | 1 | attributes: bits 0-2 codec, bit 3 log append time (magic 1) |
| | 18 | 8 | timestamp, -1 none |
| 18 | 26 | 4 | key length, any negative one is null; then the key |
| | | 4 | value length, likewise; then the value |

A plain message is a batch of its own. A message with a codec is a wrapper: its value is messages compressed together,
and its offset is the offset of the last of them. The inner offsets are absolute in magic 0 and relative to the first
message in magic 1. The wrapper has the timestamp type and, if that is log append time, the timestamp of all of them.
Kafka: LegacyRecord, AbstractLegacyRecordBatch.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import NamedTuple

from storage.batch.format import (
    CODEC_MASK,
    LOG_APPEND_TIME_FLAG,
    LOG_OVERHEAD,
    MAGIC_AT,
    MIN_SIZE_FIELD,
    SIZE_FIELD_AT,
    TimestampType,
)
from storage.batch.record import NO_TIMESTAMP, Record, wrap_int64
from storage.codec.buffer import Buffer
from storage.codec.compression import DECOMPRESSED_LIMIT_BYTES, Compression, compression_of, decompress
from storage.errors import CorruptBatch, InvalidRecord

CRC_AT = 12
ATTRIBUTES_AT = 17
TIMESTAMP_AT = 18

_FRAME = struct.Struct(">qi")
_HEADER = struct.Struct(">qiIbB")
_OFFSET = struct.Struct(">q")
_CRC = struct.Struct(">I")
_TIMESTAMP = struct.Struct(">q")
_LENGTH = struct.Struct(">i")
_MAX_MAGIC = 1


class LegacyMessage(NamedTuple):
    """One message that holds a record, plain or from a wrapper, with its absolute offset.

    `timestamp` is the one that readers get: in a wrapper of log append time, the wrapper's. `content` is a view of the
    message from the CRC on.
    """

    offset: int
    timestamp: int
    magic: int
    crc: int
    attributes: int
    content: memoryview

    @property
    def is_valid(self) -> bool:
        """Whether the message's own checksum is right: nothing else covers a message in a wrapper (LV8)."""
        return zlib.crc32(self.content[MAGIC_AT - CRC_AT :]) == self.crc

    @property
    def compression(self) -> Compression:
        """The codec of this message. Raises UnsupportedCompression."""
        return compression_of(self.attributes & CODEC_MASK)

    def key_and_value(self) -> tuple[bytes | None, bytes | None]:
        """The key and the value; bytes after the value are ignored. Raises InvalidRecord where they run past the
        end.
        """
        position = (TIMESTAMP_AT if self.magic == 0 else TIMESTAMP_AT + _TIMESTAMP.size) - CRC_AT
        key, position = _read_sized(self.content, position, "key")
        value, _ = _read_sized(self.content, position, "value")
        return key, value

    def record(self) -> Record:
        """The record that this message holds. Raises InvalidRecord."""
        key, value = self.key_and_value()
        return Record(self.offset, self.timestamp, key, value)


def read_messages(
    batch: Buffer, position: int = 0, decompressed_limit_bytes: int = DECOMPRESSED_LIMIT_BYTES
) -> Iterator[LegacyMessage]:
    """Returns the messages of one batch of magic 0 or 1 in `batch`, which begins at byte `position` of its file.

    The structure of a wrapper's content is checked before the first message is returned. An incomplete last message
    in it is dropped silently, as in Kafka. Checksums are not checked.
    Raises InvalidRecord, UnsupportedCompression, and CorruptBatch for a size field below 14 in a wrapper.
    """
    if len(batch) < LOG_OVERHEAD + MIN_SIZE_FIELD:
        raise InvalidRecord(
            f"a message of {len(batch)} bytes is smaller than {LOG_OVERHEAD + MIN_SIZE_FIELD}"
        )
    outer = _message_at(memoryview(batch), 0, len(batch), 0)
    if outer.compression is Compression.NONE:
        return iter((outer,))
    if not 0 <= outer.magic <= _MAX_MAGIC:
        raise InvalidRecord(
            f"the compressed messages at offset {outer.offset} have the unknown magic {outer.magic}"
        )
    _, value = outer.key_and_value()
    if value is None:
        raise InvalidRecord(f"the compressed messages at offset {outer.offset} have no value")
    if outer.compression is Compression.ZSTD:
        raise InvalidRecord(f"compression codec zstd does not exist in magic {outer.magic}")
    content = memoryview(decompress(outer.compression, value, decompressed_limit_bytes, magic=outer.magic))
    return _inner_messages(outer, content, _base_offset(outer, content, position))


def _base_offset(wrapper: LegacyMessage, content: memoryview, position: int) -> int:
    """Returns the number to add to each inner offset (KAFKA-5365). It depends on the last inner offset, so this walks
    over the whole content.
    """
    last_inner_offset = None
    for at, _ in _frames(content, position):
        (last_inner_offset,) = _OFFSET.unpack_from(content, at)
    if last_inner_offset is None:
        raise InvalidRecord(f"the wrapper at offset {wrapper.offset} contains no message")
    if wrapper.magic == 0:
        return 0
    # Old versions of librdkafka left the wrapper's offset at 0: the inner offsets begin at 0.
    if wrapper.offset == 0:
        return 0
    if wrapper.offset < last_inner_offset:
        raise InvalidRecord(
            f"the compressed messages at offset {wrapper.offset} end with the inner offset {last_inner_offset}, "
            "which is higher"
        )
    return int(wrapper.offset - last_inner_offset)


def _inner_messages(wrapper: LegacyMessage, content: memoryview, base_offset: int) -> Iterator[LegacyMessage]:
    is_log_append = wrapper.magic > 0 and bool(wrapper.attributes & LOG_APPEND_TIME_FLAG)
    for at, size in _frames(content, 0):
        message = _message_at(content, at, size, base_offset)
        if message.attributes & CODEC_MASK:
            raise InvalidRecord(
                f"the message at offset {message.offset} is inside a compressed message and compressed itself"
            )
        if is_log_append and message.magic == _MAX_MAGIC:
            message = message._replace(timestamp=wrapper.timestamp)
        yield message


def _frames(content: memoryview, position: int) -> Iterator[tuple[int, int]]:
    """Yield place and size of each whole message in a wrapper's content; the size includes offset and size field."""
    at, end = 0, len(content)
    while end - at >= LOG_OVERHEAD:
        _, size_field = _FRAME.unpack_from(content, at)
        if size_field < MIN_SIZE_FIELD:
            reason = f"a size field of {size_field} within compressed messages, below {MIN_SIZE_FIELD}"
            raise CorruptBatch("batch", position, reason)
        if end - at < LOG_OVERHEAD + size_field:
            return
        yield at, LOG_OVERHEAD + size_field
        at += LOG_OVERHEAD + size_field


def _message_at(view: memoryview, at: int, size: int, base_offset: int) -> LegacyMessage:
    offset, _, crc, magic, attributes = _HEADER.unpack_from(view, at)
    content = view[at + CRC_AT : at + size]
    timestamp = NO_TIMESTAMP
    # As in Kafka, every magic but 0 is read with the layout of 1; the checksum shows whether that was right.
    if magic != 0:
        if len(content) < TIMESTAMP_AT - CRC_AT + _TIMESTAMP.size:
            raise InvalidRecord(f"the message at offset {offset} ends within its timestamp")
        (timestamp,) = _TIMESTAMP.unpack_from(content, TIMESTAMP_AT - CRC_AT)
    return LegacyMessage(wrap_int64(offset + base_offset), timestamp, magic, crc, attributes, content)


def _read_sized(content: memoryview, position: int, what: str) -> tuple[bytes | None, int]:
    if position + _LENGTH.size > len(content):
        raise InvalidRecord(f"a message ends within the length of its {what}")
    (size,) = _LENGTH.unpack_from(content, position)
    position += _LENGTH.size
    if size < 0:
        return None, position
    if size > len(content) - position:
        raise InvalidRecord(f"a {what} states {size} bytes with only {len(content) - position} bytes left")
    return bytes(content[position : position + size]), position + size


def set_offset(buffer: bytearray | memoryview, position: int, offset: int) -> None:
    """Set the offset of the message at `position` in place: in a wrapper, the offset of its last message.

    The CRC does not cover it.
    """
    _OFFSET.pack_into(buffer, position, offset)


def set_timestamp(
    buffer: bytearray | memoryview, position: int, *, timestamp_type: TimestampType, timestamp: int
) -> bool:
    """Set type and timestamp of the magic-1 message at `position`. Returns whether one of them changed; then the CRC
    was renewed too (T8).

    Raises ValueError for magic 0, which has neither, and for TimestampType.NO.
    Kafka: AbstractLegacyRecordBatch.setMaxTimestamp.
    """
    _, size_field, _, magic, attributes = _HEADER.unpack_from(buffer, position)
    if magic != _MAX_MAGIC:
        raise ValueError(f"a message of magic {magic} has no timestamp")
    if timestamp_type is TimestampType.NO:
        raise ValueError("a message of magic 1 needs a timestamp type")
    (before,) = _TIMESTAMP.unpack_from(buffer, position + TIMESTAMP_AT)
    attributes_after = attributes & ~LOG_APPEND_TIME_FLAG
    if timestamp_type is TimestampType.LOG_APPEND:
        attributes_after |= LOG_APPEND_TIME_FLAG
    if attributes_after == attributes and before == timestamp:
        return False
    buffer[position + ATTRIBUTES_AT] = attributes_after
    _TIMESTAMP.pack_into(buffer, position + TIMESTAMP_AT, timestamp)
    end = position + SIZE_FIELD_AT + _LENGTH.size + size_field
    with memoryview(buffer) as view, view[position + MAGIC_AT : end] as covered:
        _CRC.pack_into(buffer, position + CRC_AT, zlib.crc32(covered))
    return True
