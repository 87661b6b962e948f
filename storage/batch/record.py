"""A record, and its encoding in magic 2 (Kafka: DefaultRecord, KIP-98).

| field | type | |
| --- | --- | --- |
| length | varint | the number of bytes that follow |
| attributes | int8 | 0, never read |
| timestamp delta | varlong | from the batch's base timestamp |
| offset delta | varint | from the batch's base offset |
| key length, key | varint, bytes | any negative length is null |
| value length, value | varint, bytes | likewise |
| header count | varint | then for each: key length, key (UTF-8), value length, value |
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from storage.codec.utf8 import decode_utf8
from storage.codec.varint import SHORT_ENCODINGS, encode_varint, encode_varlong, read_varint, read_varlong
from storage.errors import InvalidRecord

Header = tuple[str, bytes | None]

NO_TIMESTAMP = -1
NO_SEQUENCE = -1
MAX_INT32 = (1 << 31) - 1
MAX_INT64 = (1 << 63) - 1
_MIN_INT64 = -(1 << 63)

_NULL = encode_varint(-1)
_ZERO = encode_varint(0)
# The encodings of 0, 1, 2 …, whose zig-zag numbers are even.
_SHORT_LENGTHS = SHORT_ENCODINGS[::2]


class Record(NamedTuple):
    """One key and value at an offset. It is a tuple because a scan makes millions of them.

    `timestamp` is milliseconds since the epoch or -1; `sequence` is -1 without an idempotent producer.
    """

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()
    sequence: int = NO_SEQUENCE


def encode_record(
    offset_delta: int,
    timestamp_delta: int,
    key: bytes | None,
    value: bytes | None,
    headers: Sequence[Header] = (),
) -> bytes:
    """Encode one record for a batch of magic 2; the deltas are relative to its base offset and base timestamp.

    A timestamp delta beyond 64 bits wraps as a Java long does (BB2). Raises InvalidRecord when a header's key cannot be
    written as UTF-8.
    """
    if not _MIN_INT64 <= timestamp_delta <= MAX_INT64:
        # A reader's sum wraps, too, and is the record's time again.
        timestamp_delta = wrap_int64(timestamp_delta)
    deltas = encode_varlong(timestamp_delta) + encode_varint(offset_delta)
    # The lengths of the fields are encoded here, not in a helper: a producer spends most of its time here.
    if key is None:
        key_part = _NULL
    else:
        size = len(key)
        key_part = (_SHORT_LENGTHS[size] if size < 8192 else encode_varint(size)) + key
    if value is None:
        value_size, value = _NULL, b""
    else:
        size = len(value)
        value_size = _SHORT_LENGTHS[size] if size < 8192 else encode_varint(size)
    header_part = _encode_headers(headers) if headers else _ZERO
    length = 1 + len(deltas) + len(key_part) + len(value_size) + len(value) + len(header_part)
    encoded_length = _SHORT_LENGTHS[length] if length < 8192 else encode_varint(length)
    return b"".join((encoded_length, b"\x00", deltas, key_part, value_size, value, header_part))


def _encode_headers(headers: Sequence[Header]) -> bytes:
    parts = [encode_varint(len(headers))]
    for name, value in headers:
        try:
            encoded_name = name.encode()
        except (AttributeError, UnicodeEncodeError) as error:
            raise InvalidRecord(f"header key {name!r} cannot be written as UTF-8") from error
        parts += (encode_varint(len(encoded_name)), encoded_name)
        parts += (_NULL,) if value is None else (encode_varint(len(value)), value)
    return b"".join(parts)


def decode_records(
    payload: bytes,
    record_count: int,
    *,
    base_offset: int,
    base_timestamp: int,
    base_sequence: int = NO_SEQUENCE,
    log_append_time_ms: int | None = None,
) -> Iterator[Record]:
    """Decode exactly `record_count` records, which must fill `payload`; `log_append_time_ms` overrides their
    timestamps.

    Raises InvalidRecord: at once for a negative count, otherwise when the iteration reaches the damaged record.
    """
    if record_count < 0:
        raise InvalidRecord(f"the batch header states {record_count} records")
    return _decode(payload, record_count, base_offset, base_timestamp, base_sequence, log_append_time_ms)


def _decode(
    payload: bytes,
    record_count: int,
    base_offset: int,
    base_timestamp: int,
    base_sequence: int,
    log_append_time_ms: int | None,
) -> Iterator[Record]:
    position, end, lowest = 0, len(payload), -MAX_INT64
    # Calling `Record` would cost twice as much.
    new_tuple = tuple.__new__
    has_sequence = base_sequence >= 0
    try:
        for _ in range(record_count):
            # Numbers of one byte are read here: a call for each would double the time. For the same reason
            # `scan.py` and `storage/cleaner/keys.py`, which make no records, have loops of their own.
            length = payload[position]
            if length < 0x80:
                length, position = (length >> 1) ^ -(length & 1), position + 1
            else:
                length, position = read_varint(payload, position)
            record_end = position + length
            if length < 0 or record_end > end:
                raise InvalidRecord(f"a record states {length} bytes with only {end - position} bytes left")
            timestamp = payload[position + 1]
            if timestamp < 0x80:
                timestamp, position = (timestamp >> 1) ^ -(timestamp & 1), position + 2
            else:
                timestamp, position = read_varlong(payload, position + 1)
            offset_delta = payload[position]
            if offset_delta < 0x80:
                offset_delta, position = (offset_delta >> 1) ^ -(offset_delta & 1), position + 1
            else:
                offset_delta, position = read_varint(payload, position)
            key = value = None
            size = payload[position]
            if size < 0x80:
                size, position = (size >> 1) ^ -(size & 1), position + 1
            else:
                size, position = read_varint(payload, position)
            if size >= 0:
                key = payload[position : position + size]
                position += size
            size = payload[position]
            if size < 0x80:
                size, position = (size >> 1) ^ -(size & 1), position + 1
            else:
                size, position = read_varint(payload, position)
            if size >= 0:
                value = payload[position : position + size]
                position += size
            headers: tuple[Header, ...] = ()
            if payload[position]:
                headers, position = _decode_headers(payload, position, record_end)
            else:
                position += 1
            # This also finds a field that ran past the end of the record.
            if position != record_end:
                raise InvalidRecord(
                    f"a record of {length} bytes has fields of {length + position - record_end} bytes"
                )
            timestamp = base_timestamp + timestamp if log_append_time_ms is None else log_append_time_ms
            if not lowest <= timestamp <= MAX_INT64:
                timestamp = wrap_int64(timestamp)
            sequence = add_to_sequence(base_sequence, offset_delta) if has_sequence else NO_SEQUENCE
            yield new_tuple(Record, (base_offset + offset_delta, timestamp, key, value, headers, sequence))
    except IndexError as error:
        raise InvalidRecord("the records end early") from error
    if position != end:
        raise InvalidRecord(f"{end - position} bytes remain after {record_count} records")


def _decode_headers(payload: bytes, position: int, record_end: int) -> tuple[tuple[Header, ...], int]:
    count, position = read_varint(payload, position)
    # Each header takes at least a byte: a greater count is damage and must not start a long loop.
    if not 0 <= count <= record_end - position:
        raise InvalidRecord(f"a record states {count} headers, but has {record_end - position} bytes left")
    headers: list[Header] = []
    for _ in range(count):
        size, position = read_varint(payload, position)
        if size < 0 or position + size > record_end:
            raise InvalidRecord(f"the key of a header has an impossible size of {size} bytes")
        name = decode_utf8(payload[position : position + size])
        size, position = read_varint(payload, position + size)
        value = None
        if size >= 0:
            value = payload[position : position + size]
            position += size
        headers.append((name, value))
    return tuple(headers), position


def add_to_sequence(sequence: int, increment: int) -> int:
    """Add to a sequence number: after 2^31-1 comes 0 (Kafka: DefaultRecordBatch.incrementSequence).

    Negative numbers, which only damaged batches have, are computed as in Java.
    """
    if sequence >= 0 and increment >= 0:
        return (sequence + increment) & MAX_INT32
    if sequence > _wrap_int32(MAX_INT32 - increment):
        return _wrap_int32(increment - (MAX_INT32 - sequence) - 1)
    return _wrap_int32(sequence + increment)


def subtract_from_sequence(sequence: int, decrement: int) -> int:
    """Subtract from a sequence number: below 0 comes 2^31-1 (Kafka: DefaultRecordBatch.decrementSequence)."""
    if sequence < decrement:
        return _wrap_int32(MAX_INT32 - (decrement - sequence) + 1)
    return _wrap_int32(sequence - decrement)


def _wrap_int32(value: int) -> int:
    return (value + (1 << 31)) % (1 << 32) - (1 << 31)


def wrap_int64(value: int) -> int:
    """Wrap a number as a Java long does, so that every timestamp fits its field."""
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)
