"""The codecs of a batch: in magic 2 all bytes after the 61-byte header are one compressed stream.

| id | codec | framing |
| --- | --- | --- |
| 0 | none | |
| 1 | gzip | RFC 1952; one member with time 0, extra flags 0, system 255, as the JDK since 16 has it |
| 2, 3, 4 | snappy, lz4, zstd | known by name, refused |

Kafka: CompressionType, GzipCompression.
"""

from __future__ import annotations

import struct
import zlib
from enum import IntEnum

from storage.errors import InvalidRecord, UnsupportedCompression
from storage.filesystem import Buffer

DECOMPRESSED_LIMIT_BYTES = 128 * 1024 * 1024
"""What one batch may grow to. Kafka has no limit: a batch of 1 MiB can cost its reader 1 GiB."""

_GZIP_HEADER = bytes.fromhex("1f8b08000000000000ff")
_GZIP_TRAILER = struct.Struct("<II")  # CRC-32 and length of the input, both modulo 2^32
_GZIP_WINDOW_BITS = 31  # zlib's name for "expect a gzip header and trailer"


class Compression(IntEnum):
    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @property
    def label(self) -> str:
        """Kafka's name of it, in configurations and dumps."""
        return self.name.lower()

    @property
    def is_supported(self) -> bool:
        return self in (Compression.NONE, Compression.GZIP)


_CODECS = tuple(Compression)


def compression_of(codec_id: int) -> Compression:
    """The codec of the attributes' low three bits. Raises UnsupportedCompression for 5 to 7."""
    if codec_id >= len(_CODECS):
        raise UnsupportedCompression(f"compression codec {codec_id} is unknown")
    return _CODECS[codec_id]


def compress(codec: Compression, data: Buffer) -> bytes:
    """Raises UnsupportedCompression."""
    if codec is Compression.NONE:
        return bytes(data)
    if codec is Compression.GZIP:
        return _gzip(data)
    raise UnsupportedCompression(f"compression codec {codec.label} is not supported")


def decompress(codec: Compression, data: Buffer, limit_bytes: int = DECOMPRESSED_LIMIT_BYTES) -> bytes:
    """Never holds more than `limit_bytes` of output. Raises InvalidRecord (damaged, or above the limit) and
    UnsupportedCompression."""
    if codec is Compression.NONE:
        return bytes(data)
    if codec is Compression.GZIP:
        return _gunzip(data, limit_bytes)
    raise UnsupportedCompression(f"compression codec {codec.label} is not supported")


def _gzip(data: Buffer) -> bytes:
    # Not the gzip module: it writes another system byte, and flags that depend on the level.
    deflater = zlib.compressobj(zlib.Z_DEFAULT_COMPRESSION, zlib.DEFLATED, -zlib.MAX_WBITS)
    body = deflater.compress(data) + deflater.flush()
    return _GZIP_HEADER + body + _GZIP_TRAILER.pack(zlib.crc32(data), len(data) & 0xFFFFFFFF)


def _gunzip(data: Buffer, limit_bytes: int) -> bytes:
    """All members, as the JDK reads them: what follows a member and is none itself is ignored."""
    output = bytearray()
    rest: Buffer = data
    while True:
        try:
            inflater = zlib.decompressobj(_GZIP_WINDOW_BITS)
            output += inflater.decompress(rest, limit_bytes + 1 - len(output))
        except zlib.error as error:
            raise InvalidRecord(f"the gzip stream is damaged: {error}") from error
        if len(output) > limit_bytes:
            raise InvalidRecord(f"the gzip stream decompresses to more than {limit_bytes} bytes")
        if not inflater.eof:
            raise InvalidRecord("the gzip stream ends early")
        rest = inflater.unused_data
        if rest[:3] != _GZIP_HEADER[:3]:
            return bytes(output)
