"""A walk over the encoded records of a batch that makes no records: what a leader must know of each, and no
more.

It knows the shape nearly every batch has. Anything else, sound or broken, it leaves to `decode_records`,
which is the one place that says what a broken record is. Records of one shape are left to `record_run.py`.
"""

from __future__ import annotations

from typing import NamedTuple

from storage.errors import InvalidRecord
from storage.record_run import FIRST_OF_THREE, SHORTEST_RUN, run_at, timestamp_deltas
from storage.varint import read_varint, read_varlong


class RecordScan(NamedTuple):
    """Of the records of one batch, whose offset deltas are 0, 1, 2 …; deltas are 0 where there is no
    record.
    """

    least_timestamp_delta: int
    greatest_timestamp_delta: int
    has_null_key: bool


def scan_records(payload: bytes | bytearray, start: int, record_count: int) -> RecordScan | None:
    """Walk `record_count` records that must fill `payload` from `start` on; keys and values are stepped over.

    None for a batch to be decoded with care: a broken structure, or offset deltas that are not 0, 1, 2 …
    """
    try:
        if record_count >= SHORTEST_RUN:
            return _scan_runs(payload, start, record_count)
        return _scan(payload, start, 0, record_count) if record_count >= 0 else None
    except (IndexError, InvalidRecord):
        return None


def _scan_runs(payload: bytes | bytearray, position: int, record_count: int) -> RecordScan | None:
    """By runs as long as the records have one shape, and behind that one by one."""
    index, has_null_key = 0, False
    deltas: list[int] = []
    while index < FIRST_OF_THREE and record_count - index >= SHORTEST_RUN:
        run = run_at(payload, position, index, record_count)
        found = None if run is None else timestamp_deltas(payload, run.times)
        if run is None or found is None:
            break
        deltas += (min(found), max(found))
        has_null_key = has_null_key or run.has_null_keys
        index, position = run.behind, run.end
    if not index:
        return _scan(payload, position, 0, record_count)
    if index < record_count:
        rest = _scan(payload, position, index, record_count)
        if rest is None:
            return None
        deltas += (rest.least_timestamp_delta, rest.greatest_timestamp_delta)
        has_null_key = has_null_key or rest.has_null_key
    elif position != len(payload):
        return None
    return RecordScan(min(deltas), max(deltas), has_null_key)


def _scan(payload: bytes | bytearray, position: int, first: int, record_count: int) -> RecordScan | None:
    """One loop, which reads numbers of one and two bytes without a call: a leader does it for every record it takes.
    Zig-zag: an even number is twice the value.
    """
    least = greatest = 0
    has_null_key = False
    delta_byte = -1  # of the record before, where its timestamp delta was of one byte
    for index in range(first, record_count):
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
            if delta > greatest or index == first:
                greatest = delta
            if delta < least or index == first:
                least = delta
        zigzag = payload[position]
        position += 1
        if zigzag >= 0x80:
            if (second := payload[position]) < 0x80:
                zigzag = zigzag & 0x7F | second << 7
                position += 1
            else:
                delta, position = read_varint(payload, position - 1)
                zigzag = delta << 1
        if zigzag != index << 1:
            return None
        size = payload[position]
        if size < 0x80:
            size = -1 if size & 1 else size >> 1
            position += 1
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
        position = skip_headers(payload, position, record_end) if payload[position] else position + 1
        if position != record_end:
            return None
    return RecordScan(least, greatest, has_null_key) if position == len(payload) else None


def skip_headers(payload: bytes | bytearray, position: int, record_end: int) -> int:
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
