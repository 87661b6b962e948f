"""The codecs of a batch. The compressed stream is all bytes after the 61-byte header in magic 2, and the value of the
wrapper message in magic 0 and 1.

| id | codec | framing | levels |
| --- | --- | --- | --- |
| 0 | none | | |
| 1 | gzip | RFC 1952; one member with time 0, extra flags 0, system 255, as the JDK has written since 16 | 1 to 9, -1 |
| 2 | snappy | snappy-java's, `snappy_java.py` | |
| 3 | lz4 | frames, `lz4_frame.py` | 1 to 17 |
| 4 | zstd | RFC 8878, `zstd_stream.py`; magic 2 only | -131072 to 22 |

Compressed bytes depend on the build of the libraries; only what they decompress to is the same everywhere.
Kafka: CompressionType, GzipCompression.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from enum import IntEnum
from typing import Final

from storage.codec import lz4_frame, zstd_stream
from storage.codec.buffer import Buffer
from storage.codec.lz4_frame import compress_lz4, unpack_lz4
from storage.codec.snappy_java import compress_snappy, unpack_snappy
from storage.codec.zstd_stream import compress_zstd, unpack_zstd
from storage.errors import ConfigError, InvalidRecord, UnpacksTooFar, UnsupportedCompression

DECOMPRESSED_LIMIT_BYTES = 128 * 1024 * 1024
"""The most that one batch may decompress to. Kafka has no limit: a batch of 1 MiB can cost its reader 1 GiB."""

GZIP_HEADER = bytes.fromhex("1f8b08000000000000ff")
_GZIP_FLAGS_AT, _GZIP_RESERVED_FLAGS = 3, 0xE0
# CRC-32 and length of the input, both modulo 2^32.
_GZIP_TRAILER = struct.Struct("<II")
# The value by which zlib expects a gzip header and trailer.
_GZIP_WINDOW_BITS = 31


# A member is passed to zlib in pieces that double from the first size to the greatest.
_FIRST_PIECE_BYTES: Final = 512
_MOST_PIECE_BYTES: Final = 1 << 18
# The most that one call of zlib unpacks.
_UNPACKED_PIECE_BYTES: Final = 1 << 17


class Compression(IntEnum):
    """The codecs, by their id in a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @property
    def label(self) -> str:
        """Kafka's name of the codec, in configurations and dumps."""
        return self.name.lower()

    @property
    def levels(self) -> range | None:
        """The levels that a configuration may name in addition to the default; None for a codec without levels."""
        return _LEVELS.get(self)

    @property
    def default_level(self) -> int | None:
        return _DEFAULT_LEVELS.get(self)

    def has_level(self, level: int) -> bool:
        return level == self.default_level or level in (self.levels or ())


_CODECS = tuple(Compression)
_LEVELS = {
    Compression.GZIP: range(zlib.Z_BEST_SPEED, zlib.Z_BEST_COMPRESSION + 1),
    Compression.LZ4: range(1, 18),
    Compression.ZSTD: range(-131072, 23),
}
_DEFAULT_LEVELS = {
    Compression.GZIP: zlib.Z_DEFAULT_COMPRESSION,
    Compression.LZ4: lz4_frame.FAST_LEVEL,
    Compression.ZSTD: zstd_stream.DEFAULT_LEVEL,
}


def compression_of(codec_id: int) -> Compression:
    """Returns the codec of the attributes' low three bits. Raises UnsupportedCompression for 5 to 7."""
    if codec_id >= len(_CODECS):
        raise UnsupportedCompression(f"compression codec {codec_id} is unknown")
    return _CODECS[codec_id]


def check_level(codec: Compression, level: int) -> None:
    """Raise ConfigError unless `codec` has that level (Kafka: LevelValidator, ConfigDef.Range)."""
    levels = codec.levels
    if levels is None:
        raise ConfigError(f"compression codec {codec.label} has no levels")
    if level not in levels and level != codec.default_level:
        raise ConfigError(
            f"compression level {level} of {codec.label} is outside [{levels[0]}, {levels[-1]}]"
        )


def compress(codec: Compression, data: Buffer, *, magic: int = 2, level: int | None = None) -> bytes:
    """Compress the records of a batch of `magic`: lz4 has another framing in magic 0, zstd exists only in magic 2.

    Raises UnsupportedCompression; ConfigError for a level that the codec does not have.
    """
    if level is None:
        level = codec.default_level
    else:
        check_level(codec, level)
    match codec:
        case Compression.NONE:
            return bytes(data)
        case Compression.GZIP:
            return _gzip(data, zlib.Z_DEFAULT_COMPRESSION if level is None else level)
        case Compression.SNAPPY:
            return compress_snappy(data)
        case Compression.LZ4:
            return compress_lz4(data, magic=magic, level=lz4_frame.FAST_LEVEL if level is None else level)
        case Compression.ZSTD:
            _check_zstd_magic(magic)
            return compress_zstd(data, level=zstd_stream.DEFAULT_LEVEL if level is None else level)


def decompress(
    codec: Compression, data: Buffer, limit_bytes: int = DECOMPRESSED_LIMIT_BYTES, *, magic: int = 2
) -> bytes:
    """Decompress the records of a batch of `magic`, to at most `limit_bytes`.

    Never holds more than one block of the codec above the limit: a batch of a few bytes may expand to gigabytes.
    Raises InvalidRecord (damaged), its child UnpacksTooFar (above the limit) and UnsupportedCompression (zstd before
    magic 2).
    """
    if codec is Compression.NONE:
        return bytes(data)
    return b"".join(unpack(codec, data, limit_bytes, magic=magic))


def unpack(
    codec: Compression, data: Buffer, limit_bytes: int = DECOMPRESSED_LIMIT_BYTES, *, magic: int = 2
) -> Iterator[Buffer]:
    """Decompress piece by piece what `decompress` does at once; a piece is at most one block of the codec.

    Raises what `decompress` raises, when the iteration reaches it; uncompressed data is one piece.
    """
    match codec:
        case Compression.NONE:
            return iter((data,))
        case Compression.GZIP:
            return _unpack_gzip(data, limit_bytes)
        case Compression.SNAPPY:
            return unpack_snappy(data, limit_bytes)
        case Compression.LZ4:
            return unpack_lz4(data, limit_bytes, magic=magic)
        case Compression.ZSTD:
            _check_zstd_magic(magic)
            return unpack_zstd(data, limit_bytes)


def _check_zstd_magic(magic: int) -> None:
    if magic < 2:
        raise UnsupportedCompression(f"compression codec zstd does not exist in magic {magic}")


def gzip_deflater(level: int) -> zlib._Compress:
    """Returns a deflater whose output belongs between `GZIP_HEADER` and `gzip_trailer`.

    Not the gzip module: it writes another system byte, and flags that depend on the level.
    """
    return zlib.compressobj(level, zlib.DEFLATED, -zlib.MAX_WBITS)


def gzip_trailer(checksum: int, size_bytes: int) -> bytes:
    """Returns the end of a member whose content has that CRC-32 and size."""
    return _GZIP_TRAILER.pack(checksum, size_bytes & 0xFFFFFFFF)


def _gzip(data: Buffer, level: int) -> bytes:
    deflater = gzip_deflater(level)
    body = deflater.compress(data) + deflater.flush()
    return GZIP_HEADER + body + gzip_trailer(zlib.crc32(data), len(data))


def _unpack_gzip(data: Buffer, limit_bytes: int) -> Iterator[bytes]:
    """Unpack all members as the JDK does: after a member, bytes that do not begin another one are ignored."""
    view, position, room_bytes = memoryview(data), 0, limit_bytes
    while True:
        inflater, piece_bytes = zlib.decompressobj(_GZIP_WINDOW_BITS), _FIRST_PIECE_BYTES
        piece, is_full = _first_gzip_piece(view, position), False
        position += len(piece)
        while not inflater.eof:
            # A full output may have more behind it, though all input is taken.
            if not piece and not is_full:
                raise InvalidRecord("the gzip stream ends early")
            try:
                output = inflater.decompress(piece, _UNPACKED_PIECE_BYTES)
            except zlib.error as error:
                raise InvalidRecord(f"the gzip stream is damaged: {error}") from error
            room_bytes -= len(output)
            if room_bytes < 0:
                raise UnpacksTooFar(f"the gzip stream decompresses to more than {limit_bytes} bytes")
            yield output
            piece, is_full = inflater.unconsumed_tail, len(output) == _UNPACKED_PIECE_BYTES
            if not piece and not is_full and not inflater.eof:
                piece_bytes = min(2 * piece_bytes, _MOST_PIECE_BYTES)
                piece = bytes(view[position : position + piece_bytes])
                position += len(piece)
        # What follows a member is copied by zlib: with all of it at once, many small members would be quadratic.
        position -= len(inflater.unused_data)
        if view[position : position + 3] != GZIP_HEADER[:3]:
            return


def _first_gzip_piece(view: memoryview, position: int) -> bytes:
    piece = bytes(view[position : position + _FIRST_PIECE_BYTES])
    if len(piece) > _GZIP_FLAGS_AT and piece[_GZIP_FLAGS_AT] & _GZIP_RESERVED_FLAGS:
        # The JDK ignores these bits, and zlib refuses them.
        cleared = bytearray(piece)
        cleared[_GZIP_FLAGS_AT] &= ~_GZIP_RESERVED_FLAGS & 0xFF
        piece = bytes(cleared)
    return piece
