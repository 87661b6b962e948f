"""Records read from pieces: right and damaged ones, cut anywhere, come out as from the whole payload."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from storage.batch.pieces import LARGE_RECORD_BYTES, PIECE_BYTES
from storage.batch.record import Record, decode_records
from storage.batch.record_stream import RecordStream, decode_pieces
from storage.codec.varint import encode_varint, encode_varlong
from storage.errors import InvalidRecord

Outcome = tuple[list[Record], bool]


def field(data: bytes | None) -> bytes:
    return encode_varint(-1) if data is None else encode_varint(len(data)) + data


def encoded(
    offset_delta: int, *, key: bytes | None = b"key", value: bytes | None = b"value", headers: bytes = b"\x00"
) -> bytes:
    """One record, whose headers come with their number and are right or not."""
    body = b"\x00" + encode_varint(300) + encode_varint(offset_delta) + field(key) + field(value) + headers
    return encode_varint(len(body)) + body


def headers_of(*headers: tuple[bytes, bytes | None]) -> bytes:
    return encode_varint(len(headers)) + b"".join(field(name) + field(value) for name, value in headers)


# Small records that fill a first piece, so that all that follows is read from pieces.
FILLING = [encoded(number, value=bytes(1000)) for number in range(66)]
LARGE_VALUE = bytes(LARGE_RECORD_BYTES + 3)
HEADERS = headers_of((b"first", b"one"), (b"second", None))
LARGE = encoded(66, value=LARGE_VALUE, headers=HEADERS)
LAST = encoded(67, headers=HEADERS)
WHOLE = b"".join([*FILLING, LARGE, LAST])
LARGE_AT = sum(map(len, FILLING))
LAST_AT = LARGE_AT + len(LARGE)


def outcome_of(records: Iterator[Record]) -> Outcome:
    """The records up to the damage, and whether there is any."""
    found: list[Record] = []
    try:
        found.extend(records)
    except InvalidRecord:
        return found, True
    return found, False


def from_whole(payload: bytes, count: int) -> Outcome:
    return outcome_of(decode_records(payload, count, base_offset=1000, base_timestamp=5))


def from_pieces(payload: bytes, count: int, piece_bytes: int = PIECE_BYTES) -> Outcome:
    pieces = (payload[at : at + piece_bytes] for at in range(0, len(payload), piece_bytes))
    return outcome_of(decode_pieces(pieces, count, base_offset=1000, base_timestamp=5))


def walked(payload: bytes) -> tuple[int, int, bool] | None:
    """Walk over the large record. Returns its facts, None if it is refused."""
    stream = RecordStream([payload])
    try:
        stream.read_more()
        steps = stream.walk_large()
        while True:
            next(steps)
    except StopIteration as end:
        large = end.value
        return large.timestamp_delta, large.offset_delta, large.has_key
    except InvalidRecord:
        return None


def test_records_from_pieces_of_any_size_are_those_of_the_whole() -> None:
    expected = from_whole(WHOLE, 68)
    assert (len(expected[0]), expected[1]) == (68, False)
    for piece_bytes in (777, PIECE_BYTES - 1, PIECE_BYTES, PIECE_BYTES + 1, len(WHOLE)):
        assert from_pieces(WHOLE, 68, piece_bytes) == expected, piece_bytes


@pytest.mark.parametrize("begin", [LARGE_AT, LAST_AT - len(HEADERS) - 2, LAST_AT, len(WHOLE) - 5])
def test_records_that_end_early_are_refused_wherever_the_pieces_end(begin: int) -> None:
    for end in range(begin, min(begin + 30, len(WHOLE))):
        expected = from_whole(WHOLE[:end], 68)
        assert expected[1], end
        found, is_damaged = from_pieces(WHOLE[:end], 68)
        assert is_damaged, end
        assert found == expected[0][: len(found)], end
        assert len(found) >= 66, end


@pytest.mark.parametrize("count", [-1, 67, 69])
def test_a_count_that_is_not_the_number_of_records_is_refused_from_pieces_too(count: int) -> None:
    if count < 0:
        with pytest.raises(InvalidRecord):
            decode_pieces(iter([WHOLE]), count, base_offset=0, base_timestamp=0)
    else:
        assert from_pieces(WHOLE, count)[1]


@pytest.mark.parametrize("extra", [b"\x00", bytes(PIECE_BYTES)])
def test_bytes_after_the_last_record_are_refused_from_pieces_too(extra: bytes) -> None:
    found, is_damaged = from_pieces(WHOLE + extra, 68)
    assert (len(found), is_damaged) == (68, True)


def test_bytes_of_a_piece_that_begins_after_the_last_record_are_refused_too() -> None:
    rest = 2 * PIECE_BYTES - LARGE_AT
    last = encoded(66, value=bytes(rest - len(encoded(66, value=bytes(rest))) + rest))
    payload = b"".join([*FILLING, last])
    assert len(payload) == 2 * PIECE_BYTES
    assert from_pieces(payload, 67) == from_whole(payload, 67)
    found, is_damaged = from_pieces(payload + b"\x00", 67)
    assert (len(found), is_damaged) == (67, True)


def test_a_large_record_is_walked_to_its_end_and_no_further() -> None:
    assert walked(LARGE + LAST) == (300, 66, True)
    assert walked(encoded(3, key=None, value=LARGE_VALUE)) == (300, 3, False)
    assert walked(encoded(3, key=b"", value=LARGE_VALUE)) == (300, 3, True)
    assert walked(encoded(3, key=LARGE_VALUE, value=None)) == (300, 3, True)
    assert walked(encoded(0, value=LARGE_VALUE, headers=headers_of((b"", b"")))) == (300, 0, True)


@pytest.mark.parametrize(
    "headers",
    [
        b"",
        encode_varint(-1),
        encode_varint(3) + HEADERS[1:],
        encode_varint(1) + HEADERS[1:],
        HEADERS + b"\x00",
        encode_varint(1) + field(None) + field(b"v"),
        encode_varint(1) + field(b"name"),
        encode_varint(1) + field(b"name") + encode_varint(1),
        encode_varint(1) + encode_varint(5) + b"name",
        encode_varint(1 << 30),
    ],
)
def test_a_large_record_whose_fields_do_not_fill_it_is_refused(headers: bytes) -> None:
    payload = encoded(66, value=LARGE_VALUE, headers=headers)
    assert from_whole(payload, 1)[1]
    assert walked(payload) is None
    # What follows a record must not stand in for what it lacks.
    assert walked(payload + LAST) is None


def test_a_large_record_that_ends_early_is_refused_by_the_walk() -> None:
    for end in [*range(1, 30), *range(len(LARGE) - 30, len(LARGE))]:
        assert walked(LARGE[:end]) is None, end


def test_a_record_is_large_above_the_bound_only() -> None:
    at_bound = LARGE_RECORD_BYTES - (len(encoded(0, value=LARGE_VALUE)) - len(LARGE_VALUE) - 3)
    for value_bytes, is_large in ((at_bound, False), (at_bound + 1, True)):
        stream = RecordStream([encoded(0, value=bytes(value_bytes))])
        assert not stream.begins_large()
        stream.read_more()
        assert stream.begins_large() == is_large, value_bytes


def test_pieces_are_unpacked_when_their_records_are_wanted() -> None:
    unpacked: list[int] = []

    def pieces() -> Iterator[bytes]:
        for at in range(0, len(WHOLE), PIECE_BYTES):
            unpacked.append(at)
            yield WHOLE[at : at + PIECE_BYTES]

    records = decode_pieces(pieces(), 68, base_offset=0, base_timestamp=0)
    assert next(records).offset == 0
    assert unpacked == [0, PIECE_BYTES]
    assert len(list(records)) == 67 and len(unpacked) > 2


@pytest.mark.parametrize("delta", [-(1 << 62), -1, 1 << 31, 1 << 35, 1 << 62])
def test_the_timestamp_of_a_large_record_may_take_64_bits(delta: int) -> None:
    body = b"\x00" + encode_varlong(delta) + encode_varint(0) + field(None) + field(LARGE_VALUE) + b"\x00"
    payload = encode_varint(len(body)) + body
    assert walked(payload) == (delta, 0, False)
    assert [each.timestamp for each in from_pieces(payload, 1)[0]] == [5 + delta]


def test_no_other_number_of_a_large_record_may() -> None:
    """Its offset takes six bytes here, of which the last adds nothing."""
    body = b"\x00" + encode_varint(300) + b"\x80" * 5 + b"\x00" + field(None) + field(LARGE_VALUE) + b"\x00"
    payload = encode_varint(len(body)) + body
    assert from_whole(payload, 1)[1] and walked(payload) is None
