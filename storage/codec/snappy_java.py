"""Snappy in the framing of snappy-java, which is not snappy's own framing format.

| byte | size | field |
| --- | --- | --- |
| 0 | 8 | `82` SNAPPY `00` |
| 8 | 4 | version, 1 |
| 12 | 4 | least version that reads it, 1 |
| 16 | | blocks: size int32, then one raw snappy block of at most 32 KiB of input |

All big-endian. In concatenated streams another header may follow a block. Input that does not start with the first
eight bytes is one raw block, as old clients wrote it.
Kafka: SnappyCompression; snappy-java: SnappyOutputStream, SnappyInputStream.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from cramjam import DecompressionError, snappy

from storage.codec.buffer import Buffer
from storage.errors import InvalidRecord, UnpacksTooFar

BLOCK_BYTES = 32 * 1024

_MAGIC = b"\x82SNAPPY\x00"
SNAPPY_HEADER = _MAGIC + struct.pack(">ii", 1, 1)
_SIZE = struct.Struct(">i")
# The start of another header, read as a block's size: negative, so it is no size.
_ANOTHER_HEADER = _SIZE.unpack(_MAGIC[:4])[0]


def compress_snappy(data: Buffer) -> bytes:
    """Compress `data`; the header is written even without data."""
    view = memoryview(data)
    blocks = [
        snappy_block_of(view[start : start + BLOCK_BYTES]) for start in range(0, len(view), BLOCK_BYTES)
    ]
    return b"".join((SNAPPY_HEADER, *blocks))


def snappy_block_of(plain: memoryview) -> bytes:
    """Returns a block with its size, for at most BLOCK_BYTES."""
    block = bytes(snappy.compress_raw(plain))
    return _SIZE.pack(len(block)) + block


def unpack_snappy(data: Buffer, limit_bytes: int) -> Iterator[bytes]:
    """Unpack `data`, a block at a time. Raises InvalidRecord, and its child UnpacksTooFar above `limit_bytes`."""
    view = memoryview(data)
    if not len(view):
        raise InvalidRecord("the snappy stream is empty")
    if len(view) < len(SNAPPY_HEADER) or view[: len(_MAGIC)] != _MAGIC:
        yield _decompress_block(view, limit_bytes, limit_bytes)
        return
    room_bytes, position = limit_bytes, len(SNAPPY_HEADER)
    # Fewer bytes cannot be a block's size: they are ignored, as in snappy-java.
    while len(view) - position >= _SIZE.size:
        (size,) = _SIZE.unpack_from(view, position)
        if size == _ANOTHER_HEADER:
            if bytes(view[position : position + len(_MAGIC)]) != _MAGIC:
                raise InvalidRecord(f"the snappy stream has a damaged header at byte {position}")
            position += len(SNAPPY_HEADER)
            continue
        position += _SIZE.size
        if not 0 <= size <= len(view) - position:
            raise InvalidRecord(f"a snappy block of {size} bytes with only {len(view) - position} bytes left")
        block = _decompress_block(view[position : position + size], room_bytes, limit_bytes)
        room_bytes -= len(block)
        yield block
        position += size


def _decompress_block(block: memoryview, room_bytes: int, limit_bytes: int) -> bytes:
    """Decompress one block. Its declared size is checked first, so that nothing is allocated above the limit."""
    try:
        if snappy.decompress_raw_len(block) > room_bytes:
            raise UnpacksTooFar(f"the snappy stream decompresses to more than {limit_bytes} bytes")
        return bytes(snappy.decompress_raw(block))
    except DecompressionError as error:
        raise InvalidRecord(f"the snappy stream is damaged: {error}") from error
