"""The compression codecs: round trips, levels and limits."""

from __future__ import annotations

import gzip
import random
import time
import tracemalloc
from collections.abc import Sequence
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.codec.compression import (
    Compression,
    check_level,
    compress,
    compression_of,
    decompress,
    gzip_trailer,
)
from storage.errors import ConfigError, InvalidRecord, UnsupportedCompression
from tests.storage.batch.strategies import mutated, quick

CODECS = list(Compression)
STREAMS = CODECS[1:]
WRITTEN_BY_KAFKA = {
    Compression.GZIP: "1f8b08000000000000ff4b492c494cc183015dab25a620000000",
    Compression.SNAPPY: "82534e4150505900000000010000000100000009200c646174616e0400",
    Compression.LZ4: "04224d186040820e0000004f6461746104000450616461746100000000",
    Compression.ZSTD: "28b52ffd005854000020646174610100338e08010000",
}
"""Kafka 4.1's streams of `data` eight times, at its default levels."""


@quick
@given(st.sampled_from(CODECS), st.integers(0, 2), st.binary(max_size=300), st.integers(1, 400))
def test_codec_round_trip(codec: Compression, magic: int, data: bytes, times: int) -> None:
    magic = 2 if codec is Compression.ZSTD else magic
    packed = compress(codec, data * times, magic=magic)
    assert decompress(codec, memoryview(packed), magic=magic) == data * times


@pytest.mark.covers(
    "GzipCompressionTest.testCompressionDecompression",
    "NoCompressionTest.testCompressionDecompression",
    "SnappyCompressionTest.testCompressionDecompression",
    "Lz4CompressionTest.testCompressionDecompression",
    "ZstdCompressionTest.testCompressionDecompression",
)
@pytest.mark.parametrize(
    "codec",
    # Level 22 fills 128 MiB.
    [*CODECS[:-1], pytest.param(Compression.ZSTD, marks=pytest.mark.slow)],
)
def test_every_level_of_a_codec_round_trips(codec: Compression) -> None:
    data = b"data" * 256
    levels = (
        [None] if codec.levels is None else [None, codec.levels[0], codec.default_level, codec.levels[-1]]
    )
    for magic in (2,) if codec is Compression.ZSTD else (0, 1, 2):
        for level in levels:
            packed = compress(codec, data, magic=magic, level=level)
            assert decompress(codec, packed, magic=magic) == data


@pytest.mark.covers(
    "GzipCompressionTest.testCompressionLevels",
    "GzipCompressionTest.testLevelValidator",
    "Lz4CompressionTest.testCompressionLevels",
    "ZstdCompressionTest.testCompressionLevels",
)
@pytest.mark.parametrize(
    ("codec", "good", "bad"),
    [
        (Compression.GZIP, (1, 9, -1), (0, 10, -2)),
        (Compression.LZ4, (1, 9, 17), (0, 18, -1)),
        (Compression.ZSTD, (-131072, 22), (-131073, 23)),
        (Compression.SNAPPY, (), (1,)),
        (Compression.NONE, (), (0,)),
    ],
)
def test_levels_have_kafkas_bounds(codec: Compression, good: Sequence[int], bad: Sequence[int]) -> None:
    for level in good:
        check_level(codec, level)
    for level in bad:
        with pytest.raises(ConfigError, match=codec.label):
            compress(codec, b"", level=level)


@pytest.mark.parametrize("codec", STREAMS)
def test_bomb_stops_at_the_limit(codec: Compression) -> None:
    bomb = compress(codec, bytes(1_000_000))
    assert len(bomb) < 50_000
    assert decompress(codec, bomb, 1_000_000) == bytes(1_000_000)
    with pytest.raises(InvalidRecord, match="more than 999999 bytes"):
        decompress(codec, bomb, 999_999)


@pytest.mark.parametrize("codec", STREAMS)
def test_bomb_holds_no_more_than_the_limit_and_a_block(codec: Compression) -> None:
    bomb = compress(codec, bytes(12_000_000))
    tracemalloc.start()
    try:
        with pytest.raises(InvalidRecord, match="more than 1000000 bytes"):
            decompress(codec, bomb, 1_000_000)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 4_000_000


@pytest.mark.parametrize("codec", STREAMS)
def test_stream_cut_anywhere_is_invalid_or_decompresses_to_less(codec: Compression) -> None:
    data = b"a record or two" * 9
    packed = compress(codec, data)
    for size_bytes in range(len(packed)):
        with suppress(InvalidRecord):
            assert decompress(codec, packed[:size_bytes]) != data


@quick
@given(st.sampled_from(STREAMS), st.integers(0, 2), st.data())
def test_mutated_stream_raises_nothing_but_invalid_record(
    codec: Compression, magic: int, data: st.DataObject
) -> None:
    magic = 2 if codec is Compression.ZSTD else magic
    changed = data.draw(mutated(compress(codec, b"some records, some records" * 5, magic=magic)))
    try:
        assert len(decompress(codec, changed, 10_000, magic=magic)) <= 10_000
    except InvalidRecord:
        pass


@pytest.mark.parametrize("codec", STREAMS)
def test_streams_that_kafka_wrote_are_read(codec: Compression) -> None:
    assert decompress(codec, bytes.fromhex(WRITTEN_BY_KAFKA[codec])) == b"data" * 8


@pytest.mark.parametrize("codec", STREAMS)
def test_streams_are_byte_for_byte_those_of_kafka_where_the_libraries_agree(codec: Compression) -> None:
    assert compress(codec, b"data" * 8).hex() == WRITTEN_BY_KAFKA[codec]


def test_t17_gzip_header_is_that_of_the_jdk_since_16_at_every_level() -> None:
    for level in range(1, 10):
        assert compress(Compression.GZIP, b"value", level=level)[:10].hex() == "1f8b08000000000000ff"
    compressed = compress(Compression.GZIP, b"value" * 100)
    assert compressed[:10].hex() == "1f8b08000000000000ff"
    assert gzip.decompress(compressed) == b"value" * 100


def test_gzip_reads_views_and_concatenated_members_and_ignores_what_is_none() -> None:
    members = compress(Compression.GZIP, b"one") + gzip.compress(b"two")
    assert decompress(Compression.GZIP, memoryview(members)) == b"onetwo"
    assert decompress(Compression.GZIP, members + b"\x00\x00junk") == b"onetwo"


def test_gzip_bomb_stops_at_the_limit() -> None:
    bomb = compress(Compression.GZIP, bytes(1_000_000))
    assert len(bomb) < 2000
    assert len(decompress(Compression.GZIP, bomb, 1_000_000)) == 1_000_000
    with pytest.raises(InvalidRecord, match="more than 999999 bytes"):
        decompress(Compression.GZIP, bomb, 999_999)
    with pytest.raises(InvalidRecord, match="more than 1500000 bytes"):
        decompress(Compression.GZIP, bomb * 2, 1_500_000)


@pytest.mark.parametrize("size_bytes", [0, 1, 9, 10, 15, -8, -1])
def test_gzip_that_ends_early_is_invalid(size_bytes: int) -> None:
    with pytest.raises(InvalidRecord, match="gzip stream"):
        decompress(Compression.GZIP, compress(Compression.GZIP, b"a record or two" * 9)[:size_bytes])


def test_t17_reserved_gzip_flags_are_not_looked_at() -> None:
    packed = bytearray(compress(Compression.GZIP, b"value" * 9))
    packed[3] |= 0xA0
    given_bytes = bytes(packed)
    assert decompress(Compression.GZIP, packed) == b"value" * 9
    assert packed == given_bytes
    # Those of a later member are not looked at either.
    assert decompress(Compression.GZIP, given_bytes + given_bytes) == b"value" * 18


def test_codec_five_to_seven_is_unknown() -> None:
    assert [compression_of(codec_id) for codec_id in range(5)] == list(Compression)
    for codec_id in (5, 6, 7):
        with pytest.raises(UnsupportedCompression, match=str(codec_id)):
            compression_of(codec_id)


@pytest.mark.parametrize("magic", [0, 1])
def test_t20_zstd_is_of_magic_2_alone(magic: int) -> None:
    with pytest.raises(UnsupportedCompression, match=f"zstd does not exist in magic {magic}"):
        compress(Compression.ZSTD, b"x", magic=magic)
    with pytest.raises(UnsupportedCompression, match=f"zstd does not exist in magic {magic}"):
        decompress(Compression.ZSTD, compress(Compression.ZSTD, b"x"), magic=magic)


def test_the_cost_of_many_gzip_members_is_linear() -> None:
    """zlib copies what follows each member."""

    def seconds(members: int) -> float:
        data = compress(Compression.GZIP, b"") * members
        start = time.process_time()
        assert decompress(Compression.GZIP, data + compress(Compression.GZIP, b"end")) == b"end"
        return time.process_time() - start

    seconds(100)
    few, many = seconds(2000), seconds(40_000)
    assert many < 60 * few, (few, many)


def test_gzip_output_that_is_full_when_the_input_is_taken_goes_on() -> None:
    """One of these sizes makes the first 512 bytes of input end where 128 KiB of output are full."""
    noise = random.Random(3).randbytes(310)
    for size_bytes in range(265, 310):
        data = noise[:size_bytes] + bytes(140_000)
        assert decompress(Compression.GZIP, compress(Compression.GZIP, data)) == data, size_bytes


def test_t17_the_trailer_has_the_size_modulo_2_to_the_32() -> None:
    assert gzip_trailer(7, (1 << 32) + 5) == gzip_trailer(7, 5) == bytes([7, 0, 0, 0, 5, 0, 0, 0])


@pytest.mark.parametrize("size_bytes", [511, 512, 513, 1 << 18, (1 << 20) + 7])
def test_gzip_members_of_any_size_are_read_whole(size_bytes: int) -> None:
    noise = random.Random(size_bytes).randbytes(size_bytes)
    data = compress(Compression.GZIP, noise) + compress(Compression.GZIP, b"x") + b"no member"
    assert decompress(Compression.GZIP, data) == noise + b"x"
