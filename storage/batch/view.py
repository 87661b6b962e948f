"""A view of a record batch's bytes, iteration over batches in memory, and what a leader changes in place.

`format.py` has the layout and `builder.py` builds batches; both are re-exported here. `legacy/messages.py` and
`legacy/builder.py` have what only magic 0 and 1 need.
Kafka: DefaultRecordBatch, LegacyRecord, ByteBufferLogInputStream.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import final

from storage.batch.format import (
    ATTRIBUTES_AT,
    CODEC_MASK,
    CONTROL_FLAG,
    CRC_AT,
    CRC_COVERS_FROM,
    CURRENT_MAGIC,
    DELETE_HORIZON_FLAG,
    EPOCH_AT,
    HEADER,
    HEADER_SIZE,
    HEADER_SIZE_UP_TO_MAGIC,
    KNOWN_ATTRIBUTES,
    LOG_APPEND_TIME_FLAG,
    LOG_OVERHEAD,
    MAGIC_AT,
    MAX_TIMESTAMP_AT,
    MIN_SIZE_FIELD,
    NO_PARTITION_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    PRODUCER_ID_AT,
    SIZE_FIELD,
    SIZE_FIELD_AT,
    TRANSACTIONAL_FLAG,
    TimestampType,
)
from storage.batch.legacy.messages import (
    LegacyMessage,
    large_fields_of,
    read_messages,
    set_offset,
    set_timestamp,
)
from storage.batch.pieces import ALL_HELD, HEADS_HELD, Held, LargeFields, large_fields
from storage.batch.record import (
    MAX_INT32,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    Record,
    add_to_sequence,
)
from storage.batch.record_stream import RecordStream, TakeLarge, decode_pieces, holding
from storage.codec.buffer import Buffer
from storage.codec.compression import DECOMPRESSED_LIMIT_BYTES, Compression, compression_of, unpack
from storage.codec.crc32c import crc32c
from storage.errors import CorruptBatch, InvalidRecord

_BASE_OFFSET = struct.Struct(">q")
_EPOCH = struct.Struct(">i")
_CRC = struct.Struct(">I")
_ATTRIBUTES = struct.Struct(">h")
_TIMESTAMP = struct.Struct(">q")
_PRODUCER = struct.Struct(">qhi")
# Magic 0 has no timestamp: the bytes in its place are read and ignored.
_LEGACY_HEADER = struct.Struct(">qiIbbq")
_PADDING = bytes(HEADER_SIZE)
_HEADER_FIELDS = (
    "attributes",
    "base_offset",
    "base_sequence",
    "base_timestamp",
    "crc",
    "last_offset",
    "last_offset_delta",
    "magic",
    "max_timestamp",
    "partition_leader_epoch",
    "producer_epoch",
    "producer_id",
    "record_count",
)


@final
class RecordBatch:
    """A view of one batch's bytes, which it does not own. The constructor reads the header, once.

    The batch is `buffer[start : start + size_bytes]`; `position` is its place in its file, by default `start`.
    Nothing is validated here: any field may be wrong unless `is_valid()` returns True. A view does not show what is
    stamped into the bytes later; a new view does.
    """

    __slots__ = (*_HEADER_FIELDS, "buffer", "position", "size_bytes", "start")

    buffer: Buffer
    attributes: int
    base_offset: int
    base_sequence: int
    base_timestamp: int
    crc: int
    last_offset: int
    last_offset_delta: int
    magic: int
    max_timestamp: int
    partition_leader_epoch: int
    position: int
    producer_epoch: int
    producer_id: int
    record_count: int
    size_bytes: int
    start: int

    def __init__(self, buffer: Buffer, start: int, size_bytes: int, position: int | None = None) -> None:
        self.buffer = buffer
        self.start = start
        self.size_bytes = size_bytes
        self.position = start if position is None else position
        if size_bytes < HEADER_SIZE:
            self._read_short_header()
            return
        (
            self.base_offset,
            _,
            self.partition_leader_epoch,
            self.magic,
            self.crc,
            self.attributes,
            self.last_offset_delta,
            self.base_timestamp,
            self.max_timestamp,
            self.producer_id,
            self.producer_epoch,
            self.base_sequence,
            self.record_count,
        ) = HEADER.unpack_from(buffer, start)
        if self.magic < CURRENT_MAGIC:
            self._read_legacy_header(bytes(buffer[start : start + _LEGACY_HEADER.size]))
            return
        self.last_offset = self.base_offset + self.last_offset_delta

    def _read_short_header(self) -> None:
        """Read fewer bytes than a header of magic 2: a message of magic 0 or 1, or a batch that `is_valid` refuses."""
        padded = bytes(self.buffer[self.start : self.start + self.size_bytes]) + _PADDING
        short = RecordBatch(padded, 0, HEADER_SIZE)
        for name in _HEADER_FIELDS:
            setattr(self, name, getattr(short, name))

    def _read_legacy_header(self, header: bytes) -> None:
        """Read a message, which is a batch of its own; a compressed one names no count (-1) and no first offset."""
        offset, _, self.crc, self.magic, self.attributes, timestamp = _LEGACY_HEADER.unpack(header)
        self.base_offset = self.last_offset = offset
        self.last_offset_delta = 0
        self.partition_leader_epoch = NO_PARTITION_LEADER_EPOCH
        self.base_timestamp = self.max_timestamp = timestamp if self.magic != 0 else NO_TIMESTAMP
        self.producer_id = NO_PRODUCER_ID
        self.producer_epoch = NO_PRODUCER_EPOCH
        self.base_sequence = NO_SEQUENCE
        self.record_count = -1 if self.attributes & CODEC_MASK else 1

    @property
    def next_offset(self) -> int:
        return self.last_offset + 1

    @property
    def compression(self) -> Compression:
        """The codec of the records. Raises UnsupportedCompression when the attributes name an unknown one."""
        return compression_of(self.attributes & CODEC_MASK)

    @property
    def timestamp_type(self) -> TimestampType:
        if self.magic == 0:
            return TimestampType.NO
        return TimestampType.LOG_APPEND if self.attributes & LOG_APPEND_TIME_FLAG else TimestampType.CREATE

    @property
    def is_transactional(self) -> bool:
        return self.magic >= CURRENT_MAGIC and bool(self.attributes & TRANSACTIONAL_FLAG)

    @property
    def is_control(self) -> bool:
        return self.magic >= CURRENT_MAGIC and bool(self.attributes & CONTROL_FLAG)

    @property
    def delete_horizon_ms(self) -> int | None:
        """The time from which tombstones and markers may be deleted (KIP-534); stored in place of the base
        timestamp.
        """
        if self.magic >= CURRENT_MAGIC and self.attributes & DELETE_HORIZON_FLAG:
            return self.base_timestamp
        return None

    @property
    def has_producer_id(self) -> bool:
        return self.producer_id > NO_PRODUCER_ID

    @property
    def last_sequence(self) -> int:
        """The sequence number of the last record, -1 without sequences; after 2^31-1 comes 0."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return add_to_sequence(self.base_sequence, self.last_offset_delta)

    def is_valid(self) -> bool:
        """Whether size and checksum are right; a magic above 2 is checked like 2, because the CRC does not cover the
        magic (FR8, FR11).
        """
        if self.magic < CURRENT_MAGIC:
            return self._is_valid_legacy()
        start = self.start
        if self.size_bytes < HEADER_SIZE:
            return False
        return crc32c(memoryview(self.buffer)[start + CRC_COVERS_FROM : start + self.size_bytes]) == self.crc

    def _is_valid_legacy(self) -> bool:
        if self.size_bytes < LOG_OVERHEAD + MIN_SIZE_FIELD:
            return False
        return (
            zlib.crc32(memoryview(self.buffer)[self.start + MAGIC_AT : self.start + self.size_bytes])
            == self.crc
        )

    def check_valid(self, path: str = "", file_position: int | None = None) -> None:
        """Raise CorruptBatch unless the batch is valid; the error names `path` and `file_position`, by default
        `position`.
        """
        if self.is_valid():
            return
        if self.magic >= CURRENT_MAGIC and self.size_bytes < HEADER_SIZE:
            reason = f"a batch of {self.size_bytes} bytes is smaller than its header of {HEADER_SIZE}"
        else:
            reason = (
                f"the checksum of the batch at offset {self.base_offset} does not match (stored {self.crc})"
            )
        raise CorruptBatch(path or "batch", self.position if file_position is None else file_position, reason)

    def records(
        self,
        decompressed_limit_bytes: int = DECOMPRESSED_LIMIT_BYTES,
        *,
        held: Held = ALL_HELD,
        take_large: TakeLarge | None = None,
    ) -> Iterator[Record]:
        """Decode the records, with absolute offsets, timestamps and sequences; the caller checks the checksum first.

        Records that unpack to very much are decoded piece by piece, and never held together; of a large record only
        `held` is, unless `take_large` takes those of magic 2.

        Raises InvalidRecord, UnsupportedCompression, and for a wrapper of magic 0 and 1 CorruptBatch.
        """
        if self.magic < CURRENT_MAGIC:
            return map(LegacyMessage.record, self.messages(decompressed_limit_bytes, held=held))
        if self.size_bytes < HEADER_SIZE:
            raise InvalidRecord(
                f"a batch of {self.size_bytes} bytes is shorter than a header: its records cannot be read"
            )
        # A retained empty batch has no payload to decompress (T22).
        if self.record_count == 0:
            return iter(())
        return decode_pieces(
            unpack(self.compression, self._payload(), decompressed_limit_bytes),
            self.record_count,
            base_offset=self.base_offset,
            base_timestamp=self.base_timestamp,
            base_sequence=self.base_sequence,
            log_append_time_ms=self.max_timestamp if self.attributes & LOG_APPEND_TIME_FLAG else None,
            take_large=holding(held) if take_large is None else take_large,
        )

    def _payload(self) -> memoryview:
        return memoryview(self.buffer)[self.start + HEADER_SIZE : self.start + self.size_bytes]

    def messages(
        self, decompressed_limit_bytes: int = DECOMPRESSED_LIMIT_BYTES, *, held: Held = ALL_HELD
    ) -> Iterator[LegacyMessage]:
        """Returns the messages of a batch of magic 0 or 1, each with its own checksum. Raises what `records` raises."""
        assert self.magic < CURRENT_MAGIC, self.magic
        view = memoryview(self.buffer)[self.start : self.start + self.size_bytes]
        return read_messages(view, self.position, decompressed_limit_bytes, held=held)

    def large_fields(self) -> Iterator[LargeFields]:
        """Yields the fields of each record that `records` returns cut, where little is held. Raises what it raises.

        Nothing is looked at before the first is asked for: a retained empty batch may name a codec that nobody knows.
        """
        if self.magic < CURRENT_MAGIC:
            view = memoryview(self.buffer)[self.start : self.start + self.size_bytes]
            yield from large_fields_of(view, self.position)
        else:
            stream = RecordStream(unpack(self.compression, self._payload()))
            yield from large_fields(stream, self.record_count)

    def first_offset(self) -> int:
        """The offset of the first record before compaction; a wrapper of magic 0 or 1 is decompressed (FR9, T27).

        Raises what `records` raises.
        """
        if self.magic >= CURRENT_MAGIC or not self.attributes & CODEC_MASK:
            return self.base_offset
        return next(self.messages(held=HEADS_HELD)).offset

    def tobytes(self) -> bytes:
        return bytes(self.buffer[self.start : self.start + self.size_bytes])

    def __repr__(self) -> str:
        return (
            f"RecordBatch(offsets {self.base_offset} to {self.last_offset} at byte {self.position}, "
            f"size_bytes={self.size_bytes}, leader_epoch={self.partition_leader_epoch}, magic={self.magic})"
        )


def iterate_batches(
    buffer: Buffer, path: str = "records", *, max_size_field: int = MAX_INT32
) -> Iterator[RecordBatch]:
    """Yield the whole batches in `buffer`, without an incomplete last one (Kafka: ByteBufferLogInputStream, FR10).

    Raises CorruptBatch on a size field below 14 or above `max_size_field`, and on a magic that is not 0, 1 or 2;
    errors name the buffer `path`.
    """
    view = memoryview(buffer)
    position, end = 0, len(view)
    while end - position >= LOG_OVERHEAD:
        (size,) = SIZE_FIELD.unpack_from(view, position + SIZE_FIELD_AT)
        if size < MIN_SIZE_FIELD:
            raise CorruptBatch(path, position, f"a size field of {size}, below the least of {MIN_SIZE_FIELD}")
        if size > max_size_field:
            raise CorruptBatch(path, position, f"a size field of {size}, above the most of {max_size_field}")
        if end - position < HEADER_SIZE_UP_TO_MAGIC:
            return
        # A negative magic shows as 128 or above.
        if view[position + MAGIC_AT] > CURRENT_MAGIC:
            raise CorruptBatch(path, position, f"magic {view[position + MAGIC_AT]} is unknown")
        if end - position < LOG_OVERHEAD + size:
            return
        yield RecordBatch(view, position, LOG_OVERHEAD + size)
        position += LOG_OVERHEAD + size


def is_one_batch(buffer: Buffer) -> bool:
    """Whether `buffer` is exactly one batch of magic 2 by its size field; nearly every produced set is."""
    if len(buffer) < HEADER_SIZE or buffer[MAGIC_AT] != CURRENT_MAGIC:
        return False
    (size,) = SIZE_FIELD.unpack_from(buffer, SIZE_FIELD_AT)
    return LOG_OVERHEAD + int(size) == len(buffer)


def stamp(
    buffer: bytearray | memoryview,
    position: int,
    *,
    base_offset: int | None = None,
    partition_leader_epoch: int | None = None,
) -> None:
    """Write what a leader assigns to the magic-2 batch at `position`, in place; the CRC covers neither field."""
    assert buffer[position + MAGIC_AT] == CURRENT_MAGIC, buffer[position + MAGIC_AT]
    if base_offset is not None:
        _BASE_OFFSET.pack_into(buffer, position, base_offset)
    if partition_leader_epoch is not None:
        _EPOCH.pack_into(buffer, position + EPOCH_AT, partition_leader_epoch)


def set_last_offset(buffer: bytearray | memoryview, position: int, last_offset: int) -> None:
    """Set the last offset of the batch at `position`, of any magic, in place; all its offsets move by the same distance
    (LV10).
    """
    batch = _view_at(buffer, position)
    if batch.magic < CURRENT_MAGIC:
        set_offset(buffer, position, last_offset)
    else:
        _BASE_OFFSET.pack_into(buffer, position, last_offset - batch.last_offset_delta)


def set_max_timestamp(
    buffer: bytearray | memoryview, position: int, *, timestamp_type: TimestampType, max_timestamp: int
) -> bool:
    """Set timestamp type and max timestamp of the batch at `position`. Returns whether one of them changed; then the
    CRC was renewed too.

    Clears the attributes' unused bits in magic 2, as Kafka does (DefaultRecordBatch.setMaxTimestamp, T7).
    Raises ValueError for TimestampType.NO, and for magic 0.
    """
    batch = _view_at(buffer, position)
    if batch.magic < CURRENT_MAGIC:
        return set_timestamp(buffer, position, timestamp_type=timestamp_type, timestamp=max_timestamp)
    if timestamp_type is TimestampType.NO:
        raise ValueError("a batch of magic 2 needs a timestamp type")
    if batch.timestamp_type is timestamp_type and batch.max_timestamp == max_timestamp:
        return False
    attributes = batch.attributes & KNOWN_ATTRIBUTES & ~LOG_APPEND_TIME_FLAG
    if timestamp_type is TimestampType.LOG_APPEND:
        attributes |= LOG_APPEND_TIME_FLAG
    _ATTRIBUTES.pack_into(buffer, position + ATTRIBUTES_AT, attributes)
    _TIMESTAMP.pack_into(buffer, position + MAX_TIMESTAMP_AT, max_timestamp)
    _renew_crc(buffer, position, batch.size_bytes)
    return True


def set_producer_state(
    buffer: bytearray | memoryview,
    position: int,
    *,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
) -> None:
    """Write producer id, epoch and sequence into the finished magic-2 batch at `position`, and its new CRC.

    Kafka: MemoryRecordsBuilder.setProducerState, reopenAndRewriteProducerState.
    """
    batch = _view_at(buffer, position)
    assert batch.magic >= CURRENT_MAGIC, batch
    _PRODUCER.pack_into(buffer, position + PRODUCER_ID_AT, producer_id, producer_epoch, base_sequence)
    _renew_crc(buffer, position, batch.size_bytes)


def _view_at(buffer: bytearray | memoryview, position: int) -> RecordBatch:
    (size,) = SIZE_FIELD.unpack_from(buffer, position + SIZE_FIELD_AT)
    batch = RecordBatch(buffer, position, LOG_OVERHEAD + size)
    assert batch.magic < CURRENT_MAGIC or batch.size_bytes >= HEADER_SIZE, batch
    assert position + batch.size_bytes <= len(buffer), batch
    return batch


def _renew_crc(buffer: bytearray | memoryview, position: int, size_bytes: int) -> None:
    with memoryview(buffer) as view, view[position + CRC_COVERS_FROM : position + size_bytes] as covered:
        _CRC.pack_into(buffer, position + CRC_AT, crc32c(covered))
