"""Compresses the records of a batch of magic 2 piece by piece, to the bytes that `compress` makes of them at once.

Whoever builds a batch from a stream of records holds only the compressed form of those that it has seen.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Protocol, final

import zstandard

from storage.codec import lz4_frame, snappy_java, zstd_stream
from storage.codec.buffer import Buffer
from storage.codec.compression import GZIP_HEADER, Compression, check_level, gzip_deflater, gzip_trailer


class PackedStream(Protocol):
    """A stream that is written in pieces; `output` is what it has compressed so far."""

    output: bytearray

    def write(self, data: Buffer) -> None:
        """Compress `data` too; some of it may come out only later."""

    def finish(self) -> None:
        """End the stream, after which `output` is complete."""


def packed_stream(codec: Compression, level: int | None = None, *, magic: int = 2) -> PackedStream:
    """Returns a stream of `codec` for a batch of `magic`: lz4 has another framing in magic 0.

    Raises ConfigError for a level that the codec does not have.
    """
    if level is None:
        level = codec.default_level
    else:
        check_level(codec, level)
    match codec:
        case Compression.NONE:
            return _Plain()
        case Compression.GZIP:
            return _Gzip(zlib.Z_DEFAULT_COMPRESSION if level is None else level)
        case Compression.SNAPPY:
            return _Blocks(
                snappy_java.SNAPPY_HEADER, snappy_java.BLOCK_BYTES, snappy_java.snappy_block_of, b""
            )
        case Compression.LZ4:
            lz4_level = lz4_frame.FAST_LEVEL if level is None else level
            return _Blocks(
                lz4_frame.lz4_header(magic=magic),
                lz4_frame.BLOCK_BYTES,
                lambda plain: lz4_frame.lz4_block_of(plain, lz4_level),
                lz4_frame.END_MARK,
            )
        case Compression.ZSTD:
            return _Zstd(zstd_stream.DEFAULT_LEVEL if level is None else level)


@final
class _Plain:
    def __init__(self) -> None:
        self.output = bytearray()

    def write(self, data: Buffer) -> None:
        self.output += data

    def finish(self) -> None:
        """Nothing waits to be written."""


@final
class _Gzip:
    def __init__(self, level: int) -> None:
        self.output = bytearray(GZIP_HEADER)
        self._deflater = gzip_deflater(level)
        self._checksum, self._size_bytes = zlib.crc32(b""), 0

    def write(self, data: Buffer) -> None:
        self.output += self._deflater.compress(data)
        self._checksum = zlib.crc32(data, self._checksum)
        self._size_bytes += len(data)

    def finish(self) -> None:
        self.output += self._deflater.flush() + gzip_trailer(self._checksum, self._size_bytes)


@final
class _Zstd:
    def __init__(self, level: int) -> None:
        self.output = bytearray()
        self._stream = zstandard.ZstdCompressor(level=level, write_checksum=False).compressobj()
        self._is_empty = True

    def write(self, data: Buffer) -> None:
        self.output += self._stream.compress(data)
        self._is_empty = self._is_empty and not len(data)

    def finish(self) -> None:
        if not self._is_empty:
            self.output += self._stream.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK)
        self.output += self._stream.flush()


@final
class _Blocks:
    """A stream of blocks that are compressed each on its own; what does not fill a block waits for the next piece."""

    def __init__(
        self, start: bytes, block_bytes: int, pack: Callable[[memoryview], bytes], end: bytes
    ) -> None:
        self.output = bytearray(start)
        self._block_bytes, self._pack, self._end = block_bytes, pack, end
        self._waiting = b""

    def write(self, data: Buffer) -> None:
        waiting = memoryview(self._waiting + bytes(data))
        whole_bytes = len(waiting) - len(waiting) % self._block_bytes
        for start in range(0, whole_bytes, self._block_bytes):
            self.output += self._pack(waiting[start : start + self._block_bytes])
        self._waiting = bytes(waiting[whole_bytes:])
        assert len(self._waiting) < self._block_bytes, (len(self._waiting), self._block_bytes)

    def finish(self) -> None:
        if self._waiting:
            self.output += self._pack(memoryview(self._waiting))
        self.output += self._end
