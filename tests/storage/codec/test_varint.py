"""Integers of variable length: bytes, round trips and damage."""

from __future__ import annotations

import pytest
from hypothesis import given

from storage.codec.varint import encode_varint, encode_varlong, read_varint, read_varlong, size_of_varint
from storage.errors import InvalidRecord
from tests.storage.batch.strategies import int32s, int64s, quick

KNOWN = [
    (0, "00"),
    (-1, "01"),
    (1, "02"),
    (63, "7e"),
    (-64, "7f"),
    (64, "8001"),
    (-65, "8101"),
    (8191, "fe7f"),
    (-8192, "ff7f"),
    (8192, "808001"),
    (-8193, "818001"),
    (2**31 - 1, "feffffff0f"),
    (-(2**31), "ffffffff0f"),
]
KNOWN_LONG = [
    (2**31, "8080808010"),
    (2**63 - 1, "feffffffffffffffff01"),
    (-(2**63), "ffffffffffffffffff01"),
]


@pytest.mark.parametrize("value, encoded", KNOWN)
def test_varint_has_the_bytes_that_byte_utils_writes(value: int, encoded: str) -> None:
    assert encode_varint(value).hex() == encoded
    assert read_varint(bytes.fromhex(encoded), 0) == (value, len(encoded) // 2)


@pytest.mark.parametrize("value, encoded", KNOWN + KNOWN_LONG)
def test_varlong_has_the_bytes_that_byte_utils_writes(value: int, encoded: str) -> None:
    assert encode_varlong(value).hex() == encoded
    assert read_varlong(bytes.fromhex(encoded), 0) == (value, len(encoded) // 2)


@quick
@given(int32s)
def test_varint_comes_back(value: int) -> None:
    encoded = encode_varint(value)
    assert size_of_varint(value) == len(encoded) <= 5
    assert read_varint(b"\xff" + encoded + b"\xff", 1) == (value, 1 + len(encoded))


@quick
@given(int64s)
def test_varlong_comes_back(value: int) -> None:
    encoded = encode_varlong(value)
    assert size_of_varint(value) == len(encoded) <= 10
    assert read_varlong(b"\xff" + encoded + b"\xff", 1) == (value, 1 + len(encoded))


def test_varint_of_six_bytes_and_varlong_of_eleven_are_refused() -> None:
    with pytest.raises(InvalidRecord, match="longer than 5"):
        read_varint(b"\xff" * 5 + b"\x00", 0)
    with pytest.raises(InvalidRecord, match="longer than 10"):
        read_varlong(b"\xff" * 10 + b"\x00", 0)


def test_varint_that_the_data_cuts_off_raises_index_error() -> None:
    for cut in (b"", b"\x80", b"\x80\x80\x80"):
        with pytest.raises(IndexError):
            read_varint(cut, 0)


def test_varint_drops_the_bits_that_32_do_not_hold() -> None:
    assert read_varint(bytes.fromhex("feffffff7f"), 0) == (2**31 - 1, 5)
