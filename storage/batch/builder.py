"""Builds batches of magic 2 from records (Kafka: MemoryRecordsBuilder; rules BB1 to BB5)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from struct import Struct
from typing import final

from storage.batch.format import (
    CONTROL_FLAG,
    CRC_COVERS_FROM,
    CURRENT_MAGIC,
    DELETE_HORIZON_FLAG,
    HEADER_SIZE,
    LOG_APPEND_TIME_FLAG,
    LOG_OVERHEAD,
    NO_PARTITION_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    TRANSACTIONAL_FLAG,
    TimestampType,
)
from storage.batch.record import MAX_INT32, NO_SEQUENCE, NO_TIMESTAMP, Record, encode_record
from storage.codec.buffer import Buffer
from storage.codec.compression import Compression, compress
from storage.codec.crc32c import crc32c, crc32c_from
from storage.errors import InvalidRecord
from storage.values import quickly_made

# The header in two parts: up to the CRC, and what the CRC covers of it.
_TO_CRC, _FROM_ATTRIBUTES = Struct(">qiibI"), Struct(">hiqqqhii")
assert _TO_CRC.size + _FROM_ATTRIBUTES.size == HEADER_SIZE, HEADER_SIZE
# Constants, because a look-up of an enum's member takes longer than the comparison with it.
_UNCOMPRESSED, _LOG_APPEND, _NO_TYPE = Compression.NONE, TimestampType.LOG_APPEND, TimestampType.NO


@quickly_made
@dataclass(frozen=True, slots=True, kw_only=True)
class BatchFields:
    """The header fields of a batch to be built that do not follow from its records.

    A delete horizon takes the place of the base timestamp, and the timestamp deltas are relative to it (BB2, T7).
    """

    base_offset: int = 0
    compression: Compression = Compression.NONE
    # None for the codec's default.
    compression_level: int | None = None
    timestamp_type: TimestampType = TimestampType.CREATE
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH
    base_sequence: int = NO_SEQUENCE
    partition_leader_epoch: int = NO_PARTITION_LEADER_EPOCH
    is_transactional: bool = False
    is_control: bool = False
    log_append_time_ms: int = NO_TIMESTAMP
    delete_horizon_ms: int | None = None

    def __post_init__(self) -> None:
        has_producer = self.producer_id != NO_PRODUCER_ID
        assert self.timestamp_type is not _NO_TYPE, "magic 2 has a timestamp type"
        assert has_producer or not self.is_transactional, "a transactional batch needs a producer id"
        assert not has_producer or self.producer_epoch >= 0, "a producer id needs an epoch"
        assert not has_producer or self.base_sequence >= 0 or self.is_control, (
            "a producer id needs a sequence"
        )

    @property
    def attributes(self) -> int:
        """The attributes of the batch, as its header stores them."""
        return (
            self.compression
            | (LOG_APPEND_TIME_FLAG if self.timestamp_type is _LOG_APPEND else 0)
            | (TRANSACTIONAL_FLAG if self.is_transactional else 0)
            | (CONTROL_FLAG if self.is_control else 0)
            | (0 if self.delete_horizon_ms is None else DELETE_HORIZON_FLAG)
        )


def build_batch(
    records: Iterable[Record],
    *,
    base_offset: int = 0,
    compression: Compression = Compression.NONE,
    compression_level: int | None = None,
    timestamp_type: TimestampType = TimestampType.CREATE,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    partition_leader_epoch: int = NO_PARTITION_LEADER_EPOCH,
    is_transactional: bool = False,
    is_control: bool = False,
    log_append_time_ms: int = NO_TIMESTAMP,
    delete_horizon_ms: int | None = None,
) -> bytes:
    """Build one magic-2 batch; without records the result is empty (BB3). A record's own `sequence` is ignored.

    Raises InvalidRecord unless offsets rise and are within 31 bits of `base_offset`, and timestamps are -1 or more, and
    TypeError for what is no Record of bytes.
    """
    fields = BatchFields(
        base_offset=base_offset,
        compression=compression,
        compression_level=compression_level,
        timestamp_type=timestamp_type,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        partition_leader_epoch=partition_leader_epoch,
        is_transactional=is_transactional,
        is_control=is_control,
        log_append_time_ms=log_append_time_ms,
        delete_horizon_ms=delete_horizon_ms,
    )
    builder = BatchBuilder(fields)
    append = builder.append_control if is_control else builder.append
    for index, record in enumerate(records):
        try:
            append(record)
        except (AttributeError, TypeError, ValueError) as error:
            expected = "expected a Record with bytes or None as key and value"
            raise TypeError(f"records[{index}]: {expected}, got {record!r}") from error
    return builder.build()


@final
class BatchBuilder:
    """A batch that fills up to `limit_bytes`; the first record may be of any size (Kafka: hasRoomFor)."""

    __slots__ = (
        "_has_base_timestamp",
        "_last_offset",
        "_max_timestamp",
        "_payload",
        "base_timestamp",
        "fields",
        "limit_bytes",
        "record_count",
    )

    def __init__(self, fields: BatchFields | None = None, *, limit_bytes: int = MAX_INT32) -> None:
        self.fields = BatchFields() if fields is None else fields
        self.limit_bytes = limit_bytes
        horizon_ms = self.fields.delete_horizon_ms
        self.base_timestamp = NO_TIMESTAMP if horizon_ms is None else horizon_ms
        self._has_base_timestamp = horizon_ms is not None
        self._max_timestamp = NO_TIMESTAMP
        self._last_offset = self.fields.base_offset - 1
        # One buffer: an object for each of many small records would take several times their size.
        self._payload = bytearray()
        self.record_count = 0

    @property
    def last_offset(self) -> int:
        """The offset of the newest record; one below the base offset while there is none."""
        return self._last_offset

    @property
    def size_estimate(self) -> int:
        """The size of the batch so far in bytes, before compression: exact without a codec."""
        return HEADER_SIZE + len(self._payload)

    def try_append(self, record: Record) -> bool:
        """Append `record`. Returns False, and changes nothing, when the batch would exceed its limit.

        Raises what `append` raises.
        """
        content_bytes = len(record.key or b"") + len(record.value or b"")
        if self.record_count and self.size_estimate + content_bytes > self.limit_bytes:
            # Key and value alone exceed the limit, so the record is not encoded.
            return False
        assert not self.fields.is_control, "a control batch takes only control records"
        encoded = self._encode(record)
        if self.record_count and self.size_estimate + len(encoded) > self.limit_bytes:
            return False
        self._add(record, encoded)
        return True

    def append(self, record: Record) -> None:
        """Append `record`.

        Raises InvalidRecord, having changed nothing, for an offset that is not above the last one or not within 31 bits
        of the base offset, and for a timestamp below -1 (BB1).
        """
        assert not self.fields.is_control, "a control batch takes only control records"
        self._add(record, self._encode(record))

    def append_control(self, record: Record) -> None:
        """Append a record with a key and a value from `control_records.py`. Raises what `append` raises."""
        assert self.fields.is_control, "a control record needs a control batch"
        self._add(record, self._encode(record))

    def _encode(self, record: Record) -> bytes:
        offset, timestamp, key, value, headers, _ = record
        base_offset = self.fields.base_offset
        if offset <= self._last_offset or offset - base_offset > MAX_INT32:
            raise InvalidRecord(
                f"offset {offset} cannot follow {self._last_offset} in a batch at {base_offset}"
            )
        if timestamp < NO_TIMESTAMP:
            raise InvalidRecord(f"timestamp {timestamp} is negative")
        base_timestamp = self.base_timestamp if self._has_base_timestamp else timestamp
        return encode_record(offset - base_offset, timestamp - base_timestamp, key, value, headers)

    def _add(self, record: Record, encoded: bytes) -> None:
        offset = record.offset
        assert offset > self._last_offset, (offset, self._last_offset)
        if not self._has_base_timestamp:
            # The timestamp of the first record, not the least (BB2).
            self.base_timestamp = record.timestamp
            self._has_base_timestamp = True
        if record.timestamp > self._max_timestamp:
            self._max_timestamp = record.timestamp
        self._last_offset = offset
        self._payload += encoded
        self.record_count += 1

    def build(self) -> bytes:
        """Returns the bytes of the batch; more records may be appended afterwards. Raises UnsupportedCompression."""
        if not self.record_count:
            return b""
        assert self._last_offset >= self.fields.base_offset, (self._last_offset, self.fields.base_offset)
        payload, fields = bytes(self._payload), self.fields
        if fields.compression is not _UNCOMPRESSED:
            payload = compress(fields.compression, payload, level=fields.compression_level)
        return frame_batch(
            fields,
            payload,
            last_offset_delta=self._last_offset - fields.base_offset,
            base_timestamp=self.base_timestamp,
            max_timestamp=self._max_timestamp,
            record_count=self.record_count,
        )


def frame_batch(
    fields: BatchFields,
    payload: Buffer,
    *,
    last_offset_delta: int,
    base_timestamp: int,
    max_timestamp: int,
    record_count: int,
) -> bytes:
    """Returns the batch of `payload`, its records as the codec of `fields` compresses them."""
    log_append = fields.timestamp_type is _LOG_APPEND
    covered = _FROM_ATTRIBUTES.pack(
        fields.attributes,
        last_offset_delta,
        base_timestamp,
        fields.log_append_time_ms if log_append else max_timestamp,
        fields.producer_id,
        fields.producer_epoch,
        fields.base_sequence,
        record_count,
    )
    # In two steps, so that the payload is not copied for it.
    crc = crc32c_from(crc32c(covered), payload)
    length = HEADER_SIZE - LOG_OVERHEAD + len(payload)
    head = _TO_CRC.pack(fields.base_offset, length, fields.partition_leader_epoch, CURRENT_MAGIC, crc)
    assert len(head) == CRC_COVERS_FROM, len(head)
    return b"".join((head, covered, payload))
