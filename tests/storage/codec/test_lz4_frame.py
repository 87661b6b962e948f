"""LZ4 frames (T19): those that Kafka writes, and those that it takes."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import cramjam
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st
from lz4 import block as lz4_block

from storage.codec.buffer import Buffer
from storage.codec.lz4_frame import compress_lz4, unpack_lz4
from storage.errors import InvalidRecord
from tests.storage.batch.strategies import quick

LIMIT = 1 << 24
MAGIC = bytes.fromhex("04224d18")
INCOMPRESSIBLE = bytes(x * x * 31 >> 3 & 0xFF ^ x * 7 & 0xFF for x in range(600))


def decompress_lz4(data: Buffer, limit_bytes: int, *, magic: int) -> bytes:
    return b"".join(unpack_lz4(data, limit_bytes, magic=magic))


def frame(
    blocks: Sequence[bytes],
    *,
    flags: int = 0x60,
    descriptor: int = 0x40,
    content_size: bytes = b"",
    checksum: int | None = None,
    tail: bytes = bytes(4),
) -> bytes:
    described = bytes((flags, descriptor)) + content_size
    if checksum is None:
        checksum = xxhash.xxh32_intdigest(described) >> 8 & 0xFF
    return MAGIC + described + bytes((checksum,)) + b"".join(blocks) + tail


def packed(data: bytes, *, has_checksum: bool = False) -> bytes:
    content = lz4_block.compress(data, store_size=False)
    checksum = struct.pack("<I", xxhash.xxh32_intdigest(content)) if has_checksum else b""
    return bytes(struct.pack("<I", len(content)) + content + checksum)


def stored(data: bytes) -> bytes:
    return struct.pack("<I", len(data) | 1 << 31) + data


@pytest.mark.covers("Lz4CompressionTest.testLz4FramingMagicV0", "Lz4CompressionTest.testLz4FramingMagicV1")
def test_t19_header_checksum_is_the_broken_one_for_magic_0_alone() -> None:
    assert compress_lz4(b"", magic=0).hex() == "04224d1860401a" + "00000000"
    assert (
        compress_lz4(b"", magic=1).hex() == compress_lz4(b"", magic=2).hex() == "04224d18604082" + "00000000"
    )


@pytest.mark.covers("Lz4CompressionTest.testBadFrameChecksum")
def test_kafka_3160_the_header_checksum_is_ignored_for_magic_0_only() -> None:
    data = frame([packed(b"x" * 99)], checksum=0xFF)
    assert decompress_lz4(data, LIMIT, magic=0) == b"x" * 99
    for magic in (1, 2):
        with pytest.raises(InvalidRecord, match="header checksum 0xff does not match 0x82"):
            decompress_lz4(data, LIMIT, magic=magic)


@quick
@given(
    st.sampled_from([b"", b"\x01", b"ones" * 250, INCOMPRESSIBLE * 110, bytes(98304)]),
    st.sampled_from([0, 1, 2]),
    st.sampled_from([1, 9, 17]),
)
@pytest.mark.covers("Lz4CompressionTest.testCompression")
def test_t19_written_frame_has_the_fields_of_version_1(data: bytes, magic: int, level: int) -> None:
    written = compress_lz4(data, magic=magic, level=level)
    assert written[:4] == MAGIC
    flags, descriptor, checksum = written[4:7]
    # The flags say: independent blocks, no checksum, no size, no reserved bit.
    assert flags >> 6 == 1 and flags & 0x3F == 0x20
    assert descriptor == 0x40
    assert checksum == (0x1A if magic == 0 else 0x82)
    assert written[-4:] == bytes(4)
    assert decompress_lz4(written, LIMIT, magic=magic) == data


def test_t19_blocks_are_of_64_kib_and_a_full_last_one_is_followed_by_none() -> None:
    written = compress_lz4(bytes(65536), magic=2)
    (size,) = struct.unpack_from("<I", written, 7)
    assert written[7 + 4 + size :] == bytes(4)
    written = compress_lz4(bytes(65537), magic=2)
    assert written[7 + 4 + size :] == stored(b"\x00") + bytes(4)


def test_t19_incompressible_block_is_stored_with_bit_31_set() -> None:
    assert compress_lz4(INCOMPRESSIBLE, magic=2)[7:] == stored(INCOMPRESSIBLE) + bytes(4)


@pytest.mark.covers("Lz4CompressionTest.testHeaderPrematureEnd", "Lz4CompressionTest.testNotSupported")
@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "ends early"),
        (MAGIC[:2], "ends early"),
        (frame([])[:6], "ends early"),
        (b"\x00" + frame([])[1:], "magic number"),
        (frame([], flags=0x20), "state another version than 1"),
        (frame([], flags=0xA0), "state another version than 1"),
        (frame([], flags=0x61), "state another version than 1"),
        (frame([], flags=0x62), "state another version than 1"),
        (frame([], flags=0x40), "dependent blocks"),
        (frame([], descriptor=0x30), "no valid block size"),
        (frame([], descriptor=0xC0), "no valid block size"),
        (frame([], descriptor=0x41), "no valid block size"),
        (frame([], flags=0x68)[:8], "ends early"),
    ],
)
def test_t19_header_that_kafka_refuses_is_invalid(data: bytes, message: str) -> None:
    for magic in (0, 1, 2):
        with pytest.raises(InvalidRecord, match=message):
            decompress_lz4(data, LIMIT, magic=magic)


@pytest.mark.covers("Lz4CompressionTest.testBadBlockSize")
@pytest.mark.parametrize(("size_id", "max_bytes"), [(4, 1 << 16), (5, 1 << 18), (6, 1 << 20), (7, 1 << 22)])
def test_t19_block_above_the_size_of_the_header_is_invalid(size_id: int, max_bytes: int) -> None:
    descriptor = size_id << 4
    data = frame([stored(bytes(max_bytes))], descriptor=descriptor)
    assert decompress_lz4(data, LIMIT, magic=2) == bytes(max_bytes)
    with pytest.raises(InvalidRecord, match=f"exceeds the maximum of {max_bytes}"):
        decompress_lz4(frame([stored(bytes(max_bytes + 1))], descriptor=descriptor), LIMIT, magic=2)
    with pytest.raises(InvalidRecord, match=f"block of {1 << 24} bytes exceeds"):
        decompress_lz4(frame([struct.pack("<I", 1 << 24)], descriptor=descriptor), LIMIT, magic=2)
    # The block unpacks to more than that.
    with pytest.raises(InvalidRecord, match="damaged"):
        decompress_lz4(frame([packed(bytes(max_bytes + 1))], descriptor=descriptor), LIMIT, magic=2)


def test_t19_block_checksum_is_verified() -> None:
    good = packed(b"y" * 500, has_checksum=True)
    assert decompress_lz4(frame([good], flags=0x70), LIMIT, magic=2) == b"y" * 500
    bad = good[:-1] + bytes((good[-1] ^ 1,))
    with pytest.raises(InvalidRecord, match="checksum of an lz4 block"):
        decompress_lz4(frame([bad], flags=0x70), LIMIT, magic=2)


def test_t19_content_size_and_content_checksum_are_read_and_not_verified() -> None:
    data = frame(
        [stored(b"abc")], flags=0x6C, content_size=struct.pack("<q", 99), tail=bytes(4) + b"\xde\xad\xbe\xef"
    )
    assert decompress_lz4(data, LIMIT, magic=2) == b"abc"
    with pytest.raises(InvalidRecord, match="ends early"):
        decompress_lz4(data[:-1], LIMIT, magic=2)


@pytest.mark.covers(
    "Lz4CompressionTest.testArrayBackedBuffer",
    "Lz4CompressionTest.testArrayBackedBufferSlice",
    "Lz4CompressionTest.testDirectBuffer",
)
def test_t19_frame_without_its_end_mark_ends_early_and_any_kind_of_buffer_is_read() -> None:
    data = frame([packed(b"abc" * 50), stored(b"tail")])
    for buffer in (data, bytearray(data), memoryview(b"junk" + data + b"junk")[4:-4]):
        assert decompress_lz4(buffer, LIMIT, magic=2) == b"abc" * 50 + b"tail"
    for cut in range(1, len(data)):
        with pytest.raises(InvalidRecord, match="ends early"):
            decompress_lz4(data[:-cut], LIMIT, magic=2)


@pytest.mark.parametrize(("repeated", "is_stored"), [(4, True), (5, False)])
def test_t19_a_block_that_packs_to_its_own_size_is_stored_as_it_was(repeated: int, is_stored: bool) -> None:
    data = bytes(range(12)) + bytes(range(repeated)) + bytes(range(200, 212))
    block = bytes(cramjam.lz4.compress_block(data, store_size=False))
    # The match takes as many bytes as it saves, or one fewer.
    assert (len(block) == len(data)) is is_stored and len(block) <= len(data)
    expected = stored(data) if is_stored else struct.pack("<I", len(block)) + block
    assert compress_lz4(data, magic=2) == frame([expected])


def test_kafka_4549_last_block_is_before_the_end_mark() -> None:
    written = compress_lz4(INCOMPRESSIBLE * 110, magic=2)
    assert written.endswith(stored((INCOMPRESSIBLE * 110)[65536:]) + bytes(4))


def test_t19_bytes_after_the_end_mark_are_ignored() -> None:
    assert decompress_lz4(frame([stored(b"abc")]) + frame([stored(b"def")]), LIMIT, magic=2) == b"abc"
    assert decompress_lz4(frame([stored(b"abc")], tail=struct.pack("<I", 1 << 31)), LIMIT, magic=2) == b"abc"
