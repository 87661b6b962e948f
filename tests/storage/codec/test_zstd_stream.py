"""Zstandard streams (T20)."""

from __future__ import annotations

import pytest
import zstandard

from storage.codec.buffer import Buffer
from storage.codec.zstd_stream import compress_zstd, unpack_zstd
from storage.errors import InvalidRecord

LIMIT = 1 << 20


def decompress_zstd(data: Buffer, limit_bytes: int) -> bytes:
    return b"".join(unpack_zstd(data, limit_bytes))


def test_t20_frame_has_no_content_size_and_no_checksum() -> None:
    for data in (b"x", b"some records" * 9000):
        written = compress_zstd(data)
        parameters = zstandard.get_frame_parameters(written)
        assert parameters.content_size == zstandard.CONTENTSIZE_UNKNOWN
        assert not parameters.has_checksum and parameters.dict_id == 0
        assert zstandard.ZstdDecompressor().decompressobj().decompress(written) == data


def test_t20_data_is_flushed_before_the_frame_ends() -> None:
    assert compress_zstd(b"data").hex() == "28b52ffd0058" + "200000" + b"data".hex() + "010000"
    assert compress_zstd(b"").hex() == "28b52ffd2000" + "010000"


@pytest.mark.parametrize("has_checksum", [False, True])
@pytest.mark.parametrize("has_size", [False, True])
def test_frames_of_other_writers_are_read_end_to_end(has_checksum: bool, has_size: bool) -> None:
    compressor = zstandard.ZstdCompressor(level=19, write_checksum=has_checksum, write_content_size=has_size)
    first, second = compressor.compress(b"one" * 70_000), compressor.compress(b"two")
    to_be_skipped = bytes.fromhex("5f2a4d18 03000000 010203")
    assert decompress_zstd(first + to_be_skipped + second, LIMIT) == b"one" * 70_000 + b"two"
    assert decompress_zstd(to_be_skipped, LIMIT) == decompress_zstd(b"", LIMIT) == b""
    for damaged in (first[:-1], first + second[:-1], first + to_be_skipped[:-1], first + b"\x28\xb5\x2f"):
        with pytest.raises(InvalidRecord, match="ends early"):
            decompress_zstd(damaged, LIMIT)
    if has_checksum:
        with pytest.raises(InvalidRecord, match="damaged"):
            decompress_zstd(first[:-1] + bytes((first[-1] ^ 1,)), LIMIT)


def test_a_frame_to_be_skipped_may_have_no_content() -> None:
    """Its eight bytes are the least that a frame may have."""
    empty = bytes.fromhex("502a4d18 00000000")
    assert decompress_zstd(empty, LIMIT) == b""
    assert decompress_zstd(empty + compress_zstd(b"data") + empty, LIMIT) == b"data"
    with pytest.raises(InvalidRecord, match="ends early"):
        decompress_zstd(empty[:-1], LIMIT)


def test_window_above_128_mib_is_refused() -> None:
    # The window is 2^28 bytes.
    huge_window = bytes.fromhex("28b52ffd00" + "90" + "010000")
    with pytest.raises(InvalidRecord, match="damaged"):
        decompress_zstd(huge_window, LIMIT)
    allowed = bytes.fromhex("28b52ffd00" + "88" + "010000")
    assert decompress_zstd(allowed, LIMIT) == b""


def test_block_that_repeats_a_byte_counts_against_the_limit() -> None:
    block = ((128 << 10) << 3 | 1 << 1).to_bytes(3, "little") + b"x"
    bomb = bytes.fromhex("28b52ffd0058") + block * 10_000 + bytes.fromhex("010000")
    with pytest.raises(InvalidRecord, match="more than 1048576 bytes"):
        decompress_zstd(bomb, LIMIT)


def test_trailing_bytes_that_are_no_frame_are_damage() -> None:
    with pytest.raises(InvalidRecord, match="damaged"):
        decompress_zstd(compress_zstd(b"x") + b"no frame at all", LIMIT)


@pytest.mark.parametrize("kept_bytes", [4, 7, 8, 10])
def test_a_frame_to_be_skipped_that_is_cut_is_damage(kept_bytes: int) -> None:
    to_be_skipped = bytes.fromhex("5f2a4d18 03000000 010203")
    with pytest.raises(InvalidRecord, match="ends early"):
        decompress_zstd(compress_zstd(b"one") + to_be_skipped[:kept_bytes], LIMIT)
