"""What a leader checks in a produced batch, and what it stamps into it before it is written.

Offsets, leader epoch and timestamps go into the batch in place wherever its records may stay as they are;
only another codec or odd inner offsets have it built anew. The checksum is renewed only where the type or the
value of the max timestamp changed. Kafka: LogValidator. Magic 0 and 1 are refused here.

Differs from Kafka in one point: a client's uncompressed batch whose offset deltas are not 0, 1, 2 … is
refused, where Kafka would store it with those offsets.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import final

from storage.batch import (
    CURRENT_MAGIC,
    HEADER_SIZE,
    NO_TIMESTAMP,
    Record,
    RecordBatch,
    TimestampType,
    build_batch,
    is_one_batch,
    iterate_batches,
    set_max_timestamp,
    stamp,
)
from storage.compression import Compression, decompress
from storage.config import LogConfig
from storage.errors import InvalidRecord, InvalidTimestamp, RecordError, UnsupportedForMessageFormat
from storage.filesystem import Buffer
from storage.producer_append import AppendOrigin
from storage.record_scan import RecordScan, scan_records

_NO_LIMIT = (1 << 63) - 1
_ERRORS_SHOWN = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidationRules:
    """What a topic asks of the records written to it. `target_codec` None keeps the producer's codec."""

    target_codec: Compression | None = None
    is_compacted: bool = False
    timestamp_type: TimestampType = TimestampType.CREATE
    before_max_ms: int = _NO_LIMIT
    after_max_ms: int = _NO_LIMIT

    @classmethod
    def from_config(cls, config: LogConfig) -> ValidationRules:
        is_log_append = config.message_timestamp_type == "LogAppendTime"
        return cls(
            target_codec=_TARGET_CODECS[config.compression_type],
            is_compacted=config.is_compacted,
            timestamp_type=TimestampType.LOG_APPEND if is_log_append else TimestampType.CREATE,
            before_max_ms=config.message_timestamp_before_max_ms,
            after_max_ms=config.message_timestamp_after_max_ms,
        )

    @property
    def limits_timestamps(self) -> bool:
        return self.before_max_ms < _NO_LIMIT or self.after_max_ms < _NO_LIMIT


_TARGET_CODECS: dict[str, Compression | None] = {
    "producer": None,
    "uncompressed": Compression.NONE,
    "gzip": Compression.GZIP,
    "snappy": Compression.SNAPPY,
    "lz4": Compression.LZ4,
    "zstd": Compression.ZSTD,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidationResult:
    """`records` is what to write: the caller's bytearray where it gave one and the batch stayed in place."""

    records: Buffer
    first_offset: int
    last_offset: int
    max_timestamp: int
    offset_of_max_timestamp: int  # the last offset of the batch that holds it; -1 without a timestamp
    log_append_time_ms: int  # -1 on a create-time topic
    sizes_may_have_changed: bool  # then the batch is to be held against max.message.bytes once more

    @property
    def next_offset(self) -> int:
        return self.last_offset + 1


def validate_and_assign(
    records: Buffer,
    rules: ValidationRules,
    *,
    base_offset: int,
    leader_epoch: int,
    now_ms: int,
    origin: AppendOrigin = AppendOrigin.CLIENT,
) -> ValidationResult:
    """Check the one batch in `records`, whose checksum holds, and give it offsets from `base_offset` on.

    A bytearray is changed in place, also when a raise follows; other buffers are copied first. What follows
    the batch and is no whole batch is dropped. Raises InvalidRecord or its child InvalidTimestamp with every
    record's error in `record_errors`, UnsupportedForMessageFormat, UnsupportedCompression.
    """
    buffer = records if isinstance(records, bytearray) else bytearray(records)
    batch = _only_batch(buffer)
    del buffer[batch.size_bytes :]
    validation = _Validation(buffer, batch, rules, base_offset, leader_epoch, now_ms, origin)
    validation.check_batch()
    return validation.run()


def _only_batch(buffer: bytearray) -> RecordBatch:
    """The batch, viewed over a copy of nothing: no memoryview stays open on `buffer`, which may be cut
    (LV3).
    """
    if is_one_batch(buffer):
        return RecordBatch(buffer, 0, len(buffer))
    first_size = None
    with memoryview(buffer) as view:
        for count, batch in enumerate(iterate_batches(view)):
            if count > 0:
                raise InvalidRecord("more than one batch in a produce request for one partition")
            if batch.magic < CURRENT_MAGIC:
                raise UnsupportedForMessageFormat(f"magic {batch.magic} cannot be written")
            first_size = batch.size_bytes
    if first_size is None or first_size < HEADER_SIZE:
        raise InvalidRecord("no whole batch in a produce request")
    return RecordBatch(buffer, 0, first_size)


@final
class _Validation:
    """One batch on its way through the checks."""

    __slots__ = ("base_offset", "batch", "buffer", "leader_epoch", "now_ms", "origin", "rules")

    def __init__(
        self,
        buffer: bytearray,
        batch: RecordBatch,
        rules: ValidationRules,
        base_offset: int,
        leader_epoch: int,
        now_ms: int,
        origin: AppendOrigin,
    ) -> None:
        self.buffer, self.batch, self.rules = buffer, batch, rules
        self.base_offset, self.leader_epoch = base_offset, leader_epoch
        self.now_ms, self.origin = now_ms, origin

    def check_batch(self) -> None:
        """LV5, LV6: of a client alone; a coordinator writes markers, which have no sequence."""
        batch = self.batch
        if self.origin != AppendOrigin.CLIENT:
            return
        span = batch.last_offset_delta + 1
        if span <= 0 or batch.record_count <= 0 or batch.record_count != span:
            raise InvalidRecord(f"a batch of {batch.record_count} records spans {span} offsets")
        if batch.is_control:
            raise InvalidRecord("clients may not write control records")
        if batch.has_producer_id and batch.base_sequence < 0:
            raise InvalidRecord(f"producer {batch.producer_id} writes with sequence {batch.base_sequence}")

    def run(self) -> ValidationResult:
        batch = self.batch
        source = batch.compression
        target = source if self.rules.target_codec is None else self.rules.target_codec
        # Control records are never compressed: readers of markers do not decompress (LV21).
        stays = source is target or (batch.is_control and source is Compression.NONE)
        scan = self._scan(source) if stays else None
        if scan is not None and not self._may_break_a_rule(scan):
            return self._finish_in_place(self._max_timestamp(scan), target)
        records = list(batch.records())  # raises where the structure is broken
        self._check_records(records)
        is_dense = all(record.offset - batch.base_offset == i for i, record in enumerate(records))
        if not stays or (not is_dense and target is not Compression.NONE):  # LV23, LV25
            return self._rebuild(records, target)
        if not is_dense and self.origin == AppendOrigin.CLIENT:
            raise InvalidRecord("the offsets within a batch are not consecutive")
        return self._finish_in_place(max((record.timestamp for record in records), default=-1), target)

    def _scan(self, source: Compression) -> RecordScan | None:
        count = self.batch.record_count
        if source is Compression.NONE:
            return scan_records(bytes(self.buffer), HEADER_SIZE, count)
        with memoryview(self.buffer) as view, view[HEADER_SIZE:] as compressed:
            return scan_records(decompress(source, compressed) if count > 0 else b"", 0, count)

    def _max_timestamp(self, scan: RecordScan) -> int:
        batch = self.batch
        if batch.record_count <= 0:
            return NO_TIMESTAMP
        if batch.timestamp_type is TimestampType.LOG_APPEND:
            return batch.max_timestamp
        return batch.base_timestamp + scan.greatest_timestamp_delta

    def _may_break_a_rule(self, scan: RecordScan) -> bool:
        """Whether the records have to be looked at one by one, to name the ones at fault."""
        batch, rules = self.batch, self.rules
        if rules.is_compacted and scan.has_null_key:
            return True
        least = batch.base_timestamp + scan.least_timestamp_delta
        greatest = batch.base_timestamp + scan.greatest_timestamp_delta
        if least < NO_TIMESTAMP or greatest > _NO_LIMIT:  # or the sum overflows 64 bits
            return True
        if batch.timestamp_type is TimestampType.LOG_APPEND:
            return True
        if rules.timestamp_type is not TimestampType.CREATE or not rules.limits_timestamps:
            return False
        return self.now_ms - least > rules.before_max_ms or greatest - self.now_ms > rules.after_max_ms

    def _check_records(self, records: Iterable[Record]) -> None:
        """LV8, LV9: all errors of the batch are gathered, and a bad timestamp among them decides the kind."""
        errors: list[RecordError] = []
        is_timestamp_error = False
        for index, record in enumerate(records):
            if self.rules.is_compacted and record.key is None:
                errors.append(RecordError(index, f"record {index} has no key, and the topic is compacted"))
            elif error := self._timestamp_error(record.timestamp):
                errors.append(RecordError(index, f"record {index}: {error}"))
                is_timestamp_error = True
        if errors:
            kind = InvalidTimestamp if is_timestamp_error else InvalidRecord
            shown = "; ".join(error.message for error in errors[:_ERRORS_SHOWN])
            raise kind(f"{len(errors)} of {self.batch.record_count} records refused: {shown}", tuple(errors))

    def _timestamp_error(self, timestamp: int) -> str | None:
        rules, now_ms = self.rules, self.now_ms
        if rules.timestamp_type is TimestampType.CREATE and timestamp != NO_TIMESTAMP:
            if rules.before_max_ms < now_ms - timestamp and rules.before_max_ms < _NO_LIMIT:
                return f"timestamp {timestamp} is more than {rules.before_max_ms} ms before {now_ms}"
            if rules.after_max_ms < timestamp - now_ms and rules.after_max_ms < _NO_LIMIT:
                return f"timestamp {timestamp} is more than {rules.after_max_ms} ms after {now_ms}"
        elif self.batch.timestamp_type is TimestampType.LOG_APPEND:
            return "a producer may not stamp the log append time"
        return None

    def _finish_in_place(self, max_timestamp: int, target: Compression) -> ValidationResult:
        """LV10 to LV14, LV24: the delta in the header stays, so the base follows from the last offset."""
        batch = self.batch
        last_offset = self.base_offset + batch.record_count - 1
        first_offset = last_offset - batch.last_offset_delta
        if first_offset < self.base_offset:
            raise InvalidRecord(
                f"a batch of {batch.record_count} records spans {batch.last_offset_delta + 1} offsets"
            )
        is_log_append = self.rules.timestamp_type is TimestampType.LOG_APPEND
        max_timestamp = self.now_ms if is_log_append else max(max_timestamp, NO_TIMESTAMP)
        timestamp_type = self.rules.timestamp_type
        stamp(self.buffer, 0, base_offset=first_offset, partition_leader_epoch=self.leader_epoch)
        if batch.max_timestamp != max_timestamp or batch.timestamp_type is not timestamp_type:
            set_max_timestamp(self.buffer, 0, timestamp_type=timestamp_type, max_timestamp=max_timestamp)
        has_no_time = max_timestamp == NO_TIMESTAMP and target is Compression.NONE
        return self._result(
            self.buffer, last_offset, max_timestamp, -1 if has_no_time else last_offset, False
        )

    def _rebuild(self, records: list[Record], target: Compression) -> ValidationResult:
        """LV25: the same records from `base_offset` on, in the target codec."""
        batch, base_offset = self.batch, self.base_offset
        self._check_producer_fields()
        content = build_batch(
            (record._replace(offset=base_offset + index) for index, record in enumerate(records)),
            base_offset=base_offset,
            compression=target,
            timestamp_type=self.rules.timestamp_type,
            producer_id=batch.producer_id,
            producer_epoch=batch.producer_epoch,
            base_sequence=batch.base_sequence,
            partition_leader_epoch=self.leader_epoch,
            is_transactional=batch.is_transactional,
            is_control=batch.is_control,
            log_append_time_ms=self.now_ms,
        )
        max_timestamp = RecordBatch(content, 0, len(content)).max_timestamp
        last_offset = base_offset + len(records) - 1
        shallow = -1 if max_timestamp == NO_TIMESTAMP else last_offset
        return self._result(content, last_offset, max_timestamp, shallow, True)

    def _check_producer_fields(self) -> None:
        batch = self.batch
        if batch.has_producer_id and batch.producer_epoch < 0:
            raise InvalidRecord(f"producer {batch.producer_id} writes with epoch {batch.producer_epoch}")
        if batch.has_producer_id and batch.base_sequence < 0 and not batch.is_control:
            raise InvalidRecord(f"producer {batch.producer_id} writes with sequence {batch.base_sequence}")
        if batch.is_transactional and not batch.has_producer_id:
            raise InvalidRecord("a transactional batch without a producer id")

    def _result(
        self,
        content: Buffer,
        last_offset: int,
        max_timestamp: int,
        offset_of_max_timestamp: int,
        sizes_may_have_changed: bool,
    ) -> ValidationResult:
        is_log_append = self.rules.timestamp_type is TimestampType.LOG_APPEND
        return ValidationResult(
            records=content,
            first_offset=self.base_offset,
            last_offset=last_offset,
            max_timestamp=max_timestamp,
            offset_of_max_timestamp=offset_of_max_timestamp,
            log_append_time_ms=self.now_ms if is_log_append else NO_TIMESTAMP,
            sizes_may_have_changed=sizes_may_have_changed,
        )
