"""The rules of a topic for a produced batch and its records. Kafka: LogValidator.validateBatch, validateRecord."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, final

from storage.batch import CURRENT_MAGIC, NO_TIMESTAMP, Compression, RecordBatch, TimestampType
from storage.config import LogConfig
from storage.errors import (
    InvalidRecord,
    InvalidTimestamp,
    RecordError,
    RecordTooLarge,
    UnsupportedCompression,
    UnsupportedForMessageFormat,
)
from storage.producers.entry import AppendOrigin
from storage.validation.work import StepWork

NO_LIMIT = (1 << 63) - 1
_ERRORS_SHOWN = 3
# A batch of a few bytes may hold millions of records to refuse.
MOST_ERRORS = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidationRules:
    """The rules of a topic for the records that are written to it.

    `target_codec` None keeps the producer's codec. `target_level` is used for a batch that is built again in the
    topic's own codec; a different level alone is no reason to build a batch again (LV27). `target_magic` is the format
    in which records are stored. `allows_zstd` is false where brokers or consumers before 2.1 read them (KIP-110).
    """

    target_codec: Compression | None = None
    target_level: int | None = None
    target_magic: int = CURRENT_MAGIC
    allows_zstd: bool = True
    is_compacted: bool = False
    timestamp_type: TimestampType = TimestampType.CREATE
    before_max_ms: int = NO_LIMIT
    after_max_ms: int = NO_LIMIT
    max_message_bytes: int = LogConfig().max_message_bytes

    @classmethod
    def from_config(cls, config: LogConfig) -> ValidationRules:
        """The rules of a topic with that configuration."""
        is_log_append = config.message_timestamp_type == "LogAppendTime"
        return cls(
            target_codec=_TARGET_CODECS[config.compression_type],
            target_level=config.compression_level,
            is_compacted=config.is_compacted,
            timestamp_type=TimestampType.LOG_APPEND if is_log_append else TimestampType.CREATE,
            before_max_ms=config.message_timestamp_before_max_ms,
            after_max_ms=config.message_timestamp_after_max_ms,
            max_message_bytes=config.max_message_bytes,
        )

    @property
    def limits_timestamps(self) -> bool:
        return self.before_max_ms < NO_LIMIT or self.after_max_ms < NO_LIMIT

    @property
    def is_log_append(self) -> bool:
        return self.timestamp_type is TimestampType.LOG_APPEND

    def target_for(self, source: Compression) -> Compression:
        """The codec to write in (AP7). Raises UnsupportedCompression (LV20)."""
        target = source if self.target_codec is None else self.target_codec
        if target is Compression.ZSTD and not self.allows_zstd:
            raise UnsupportedCompression("not all readers of this topic can read zstd")
        return target


_TARGET_CODECS: dict[str, Compression | None] = {
    "producer": None,
    "uncompressed": Compression.NONE,
    "gzip": Compression.GZIP,
    "snappy": Compression.SNAPPY,
    "lz4": Compression.LZ4,
    "zstd": Compression.ZSTD,
}


class Assignment(NamedTuple):
    """What the leader assigns to the records that it accepts.

    With `work`, what is left to this step, checks that would take longer raise ValidationTakesLong.
    """

    base_offset: int
    leader_epoch: int
    now_ms: int
    origin: AppendOrigin
    work: StepWork | None = None


def check_batch_size(size_bytes: int, rules: ValidationRules) -> None:
    """Check the size of a batch. Raises RecordTooLarge above max.message.bytes (AP2, AP8)."""
    if size_bytes > rules.max_message_bytes:
        limit = rules.max_message_bytes
        raise RecordTooLarge(f"a batch of {size_bytes} bytes is larger than max.message.bytes={limit}")


def check_batch(batch: RecordBatch, rules: ValidationRules, origin: AppendOrigin) -> None:
    """Check the header of a batch (LV5 to LV7). Raises InvalidRecord, UnsupportedForMessageFormat.

    Record count, control flag and sequence are checked only in batches of clients: a coordinator writes markers, which
    have no sequence.
    """
    if origin == AppendOrigin.CLIENT and batch.magic >= CURRENT_MAGIC:
        _check_client_batch(batch)
    if rules.target_magic < CURRENT_MAGIC and (batch.is_transactional or batch.has_producer_id):
        what = "transactional" if batch.is_transactional else "idempotent"
        raise UnsupportedForMessageFormat(f"{what} records cannot be written in magic {rules.target_magic}")


def _check_client_batch(batch: RecordBatch) -> None:
    span = batch.last_offset_delta + 1
    if span <= 0 or batch.record_count <= 0 or batch.record_count != span:
        raise InvalidRecord(f"a batch of {batch.record_count} records spans {span} offsets")
    if batch.is_control:
        raise InvalidRecord("clients may not write control records")
    if batch.has_producer_id and batch.base_sequence < 0:
        raise InvalidRecord(
            f"producer {batch.producer_id} writes with sequence {batch.base_sequence}, which must not be negative"
        )


@final
class RecordChecks:
    """Checks the records of one batch, one after the other, and collects all errors; `finish` raises them (LV9b)."""

    __slots__ = ("_errors", "_has_timestamp_error", "_is_log_append", "_now_ms", "_rules", "count", "refused")

    def __init__(self, batch: RecordBatch, rules: ValidationRules, now_ms: int) -> None:
        self._rules, self._now_ms = rules, now_ms
        self._is_log_append = batch.timestamp_type is TimestampType.LOG_APPEND
        self._errors: list[RecordError] = []
        self._has_timestamp_error = False
        self.count = self.refused = 0

    def check(self, key: bytes | None, timestamp: int) -> None:
        """Check the key and the timestamp of the next record (LV8, LV9)."""
        if self._rules.is_compacted and key is None:
            self.refuse(f"record {self.count} has no key, which a compacted topic requires")
        elif error := self._timestamp_error(timestamp):
            self._has_timestamp_error = True
            self.refuse(f"record {self.count}: {error}")
        else:
            self.count += 1

    def refuse(self, message: str) -> None:
        """Refuse the next record, for the caller's reason. All are counted, and the first MOST_ERRORS are named."""
        self.refused += 1
        if len(self._errors) < MOST_ERRORS:
            self._errors.append(RecordError(self.count, message))
        self.count += 1

    def finish(self) -> None:
        """Raise the errors, if there are any: InvalidTimestamp if a timestamp is among them, else InvalidRecord."""
        assert len(self._errors) <= self.count, (len(self._errors), self.count)
        errors = self._errors
        if not errors:
            return
        kind = InvalidTimestamp if self._has_timestamp_error else InvalidRecord
        shown = "; ".join(error.message for error in errors[:_ERRORS_SHOWN])
        raise kind(f"{self.refused} of {self.count} records refused: {shown}", tuple(errors))

    def _timestamp_error(self, timestamp: int) -> str | None:
        rules, now_ms = self._rules, self._now_ms
        if rules.timestamp_type is TimestampType.CREATE and timestamp != NO_TIMESTAMP:
            if rules.before_max_ms < now_ms - timestamp and rules.before_max_ms < NO_LIMIT:
                return f"timestamp {timestamp} is more than {rules.before_max_ms} ms before {now_ms}"
            if rules.after_max_ms < timestamp - now_ms and rules.after_max_ms < NO_LIMIT:
                return f"timestamp {timestamp} is more than {rules.after_max_ms} ms after {now_ms}"
        elif self._is_log_append:
            return "a producer may not stamp the log append time"
        return None
