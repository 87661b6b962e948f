from __future__ import annotations

import gzip

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.compression import Compression, compress, compression_of, decompress
from storage.errors import InvalidRecord, UnsupportedCompression
from tests.storage.record_strategies import mutated, quick

LATER = [Compression.SNAPPY, Compression.LZ4, Compression.ZSTD]
BOTH = st.sampled_from([Compression.NONE, Compression.GZIP])


@quick
@given(BOTH, st.binary(max_size=300), st.integers(1, 40))
def test_codec_gives_back_what_it_took(codec: Compression, data: bytes, times: int) -> None:
    assert decompress(codec, compress(codec, data * times)) == data * times


def test_gzip_header_is_that_of_the_jdk_since_16() -> None:
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


@quick
@given(st.data())
def test_mutated_gzip_raises_nothing_but_invalid_record(data: st.DataObject) -> None:
    changed = data.draw(mutated(compress(Compression.GZIP, b"some records, some records" * 5)))
    try:
        decompress(Compression.GZIP, changed, 10_000)
    except InvalidRecord:
        pass


@pytest.mark.parametrize("codec", LATER)
def test_codec_of_later_is_refused_by_name(codec: Compression) -> None:
    with pytest.raises(UnsupportedCompression, match=codec.label):
        compress(codec, b"")
    with pytest.raises(UnsupportedCompression, match=codec.label):
        decompress(codec, b"")


def test_codec_five_to_seven_is_unknown() -> None:
    assert [compression_of(codec_id) for codec_id in range(5)] == list(Compression)
    for codec_id in (5, 6, 7):
        with pytest.raises(UnsupportedCompression, match=str(codec_id)):
            compression_of(codec_id)
