"""The keys of a batch's records, found without decoding the records: compaction needs no more of most of them.

Of a long key it holds a digest: a batch of a few kilobytes may have keys of 100 MiB.

A walk over the encoded records steps over values and headers. Broken and unusual records are left to `decode_records`:
it alone defines what a broken record is.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final, NamedTuple

from storage.batch import RecordBatch
from storage.batch.cut_record import CutRecord
from storage.batch.format import CODEC_MASK, CURRENT_MAGIC, HEADER_SIZE
from storage.batch.pieces import HEADS_HELD, FieldPieces
from storage.batch.scan import skip_headers
from storage.codec.varint import read_varint, read_varlong
from storage.errors import InvalidRecord

# A key held takes some 150 bytes more than in the batch.
MOST_KEYS_AT_ONCE: Final = 50_000
# The cleaner reads no further in a chunk after so many records.
MOST_RECORDS_AT_ONCE: Final = 200_000
# A record counts as at least so many bytes of work, however well it is compressed.
LEAST_RECORD_BYTES: Final = 8
# A longer key has a digest in its place.
LONGEST_KEY_BYTES: Final = 1024


class RecordKey(NamedTuple):
    """One record's offset and key, or the digest of a long one; without a value it is a tombstone."""

    offset: int
    key: bytes | None
    has_value: bool


def portions_of_keys(batch: RecordBatch) -> Iterable[list[RecordKey]]:
    """The keys of all records of the batch, in order: all at once, or portions of a batch of very many records.

    Raises what `RecordBatch.records` raises.
    """
    if batch.record_count <= MOST_KEYS_AT_ONCE:
        return (read_keys(batch),)
    return _portions(_decoded_keys(batch))


def _portions(keys: Iterator[RecordKey]) -> Iterator[list[RecordKey]]:
    while portion := list(islice(keys, MOST_KEYS_AT_ONCE)):
        yield portion


def _decoded_keys(batch: RecordBatch) -> Iterator[RecordKey]:
    large = batch.large_fields()
    for record in batch.records(held=HEADS_HELD):
        if isinstance(record, CutRecord):
            # The fields of the same record.
            key = _whole_key(next(next(large)))
        else:
            key = record.key
            if key is not None and len(key) > LONGEST_KEY_BYTES:
                key = hashlib.sha256(key).digest()
        yield RecordKey(record.offset, key, record.value is not None)


def _whole_key(pieces: FieldPieces | None) -> bytes | None:
    if pieces is None:
        return None
    digest, beginning, size = hashlib.sha256(), b"", 0
    for piece in pieces:
        digest.update(piece)
        size += len(piece)
        if size <= LONGEST_KEY_BYTES:
            beginning += piece
    return beginning if size <= LONGEST_KEY_BYTES else digest.digest()


def read_keys(batch: RecordBatch) -> list[RecordKey]:
    """The key of every record of the batch, in order. Raises what `RecordBatch.records` raises."""
    buffer = batch.buffer
    if batch.magic == CURRENT_MAGIC and not batch.attributes & CODEC_MASK and isinstance(buffer, bytes):
        start = batch.start
        try:
            return _scan(
                buffer, start + HEADER_SIZE, start + batch.size_bytes, batch.record_count, batch.base_offset
            )
        except (IndexError, InvalidRecord):
            pass
    return list(_decoded_keys(batch))


# This loop exists beside those of `storage/batch/record.py` and `storage/batch/scan.py` because compaction runs it over
# every byte of a dirty log: decoding whole records takes half as long again.
def _scan(payload: bytes, position: int, end: int, record_count: int, base_offset: int) -> list[RecordKey]:
    """Find the keys of the records from byte `position` to `end` (exclusive).

    Raises IndexError and InvalidRecord, without a reason, for anything but sound records that fill those bytes.
    """
    found: list[RecordKey] = []
    new_tuple = tuple.__new__
    for _ in range(record_count):
        # Numbers are zig-zag encoded: an even one is twice its value. Those of one and two bytes are read here, without
        # a call. The length comes first, then the attributes, one byte that is not needed.
        byte = payload[position]
        if byte < 0x80:
            record_end = position + 1 + (byte >> 1)
            position += 2
        elif payload[position + 1] < 0x80:
            record_end = position + 2 + ((byte & 0x7F | payload[position + 1] << 7) >> 1)
            position += 3
        else:
            length, position = read_varint(payload, position)
            record_end = position + length
            position += 1
        # The timestamp delta.
        if payload[position] < 0x80:
            position += 1
        else:
            _, position = read_varlong(payload, position)
        byte = payload[position]
        if byte < 0x80:
            offset = base_offset + ((byte >> 1) ^ -(byte & 1))
            position += 1
        else:
            delta, position = read_varint(payload, position)
            offset = base_offset + delta
        byte = payload[position]
        if byte < 0x80:
            size, position = (byte >> 1) ^ -(byte & 1), position + 1
        else:
            size, position = read_varint(payload, position)
        key = None
        if size >= 0:
            key = payload[position : position + size]
            if size > LONGEST_KEY_BYTES:
                key = hashlib.sha256(key).digest()
            position += size
        byte = payload[position]
        if byte < 0x80:
            size, position = (byte >> 1) ^ -(byte & 1), position + 1
        elif not byte & 1 and payload[position + 1] < 0x80:
            size = (byte & 0x7F | payload[position + 1] << 7) >> 1
            position += 2
        else:
            size, position = read_varint(payload, position)
        if size > 0:
            position += size
        if payload[position]:
            position = skip_headers(payload, position, record_end)
        else:
            position += 1
        if position != record_end or position > end:
            raise InvalidRecord
        found.append(new_tuple(RecordKey, (offset, key, size >= 0)))
    if position != end or record_count < 0:
        raise InvalidRecord
    return found
