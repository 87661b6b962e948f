"""A batch anew with fewer records, or with none: what compaction writes where it cannot copy the batch as it is.

Offsets, sequences, leader epoch, codec and flags stay; the record count becomes smaller than the range of its offsets
(T48). Kafka: MemoryRecords.buildRetainedRecordsInto, DefaultRecordBatch.writeEmptyHeader; rules CL17 to CL19.
"""

from __future__ import annotations

from collections.abc import Sequence

from storage.batch import RecordBatch
from storage.batch_format import (
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
from storage.compression import Compression, compress
from storage.crc32c import crc32c, crc32c_from
from storage.errors import StorageError
from storage.record import NO_TIMESTAMP, Record, encode_record

_KEPT_FLAGS = LOG_APPEND_TIME_FLAG | TRANSACTIONAL_FLAG | CONTROL_FLAG


def rebuild_batch(batch: RecordBatch, kept: Sequence[Record], delete_horizon_ms: int | None) -> bytes:
    """`batch` of magic 2 with the records `kept` alone, at least one; its last offset stays (CL18).

    With a delete horizon, that of the batch or a new one, the header's base timestamp holds it and the records count
    from there (T7).
    """
    assert kept and batch.magic >= CURRENT_MAGIC, batch
    base_timestamp = kept[0].timestamp if delete_horizon_ms is None else delete_horizon_ms
    payload = b"".join(
        encode_record(offset - batch.base_offset, timestamp - base_timestamp, key, value, headers)
        for offset, timestamp, key, value, headers, _ in kept
    )
    if batch.compression is not Compression.NONE:
        payload = compress(batch.compression, payload)
    max_timestamp = batch.max_timestamp
    if not batch.attributes & LOG_APPEND_TIME_FLAG:
        max_timestamp = max(max(record.timestamp for record in kept), NO_TIMESTAMP)
    attributes = batch.attributes & (_KEPT_FLAGS | CODEC_MASK)
    if delete_horizon_ms is not None:
        attributes |= DELETE_HORIZON_FLAG
    return _pack(batch, attributes, base_timestamp, max_timestamp, len(kept), payload)


def empty_batch(batch: RecordBatch) -> bytes:
    """The header of `batch` alone, for the offset or the sequence that it ends with (CL19).

    Raises StorageError for magic 0 and 1, which cannot say it (T51).
    """
    if batch.magic < CURRENT_MAGIC:
        raise StorageError(
            f"the batch at offset {batch.last_offset} of magic {batch.magic} must stay without records, "
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
