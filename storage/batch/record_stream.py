"""The records of one batch of magic 2, read from pieces of what the batch unpacks to.

Small records come many at a time, as bytes for `decode_records`. A large one is walked over field by field and is never
held whole: a batch of a few kilobytes may hold one record of 100 MiB, or of ten million headers.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from typing import Final, NamedTuple, final

from storage.codec.buffer import Buffer
from storage.codec.varint import read_varint, read_varlong
from storage.errors import InvalidRecord

# The size of a slice of work.
PIECE_BYTES: Final = 1 << 16
# The stated length above which a record is large.
LARGE_RECORD_BYTES: Final = 1 << 16
# No number takes more.
_LONGEST_VARINT: Final = 10
_HEADERS_IN_A_SLICE: Final = 4096

# Ends a slice of work.
Slices = Generator[None, None, None]


class LargeRecord(NamedTuple):
    """What a leader must know of a record that it does not hold."""

    timestamp_delta: int
    offset_delta: int
    has_key: bool


@final
class RecordStream:
    """A position in the records of a batch; whoever reads calls `read_more` where nothing whole is left."""

    __slots__ = ("_at", "_left", "_pieces", "_rest")

    def __init__(self, pieces: Iterable[Buffer]) -> None:
        self._pieces = _cut(pieces)
        # The bytes that were read, of which those before `_at` were taken.
        self._rest, self._at = b"", 0
        # How many bytes of the large record that is being read are left.
        self._left = 0

    def read_more(self) -> bool:
        """Reads the next piece. Returns False at the end. Raises what unpacking raises."""
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

    def begins_large(self) -> bool:
        """Whether the next record is large, as far as was read. Raises InvalidRecord for a length that is no number."""
        return not self.is_at_end and _length_at(self._rest, self._at)[0] > LARGE_RECORD_BYTES

    def walk_large(self) -> Generator[None, None, LargeRecord]:
        """Walks over the next record, which is large, and checks its structure. Raises InvalidRecord."""
        timestamp_delta, offset_delta = self.begin_large()
        key_bytes = self._number()
        yield from self._skip(key_bytes)
        yield from self._skip(self._number())
        count = self._number()
        # Each header takes at least two bytes: a greater count is damage and must not start a long loop.
        if not 0 <= count <= self._left:
            raise InvalidRecord(f"a record states {count} headers, but has {self._left} bytes left")
        for index in range(count):
            name_bytes = self._number()
            if name_bytes < 0:
                raise InvalidRecord(f"the key of a header has an impossible size of {name_bytes} bytes")
            yield from self._skip(name_bytes)
            yield from self._skip(self._number())
            if index % _HEADERS_IN_A_SLICE == 0:
                yield
        if self._left:
            raise InvalidRecord(f"{self._left} bytes remain after the fields of a record")
        return LargeRecord(timestamp_delta, offset_delta, key_bytes >= 0)

    def begin_large(self) -> tuple[int, int]:
        """Takes length, attributes and deltas of the next record. Returns its timestamp and offset delta.

        `left_of_large` follows. Raises InvalidRecord.
        """
        assert self._left == 0, self._left
        self._read_ahead()
        self._left, self._at = _length_at(self._rest, self._at)
        # The attributes.
        self._take(1)
        return self._number(is_long=True), self._number()

    @property
    def large_bytes_left(self) -> int:
        """How many bytes of the large record are left to be taken."""
        return self._left

    def left_of_large(self) -> Iterator[bytes]:
        """Takes what is left of the large record, piece by piece. Raises InvalidRecord where the pieces end before."""
        while self._left:
            if self.is_at_end and not self.read_more():
                raise InvalidRecord("the records end early")
            piece = self._rest[self._at : self._at + self._left]
            self._take(len(piece))
            yield piece

    def _number(self, *, is_long: bool = False) -> int:
        self._read_ahead()
        try:
            number, end = (read_varlong if is_long else read_varint)(self._rest, self._at)
        except IndexError as error:
            raise InvalidRecord("the records end early") from error
        self._take(end - self._at)
        return number

    def _read_ahead(self) -> None:
        while len(self._rest) - self._at < _LONGEST_VARINT and self.read_more():
            pass

    def _skip(self, size: int) -> Slices:
        """Takes a field of that size, of which a negative one is null."""
        while size > 0:
            if self.is_at_end:
                if not self.read_more():
                    raise InvalidRecord("the records end early")
                yield
            part = min(size, len(self._rest) - self._at)
            self._take(part)
            size -= part

    def _take(self, size: int) -> None:
        if size > self._left:
            raise InvalidRecord(f"a field of a record runs {size - self._left} bytes past its end")
        if size > len(self._rest) - self._at:
            raise InvalidRecord("the records end early")
        self._at += size
        self._left -= size


def _cut(pieces: Iterable[Buffer]) -> Iterator[bytes]:
    for piece in pieces:
        for start in range(0, len(piece), PIECE_BYTES):
            yield bytes(piece[start : start + PIECE_BYTES])


def _length_at(data: bytes, at: int) -> tuple[int, int]:
    """Returns the length of the record that begins at `at`, and where it is followed; (0, end + 1) if it is cut off."""
    byte = data[at]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), at + 1
    try:
        return read_varint(data, at)
    except IndexError:
        return 0, len(data) + 1
