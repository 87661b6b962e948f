"""Produced sets of every format, and the leader's validator as its tests call it."""

from __future__ import annotations

import struct

from storage.batch import Record, RecordBatch, TimestampType, build_batch, iterate_batches
from storage.batch.legacy.builder import build_message_set
from storage.codec.compression import Compression
from storage.codec.crc32c import crc32c
from storage.producers.entry import AppendOrigin
from storage.validation.batch import ValidationRules, validate_and_assign
from storage.validation.checked import CheckedSet

NOW = 1_700_000_000_000
BASE = 1_234_567
CODECS = list(Compression)
LEGACY_CODECS = [codec for codec in Compression if codec is not Compression.ZSTD]
COMPRESSED = [codec for codec in Compression if codec is not Compression.NONE]
CREATE = ValidationRules()
LOG_APPEND = ValidationRules(timestamp_type=TimestampType.LOG_APPEND)
WORDS = (b"hello", b"there", b"beautiful")


def produced(
    codec: Compression = Compression.NONE,
    *,
    timestamps: tuple[int, ...] = (NOW, NOW + 1, NOW - 1),
    key: bytes | None = b"key",
    timestamp_type: TimestampType = TimestampType.CREATE,
    producer_id: int = -1,
    is_transactional: bool = False,
    is_control: bool = False,
    offsets: tuple[int, ...] | None = None,
) -> bytes:
    """Make one batch of magic 2, as a client sends it. The second record has headers."""
    offsets = tuple(range(len(timestamps))) if offsets is None else offsets
    return build_batch(
        [
            Record(offset, timestamp, key, WORDS[index % 3], (("h", None), ("", b"v")) if index == 1 else ())
            for index, (offset, timestamp) in enumerate(zip(offsets, timestamps, strict=True))
        ],
        compression=codec,
        timestamp_type=timestamp_type,
        producer_id=producer_id,
        producer_epoch=-1 if producer_id < 0 else 7,
        base_sequence=-1 if producer_id < 0 else 100,
        is_transactional=is_transactional,
        is_control=is_control,
        log_append_time_ms=NOW if timestamp_type is TimestampType.LOG_APPEND else -1,
    )


def sent(
    magic: int,
    codec: Compression = Compression.NONE,
    *,
    timestamps: tuple[int, ...] = (NOW, NOW + 1, NOW - 1),
    key: bytes | None = b"key",
    timestamp_type: TimestampType = TimestampType.CREATE,
    first_offset: int = 0,
) -> bytes:
    """Make a set of three words in any format, without headers."""
    records = [
        Record(first_offset + index, timestamp, key, WORDS[index % 3])
        for index, timestamp in enumerate(timestamps)
    ]
    log_append_time_ms = NOW if timestamp_type is TimestampType.LOG_APPEND else -1
    if magic == 2:
        return build_batch(
            records,
            base_offset=first_offset,
            compression=codec,
            timestamp_type=timestamp_type,
            log_append_time_ms=log_append_time_ms,
        )
    return build_message_set(
        [record if magic else record._replace(timestamp=-1) for record in records],
        magic=magic,
        base_offset=first_offset,
        compression=codec,
        timestamp_type=timestamp_type if magic else TimestampType.NO,
        log_append_time_ms=log_append_time_ms,
    )


def poked(content: bytes, position: int, layout: str, *values: int) -> bytes:
    """Return `content` with other header values and a checksum that holds."""
    changed = bytearray(content)
    struct.pack_into(layout, changed, position, *values)
    struct.pack_into(">I", changed, 17, crc32c(bytes(changed[21:])))
    return bytes(changed)


def validated(
    content: bytes | bytearray,
    rules: ValidationRules = CREATE,
    origin: AppendOrigin = AppendOrigin.CLIENT,
) -> CheckedSet:
    """Check the set and assign offsets from BASE on, in leader epoch 17."""
    return validate_and_assign(content, rules, base_offset=BASE, leader_epoch=17, now_ms=NOW, origin=origin)


def is_built_again(result: CheckedSet) -> bool:
    """Whether the set was built again. A set whose records stay is stamped in place, in a bytearray (AP8)."""
    return not isinstance(result.records, bytearray)


def batches_of(result: CheckedSet) -> list[RecordBatch]:
    found = list(iterate_batches(bytes(result.records)))
    assert all(batch.is_valid() for batch in found)
    assert sum(batch.size_bytes for batch in found) == len(result.records)
    return found


def only_batch(result: CheckedSet) -> RecordBatch:
    """Return the only batch of a set, of magic 2."""
    (batch,) = batches_of(result)
    assert batch.partition_leader_epoch == 17
    assert batch.base_offset == result.first_offset and batch.last_offset == result.last_offset
    return batch


def records_of(result: CheckedSet) -> list[Record]:
    return [record for batch in batches_of(result) for record in batch.records()]
