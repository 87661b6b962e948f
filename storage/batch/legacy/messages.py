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
from collections.abc import Callable, Generator, Iterator
from typing import NamedTuple, final

from storage.batch.cut_record import cut_record
from storage.batch.format import (
    CODEC_MASK,
    LOG_APPEND_TIME_FLAG,
    LOG_OVERHEAD,
    MAGIC_AT,
    MIN_SIZE_FIELD,
    SIZE_FIELD_AT,
    TimestampType,
)
from storage.batch.legacy.stream import LargeMessage, MessageStream, WrapperEnd, find_end
from storage.batch.pieces import (
    ALL_HELD,
    PIECE_BYTES,
    Held,
    LargeFields,
    cut_pieces,
    large_fields,
    result_of,
)
from storage.batch.record import NO_TIMESTAMP, Record, wrap_int64
from storage.codec.buffer import Buffer
from storage.codec.compression import DECOMPRESSED_LIMIT_BYTES, Compression, compression_of, unpack
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

    def moved_to(self, offset: int, timestamp: int) -> LegacyMessage:
        return self._replace(offset=offset, timestamp=timestamp)

    def record(self) -> Record:
        """The record that this message holds. Raises InvalidRecord."""
        key, value = self.key_and_value()
        return Record(self.offset, self.timestamp, key, value)


@final
class CutMessage(LegacyMessage):
    """A large message of a wrapper, of whose key and value only the beginnings are held."""

    large: LargeMessage

    @property
    def is_valid(self) -> bool:
        return self.large.is_valid

    @property
    def key_size(self) -> int:
        return self.large.key_size

    @property
    def value_size(self) -> int:
        return self.large.value_size

    def key_and_value(self) -> tuple[bytes | None, bytes | None]:
        return self.large.key, self.large.value

    def record(self) -> Record:
        """The record, with as much as is held of it."""
        return cut_record(super().record(), self.key_size, self.value_size)

    def moved_to(self, offset: int, timestamp: int) -> LegacyMessage:
        cut = self._replace(offset=offset, timestamp=timestamp)
        cut.large = self.large
        return cut


def read_messages(
    batch: Buffer,
    position: int = 0,
    decompressed_limit_bytes: int = DECOMPRESSED_LIMIT_BYTES,
    *,
    held: Held = ALL_HELD,
) -> Iterator[LegacyMessage]:
    """Returns the messages of one batch of magic 0 or 1 in `batch`, which begins at byte `position` of its file.

    The structure of a wrapper's content is checked before the first message is returned. An incomplete last message
    in it is dropped silently, as in Kafka. Checksums are not checked. A wrapper that unpacks to very much is unpacked
    twice, and never held; of a large message in it only `held` is.
    Raises InvalidRecord, UnsupportedCompression, and CorruptBatch for a size field below 14 in a wrapper.
    """
    wrapper = Wrapper(batch, position, decompressed_limit_bytes)
    if not wrapper.is_compressed:
        return iter((wrapper.outer,))
    content = result_of(wrapper.small_content())
    if content is not None:
        return _inner_messages(wrapper.outer, content, _base_offset(wrapper.outer, content, position))
    end = result_of(wrapper.find_end())
    return filter(None, wrapper.messages(end, wrapper.holding(held)))


def sliced_messages(batch: Buffer, position: int, held: Held) -> Iterator[LegacyMessage | None]:
    """Yields what `read_messages` returns, and None after each slice of work. Raises what it raises."""
    wrapper = Wrapper(batch, position)
    if not wrapper.is_compressed:
        yield wrapper.outer
        return
    content = yield from wrapper.small_content()
    if content is not None:
        yield from _inner_messages(wrapper.outer, content, _base_offset(wrapper.outer, content, position))
        return
    end = yield from wrapper.find_end()
    yield from wrapper.messages(end, wrapper.holding(held))


def large_fields_of(batch: Buffer, position: int) -> Iterator[LargeFields]:
    """Yields the fields of each message that `read_messages` returns cut. Raises what it raises."""
    wrapper = Wrapper(batch, position)
    if wrapper.is_compressed and result_of(wrapper.small_content()) is None:
        end = result_of(wrapper.find_end())
        yield from large_fields(wrapper.stream(), end.message_count)


# Takes the large message that is next. Returns what is to be yielded in its place.
TakeLargeMessage = Callable[[MessageStream], Generator[None, None, LegacyMessage | None]]


@final
class Wrapper:
    """A batch of magic 0 or 1, whose content is unpacked as often as it is walked over."""

    __slots__ = ("_limit_bytes", "_position", "_value", "outer")

    def __init__(self, batch: Buffer, position: int, limit_bytes: int = DECOMPRESSED_LIMIT_BYTES) -> None:
        """Raises InvalidRecord, UnsupportedCompression."""
        self._position, self._limit_bytes = position, limit_bytes
        self.outer = _outer_of(batch)
        self._value = b"" if not self.is_compressed else _packed_of(self.outer)

    @property
    def is_compressed(self) -> bool:
        return self.outer.compression is not Compression.NONE

    def _pieces(self) -> Iterator[Buffer]:
        return unpack(self.outer.compression, self._value, self._limit_bytes, magic=self.outer.magic)

    def small_content(self) -> Generator[None, None, memoryview | None]:
        """Returns all that it unpacks to, None for much."""
        head, head_bytes = [], 0
        for piece in cut_pieces(self._pieces()):
            head.append(piece)
            head_bytes += len(piece)
            if head_bytes > PIECE_BYTES:
                return None
            # A few that are empty are a slice, too.
            if not piece:
                yield
        return memoryview(b"".join(head))

    def stream(self) -> MessageStream:
        return MessageStream(self._pieces(), self._position)

    def find_end(self) -> Generator[None, None, WrapperEnd]:
        """Walk over the whole content. Raises InvalidRecord without a message, CorruptBatch."""
        return find_end(self.stream())

    def holding(self, held: Held) -> TakeLargeMessage:
        """Returns what reads a large message as far as it is held."""

        def take(stream: MessageStream) -> Generator[None, None, LegacyMessage]:
            large = yield from stream.walk_large(held)
            timestamp = NO_TIMESTAMP if large.timestamp is None else large.timestamp
            content = memoryview(b"")
            cut = CutMessage(large.offset, timestamp, large.magic, large.crc, large.attributes, content)
            cut.large = large
            return cut

        return take

    def messages(self, end: WrapperEnd, take_large: TakeLargeMessage) -> Iterator[LegacyMessage | None]:
        """Returns the messages, with None after each slice of work. Raises InvalidRecord."""
        return self._messages(end, take_large, _added_to_inner(self.outer, end.last_offset))

    def _messages(
        self, end: WrapperEnd, take_large: TakeLargeMessage, added: int
    ) -> Iterator[LegacyMessage | None]:
        stream, count = self.stream(), 0
        while count < end.message_count:
            frame = stream.take_whole()
            if frame is not None:
                yield _checked_inner(self.outer, _message_at(frame, 0, len(frame), added))
            elif stream.begins_large():
                large = yield from take_large(stream)
                if large is not None:
                    large = large.moved_to(wrap_int64(large.offset + added), large.timestamp)
                    large = _checked_inner(self.outer, large)
                yield large
            else:
                if not stream.read_more():
                    raise InvalidRecord("the messages end early")
                yield None
                continue
            count += 1


def _outer_of(batch: Buffer) -> LegacyMessage:
    if len(batch) < LOG_OVERHEAD + MIN_SIZE_FIELD:
        raise InvalidRecord(
            f"a message of {len(batch)} bytes is smaller than {LOG_OVERHEAD + MIN_SIZE_FIELD}"
        )
    return _message_at(memoryview(batch), 0, len(batch), 0)


def _packed_of(outer: LegacyMessage) -> bytes:
    if not 0 <= outer.magic <= _MAX_MAGIC:
        raise InvalidRecord(
            f"the compressed messages at offset {outer.offset} have the unknown magic {outer.magic}"
        )
    _, value = outer.key_and_value()
    if value is None:
        raise InvalidRecord(f"the compressed messages at offset {outer.offset} have no value")
    if outer.compression is Compression.ZSTD:
        raise InvalidRecord(f"compression codec zstd does not exist in magic {outer.magic}")
    return value


def _base_offset(wrapper: LegacyMessage, content: memoryview, position: int) -> int:
    """Returns the number to add to each inner offset (KAFKA-5365). It depends on the last inner offset, so this walks
    over the whole content.
    """
    last_inner_offset = None
    for at, _ in _frames(content, position):
        (last_inner_offset,) = _OFFSET.unpack_from(content, at)
    return _added_to_inner(wrapper, last_inner_offset)


def _added_to_inner(wrapper: LegacyMessage, last_inner_offset: int | None) -> int:
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
    for at, size in _frames(content, 0):
        yield _checked_inner(wrapper, _message_at(content, at, size, base_offset))


def _checked_inner(wrapper: LegacyMessage, message: LegacyMessage) -> LegacyMessage:
    """Returns the message with the timestamp that readers get. Raises InvalidRecord for a wrapper in a wrapper."""
    if message.attributes & CODEC_MASK:
        raise InvalidRecord(
            f"the message at offset {message.offset} is inside a compressed message and compressed itself"
        )
    if wrapper.attributes & LOG_APPEND_TIME_FLAG and wrapper.magic > 0 and message.magic == _MAX_MAGIC:
        return message.moved_to(message.offset, wrapper.timestamp)
    return message


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
