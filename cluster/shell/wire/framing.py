"""Takes large records out of a frame before protobuf parses it, and puts them into a frame that protobuf has encoded.

Protobuf copies a field of bytes when it is set, encoded, parsed and read. Large records pass by it: what is around
them, the light frame, is encoded and parsed as any message is. On the wire both are one message of `proto/`, in which
the records are three messages deep:

    frame          1: calls or answers, the entries
    entry          2: request or response, the body
    body           3 in a request, 2 in a response: partitions
    partition      2 in a request, 9 in a response: records

To take a field out of a message, or to put one in, changes that message and the sizes of those around it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar, final

# Below this, protobuf's copies cost less than the walk to the records in Python. Microseconds to encode and parse one
# call, with the walk and without: 256 KiB 22 and 19, 512 KiB 29 and 45, 1 MiB 52 and 106. Without it, it takes up to
# ten times as long where the memory of each message comes from the system.
LARGE_BYTES = 256 << 10
# Larger than any records: none are large then.
NONE_LARGE_BYTES = 1 << 62

# The kinds of values on the wire.
_VARINT, _SIZED = 0, 2
_FIXED_BYTES = {1: 8, 5: 4}
# A size has 32 bits, seven in a byte.
_SIZE_SHIFTS = range(0, 35, 7)

Body = TypeVar("Body")
Entries = Sequence[tuple[int, Any]]
# The start of a value, and its end (exclusive).
Place = tuple[int, int]
Change = Callable[[Place], list[bytes]]
# The large records by the index of their entry: one item a partition, None where protobuf still has its records.
Lifted = dict[int, list[bytes | None]]


class _Unusual(Exception):
    """Bytes that are no message, or that have fields of which `proto/` knows nothing: protobuf decides which."""


def _tag(number: int) -> int:
    """Returns the byte before a field that is a message or bytes."""
    assert 0 < number < 16, number
    return number << 3 | _SIZED


_ENTRY, _BODY = _tag(1), _tag(2)


@final
@dataclass(frozen=True, slots=True)
class Framing:
    """The numbers of the fields that lead to the records in one kind of frame."""

    partitions: int
    records: int
    # Records of this size and more are large.
    least_bytes: int = LARGE_BYTES

    def join(self, light: bytes, entries: Entries) -> bytes:
        """Returns the frame of `entries`: `light`, which protobuf has encoded, and their large records, copied once."""
        records = iter([each.records for _, body in entries for each in body.partitions])
        path = (_ENTRY, _BODY, _tag(self.partitions))
        pieces = _changed(light, (0, len(light)), path, partial(self._fill_partition, light, records))
        assert next(records, None) is None, len(entries)
        return b"".join(pieces)

    def part(self, frame: bytes) -> tuple[bytes, Lifted]:
        """Returns the light frame, and the large records, each cut from `frame` by one copy.

        Of a field that comes twice the last one counts, as for protobuf. What is no message is returned as it is, for
        protobuf to refuse.
        """
        lifted: Lifted = {}
        try:
            light = b"".join(self._lift(frame, lifted))
        except (_Unusual, IndexError):
            return frame, {}
        return (light, lifted) if lifted else (frame, lifted)

    def _fill_partition(self, light: bytes, records: Iterator[bytes], place: Place) -> list[bytes]:
        """Returns a partition, in pieces, with the next of `records` if they are large."""
        around, own = light[place[0] : place[1]], next(records)
        return [around, *_field(_tag(self.records), [own])] if len(own) >= self.least_bytes else [around]

    def _lift(self, frame: bytes, lifted: Lifted) -> Iterator[bytes]:
        """Yields the light frame in pieces, and fills `lifted`. Raises _Unusual, IndexError."""
        kept = 0
        for index, (at, place) in enumerate(_values(frame, (0, len(frame)), _ENTRY)):
            # Under load most entries are small, and none of them is looked into.
            if place[1] - place[0] < self.least_bytes:
                continue
            records: list[bytes | None] = []
            path = (_BODY, _tag(self.partitions))
            entry = _changed(frame, place, path, partial(self._lift_partition, frame, records))
            yield frame[kept:at]
            yield from _field(_ENTRY, entry)
            kept = place[1]
            lifted[index] = records
        yield frame[kept:]

    def _lift_partition(self, frame: bytes, records: list[bytes | None], place: Place) -> list[bytes]:
        """Returns a partition without its records, in pieces, and adds these to `records`."""
        start, end = place
        if end - start < self.least_bytes:
            records.append(None)
            return [frame[start:end]]
        around, kept, last = [], start, (start, start)
        for at, last in _values(frame, place, _tag(self.records)):
            around.append(frame[kept:at])
            kept = last[1]
        records.append(frame[last[0] : last[1]])
        return [*around, frame[kept:end]]


def with_records(body: Body, records: list[bytes | None] | None) -> Body:
    """Returns a body that protobuf has parsed, with the records that passed by it; None for none."""
    bare: Any = body
    if records is None:
        return body
    assert len(bare.partitions) == len(records), (len(bare.partitions), len(records))
    partitions = [
        partition if own is None else replace(partition, records=own)
        for partition, own in zip(bare.partitions, records, strict=True)
    ]
    whole: Body = replace(bare, partitions=tuple(partitions))
    return whole


def _changed(data: bytes, place: Place, path: tuple[int, ...], change: Change) -> list[bytes]:
    """Returns the message at `place`, in pieces, with each message at the end of `path` as `change` returns it."""
    if not path:
        return change(place)
    pieces, kept = [], place[0]
    for at, inner in _values(data, place, path[0]):
        pieces.append(data[kept:at])
        pieces += _field(path[0], _changed(data, inner, path[1:], change))
        kept = inner[1]
    pieces.append(data[kept : place[1]])
    return pieces


def _field(tag: int, value: list[bytes]) -> list[bytes]:
    """Returns a field, in pieces, whose value has these pieces."""
    head, left = bytearray((tag,)), sum(map(len, value))
    while left > 0x7F:
        head.append(left & 0x7F | 0x80)
        left >>= 7
    head.append(left)
    return [bytes(head), *value]


def _values(data: bytes, place: Place, wanted: int) -> list[tuple[int, Place]]:
    """Returns where each field `wanted` of a message begins, with its value's place. Raises _Unusual, IndexError.

    It is one loop: a call for each field would take twice as long.
    """
    found: list[tuple[int, Place]] = []
    at, end = place
    while at < end:
        tag, start, at = data[at], at, at + 1
        kind = tag & 7
        # A number above 15 would take a second byte, and 0 is none.
        if not 8 <= tag < 0x80:
            raise _Unusual
        if kind == _SIZED:
            size_bytes, at = data[at], at + 1
            if size_bytes >= 0x80:
                size_bytes, at = _size(data, at - 1)
            if tag == wanted:
                found.append((start, (at, at + size_bytes)))
            at += size_bytes
        elif kind == _VARINT:
            while data[at] >= 0x80:
                at += 1
            at += 1
        elif kind in _FIXED_BYTES:
            at += _FIXED_BYTES[kind]
        else:
            raise _Unusual
    if at != end:
        raise _Unusual
    return found


def _size(data: bytes, at: int) -> tuple[int, int]:
    """Returns the size that stands at `at`, and where it ends. Raises _Unusual, IndexError."""
    size_bytes = 0
    for shift in _SIZE_SHIFTS:
        byte = data[at]
        at += 1
        size_bytes |= (byte & 0x7F) << shift
        if byte < 0x80:
            return size_bytes, at
    raise _Unusual
