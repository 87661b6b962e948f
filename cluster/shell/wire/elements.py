"""Counts the elements in the lists of a request before protobuf makes an object of each.

Two bytes are an empty element, which becomes some hundred bytes of objects here and takes microseconds: a frame of the
largest size would hold a node up for minutes and take gigabytes, before its lists are found to be too long. So large
frames are counted first, and one of too many elements is no frame.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from cluster.core.connection.codec import Malformed

# Above all that one request may hold; a frame of several calls has no more in all. So many take one or two seconds.
MOST_ELEMENTS = 1 << 18
# A smaller request has no room for so many: an element takes two bytes at least, but for a number in a packed list.
UNCOUNTED_BYTES = MOST_ELEMENTS
# The same for a frame of a stream, which is counted once more when it is parsed. Under load each has 64 batches of 16
# KiB, and to count them here takes a third of the time that it takes to read them.
UNCOUNTED_FRAME_BYTES = 5 << 18

_VARINT, _SIZED = 0, 2
_FIXED_BYTES = {1: 8, 5: 4}
# A number has at most ten bytes, with seven bits each.
_SHIFTS = range(0, 70, 7)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shape:
    """What is counted in one class of messages, by the byte before a field."""

    # Those that are messages with lists in them.
    inner: dict[int, _Shape] = field(default_factory=dict)
    # The lists of numbers, in which each byte may be one.
    packed: set[int] = field(default_factory=set)


@cache
def _shape_of(descriptor: Descriptor) -> _Shape:
    shape = _Shape()
    for each in descriptor.fields:
        assert each.number < 16, each.full_name
        tag, part = each.number << 3 | _SIZED, each.message_type
        if part is not None:
            inner = _shape_of(part)
            if inner.inner or any(own.is_repeated for own in part.fields):
                shape.inner[tag] = inner
        elif each.is_repeated and each.type not in (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES):
            shape.packed.add(tag)
    return shape


def check_elements(message: type[Message], data: bytes, uncounted_bytes: int = UNCOUNTED_BYTES) -> None:
    """Raises Malformed if `data` has more elements than any request. No more than `uncounted_bytes` are not counted.

    Of what else is no message, protobuf says so.
    """
    if len(data) <= uncounted_bytes:
        return
    try:
        left = _count(data, 0, len(data), _shape_of(message.DESCRIPTOR), MOST_ELEMENTS)
    except IndexError:
        return
    if left < 0:
        raise too_many(message, data)


def too_many(message: type[Message], data: bytes) -> Malformed:
    """Returns what is wrong with bytes that hold too many elements."""
    return Malformed(f"{len(data)} bytes with more than {MOST_ELEMENTS} elements are no {message.__name__}")


def _count(data: bytes, at: int, end: int, shape: _Shape, left: int) -> int:
    """Returns `left` without the fields of a message and those of the messages with lists in it.

    Every field counts, because the walk takes as long for each; it ends once `left` is negative. Raises IndexError
    beyond the last byte, Malformed. A call for each number of one byte would make it three times as long.
    """
    inner_shapes, packed = shape.inner, shape.packed
    while at < end and left >= 0:
        left -= 1
        tag, at = data[at], at + 1
        if tag >= 0x80:
            tag, at = _varint(data, at - 1)
        kind = tag & 7
        if kind == _SIZED:
            size_bytes, at = data[at], at + 1
            if size_bytes >= 0x80:
                size_bytes, at = _varint(data, at - 1)
            if (inner := inner_shapes.get(tag)) is not None:
                left = _count(data, at, min(at + size_bytes, end), inner, left)
            elif tag in packed:
                left -= size_bytes
            at += size_bytes
        elif kind == _VARINT:
            _, at = _varint(data, at) if data[at] >= 0x80 else (0, at + 1)
        elif kind in _FIXED_BYTES:
            at += _FIXED_BYTES[kind]
        else:
            # Protobuf would skip a group, and read on behind it what was not counted.
            raise Malformed(f"{len(data)} bytes with a field of kind {kind}, which no message of ours has")
    return left


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Returns the number that stands at `at`, and where it ends. Raises IndexError, Malformed."""
    number = 0
    for shift in _SHIFTS:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at
    raise Malformed(f"{len(data)} bytes with a number of more than ten bytes")
