"""A walk over the encoded records of a batch that makes no records: what a leader must know of each, and no
more.

It knows the shape nearly every batch has. Anything else, sound or broken, it leaves to `decode_records`,
which is the one place that says what a broken record is.
"""

from __future__ import annotations

from typing import NamedTuple

from storage.errors import InvalidRecord
from storage.varint import read_varint, read_varlong


class RecordScan(NamedTuple):
    """Of the records of one batch, whose offset deltas are 0, 1, 2 …; deltas are 0 where there is no
    record.
    """

    least_timestamp_delta: int
    greatest_timestamp_delta: int
    has_null_key: bool


def scan_records(payload: bytes, start: int, record_count: int) -> RecordScan | None:
    """Walk `record_count` records that must fill `payload` from `start` on; keys and values are stepped over.

    None for a batch to be decoded with care: a broken structure, or offset deltas that are not 0, 1, 2 …
    """
    if record_count < 0:
        return None
    try:
        return _scan(payload, start, record_count)
    except (IndexError, InvalidRecord):
        return None


def _scan(payload: bytes, position: int, record_count: int) -> RecordScan | None:
    """The work of one record stands in one loop: a leader does it for every record that it takes.

    Zig-zag: an even number is twice the value. Numbers of one and two bytes are read here, not in a call.
    """
    end = len(payload)
    least = greatest = 0
    has_null_key = False
    delta_byte = -1  # of the record before, where its timestamp delta was of one byte
    for index in range(record_count):
        byte = payload[position]
        if byte & 1:  # a negative length
            return None
        if byte < 0x80:
            record_end = position + 1 + (byte >> 1)
            position += 2  # the length and the attributes
        elif (second := payload[position + 1]) < 0x80:
            record_end = position + 2 + ((byte & 0x7F | second << 7) >> 1)
            position += 3
        else:
            length, position = read_varint(payload, position)
            record_end = position + length
            position += 1
        byte = payload[position]
        if byte == delta_byte:
            position += 1
        else:
            if byte < 0x80:
                delta = (byte >> 1) ^ -(byte & 1)
                delta_byte = byte
                position += 1
            else:
                delta, position = read_varlong(payload, position)
            if delta > greatest or not index:
                greatest = delta
            if delta < least or not index:
                least = delta
        byte = payload[position]
        if byte < 0x80:
            if byte != index << 1:
                return None
            position += 1
        elif (second := payload[position + 1]) < 0x80:
            if byte & 0x7F | second << 7 != index << 1:
                return None
            position += 2
        else:
            delta, position = read_varint(payload, position)
            if delta != index:
                return None
        byte = payload[position]
        if byte < 0x80:
            if byte & 1:
                has_null_key = True
                position += 1
            else:
                position += 1 + (byte >> 1)
        else:
            size, position = read_varint(payload, position)
            if size < 0:
                has_null_key = True
            else:
                position += size
        byte = payload[position]
        if byte < 0x80:
            position += 1 if byte & 1 else 1 + (byte >> 1)
        elif not byte & 1 and (second := payload[position + 1]) < 0x80:
            position += 2 + ((byte & 0x7F | second << 7) >> 1)
        else:
            size, position = read_varint(payload, position)
            if size > 0:
                position += size
        if payload[position]:
            position = skip_headers(payload, position, record_end)
        else:
            position += 1
        if position != record_end:
            return None
    return RecordScan(least, greatest, has_null_key) if position == end else None


def skip_headers(payload: bytes, position: int, record_end: int) -> int:
    """The position behind the headers, -1 when they are broken."""
    count, position = read_varint(payload, position)
    if not 0 <= count <= record_end - position:
        return -1
    for _ in range(count):
        size, position = read_varint(payload, position)
        if size < 0 or position + size > record_end:
            return -1
        size, position = read_varint(payload, position + size)
        position += max(size, 0)
    return position
