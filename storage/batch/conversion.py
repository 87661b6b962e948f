"""Converts batches to message sets of magic 0 and 1, for readers that do not know a later magic.

Each batch becomes one set: codec, timestamp type and offsets are kept, headers and control batches are left out.
Kafka: RecordsUtil.downConvert, FileRecords.downConvert; rule BB6.
"""

from __future__ import annotations

from storage.batch.format import TimestampType
from storage.batch.legacy.builder import build_message_set
from storage.batch.record import NO_TIMESTAMP, Record
from storage.batch.view import RecordBatch, iterate_batches
from storage.codec.buffer import Buffer
from storage.codec.compression import DECOMPRESSED_LIMIT_BYTES, Compression
from storage.errors import UnsupportedCompression


def down_convert(
    records: Buffer,
    *,
    target_magic: int,
    first_offset: int,
    decompressed_limit_bytes: int = DECOMPRESSED_LIMIT_BYTES,
) -> Buffer:
    """Convert the whole batches of `records` to `target_magic`; those of a lower magic stay as they are.

    The reader asked to start at `first_offset`. Records before it are dropped from uncompressed batches, because each
    would become a batch of its own; a compressed batch is kept whole. If nothing was converted, returns `records`
    itself with its incomplete end: even the first batch may be incomplete, and the reader must see its size.
    Raises CorruptBatch, InvalidRecord, and UnsupportedCompression for zstd below magic 2.
    """
    assert target_magic in (0, 1), target_magic
    parts: list[bytes] = []
    is_converted = False
    for batch in iterate_batches(records):
        if batch.is_control:
            continue
        if batch.compression is Compression.ZSTD:
            raise UnsupportedCompression(
                f"a batch compressed with zstd cannot be converted to magic {target_magic}"
            )
        if batch.magic <= target_magic:
            parts.append(batch.tobytes())
            continue
        kept = [
            record
            for record in batch.records(decompressed_limit_bytes)
            if batch.compression is not Compression.NONE or record.offset >= first_offset
        ]
        if kept:
            parts.append(_converted(batch, kept, target_magic))
            is_converted = True
    return b"".join(parts) if is_converted else records


def _converted(batch: RecordBatch, kept: list[Record], target_magic: int) -> bytes:
    is_log_append = batch.timestamp_type is TimestampType.LOG_APPEND
    return build_message_set(
        (record._replace(headers=()) for record in kept),
        magic=target_magic,
        base_offset=kept[0].offset,
        compression=batch.compression,
        timestamp_type=batch.timestamp_type,
        log_append_time_ms=batch.max_timestamp if is_log_append else NO_TIMESTAMP,
    )
