"""Produced sets in other formats than today's: sets of magic 0 and 1, and batches for a topic of magic 0 or 1.

Such a set may hold many messages, each a batch of its own, as long as none is compressed. Kafka: LogValidator.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import final

from storage.batch import CURRENT_MAGIC, NO_TIMESTAMP, Compression, Record, RecordBatch
from storage.batch.legacy.messages import (
    LegacyMessage,
    read_messages,
    set_offset,
    set_timestamp,
    sliced_messages,
)
from storage.batch.pieces import HEADS_HELD
from storage.errors import CorruptBatch, InvalidRecord, UnpacksTooFar, ValidationTakesLong
from storage.validation.checked import CheckedSet, stamped_set
from storage.validation.rebuild import build_and_assign
from storage.validation.rules import Assignment, RecordChecks, ValidationRules, check_batch
from storage.validation.work import STEP_REBUILT_BYTES


@final
class SetValidation:
    """The checks of one set; `batches` are views of `buffer`, which holds nothing else."""

    __slots__ = ("_assignment", "_batches", "_buffer", "_rules")

    def __init__(
        self,
        buffer: bytearray,
        batches: Sequence[RecordBatch],
        rules: ValidationRules,
        assignment: Assignment,
    ) -> None:
        assert batches, len(buffer)
        self._buffer, self._batches = buffer, batches
        self._rules, self._assignment = rules, assignment

    def run(self, source: Compression) -> CheckedSet:
        """Check and stamp the set. Raises what `validate_and_assign` raises."""
        target = self._rules.target_for(source)
        if source is target is Compression.NONE and self._has_target_magic():
            return self._assign_loose()
        records = [record for batch in self._batches for record in self._checked(batch)]
        if self._may_stay_wrapped(source, target, records):
            return self._assign_wrapped(records)
        return build_and_assign(records, self._batches[0], self._rules, target, self._assignment)

    def _has_target_magic(self) -> bool:
        return all(batch.magic == self._rules.target_magic for batch in self._batches)

    def _may_stay_wrapped(self, source: Compression, target: Compression, records: list[Record]) -> bool:
        """Whether a wrapper may stay as it is, with the messages in it (LV21, LV23).

        In magic 0 the inner offsets are absolute and must be assigned again. In magic 1 they have to count from 0,
        which those of some old clients do not (KAFKA-9080).
        """
        is_same = source is target is not Compression.NONE and self._rules.target_magic == 1
        if not is_same or self._batches[0].magic != 1:
            return False
        return all(record.offset == index for index, record in enumerate(records))

    def _checked(self, batch: RecordBatch) -> list[Record]:
        """The batch's records. Raises InvalidRecord, InvalidTimestamp, CorruptBatch, UnsupportedForMessageFormat."""
        checks = self.begin(batch)
        records = []
        for record in self.records_of(batch, checks):
            checks.check(record.key, record.timestamp)
            records.append(record)
        checks.finish()
        return records

    def begin(self, batch: RecordBatch) -> RecordChecks:
        """Check the header of the next batch. Returns the checks of its records."""
        first = self._batches[0]
        # All batches of a set have one magic (LV4).
        if batch.magic != first.magic:
            raise InvalidRecord(
                f"the set mixes a batch of magic {batch.magic} with batches of magic {first.magic}"
            )
        check_batch(batch, self._rules, self._assignment.origin)
        return RecordChecks(batch, self._rules, self._assignment.now_ms)

    def records_of(self, batch: RecordBatch, checks: RecordChecks) -> Iterator[Record]:
        """The records that can be read; the others are refused in `checks`."""
        if batch.magic >= CURRENT_MAGIC:
            yield from batch.records()
            return
        for record in self._readable(batch, checks, self._messages(batch)):
            assert record is not None, batch
            yield record

    def sliced_records_of(self, batch: RecordBatch, checks: RecordChecks) -> Iterator[Record | None]:
        """The records of messages of magic 0 or 1, of large ones the beginnings, and None after each slice."""
        return self._readable(batch, checks, sliced_messages(batch.tobytes(), batch.position, HEADS_HELD))

    def _readable(
        self, batch: RecordBatch, checks: RecordChecks, messages: Iterator[LegacyMessage | None]
    ) -> Iterator[Record | None]:
        is_wrapper = batch.compression is not Compression.NONE
        for message in messages:
            if message is None:
                yield None
                continue
            if message.magic != batch.magic:
                checks.refuse(
                    f"record {checks.count} has magic {message.magic} in a batch of magic {batch.magic}"
                )
                continue
            if is_wrapper:
                _check_inner(message, batch)
            yield message.record()

    def _messages(self, batch: RecordBatch) -> Iterator[LegacyMessage]:
        if self._assignment.work is None:
            return read_messages(batch.tobytes(), batch.position)
        try:
            return read_messages(batch.tobytes(), batch.position, STEP_REBUILT_BYTES)
        except UnpacksTooFar as error:
            raise ValidationTakesLong(f"a batch of more than {STEP_REBUILT_BYTES} bytes") from error

    def _assign_loose(self) -> CheckedSet:
        """Stamp uncompressed messages of magic 0 and 1 in place: each gets the next offset (LV10 to LV14)."""
        rules, assignment = self._rules, self._assignment
        offset, max_timestamp, offset_of_max = assignment.base_offset, NO_TIMESTAMP, -1
        for batch in self._batches:
            for record in self._checked(batch):
                if record.timestamp > max_timestamp:
                    max_timestamp, offset_of_max = record.timestamp, offset
            set_offset(self._buffer, batch.start, offset)
            self._set_timestamp(batch, max(batch.max_timestamp, NO_TIMESTAMP))
            offset += 1
        if rules.is_log_append and rules.target_magic > 0:
            max_timestamp, offset_of_max = assignment.now_ms, assignment.base_offset
        return self._result(offset - 1, max_timestamp, offset_of_max)

    def _assign_wrapped(self, records: list[Record]) -> CheckedSet:
        """Stamp offset and timestamp of a wrapper of magic 1; the messages in it stay (LV24)."""
        rules, (wrapper,) = self._rules, self._batches
        last_offset = self._assignment.base_offset + len(records) - 1
        max_timestamp = max(NO_TIMESTAMP, *(record.timestamp for record in records))
        set_offset(self._buffer, wrapper.start, last_offset)
        self._set_timestamp(wrapper, max_timestamp)
        if rules.is_log_append:
            max_timestamp = self._assignment.now_ms
        return self._result(last_offset, max_timestamp, last_offset)

    def _set_timestamp(self, batch: RecordBatch, create_time: int) -> None:
        """Stamp the timestamp of one message, or of a wrapper (LV12); magic 0 has no place for it."""
        if batch.magic == 0:
            return
        timestamp = self._assignment.now_ms if self._rules.is_log_append else create_time
        set_timestamp(
            self._buffer, batch.start, timestamp_type=self._rules.timestamp_type, timestamp=timestamp
        )

    def _result(self, last_offset: int, max_timestamp: int, offset_of_max: int) -> CheckedSet:
        assert last_offset >= self._assignment.base_offset, (last_offset, self._assignment)
        return stamped_set(
            self._buffer,
            first_offset=self._assignment.base_offset,
            last_offset=last_offset,
            max_timestamp=max_timestamp,
            offset_of_max_timestamp=offset_of_max,
            log_append_time_ms=self._assignment.now_ms if self._rules.is_log_append else NO_TIMESTAMP,
            leader_epoch=self._assignment.leader_epoch,
        )


def _check_inner(message: LegacyMessage, wrapper: RecordBatch) -> None:
    """Check the checksum of a message in a wrapper, which nothing else does (LV8). Raises CorruptBatch."""
    if not message.is_valid:
        reason = f"the checksum of the wrapped message at offset {message.offset} does not match"
        raise CorruptBatch("records", wrapper.position, reason)
