"""A batch rebuilt with fewer records, or with none: what compaction writes where it cannot copy the batch.

Offsets, sequences, leader epoch, codec and flags are kept; the record count may be smaller than the range of the
offsets (T48). Kafka: MemoryRecords.buildRetainedRecordsInto, DefaultRecordBatch.writeEmptyHeader; rules CL17 to CL19.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, final

from storage.batch import RecordBatch
from storage.batch.cut_record import CutRecord
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
from storage.batch.legacy.builder import MessageSetBuilder, MessageSetFields
from storage.batch.legacy.streamed import StreamedMessages
from storage.batch.pieces import HEADS_HELD, result_of
from storage.batch.record import NO_TIMESTAMP, Record, encode_record, wrap_int64
from storage.batch.record_stream import Decode, RecordStream
from storage.codec.crc32c import crc32c, crc32c_from
from storage.codec.packing import packed_stream
from storage.codec.varint import encode_varint, encode_varlong
from storage.errors import StorageError

# As much is handed to the codec at once.
_PENDING_BYTES: Final = 1 << 16
_KEPT_FLAGS = LOG_APPEND_TIME_FLAG | TRANSACTIONAL_FLAG | CONTROL_FLAG


def has_foreign_messages(batch: RecordBatch) -> bool:
    """Whether a wrapper holds messages of another magic than its own, as old cleaners left them (KAFKA-4298)."""
    if batch.magic >= CURRENT_MAGIC or not batch.attributes & CODEC_MASK:
        return False
    return any(message.magic != batch.magic for message in batch.messages(held=HEADS_HELD))


def rebuild_batch(batch: RecordBatch, kept_offsets: Iterable[int], delete_horizon_ms: int | None) -> bytes:
    """Rebuild `batch` with only the records at `kept_offsets`, at least one (CL18).

    A batch of magic 2 keeps its last offset. A delete horizon, the batch's own or a new one, replaces the header's base
    timestamp, and the timestamp deltas are relative to it (T7). Raises what `RecordBatch.records` raises.
    """
    return rebuild_from(batch, frozenset(kept_offsets).__contains__, delete_horizon_ms)


def rebuild_from(batch: RecordBatch, is_kept: Callable[[int], bool], delete_horizon_ms: int | None) -> bytes:
    """Rebuild `batch` with only the records whose offsets are kept, at least one; it is asked for each in order, once.

    The records of a batch with a codec, or of magic 2, are not held (CL18).
    """
    if batch.magic < CURRENT_MAGIC:
        assert delete_horizon_ms is None, batch
        return _rebuild_messages(batch, is_kept)
    rebuilt = _Rebuilt(batch, is_kept, delete_horizon_ms)
    for record in batch.records(take_large=rebuilt.take_large):
        rebuilt.append(record)
    return rebuilt.build()


@final
class _Rebuilt:
    """A batch of magic 2 that is built of the kept records of another."""

    def __init__(
        self, batch: RecordBatch, is_kept: Callable[[int], bool], delete_horizon_ms: int | None
    ) -> None:
        self._batch, self._is_kept, self._delete_horizon_ms = batch, is_kept, delete_horizon_ms
        self._stream, self._pending = packed_stream(batch.compression), bytearray()
        self._base_timestamp, self._max_timestamp, self._count = delete_horizon_ms, NO_TIMESTAMP, 0

    def append(self, record: Record) -> None:
        """Append the record, if it is kept."""
        offset, timestamp, key, value, headers, _ = record
        if self._is_kept(offset):
            delta = self._delta_of(timestamp)
            self._pending += encode_record(offset - self._batch.base_offset, delta, key, value, headers)
            self._pass_on(_PENDING_BYTES)

    def take_large(self, stream: RecordStream, decode: Decode) -> Iterable[Record]:
        """Append the next record, which is large, piece by piece, if it is kept."""
        timestamp_delta, offset_delta = result_of(stream.begin_large())
        (bare,) = decode(encode_record(offset_delta, timestamp_delta, None, None), 1)
        if not self._is_kept(bare.offset):
            for _ in stream.left_of_large():
                pass
            return ()
        start = b"\x00" + encode_varlong(self._delta_of(bare.timestamp)) + encode_varint(offset_delta)
        self._pending += encode_varint(len(start) + stream.large_bytes_left) + start
        for piece in stream.left_of_large():
            self._pending += piece
            self._pass_on(0)
        return ()

    def _delta_of(self, timestamp: int) -> int:
        """Count another record. Returns its timestamp delta, which wraps as a Java long does (BB2)."""
        if self._base_timestamp is None:
            self._base_timestamp = timestamp
        self._max_timestamp, self._count = max(self._max_timestamp, timestamp), self._count + 1
        return wrap_int64(timestamp - self._base_timestamp)

    def _pass_on(self, least_bytes: int) -> None:
        if len(self._pending) >= least_bytes:
            self._stream.write(self._pending)
            self._pending = bytearray()

    def build(self) -> bytes:
        """Returns the bytes of the batch, which has a record."""
        batch, max_timestamp = self._batch, self._max_timestamp
        assert self._base_timestamp is not None and self._count > 0, batch
        self._pass_on(0)
        self._stream.finish()
        if batch.attributes & LOG_APPEND_TIME_FLAG:
            max_timestamp = batch.max_timestamp
        attributes = batch.attributes & (_KEPT_FLAGS | CODEC_MASK)
        if self._delete_horizon_ms is not None:
            attributes |= DELETE_HORIZON_FLAG
        payload = bytes(self._stream.output)
        return _pack(batch, attributes, self._base_timestamp, max_timestamp, self._count, payload)


def _rebuild_messages(batch: RecordBatch, is_kept: Callable[[int], bool]) -> bytes:
    """Rebuild messages of magic 0 or 1. The last one kept sets the last offset, which has no field of its own."""
    looked_at, fields_of = batch.large_fields(), batch.large_fields()
    rebuilt: MessageSetBuilder | StreamedMessages | None = None
    for message in batch.messages(held=HEADS_HELD):
        record = message.record()
        # These are at the same large message.
        large = (next(looked_at), next(fields_of)) if isinstance(record, CutRecord) else None
        if not is_kept(record.offset):
            continue
        if rebuilt is None:
            rebuilt = _message_set(batch, record.offset)
        if isinstance(rebuilt, StreamedMessages) and isinstance(record, CutRecord) and large is not None:
            rebuilt.append_large(record, *large)
        else:
            rebuilt.append(record)
    assert rebuilt is not None, batch
    return rebuilt.build()


def _message_set(batch: RecordBatch, base_offset: int) -> MessageSetBuilder | StreamedMessages:
    fields = MessageSetFields(
        magic=batch.magic,
        base_offset=base_offset,
        compression=batch.compression,
        timestamp_type=batch.timestamp_type,
        log_append_time_ms=batch.max_timestamp,
    )
    # Without a codec it is one message, which its batch holds.
    return StreamedMessages(fields) if batch.attributes & CODEC_MASK else MessageSetBuilder(fields)


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
