"""Compressing piece by piece: the same bytes as at once; and unpacking piece by piece, with the same limits."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.codec.compression import Compression, compress, decompress, unpack
from storage.codec.packing import packed_stream
from storage.errors import ConfigError, UnpacksTooFar
from tests.storage.batch.strategies import quick

CODECS = list(Compression)


@quick
@given(st.sampled_from(CODECS), st.lists(st.binary(max_size=80), max_size=6), st.integers(1, 2000))
def test_bb2_pieces_compress_to_the_bytes_of_the_whole(
    codec: Compression, pieces: list[bytes], times: int
) -> None:
    stream = packed_stream(codec)
    for piece in pieces:
        stream.write(piece * times)
    stream.finish()
    assert stream.output == compress(codec, b"".join(piece * times for piece in pieces))


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("pieces", [[b"data", b""], [b"", b"data"], [b"", b""]])
def test_bb2_an_empty_piece_adds_nothing_wherever_it_comes(codec: Compression, pieces: list[bytes]) -> None:
    stream = packed_stream(codec)
    for piece in pieces:
        stream.write(piece)
    stream.finish()
    assert stream.output == compress(codec, b"".join(pieces))


@pytest.mark.parametrize("codec", [Compression.GZIP, Compression.LZ4, Compression.ZSTD])
def test_lv25_pieces_are_compressed_at_the_level_that_was_asked_for(codec: Compression) -> None:
    data = b"".join(b"%d of %d, " % (number * number % 977, number % 13) for number in range(4000))
    seen = set()
    for level in (1, 6, 9):
        stream = packed_stream(codec, level)
        stream.write(data)
        stream.finish()
        assert stream.output == compress(codec, data, level=level), level
        seen.add(bytes(stream.output))
    assert len(seen) == 3
    with pytest.raises(ConfigError):
        packed_stream(codec, 23)


@pytest.mark.parametrize("codec", CODECS[1:])
def test_lv23_a_bomb_is_unpacked_in_pieces_up_to_the_limit(codec: Compression) -> None:
    data = bytes(3 << 20)
    packed = compress(codec, data)
    pieces = [len(piece) for piece in unpack(codec, packed)]
    assert sum(pieces) == len(data) and max(pieces) <= 1 << 17
    assert decompress(codec, packed, len(data)) == data
    taken: list[int] = []
    with pytest.raises(UnpacksTooFar):
        taken.extend(len(piece) for piece in unpack(codec, packed, 1 << 20))
    assert (1 << 20) - (1 << 17) <= sum(taken) <= 1 << 20
