"""The records of one batch of magic 2, read from pieces of what the batch unpacks to.

Small records come many at a time, as bytes for `decode_records`. A large one is walked over field by field and is never
held whole: a batch of a few kilobytes may hold one record of 100 MiB, or of ten million headers.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from io import BytesIO
from itertools import chain
from typing import Final, NamedTuple, final

from storage.batch.cut_record import cut_record
from storage.batch.pieces import (
    ALL_HELD,
    LARGE_RECORD_BYTES,
    PIECE_BYTES,
    FieldPieces,
    Held,
    LargeFields,
    Slices,
    cut_pieces,
    result_of,
    skip,
)
from storage.batch.record import MAX_INT32, NO_SEQUENCE, Header, Record, decode_records, encode_record
from storage.codec.buffer import Buffer
from storage.codec.utf8 import decode_utf8
from storage.codec.varint import read_varint, read_varlong
from storage.errors import InvalidRecord

# No number takes more.
_LONGEST_VARINT: Final = 10
_HEADERS_IN_A_SLICE: Final = 4096
_NOTHING: Final = Held(0, 0, header_keys=False)
_KEY_AND_VALUE: Final = ("key", "value")


class LargeRecord(NamedTuple):
    """A large record as a walk finds it: a negative size is null; key, value and headers as far as they are held."""

    timestamp_delta: int
    offset_delta: int
    key_size: int
    value_size: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]

    @property
    def has_key(self) -> bool:
        return self.key_size >= 0


@final
class RecordStream:
    """A position in the records of a batch; whoever reads calls `read_more` where nothing whole is left."""

    __slots__ = ("_at", "_left", "_pieces", "_rest")

    def __init__(self, pieces: Iterable[Buffer]) -> None:
        self._pieces = cut_pieces(pieces)
        # The bytes that were read, of which those before `_at` were taken.
        self._rest, self._at = b"", 0
        # How many bytes of the large record that is being read are left.
        self._left = 0

    def read_more(self) -> bool:
        """Reads the next piece, which may be empty. Returns False at the end. Raises what unpacking raises."""
        piece = next(self._pieces, None)
        if piece is None:
            return False
        self._rest, self._at = self._rest[self._at :] + piece, 0
        return True

    @property
    def is_at_end(self) -> bool:
        """Whether all that was read is taken; more may be left to read."""
        return self._at == len(self._rest)

    def take_whole(self, most: int) -> tuple[bytes, int]:
        """Takes at most `most` records that were read whole. Returns their bytes and number.

        The number is 0 where the first record is large or is not whole yet. A record of a negative length counts as
        whole: whoever decodes it refuses it. Raises InvalidRecord for a length that is no number.
        """
        rest, end, count = self._rest, self._at, 0
        size = len(rest)
        while count < most and end < size:
            length, start = _length_at(rest, end)
            if length < 0:
                end, count = size, count + 1
                break
            if length > LARGE_RECORD_BYTES or start + length > size:
                break
            end, count = start + length, count + 1
        taken, self._at = rest[self._at : end], end
        return taken, count

    def skip_whole(self, most: int) -> int:
        """Takes what `take_whole` takes. Returns the number."""
        return self.take_whole(most)[1]

    def begins_large(self) -> bool:
        """Whether the next record is large, as far as was read. Raises InvalidRecord for a length that is no number."""
        return not self.is_at_end and _length_at(self._rest, self._at)[0] > LARGE_RECORD_BYTES

    def walk_large(self, held: Held = _NOTHING) -> Generator[None, None, LargeRecord]:
        """Walks over the next record, which is large, and checks its structure. Raises InvalidRecord."""
        timestamp_delta, offset_delta = yield from self.begin_large()
        key_size = yield from self._number_ahead()
        key = yield from self._field(key_size, held.key_bytes)
        value_size = yield from self._number_ahead()
        value = yield from self._field(value_size, held.value_bytes)
        headers = yield from self._headers(held)
        if self._left:
            raise InvalidRecord(f"{self._left} bytes remain after the fields of a record")
        return LargeRecord(timestamp_delta, offset_delta, key_size, value_size, key, value, headers)

    def _header_count(self) -> Generator[None, None, int]:
        count = yield from self._number_ahead()
        # Each header takes at least two bytes: a greater count is damage and must not start a long loop.
        if not 0 <= count <= self._left:
            raise InvalidRecord(f"a record states {count} headers, but has {self._left} bytes left")
        return count

    def _header_name_bytes(self) -> int:
        """Takes the size of a header's key, for which enough was read ahead."""
        name_bytes = self._number()
        if name_bytes < 0:
            raise InvalidRecord(f"the key of a header has an impossible size of {name_bytes} bytes")
        return name_bytes

    def _headers(self, held: Held) -> Generator[None, None, tuple[Header, ...]]:
        count = yield from self._header_count()
        headers: list[Header] = []
        for index in range(count):
            if not self._has_number:
                yield from self._read_ahead()
            name_bytes = self._header_name_bytes()
            if held.header_keys:
                headers.append((yield from self._header(name_bytes, held)))
            else:
                yield from self._skip(name_bytes)
                if not self._has_number:
                    yield from self._read_ahead()
                yield from self._skip(self._number())
            if index % _HEADERS_IN_A_SLICE == 0:
                yield
        return tuple(headers)

    def _header(self, name_bytes: int, held: Held) -> Generator[None, None, Header]:
        name = yield from self._field(name_bytes, MAX_INT32)
        assert name is not None, name_bytes
        value_size = yield from self._number_ahead()
        value = yield from self._field(value_size, MAX_INT32 if held.header_values else 0)
        return decode_utf8(name), value

    def begin_large(self) -> Generator[None, None, tuple[int, int]]:
        """Takes length, attributes and deltas of the next record. Returns its timestamp and offset delta.

        `left_of_large` follows. Raises InvalidRecord.
        """
        assert self._left == 0, self._left
        yield from self._read_ahead()
        self._left, self._at = _length_at(self._rest, self._at)
        # The attributes.
        self._take(1)
        timestamp_delta = yield from self._number_ahead(is_long=True)
        offset_delta = yield from self._number_ahead()
        return timestamp_delta, offset_delta

    @property
    def large_bytes_left(self) -> int:
        """How many bytes of the large record are left to be taken."""
        return self._left

    def fields_of_large(self) -> LargeFields:
        """Takes the next record, which is large, field by field. Raises InvalidRecord."""
        result_of(self.begin_large())
        for _ in _KEY_AND_VALUE:
            size = result_of(self._number_ahead())
            pieces = self._taken(size)
            yield None if size < 0 else pieces
            skip(pieces)
        for _ in range(result_of(self._header_count())):
            skip(self._read_ahead())
            pieces = self._taken(self._header_name_bytes())
            yield pieces
            skip(pieces)
            skip(self._taken(result_of(self._number_ahead())))
        if self._left:
            raise InvalidRecord(f"{self._left} bytes remain after the fields of a record")

    def _taken(self, size: int) -> FieldPieces:
        """Takes a field of that size, of which a negative one is null, piece by piece."""
        while size > 0:
            if self.is_at_end and not self.read_more():
                raise InvalidRecord("the records end early")
            start = self._at
            self._take(min(size, len(self._rest) - start))
            size -= self._at - start
            if self._at > start:
                yield self._rest[start : self._at]

    def left_of_large(self) -> Iterator[bytes]:
        """Takes what is left of the large record, piece by piece. Raises InvalidRecord where the pieces end before."""
        while self._left:
            if self.is_at_end and not self.read_more():
                raise InvalidRecord("the records end early")
            piece = self._rest[self._at : self._at + self._left]
            self._take(len(piece))
            yield piece

    def _number_ahead(self, *, is_long: bool = False) -> Generator[None, None, int]:
        yield from self._read_ahead()
        return self._number(is_long=is_long)

    def _number(self, *, is_long: bool = False) -> int:
        """Takes a number, for which enough was read ahead."""
        try:
            number, end = (read_varlong if is_long else read_varint)(self._rest, self._at)
        except IndexError as error:
            raise InvalidRecord("the records end early") from error
        self._take(end - self._at)
        return number

    @property
    def _has_number(self) -> bool:
        return len(self._rest) - self._at >= _LONGEST_VARINT

    def _read_ahead(self) -> Slices:
        """Reads until a number is whole, or the pieces end."""
        while not self._has_number and self.read_more():
            yield

    def _field(self, size: int, most_bytes: int) -> Generator[None, None, bytes | None]:
        """Takes a field of that size, of which a negative one is null. Returns at most `most_bytes` of it."""
        # Its value takes over the bytes that were written, without a copy.
        held, held_bytes = BytesIO(), min(size, most_bytes)
        yield from self._skip(held_bytes, held)
        yield from self._skip(size - held_bytes)
        return None if size < 0 else held.getvalue()

    def _skip(self, size: int, into: BytesIO | None = None) -> Slices:
        """Takes a field of that size, of which a negative one is null."""
        while size > 0:
            if self.is_at_end:
                if not self.read_more():
                    raise InvalidRecord("the records end early")
                yield
            part, start = min(size, len(self._rest) - self._at), self._at
            self._take(part)
            size -= part
            if into is not None:
                into.write(memoryview(self._rest)[start : self._at])

    def _take(self, size: int) -> None:
        if size > self._left:
            raise InvalidRecord(f"a field of a record runs {size - self._left} bytes past its end")
        if size > len(self._rest) - self._at:
            raise InvalidRecord("the records end early")
        self._at += size
        self._left -= size


# Decodes so many records, which fill the bytes.
Decode = Callable[[bytes, int], Iterator[Record]]
# Takes the large record that is next. Returns what is to be yielded in its place.
TakeLarge = Callable[[RecordStream, Decode], Iterable[Record]]


def holding(held: Held) -> TakeLarge:
    """Returns what decodes a large record as far as it is held: to a CutRecord, unless all is."""

    def take(stream: RecordStream, decode: Decode) -> Iterable[Record]:
        large = result_of(stream.walk_large(held))
        (bare,) = decode(encode_record(large.offset_delta, large.timestamp_delta, None, None), 1)
        record = bare._replace(key=large.key, value=large.value, headers=large.headers)
        if held == ALL_HELD:
            return (record,)
        return (cut_record(record, large.key_size, large.value_size),)

    return take


_HOLDING_ALL: Final = holding(ALL_HELD)


def decode_pieces(
    pieces: Iterator[Buffer],
    record_count: int,
    *,
    base_offset: int,
    base_timestamp: int,
    base_sequence: int = NO_SEQUENCE,
    log_append_time_ms: int | None = None,
    take_large: TakeLarge = _HOLDING_ALL,
) -> Iterator[Record]:
    """Decode what `decode_records` decodes, from pieces that are not held. Large records are left to `take_large`.

    Raises what it raises, and what unpacking raises, when the iteration reaches it; at once for a negative count.
    """
    head: list[Buffer] = []
    head_bytes, is_whole = 0, True
    for piece in pieces:
        head.append(piece)
        head_bytes += len(piece)
        if head_bytes > PIECE_BYTES:
            is_whole = False
            break

    def decode(data: bytes, count: int) -> Iterator[Record]:
        return decode_records(
            data,
            count,
            base_offset=base_offset,
            base_timestamp=base_timestamp,
            base_sequence=base_sequence,
            log_append_time_ms=log_append_time_ms,
        )

    if is_whole or record_count < 0:
        return decode(b"".join(head), record_count)
    return _decode_stream(RecordStream(chain(head, pieces)), record_count, decode, take_large)


def _decode_stream(
    stream: RecordStream, record_count: int, decode: Decode, take_large: TakeLarge
) -> Iterator[Record]:
    left = record_count
    while left:
        chunk, count = stream.take_whole(left)
        if count:
            yield from decode(chunk, count)
            left -= count
        elif stream.begins_large():
            yield from take_large(stream, decode)
            left -= 1
        elif not stream.read_more():
            raise InvalidRecord("the records end early")
    while stream.is_at_end and stream.read_more():
        pass
    if not stream.is_at_end:
        raise InvalidRecord(f"bytes remain after {record_count} records")


def _length_at(data: bytes, at: int) -> tuple[int, int]:
    """Returns the length of the record that begins at `at`, and where it is followed; (0, end + 1) if it is cut off."""
    byte = data[at]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), at + 1
    try:
        return read_varint(data, at)
    except IndexError:
        return 0, len(data) + 1
