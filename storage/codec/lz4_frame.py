"""LZ4 frames, version 1.5.1 of the format, as far as Kafka uses it: one frame of independent blocks.

| size | field | |
| --- | --- | --- |
| 4 | magic | `04 22 4d 18` |
| 1 | FLG | bits 6-7 version 01, 5 independent blocks, 4 block checksums, 3 content size, 2 content checksum |
| 1 | BD | bits 4-6: 4 to 7 for blocks of at most 64 KiB, 256 KiB, 1 MiB, 4 MiB |
| 8 | content size | if FLG says so; skipped |
| 1 | HC | the second byte of the xxHash32 of FLG to here |
| | blocks | size uint32, top bit set when stored as it was; data; xxHash32 of the data if FLG says so |
| 4 | end mark | zero; then the content checksum if FLG says so, which Kafka never verifies |

All little-endian. Clients of magic 0 computed HC from the frame's magic on (KAFKA-3160): for magic 0 it is written
that way, and not checked when read. The framing is done here because no library does that.
Kafka: Lz4BlockOutputStream, Lz4BlockInputStream.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import final

import cramjam
import xxhash
from lz4 import block as lz4_block

from storage.codec.buffer import Buffer
from storage.errors import InvalidRecord, UnpacksTooFar

BLOCK_BYTES = 64 * 1024
# Kafka's default, and the only level that uses the fast compressor.
FAST_LEVEL = 9

_MAGIC = b"\x04\x22\x4d\x18"
# Version 1, independent blocks.
_FLAGS = 0x60
# Blocks of 64 KiB.
_BLOCK_DESCRIPTOR = 0x40
_HEADER_SIZE = 7
END_MARK = bytes(4)
_UINT32 = struct.Struct("<I")
_STORED = 0x80000000
# The highest level of the library; Kafka's higher levels mean this one.
_HIGHEST_LEVEL = 12


def compress_lz4(data: Buffer, *, magic: int, level: int = FAST_LEVEL) -> bytes:
    """Compress `data` into one frame for a batch of `magic`."""
    view = memoryview(data)
    blocks = [
        lz4_block_of(view[start : start + BLOCK_BYTES], level) for start in range(0, len(view), BLOCK_BYTES)
    ]
    return b"".join((lz4_header(magic=magic), *blocks, END_MARK))


def lz4_block_of(plain: memoryview, level: int) -> bytes:
    """Returns a block of a frame with its size, for at most BLOCK_BYTES."""
    packed = _compress_block(plain, level)
    if len(packed) < len(plain):
        return _UINT32.pack(len(packed)) + packed
    return _UINT32.pack(len(plain) | _STORED) + bytes(plain)


def unpack_lz4(data: Buffer, limit_bytes: int, *, magic: int) -> Iterator[Buffer]:
    """Unpack one frame, a block at a time. Bytes after the end mark are ignored, as in Kafka.

    Raises InvalidRecord, and its child UnpacksTooFar with at most one block above `limit_bytes` of output.
    """
    frame, room_bytes = _Frame(memoryview(data)), limit_bytes
    frame.read_header(checks=magic > 0)
    while (block := frame.next_block()) is not None:
        room_bytes -= len(block)
        if room_bytes < 0:
            raise UnpacksTooFar(f"the lz4 frame decompresses to more than {limit_bytes} bytes")
        yield block


def lz4_header(*, magic: int) -> bytes:
    """Returns the header of a frame for a batch of `magic`: that of magic 0 has the checksum of old clients."""
    header = _MAGIC + bytes((_FLAGS, _BLOCK_DESCRIPTOR))
    return header + bytes((_header_checksum(header if magic == 0 else header[len(_MAGIC) :]),))


def _header_checksum(covered: Buffer) -> int:
    return (xxhash.xxh32_intdigest(bytes(covered)) >> 8) & 0xFF


def _compress_block(plain: memoryview, level: int) -> bytes:
    # Here cramjam finds the same matches as Kafka's library, so the bytes are the same.
    if level == FAST_LEVEL:
        return bytes(cramjam.lz4.compress_block(plain, store_size=False))
    level = min(level, _HIGHEST_LEVEL)
    return bytes(lz4_block.compress(plain, mode="high_compression", compression=level, store_size=False))


@final
class _Frame:
    """A frame being read: call `read_header`, then `next_block` until it returns None."""

    __slots__ = ("flags", "max_block_bytes", "position", "view")

    def __init__(self, view: memoryview) -> None:
        self.view = view
        self.position = self.flags = self.max_block_bytes = 0

    @property
    def has_block_checksums(self) -> bool:
        return bool(self.flags & 0x10)

    @property
    def has_content_size(self) -> bool:
        return bool(self.flags & 0x08)

    @property
    def has_content_checksum(self) -> bool:
        return bool(self.flags & 0x04)

    def read_header(self, *, checks: bool) -> None:
        """Read the frame's header, and with `checks` verify its checksum. Raises InvalidRecord."""
        assert self.position == 0, self.position
        if len(self.view) < _HEADER_SIZE:
            raise InvalidRecord("the lz4 frame ends early")
        if self._take(4) != _MAGIC:
            raise InvalidRecord("the lz4 frame does not start with its magic number")
        self.flags, descriptor = self._take(2)
        if self.flags >> 6 != 1 or self.flags & 0x03:
            raise InvalidRecord(f"the lz4 frame flags {self.flags:#04x} state another version than 1")
        if not self.flags & 0x20:
            raise InvalidRecord("an lz4 frame of dependent blocks cannot be read")
        block_size_id = descriptor >> 4
        if descriptor & 0x0F or not 4 <= block_size_id <= 7:
            raise InvalidRecord(f"the lz4 block descriptor {descriptor:#04x} states no valid block size")
        self.max_block_bytes = 1 << (2 * block_size_id + 8)
        assert self.max_block_bytes >= BLOCK_BYTES, (block_size_id, self.max_block_bytes)
        if self.has_content_size:
            self._take(8)
        expected = _header_checksum(self.view[len(_MAGIC) : self.position])
        (stored,) = self._take(1)
        if checks and stored != expected:
            raise InvalidRecord(f"the lz4 header checksum {stored:#04x} does not match {expected:#04x}")

    def next_block(self) -> Buffer | None:
        """Decompress the next block; None at the end mark. Raises InvalidRecord."""
        word = self._take_uint32()
        size = word & ~_STORED
        if size == 0:
            if self.has_content_checksum:
                self._take(4)
            return None
        if size > self.max_block_bytes:
            raise InvalidRecord(f"an lz4 block of {size} bytes exceeds the maximum of {self.max_block_bytes}")
        data = self._take(size)
        if self.has_block_checksums and self._take_uint32() != xxhash.xxh32_intdigest(data):
            raise InvalidRecord("the checksum of an lz4 block does not match")
        if word & _STORED:
            return data
        try:
            return bytes(lz4_block.decompress(data, uncompressed_size=self.max_block_bytes))
        except lz4_block.LZ4BlockError as error:
            raise InvalidRecord(f"an lz4 block is damaged: {error}") from error

    def _take(self, size: int) -> memoryview:
        start, self.position = self.position, self.position + size
        if self.position > len(self.view):
            raise InvalidRecord("the lz4 frame ends early")
        return self.view[start : self.position]

    def _take_uint32(self) -> int:
        return int(_UINT32.unpack(self._take(4))[0])
