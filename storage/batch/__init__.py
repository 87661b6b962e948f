"""The record batch: its layout, views of its bytes, building, conversion and control records."""

from storage.batch.builder import BatchBuilder, BatchFields, build_batch
from storage.batch.format import (
    CURRENT_MAGIC,
    HEADER,
    HEADER_SIZE,
    HEADER_SIZE_UP_TO_MAGIC,
    LOG_OVERHEAD,
    MIN_SIZE_FIELD,
    NO_PARTITION_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    TimestampType,
)
from storage.batch.record import NO_SEQUENCE, NO_TIMESTAMP, Record
from storage.batch.view import (
    RecordBatch,
    is_one_batch,
    iterate_batches,
    set_last_offset,
    set_max_timestamp,
    set_producer_state,
    stamp,
)
from storage.codec.compression import Compression

__all__ = [
    "CURRENT_MAGIC",
    "HEADER",
    "HEADER_SIZE",
    "HEADER_SIZE_UP_TO_MAGIC",
    "LOG_OVERHEAD",
    "MIN_SIZE_FIELD",
    "NO_PARTITION_LEADER_EPOCH",
    "NO_PRODUCER_EPOCH",
    "NO_PRODUCER_ID",
    "NO_SEQUENCE",
    "NO_TIMESTAMP",
    "BatchBuilder",
    "BatchFields",
    "Compression",
    "Record",
    "RecordBatch",
    "TimestampType",
    "build_batch",
    "is_one_batch",
    "iterate_batches",
    "set_last_offset",
    "set_max_timestamp",
    "set_producer_state",
    "stamp",
]
