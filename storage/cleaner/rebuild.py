"""A batch rebuilt with fewer records, or with none: what compaction writes where it cannot copy the batch.

Offsets, sequences, leader epoch, codec and flags are kept; the record count may be smaller than the range of the
offsets (T48). Kafka: MemoryRecords.buildRetainedRecordsInto, DefaultRecordBatch.writeEmptyHeader; rules CL17 to CL19.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from storage.batch import RecordBatch
from storage.batch.format import (
    CODEC_MASK,
    CONTROL_FLAG,
    CRC_COVERS_FROM,
    CURRENT_MAGIC,
    DELETE_HORIZON_FLAG,
    HEADER,
    HEADER_SIZE,
    LOG_APPEND_TIME_FLAG,
    LOG_OVERHEAD,
    TRANSACTIONAL_FLAG,
)
from storage.batch.legacy.builder import build_message_set
from storage.batch.record import NO_TIMESTAMP, Record, encode_record
from storage.codec.crc32c import crc32c, crc32c_from
from storage.codec.packing import packed_stream
from storage.errors import StorageError

# As much is handed to the codec at once.
_PENDING_BYTES: Final = 1 << 16
_KEPT_FLAGS = LOG_APPEND_TIME_FLAG | TRANSACTIONAL_FLAG | CONTROL_FLAG


def has_foreign_messages(batch: RecordBatch) -> bool:
    """Whether a wrapper holds messages of another magic than its own, as old cleaners left them (KAFKA-4298)."""
    if batch.magic >= CURRENT_MAGIC or not batch.attributes & CODEC_MASK:
        return False
    return any(message.magic != batch.magic for message in batch.messages())


def rebuild_batch(batch: RecordBatch, kept_offsets: Iterable[int], delete_horizon_ms: int | None) -> bytes:
    """Rebuild `batch` with only the records at `kept_offsets`, at least one (CL18).

    A batch of magic 2 keeps its last offset. A delete horizon, the batch's own or a new one, replaces the header's base
    timestamp, and the timestamp deltas are relative to it (T7). Raises what `RecordBatch.records` raises.
    """
    wanted = frozenset(kept_offsets)
    kept = filter(lambda record: record.offset in wanted, batch.records())
    return rebuild_from(batch, kept, delete_horizon_ms)


def rebuild_from(batch: RecordBatch, kept: Iterator[Record], delete_horizon_ms: int | None) -> bytes:
    """Rebuild `batch` with only the records `kept`, at least one, which of magic 2 are not held (CL18)."""
    if batch.magic < CURRENT_MAGIC:
        assert delete_horizon_ms is None, batch
        return _rebuild_messages(batch, list(kept))
    stream, pending = packed_stream(batch.compression), bytearray()
    base_timestamp, max_timestamp, count = delete_horizon_ms, NO_TIMESTAMP, 0
    for offset, timestamp, key, value, headers, _ in kept:
        base_timestamp = timestamp if base_timestamp is None else base_timestamp
        max_timestamp, count = max(max_timestamp, timestamp), count + 1
        pending += encode_record(offset - batch.base_offset, timestamp - base_timestamp, key, value, headers)
        if len(pending) >= _PENDING_BYTES:
            stream.write(pending)
            pending = bytearray()
    assert base_timestamp is not None and count > 0, batch
    stream.write(pending)
    stream.finish()
    if batch.attributes & LOG_APPEND_TIME_FLAG:
        max_timestamp = batch.max_timestamp
    attributes = batch.attributes & (_KEPT_FLAGS | CODEC_MASK)
    if delete_horizon_ms is not None:
        attributes |= DELETE_HORIZON_FLAG
    return _pack(batch, attributes, base_timestamp, max_timestamp, count, bytes(stream.output))


def _rebuild_messages(batch: RecordBatch, kept: Sequence[Record]) -> bytes:
    """Rebuild messages of magic 0 or 1. The last one kept sets the last offset, which has no field of its own."""
    return build_message_set(
        kept,
        magic=batch.magic,
        base_offset=kept[0].offset,
        compression=batch.compression,
        timestamp_type=batch.timestamp_type,
        log_append_time_ms=batch.max_timestamp,
    )


def empty_batch(batch: RecordBatch) -> bytes:
    """The header of `batch` without records, kept for its last offset or last sequence (CL19).

    Raises StorageError for magic 0 and 1, which have no such batch (T51).
    """
    if batch.magic < CURRENT_MAGIC:
        raise StorageError(
            f"the batch of magic {batch.magic} at offset {batch.last_offset} must be kept without records, "
            f"which is possible from magic {CURRENT_MAGIC} on"
        )
    return _pack(batch, batch.attributes & _KEPT_FLAGS, NO_TIMESTAMP, batch.max_timestamp, 0, b"")


def _pack(
    batch: RecordBatch,
    attributes: int,
    base_timestamp: int,
    max_timestamp: int,
    record_count: int,
    payload: bytes,
) -> bytes:
    header = bytearray(HEADER_SIZE)
    field_values = [
        batch.base_offset,
        HEADER_SIZE - LOG_OVERHEAD + len(payload),
        batch.partition_leader_epoch,
        CURRENT_MAGIC,
        0,
        attributes,
        batch.last_offset_delta,
        base_timestamp,
        max_timestamp,
        batch.producer_id,
        batch.producer_epoch,
        batch.base_sequence,
        record_count,
    ]
    HEADER.pack_into(header, 0, *field_values)
    field_values[4] = crc32c_from(crc32c(header[CRC_COVERS_FROM:]), payload)
    HEADER.pack_into(header, 0, *field_values)
    return bytes(header) + payload
