"""Zig-zag variable-length integers of the magic-2 record (Kafka: ByteUtils; protobuf's sint32 and sint64).

    value  ->  zig-zag (0 -1 1 -2 … become 0 1 2 3 …)  ->  groups of 7 bits, least first, top bit: more follow

A varint holds 32 bits in at most 5 bytes, a varlong 64 bits in at most 10. As in Kafka, bits of the fifth or tenth
byte that do not fit are dropped, and an error is raised if that byte announces another one.
"""

from __future__ import annotations

from storage.errors import InvalidRecord

VARINT_MAX_BYTES = 5
VARLONG_MAX_BYTES = 10

# Every encoding of one or two bytes: the lengths, deltas and counts of nearly every record.
_TABLE_SIZE = 1 << 14


def _encode_zigzag(zigzag: int) -> bytes:
    groups = bytearray()
    while zigzag >= 0x80:
        groups.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    groups.append(zigzag)
    return bytes(groups)


SHORT_ENCODINGS = tuple(_encode_zigzag(zigzag) for zigzag in range(_TABLE_SIZE))
"""The encoding of each zig-zag number below 2^14, for loops that cannot afford a call."""

_SMALLEST_SHORT, _LARGEST_SHORT = -(_TABLE_SIZE >> 1), (_TABLE_SIZE >> 1) - 1


def encode_varint(value: int) -> bytes:
    """Encode `value`, which has at most 32 bits with its sign."""
    if _SMALLEST_SHORT <= value <= _LARGEST_SHORT:
        return SHORT_ENCODINGS[value << 1 if value >= 0 else ~(value << 1)]
    assert -(1 << 31) <= value < 1 << 31, value
    return _encode_zigzag(value << 1 if value >= 0 else ~(value << 1))


def encode_varlong(value: int) -> bytes:
    """Encode `value`, which has at most 64 bits with its sign."""
    if _SMALLEST_SHORT <= value <= _LARGEST_SHORT:
        return SHORT_ENCODINGS[value << 1 if value >= 0 else ~(value << 1)]
    assert -(1 << 63) <= value < 1 << 63, value
    return _encode_zigzag(value << 1 if value >= 0 else ~(value << 1))


def size_of_varint(value: int) -> int:
    """The number of bytes that `value` takes, as a varint or as a varlong."""
    zigzag = value << 1 if value >= 0 else ~(value << 1)
    return max(1, (zigzag.bit_length() + 6) // 7)


def read_varint(data: bytes | bytearray, position: int) -> tuple[int, int]:
    """The 32-bit value at `position` and the position after it. Raises InvalidRecord, and IndexError at the end."""
    byte = data[position]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), position + 1
    second = data[position + 1]
    if second < 0x80:
        return (((byte & 0x7F) >> 1) | (second << 6)) ^ -(byte & 1), position + 2
    return _read_long(data, position, VARINT_MAX_BYTES, 0xFFFFFFFF)


def read_varlong(data: bytes | bytearray, position: int) -> tuple[int, int]:
    """The 64-bit value at `position` and the position after it. Raises InvalidRecord, and IndexError at the end."""
    byte = data[position]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), position + 1
    second = data[position + 1]
    if second < 0x80:
        return (((byte & 0x7F) >> 1) | (second << 6)) ^ -(byte & 1), position + 2
    return _read_long(data, position, VARLONG_MAX_BYTES, 0xFFFFFFFFFFFFFFFF)


def _read_long(data: bytes | bytearray, position: int, max_bytes: int, mask: int) -> tuple[int, int]:
    zigzag = shift = 0
    for index in range(position, position + max_bytes):
        byte = data[index]
        zigzag |= (byte & 0x7F) << shift
        if byte < 0x80:
            zigzag &= mask
            return (zigzag >> 1) ^ -(zigzag & 1), index + 1
        shift += 7
    raise InvalidRecord(f"a variable-length integer is longer than {max_bytes} bytes")
