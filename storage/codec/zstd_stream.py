"""Zstandard as a streaming writer makes it: one frame without content size and checksum (RFC 8878).

A frame is a header and blocks. Each block has a little-endian header of 3 bytes: bit 0 marks the last block, bits 1-2
are the type, the rest is the size. A few bytes may expand to gigabytes, but a block to at most 128 KiB: that is why a
frame is fed to the library block by block. Kafka: ZstdCompression.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import zstandard

from storage.codec.buffer import Buffer
from storage.errors import InvalidRecord, UnpacksTooFar

DEFAULT_LEVEL = 3

# The limit of this library and of Kafka's: a frame of level 22 needs it.
_MAX_WINDOW_BYTES = 1 << 27
# A frame of either kind has a header of at least 5 bytes and the header of one block.
_LEAST_FRAME_BYTES = 8
_SKIPPABLE_HEADER = struct.Struct("<II")
_SKIPPABLE_MAGIC, _SKIPPABLE_MASK = 0x184D2A50, 0xFFFFFFF0
_BLOCK_HEADER_BYTES = 3
# The type of a block that stores one byte, whatever its size field says.
_REPEATED_BYTE = 1
_CHECKSUM_BYTES = 4


def compress_zstd(data: Buffer, *, level: int = DEFAULT_LEVEL) -> bytes:
    """Compress `data`. Like Kafka's writer it flushes before the end, so an empty last block follows the data."""
    stream = zstandard.ZstdCompressor(level=level, write_checksum=False).compressobj()
    first = stream.compress(data)
    flushed = stream.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK) if len(data) else b""
    return first + flushed + stream.flush()


def unpack_zstd(data: Buffer, limit_bytes: int) -> Iterator[bytes]:
    """Unpack all frames, one after the other, a block at a time; empty input has empty output.

    Raises InvalidRecord, and its child UnpacksTooFar with at most one block above `limit_bytes` of output.
    """
    view, position, room_bytes = memoryview(data), 0, limit_bytes
    # One for all frames: to make it costs more than a small frame.
    decompressor = zstandard.ZstdDecompressor(max_window_size=_MAX_WINDOW_BYTES)
    try:
        while position < len(view):
            skipped = _end_of_skippable(view, position)
            if skipped is not None:
                yield b""
                position = skipped
                continue
            stream = decompressor.decompressobj()
            for end in _piece_ends(view, position):
                block = stream.decompress(view[position:end])
                room_bytes -= len(block)
                if room_bytes < 0:
                    raise UnpacksTooFar(f"the zstd stream decompresses to more than {limit_bytes} bytes")
                yield block
                position = end
            if not stream.eof:
                raise InvalidRecord("the zstd stream ends early")
    except zstandard.ZstdError as error:
        raise InvalidRecord(f"the zstd stream is damaged: {error}") from error


def _end_of_skippable(view: memoryview, position: int) -> int | None:
    """Returns where the skippable frame at `position` ends; None for a frame with content.

    Raises InvalidRecord for an incomplete frame.
    """
    if len(view) - position < _LEAST_FRAME_BYTES:
        raise InvalidRecord("the zstd stream ends early")
    magic_number, size = _SKIPPABLE_HEADER.unpack_from(view, position)
    if magic_number & _SKIPPABLE_MASK != _SKIPPABLE_MAGIC:
        return None
    end: int = position + _SKIPPABLE_HEADER.size + size
    if end > len(view):
        raise InvalidRecord("the zstd stream ends early")
    return end


def _piece_ends(view: memoryview, position: int) -> Iterator[int]:
    """Yield where each piece of the frame at `position` ends: its header, then each block, the last one with the
    checksum.

    Raises InvalidRecord for an incomplete frame, ZstdError where no frame begins.
    """
    parameters = zstandard.get_frame_parameters(view[position : position + 32])
    position += zstandard.frame_header_size(view[position : position + 32])
    is_last = False
    while not is_last:
        yield position
        header = int.from_bytes(view[position : position + _BLOCK_HEADER_BYTES], "little")
        is_last, block_type, size = bool(header & 1), header >> 1 & 3, header >> 3
        position += _BLOCK_HEADER_BYTES + (1 if block_type == _REPEATED_BYTE else size)
        if is_last and parameters.has_checksum:
            position += _CHECKSUM_BYTES
        if position > len(view):
            raise InvalidRecord("the zstd stream ends early")
    yield position
