"""Pieces of what a batch unpacks to, slices of the work on them, and how much of a large record is held."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from typing import Final, NamedTuple, Protocol, TypeVar

from storage.codec.buffer import Buffer
from storage.errors import InvalidRecord

# The size of a slice of work.
PIECE_BYTES: Final = 1 << 16
# The stated length above which a record is large.
LARGE_RECORD_BYTES: Final = 1 << 16
# Frames and blocks that unpack to nothing.
_EMPTY_IN_A_SLICE: Final = 64
# More bytes than any field has.
_WHOLE: Final = (1 << 31) - 1

# Ends a slice of work.
Slices = Generator[None, None, None]
Result = TypeVar("Result")


# A field of a record, piece by piece.
FieldPieces = Iterator[bytes]
# The key and the value of a large record, None for null, then the keys of its headers. What is left of one is skipped
# when the next is asked for.
LargeFields = Iterator[FieldPieces | None]


class LargeStream(Protocol):
    """A position in the records or the messages of a batch."""

    def skip_whole(self, most: int) -> int: ...

    def begins_large(self) -> bool: ...

    def fields_of_large(self) -> LargeFields: ...

    def read_more(self) -> bool: ...


class Held(NamedTuple):
    """How much of a large record whoever reads it holds: so many first bytes of its key and of its value."""

    key_bytes: int
    value_bytes: int
    header_keys: bool
    # With the keys only.
    header_values: bool = False


ALL_HELD: Final = Held(_WHOLE, _WHOLE, header_keys=True, header_values=True)
# Enough of a control record, whatever follows.
HEADS_HELD: Final = Held(64, 64, header_keys=False)
# Enough of the message of a quorum, too.
MESSAGES_HELD: Final = Held(64, 1 << 20, header_keys=False)
# The greatest message of one of Kafka's own topics that is decoded.
MOST_MESSAGE_BYTES: Final = 4 << 20
DECODED_HELD: Final = Held(MOST_MESSAGE_BYTES, MOST_MESSAGE_BYTES, header_keys=False)


def cut_pieces(pieces: Iterable[Buffer]) -> Iterator[bytes]:
    """Yields the bytes of the pieces, and an empty piece for every few that are empty: those are work, too."""
    empty_count = 0
    for piece in pieces:
        if not piece:
            empty_count += 1
            if empty_count % _EMPTY_IN_A_SLICE == 0:
                yield b""
        for start in range(0, len(piece), PIECE_BYTES):
            yield bytes(piece[start : start + PIECE_BYTES])


def skip(pieces: Iterable[object]) -> None:
    """Take what is left of the pieces."""
    for _ in pieces:
        pass


def result_of(slices: Generator[None, None, Result]) -> Result:
    """Run all slices at once. Returns their result."""
    while True:
        try:
            next(slices)
        except StopIteration as end:
            result: Result = end.value
            return result


def large_fields(stream: LargeStream, count: int) -> Iterator[LargeFields]:
    """Yields the fields of each large record among so many, those of one before the next is asked for.

    Large are those of which the stream has no whole bytes. Raises InvalidRecord, and what unpacking raises.
    """
    while count:
        if skipped := stream.skip_whole(count):
            count -= skipped
        elif stream.begins_large():
            fields = stream.fields_of_large()
            yield fields
            skip(fields)
            count -= 1
        elif not stream.read_more():
            raise InvalidRecord("the records end early")
