"""The messages of a wrapper of magic 0 or 1, read from pieces of what it unpacks to. A large one is never held whole.

It is read twice: the first walk finds the last inner offset, on which the others depend, and how many messages are
whole. Kafka: AbstractLegacyRecordBatch.DeepRecordsIterator.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Generator, Iterable, Iterator
from io import BytesIO
from typing import Final, NamedTuple, final

from storage.batch.format import LOG_OVERHEAD, MAGIC_AT, MIN_SIZE_FIELD
from storage.batch.pieces import (
    LARGE_RECORD_BYTES,
    Held,
    LargeFields,
    Slices,
    cut_pieces,
    result_of,
    skip,
)
from storage.codec.buffer import Buffer
from storage.errors import CorruptBatch, InvalidRecord

_FRAME: Final = struct.Struct(">qi")
_LENGTH: Final = struct.Struct(">i")
_TIMESTAMP: Final = struct.Struct(">q")
_KEY_AND_VALUE: Final = ("key", "value")
_HEADER: Final = struct.Struct(">qiIbB")


class LargeMessage(NamedTuple):
    """A large message as a walk finds it; of key and value only as much is held as was asked for."""

    offset: int
    timestamp: int | None
    magic: int
    crc: int
    attributes: int
    is_valid: bool
    key_size: int
    value_size: int
    key: bytes | None
    value: bytes | None


@final
class MessageStream:
    """A position in the messages of a wrapper; whoever reads calls `read_more` where no whole message is left."""

    __slots__ = ("_at", "_crc", "_left", "_pieces", "_position", "_rest")

    def __init__(self, pieces: Iterable[Buffer], position: int) -> None:
        """`position` is that of the wrapper in its file, for errors."""
        self._pieces, self._position = cut_pieces(pieces), position
        # The bytes that were read, of which those before `_at` were taken.
        self._rest, self._at = b"", 0
        # How many bytes of the large message that is being read are left, and the checksum of those before.
        self._left = self._crc = 0

    def read_more(self) -> bool:
        """Reads the next piece, which may be empty. Returns False at the end. Raises what unpacking raises."""
        piece = next(self._pieces, None)
        if piece is None:
            return False
        self._rest, self._at = self._rest[self._at :] + piece, 0
        return True

    def take_whole(self) -> memoryview | None:
        """Takes the next message, with its offset and size, if it was read whole. Raises CorruptBatch."""
        size = self._size_ahead()
        if size is None or size > len(self._rest) - self._at:
            return None
        start, self._at = self._at, self._at + size
        return memoryview(self._rest)[start : self._at]

    def skip_whole(self, most: int) -> int:
        """Takes the next message, if it was read whole. Returns the number of those taken."""
        assert most > 0, most
        return int(self.take_whole() is not None)

    def begins_large(self) -> bool:
        """Whether the next message is large, as far as was read. Raises CorruptBatch."""
        size = self._size_ahead()
        return size is not None and size > LARGE_RECORD_BYTES

    def _size_ahead(self) -> int | None:
        if len(self._rest) - self._at < LOG_OVERHEAD:
            return None
        _, size_field = _FRAME.unpack_from(self._rest, self._at)
        if size_field < MIN_SIZE_FIELD:
            reason = f"a size field of {size_field} within compressed messages, below {MIN_SIZE_FIELD}"
            raise CorruptBatch("batch", self._position, reason)
        return LOG_OVERHEAD + int(size_field)

    def skip_large(self) -> Generator[None, None, int | None]:
        """Takes the next message, which is large. Returns its offset; None where the pieces end before it does."""
        (offset, size_field), left = _FRAME.unpack_from(self._rest, self._at), LOG_OVERHEAD
        left += size_field
        while left > len(self._rest) - self._at:
            left -= len(self._rest) - self._at
            self._at = len(self._rest)
            if not self.read_more():
                return None
            yield
        self._at += left
        return int(offset)

    def walk_large(self, held: Held) -> Generator[None, None, LargeMessage]:
        """Takes the next message, which is large and whole. Raises InvalidRecord."""
        offset, crc, magic, attributes, timestamp = yield from self.begin_large()
        key_size = yield from self.take_size("key")
        key = yield from self._field(key_size, held.key_bytes)
        value_size = yield from self.take_size("value")
        value = yield from self._field(value_size, held.value_bytes)
        # Bytes after the value are ignored, but the checksum covers them.
        yield from self._field(self._left, 0)
        is_valid = self._crc == crc
        return LargeMessage(
            offset, timestamp, magic, crc, attributes, is_valid, key_size, value_size, key, value
        )

    def fields_of_large(self) -> LargeFields:
        """Takes the next message, which is large and whole, field by field. Raises InvalidRecord."""
        result_of(self.begin_large())
        for what in _KEY_AND_VALUE:
            size = result_of(self.take_size(what))
            pieces = self.take_pieces(size)
            yield None if size < 0 else pieces
            skip(pieces)
        skip(self.take_rest())

    def begin_large(self) -> Generator[None, None, tuple[int, int, int, int, int | None]]:
        """Takes what is before the key. Returns offset, CRC, magic, attributes and timestamp, None in magic 0."""
        yield from self._read_ahead(_HEADER.size)
        offset, size_field, crc, magic, attributes = _HEADER.unpack_from(self._rest, self._at)
        self._at += MAGIC_AT
        self._left, self._crc = LOG_OVERHEAD + size_field - MAGIC_AT, 0
        self._take(_HEADER.size - MAGIC_AT)
        timestamp = None
        # As in Kafka, every magic but 0 is read with the layout of 1.
        if magic != 0:
            yield from self._read_ahead(_TIMESTAMP.size)
            (timestamp,) = _TIMESTAMP.unpack(self._take(_TIMESTAMP.size))
        return offset, crc, magic, attributes, timestamp

    def take_size(self, what: str) -> Generator[None, None, int]:
        """Takes the size of the key or the value. Raises InvalidRecord for one that the message has not."""
        if self._left < _LENGTH.size:
            raise InvalidRecord(f"a message ends within the length of its {what}")
        yield from self._read_ahead(_LENGTH.size)
        (size,) = _LENGTH.unpack(self._take(_LENGTH.size))
        if size > self._left:
            raise InvalidRecord(f"a {what} states {size} bytes with only {self._left} bytes left")
        return int(size)

    def take_pieces(self, size: int) -> Iterator[bytes]:
        """Takes so many bytes of the large message, piece by piece."""
        while size > 0:
            if self._at == len(self._rest) and not self.read_more():
                raise InvalidRecord("the messages end early")
            piece = self._take(min(size, len(self._rest) - self._at))
            size -= len(piece)
            yield piece

    def take_rest(self) -> Slices:
        """Takes what is left of the large message."""
        for _ in self.take_pieces(self._left):
            yield

    def _field(self, size: int, most_bytes: int) -> Generator[None, None, bytes | None]:
        """Takes a field of that size, of which a negative one is null. Returns at most `most_bytes` of it."""
        held = BytesIO()
        for piece in self.take_pieces(size):
            room = most_bytes - held.tell()
            if room > 0:
                held.write(piece[:room])
            yield
        return None if size < 0 else held.getvalue()

    def _read_ahead(self, size: int) -> Slices:
        while len(self._rest) - self._at < size and self.read_more():
            yield
        if len(self._rest) - self._at < size:
            raise InvalidRecord("the messages end early")

    def _take(self, size: int) -> bytes:
        assert size <= self._left, (size, self._left)
        taken = self._rest[self._at : self._at + size]
        self._crc = zlib.crc32(taken, self._crc)
        self._at += size
        self._left -= size
        return taken


class WrapperEnd(NamedTuple):
    """What the first walk finds: the last inner offset, None without a message, and the number of whole messages."""

    last_offset: int | None
    message_count: int


def find_end(stream: MessageStream) -> Generator[None, None, WrapperEnd]:
    """Walk over all messages. Raises CorruptBatch, and what unpacking raises."""
    last_offset, count = None, 0
    while True:
        message = stream.take_whole()
        if message is not None:
            (last_offset, _), count = _FRAME.unpack_from(message), count + 1
        elif stream.begins_large():
            offset = yield from stream.skip_large()
            # An incomplete last message is dropped, as in Kafka.
            if offset is not None:
                last_offset, count = offset, count + 1
        elif stream.read_more():
            yield
        else:
            return WrapperEnd(last_offset, count)
