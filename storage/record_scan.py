"""A walk over the encoded records of a batch that makes no records: what a leader must know of each, and no
more.

It knows the shape nearly every batch has. Anything else, sound or broken, it leaves to `decode_records`,
which is the one place that says what a broken record is.

Records of one shape, as a producer of fixed-size values sends them, are looked at all at once: with equal length
bytes they lie at equal distances, so that each byte of their framing is a slice with a step, compared in one go.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from storage.errors import InvalidRecord
from storage.varint import SHORT_ENCODINGS, read_varint, read_varlong

# Below this a run costs more than its records one by one.
_SHORTEST_RUN: Final = 8
# The offset deltas of one byte, and of two, whose bytes stand apart; a run ends where their width changes.
_ONE_BYTE_DELTAS: Final = bytes(range(0, 0x80, 2))
_TWO_BYTE_DELTAS: Final = SHORT_ENCODINGS[0x80::2]
_LOW_BYTES: Final = bytes(pair[0] for pair in _TWO_BYTE_DELTAS)
_HIGH_BYTES: Final = bytes(pair[1] for pair in _TWO_BYTE_DELTAS)
_FIRST_OF_TWO: Final = len(_ONE_BYTE_DELTAS)
_FIRST_OF_THREE: Final = _FIRST_OF_TWO + len(_TWO_BYTE_DELTAS)


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
    if record_count < 0:
        return None
    try:
        return _scan_runs(payload, start, record_count)
    except (IndexError, InvalidRecord):
        return None


def _scan_runs(payload: bytes | bytearray, position: int, record_count: int) -> RecordScan | None:
    """By runs as long as the records have one shape, and behind that one by one."""
    index, has_null_key = 0, False
    deltas: list[int] = []
    while index < _FIRST_OF_THREE and record_count - index >= _SHORTEST_RUN:
        run = _scan_run(payload, position, index, record_count)
        if run is None:
            break
        least, greatest, is_null, index, position = run
        deltas += (least, greatest)
        has_null_key = has_null_key or is_null
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


def _scan_run(
    payload: bytes | bytearray, position: int, first: int, record_count: int
) -> tuple[int, int, bool, int, int] | None:
    """Records `first` up to where their offset deltas get wider, if all are shaped as the one at `position`.

    Gives least and greatest timestamp delta, whether keys are null, the index of the next record and its place.
    None for records to be looked at one by one. Their attributes are nobody's concern.
    """
    length, attributes_at = read_varint(payload, position)
    _, offset_at = read_varlong(payload, attributes_at + 1)
    _, key_at = read_varint(payload, offset_at)
    key_size, key_start = read_varint(payload, key_at)
    value_at = key_start + max(key_size, 0)
    value_size, value_start = read_varint(payload, value_at)
    headers_at = value_start + max(value_size, 0)
    stride = attributes_at + length - position
    if length < 0 or headers_at + 1 != position + stride or payload[headers_at]:
        return None
    behind = min(record_count, _FIRST_OF_TWO if first < _FIRST_OF_TWO else _FIRST_OF_THREE)
    count = behind - first
    end = position + count * stride
    if end > len(payload):
        return None
    for at in (
        *range(position, attributes_at),
        *range(key_at, key_start),
        *range(value_at, value_start),
        headers_at,
    ):
        if payload[at:end:stride].count(payload[at]) != count:
            return None
    if first < _FIRST_OF_TWO:
        is_counted = (
            key_at - offset_at == 1 and payload[offset_at:end:stride] == _ONE_BYTE_DELTAS[first:behind]
        )
    else:
        low, high = payload[offset_at:end:stride], payload[offset_at + 1 : end : stride]
        places = slice(first - _FIRST_OF_TWO, behind - _FIRST_OF_TWO)
        is_counted = key_at - offset_at == 2 and low == _LOW_BYTES[places] and high == _HIGH_BYTES[places]
    deltas = _timestamp_deltas(payload, attributes_at + 1, offset_at, end, stride) if is_counted else None
    return None if deltas is None else (min(deltas), max(deltas), key_size < 0, behind, end)


def _timestamp_deltas(
    payload: bytes | bytearray, at: int, behind: int, end: int, stride: int
) -> set[int] | None:
    """Of the records of a run, in bytes `at` to `behind` of the first; None where another takes more or fewer bytes."""
    columns = [payload[each:end:stride] for each in range(at, behind)]
    if not columns[-1].isascii() or any(min(column) < 0x80 for column in columns[:-1]):
        return None
    return {read_varlong(bytes(encoded), 0)[0] for encoded in dict.fromkeys(zip(*columns, strict=True))}


def _scan(payload: bytes | bytearray, position: int, first: int, record_count: int) -> RecordScan | None:
    """The work of one record stands in one loop: a leader does it for every record that it takes.

    Zig-zag: an even number is twice the value. Numbers of one and two bytes are read here, not in a call.
    """
    end = len(payload)
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
