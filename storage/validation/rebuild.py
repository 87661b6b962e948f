"""Build a set again from records that a leader has checked: in another codec or format, or without gaps.

Kafka: LogValidator.buildRecordsAndAssignOffsets, convertAndAssignOffsetsNonCompressed; rules LV15 to LV19, LV25.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import final

from storage.batch import (
    CURRENT_MAGIC,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    Compression,
    Record,
    RecordBatch,
    TimestampType,
    build_batch,
)
from storage.batch.builder import BatchFields
from storage.batch.legacy.builder import build_message_set
from storage.errors import InvalidRecord
from storage.validation.checked import CheckedSet, stamped_set
from storage.validation.rules import Assignment, ValidationRules, check_batch_size


def build_and_assign(
    records: Iterable[Record],
    first: RecordBatch,
    rules: ValidationRules,
    target: Compression,
    assignment: Assignment,
) -> CheckedSet:
    """Build one set of `records`, which get offsets without a gap from the base offset on (LV16, LV28).

    For magic 2 the records are asked for one after the other: a batch of a few bytes may hold millions. The producer
    fields are those of `first`. Raises InvalidRecord for no records, for headers in a format without a place for them,
    and for impossible producer fields; UnsupportedCompression for zstd in magic 0 or 1; RecordTooLarge for a set that
    has grown above max.message.bytes (AP8).
    """
    iterator = iter(records)
    one = next(iterator, None)
    if one is None:
        raise InvalidRecord("the batch contains no records")
    base_offset = assignment.base_offset
    numbered = _Numbered(chain((one,), iterator), base_offset)
    if rules.target_magic == CURRENT_MAGIC:
        content = _build_batch(numbered, first, rules, target, assignment)
    else:
        is_plain = rules.target_magic == 0
        content = build_message_set(
            list(numbered),
            magic=rules.target_magic,
            base_offset=base_offset,
            compression=target,
            compression_level=rules.target_level,
            timestamp_type=TimestampType.NO if is_plain else rules.timestamp_type,
            log_append_time_ms=assignment.now_ms,
        )
    max_timestamp, offset_of_max = _max_timestamp(numbered, rules, target, assignment)
    check_batch_size(len(content), rules)
    assert offset_of_max <= numbered.last_offset, (offset_of_max, numbered.last_offset)
    return stamped_set(
        content,
        first_offset=base_offset,
        last_offset=numbered.last_offset,
        max_timestamp=max_timestamp,
        offset_of_max_timestamp=offset_of_max,
        log_append_time_ms=assignment.now_ms if rules.is_log_append else NO_TIMESTAMP,
        leader_epoch=assignment.leader_epoch,
        has_producer_id=first.has_producer_id,
    )


@final
class _Numbered:
    """Records with offsets without a gap. What is known of them is complete when all were asked for, once."""

    def __init__(self, records: Iterable[Record], base_offset: int) -> None:
        self._records, self._base_offset = records, base_offset
        self.count = 0
        # The greatest timestamp, and the offset of the first record that has it.
        self.max_timestamp, self.offset_of_max = NO_TIMESTAMP, -1

    @property
    def last_offset(self) -> int:
        return self._base_offset + self.count - 1

    def __iter__(self) -> Iterator[Record]:
        assert not self.count, self.count
        for offset, record in enumerate(self._records, self._base_offset):
            self.count += 1
            if record.timestamp > self.max_timestamp:
                self.max_timestamp, self.offset_of_max = record.timestamp, offset
            # `record._replace` takes three times as long.
            yield Record._make((offset, *record[1:]))


def _build_batch(
    records: Iterable[Record],
    first: RecordBatch,
    rules: ValidationRules,
    target: Compression,
    assignment: Assignment,
) -> bytes:
    fields = batch_fields(first, rules, target, assignment)
    return build_batch(
        records,
        base_offset=fields.base_offset,
        compression=fields.compression,
        compression_level=fields.compression_level,
        timestamp_type=fields.timestamp_type,
        producer_id=fields.producer_id,
        producer_epoch=fields.producer_epoch,
        base_sequence=fields.base_sequence,
        partition_leader_epoch=fields.partition_leader_epoch,
        is_transactional=fields.is_transactional,
        is_control=fields.is_control,
        log_append_time_ms=fields.log_append_time_ms,
    )


def batch_fields(
    first: RecordBatch, rules: ValidationRules, target: Compression, assignment: Assignment
) -> BatchFields:
    """The header of a batch that is built again. Raises InvalidRecord for impossible producer fields."""
    _check_producer_fields(first)
    return BatchFields(
        base_offset=assignment.base_offset,
        compression=target,
        compression_level=rules.target_level,
        timestamp_type=rules.timestamp_type,
        producer_id=first.producer_id,
        producer_epoch=first.producer_epoch,
        base_sequence=first.base_sequence,
        partition_leader_epoch=assignment.leader_epoch,
        is_transactional=first.is_transactional,
        is_control=first.is_control,
        log_append_time_ms=assignment.now_ms,
    )


def _check_producer_fields(first: RecordBatch) -> None:
    producer_id = first.producer_id
    if producer_id == NO_PRODUCER_ID:
        if first.is_transactional:
            raise InvalidRecord("a transactional batch must have a producer id")
        return
    if producer_id < 0:
        raise InvalidRecord(f"producer id {producer_id} must not be negative")
    if first.producer_epoch < 0:
        raise InvalidRecord(
            f"producer {producer_id} writes with epoch {first.producer_epoch}, which must not be negative"
        )
    if first.base_sequence < 0 and not first.is_control:
        raise InvalidRecord(
            f"producer {producer_id} writes with sequence {first.base_sequence}, which must not be negative"
        )


def _max_timestamp(
    records: _Numbered, rules: ValidationRules, target: Compression, assignment: Assignment
) -> tuple[int, int]:
    """The greatest timestamp and its offset, both -1 where there is no timestamp (LV17, LV18)."""
    is_loose = rules.target_magic < CURRENT_MAGIC and target is Compression.NONE
    if rules.is_log_append:
        return assignment.now_ms, assignment.base_offset if is_loose else records.last_offset
    if rules.target_magic == 0 or records.max_timestamp == NO_TIMESTAMP:
        return NO_TIMESTAMP, -1
    return records.max_timestamp, records.offset_of_max if is_loose else records.last_offset
