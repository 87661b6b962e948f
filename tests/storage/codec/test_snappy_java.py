"""The framing of snappy-java (T18)."""

from __future__ import annotations

import struct

import pytest
from cramjam import snappy

from storage.codec.buffer import Buffer
from storage.codec.snappy_java import compress_snappy, unpack_snappy
from storage.errors import InvalidRecord

HEADER = bytes.fromhex("82534e4150505900 00000001 00000001")
LIMIT = 1 << 20


def decompress_snappy(data: Buffer, limit_bytes: int) -> bytes:
    return b"".join(unpack_snappy(data, limit_bytes))


def raw(data: bytes) -> bytes:
    return bytes(snappy.compress_raw(data))


def block(data: bytes) -> bytes:
    return struct.pack(">i", len(raw(data))) + raw(data)


def test_t18_stream_is_a_header_and_sized_raw_blocks_of_at_most_32_kib() -> None:
    data = bytes(range(256)) * 300
    blocks = [data[start : start + 32768] for start in range(0, len(data), 32768)]
    assert compress_snappy(data) == HEADER + b"".join(map(block, blocks))


def test_t18_header_is_written_without_data_too() -> None:
    assert compress_snappy(b"") == HEADER
    assert decompress_snappy(HEADER, LIMIT) == b""


def test_t18_input_without_the_magic_is_one_raw_block() -> None:
    assert decompress_snappy(raw(b"old client" * 90), LIMIT) == b"old client" * 90
    assert decompress_snappy(raw(b"short"), LIMIT) == b"short"


def test_t18_another_header_may_be_in_place_of_a_block() -> None:
    assert decompress_snappy(HEADER + block(b"one") + HEADER + block(b"two"), LIMIT) == b"onetwo"


def test_t18_versions_of_the_first_header_are_not_looked_at() -> None:
    assert decompress_snappy(HEADER[:8] + bytes(8) + block(b"one"), LIMIT) == b"one"


def test_t18_fewer_than_four_bytes_at_the_end_are_no_block() -> None:
    assert decompress_snappy(HEADER + block(b"one") + b"\x00\x00\x01", LIMIT) == b"one"


@pytest.mark.parametrize(
    ("stream", "message"),
    [
        (b"", "empty"),
        (HEADER + struct.pack(">i", -5) + b"abcdef", "block of -5 bytes"),
        (HEADER + struct.pack(">i", 2**31 - 1) + b"abcdef", "block of 2147483647 bytes"),
        (HEADER + block(b"one")[:-1], "with only 4 bytes left"),
        (HEADER + block(b"one") + HEADER[:7] + b"x" + HEADER[8:], "damaged header at byte 25"),
        (HEADER + struct.pack(">i", 3) + b"\x05ab", "damaged"),
        (b"not snappy at all", "damaged"),
    ],
)
def test_t18_broken_stream_is_invalid(stream: bytes, message: str) -> None:
    with pytest.raises(InvalidRecord, match=message):
        decompress_snappy(stream, LIMIT)


@pytest.mark.parametrize("prefix", [b"", HEADER + struct.pack(">i", 6)])
def test_declared_size_is_checked_against_the_limit_before_anything_is_allocated(prefix: bytes) -> None:
    declares_4_gib = b"\xff\xff\xff\xff\x0f\x00"
    with pytest.raises(InvalidRecord, match="more than 1048576 bytes"):
        decompress_snappy(prefix + declares_4_gib, LIMIT)


def test_limit_is_of_all_blocks_together() -> None:
    stream = HEADER + block(b"x" * 600) + block(b"y" * 600)
    assert decompress_snappy(stream, 1200) == b"x" * 600 + b"y" * 600
    with pytest.raises(InvalidRecord, match="more than 1199 bytes"):
        decompress_snappy(stream, 1199)
