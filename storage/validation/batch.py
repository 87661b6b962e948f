"""The checks of a produced set by its leader, and what the leader stamps into the set before it is written.

Offsets, leader epoch and timestamps are written into the batch in place if its records may stay as they are. For
another codec, another format or inner offsets other than 0, 1, 2 … the batch is built again (`rebuild.py`). The
checksum is computed again only where the type or the value of the max timestamp changes. Kafka: LogValidator.

One point differs from Kafka: even an uncompressed batch is built again when its offset deltas are not 0, 1, 2 …. Kafka
does this for compressed ones only, and stores others as they came, with repeated offsets or offsets below the log end.
"""

from __future__ import annotations

from itertools import islice
from typing import final

from storage.batch import (
    CURRENT_MAGIC,
    HEADER_SIZE,
    NO_TIMESTAMP,
    RecordBatch,
    TimestampType,
    is_one_batch,
    iterate_batches,
    set_max_timestamp,
    stamp,
)
from storage.batch.scan import RecordScan, RecordScanner
from storage.codec.buffer import Buffer
from storage.codec.compression import DECOMPRESSED_LIMIT_BYTES, Compression, decompress, unpack
from storage.errors import InvalidRecord, UnpacksTooFar, ValidationTakesLong
from storage.producers.entry import AppendOrigin
from storage.validation.checked import CheckedSet, stamped_set
from storage.validation.rebuild import build_and_assign
from storage.validation.rules import NO_LIMIT, Assignment, RecordChecks, ValidationRules, check_batch
from storage.validation.sets import SetValidation
from storage.validation.work import (
    STEP_DECODED_BYTES,
    STEP_PIECES,
    STEP_REBUILT_BYTES,
    STEP_RECORDS,
    STEP_SCANNED_BYTES,
    StepWork,
)

__all__ = ["CheckedSet", "ValidationRules", "validate_and_assign"]


def validate_and_assign(
    records: Buffer,
    rules: ValidationRules,
    *,
    base_offset: int,
    leader_epoch: int,
    now_ms: int,
    origin: AppendOrigin = AppendOrigin.CLIENT,
    only: RecordBatch | None = None,
    work: StepWork | None = None,
) -> CheckedSet:
    """Check the set in `records`, whose checksums are right, and assign offsets from `base_offset` on.

    The set is one batch, or several uncompressed messages of magic 0 and 1. `only` is the batch that fills `records`,
    if the caller has read its header already. A bytearray is changed in place, even when an error is raised; other
    buffers are copied first. An incomplete batch at the end is dropped. Raises InvalidRecord or its child
    InvalidTimestamp with every record's error in `record_errors`, CorruptBatch, UnsupportedForMessageFormat,
    UnsupportedCompression. With `work` a set whose checks take longer than the bounds of `work.py` raises
    ValidationTakesLong, and nothing of it has changed.
    """
    buffer = records if isinstance(records, bytearray) else bytearray(records)
    assignment = Assignment(base_offset, leader_epoch, now_ms, origin, work)
    batches, source = batches_of(buffer, only)
    if batches[0].magic == CURRENT_MAGIC == rules.target_magic:
        return BatchValidation(buffer, batches[0], rules, assignment).run(source)
    return SetValidation(buffer, batches, rules, assignment).run(source)


def batches_of(buffer: bytearray, only: RecordBatch | None = None) -> tuple[list[RecordBatch], Compression]:
    """Returns the batches of a set as views of `buffer`, and their codec; cuts off an incomplete batch at the end.

    Raises InvalidRecord, UnsupportedCompression.
    """
    if only is not None and only.magic == CURRENT_MAGIC:
        batches = [only]
    elif is_one_batch(buffer):
        batches = [RecordBatch(buffer, 0, len(buffer))]
    else:
        batches = _batches(buffer)
        del buffer[batches[-1].start + batches[-1].size_bytes :]
    source = batches[0].compression
    if len(batches) > 1:
        source = _source_codec(batches)
    return batches, source


def _batches(buffer: bytearray) -> list[RecordBatch]:
    """The whole batches as views of `buffer` itself: an open memoryview would keep the caller from cutting it (LV3)."""
    with memoryview(buffer) as view:
        places = [(batch.start, batch.size_bytes, batch.magic) for batch in iterate_batches(view)]
    if not places:
        raise InvalidRecord("the produce request contains no whole batch")
    for start, size_bytes, magic in places:
        if magic >= CURRENT_MAGIC and size_bytes < HEADER_SIZE:
            raise InvalidRecord(f"the batch at byte {start} has {size_bytes} bytes, fewer than its header")
    return [RecordBatch(buffer, start, size_bytes) for start, size_bytes, _ in places]


def _source_codec(batches: list[RecordBatch]) -> Compression:
    """Check that a set of several batches has only uncompressed ones of magic 0 or 1 (LV3). Returns their codec (AP6).

    Raises InvalidRecord, UnsupportedCompression.
    """
    source = Compression.NONE
    for batch in batches:
        codec = batch.compression
        source = source if codec is Compression.NONE else codec
    if batches[0].magic >= CURRENT_MAGIC or source is not Compression.NONE:
        raise InvalidRecord("the produce request contains more than one batch for a partition")
    return source


@final
class BatchValidation:
    """One batch of magic 2, for a topic of magic 2, on its way through the checks."""

    __slots__ = ("_unpacked_bytes", "assignment", "batch", "buffer", "rules")

    def __init__(
        self, buffer: bytearray, batch: RecordBatch, rules: ValidationRules, assignment: Assignment
    ) -> None:
        self.buffer, self.batch, self.rules, self.assignment = buffer, batch, rules, assignment
        self._unpacked_bytes = 0

    def run(self, source: Compression) -> CheckedSet:
        """Check the batch, whose codec is `source`, and stamp it or build it again.

        Raises what `validate_and_assign` raises.
        """
        batch, rules = self.batch, self.rules
        target = rules.target_for(source)
        check_batch(batch, rules, self.assignment.origin)
        # Control records are never compressed: readers of markers do not decompress (LV21).
        stays = source is target or (batch.is_control and source is Compression.NONE)
        target = source if stays else target
        stays = stays and batch.record_count == batch.last_offset_delta + 1
        is_one_step = self.assignment.work is not None
        scan = self._scan(source) if stays or is_one_step else None
        if stays and scan is not None and not self._may_break_a_rule(scan):
            return self.finish_in_place(self._max_timestamp(scan), target)
        if is_one_step:
            self._check_is_small(scan)
        # Raises where the structure is broken.
        is_dense, greatest = self._check_records()
        # Another codec, or gaps in the offsets (LV23, LV25).
        if not stays or not is_dense:
            return build_and_assign(batch.records(), batch, rules, target, self.assignment)
        return self.finish_in_place(greatest, target)

    def _scan(self, source: Compression) -> RecordScan | None:
        count, work = self.batch.record_count, self.assignment.work
        if work is not None and count > STEP_RECORDS:
            raise ValidationTakesLong(f"a batch of {count} records")
        if source is Compression.NONE:
            self._unpacked_bytes = len(self.buffer)
            return RecordScanner(HEADER_SIZE).scan(self.buffer, count)
        with memoryview(self.buffer) as view, view[HEADER_SIZE:] as compressed:
            if count <= 0:
                payload = b""
            elif work is None:
                payload = decompress(source, compressed, DECOMPRESSED_LIMIT_BYTES)
            else:
                payload = _unpacked_in_step(source, compressed, work)
        self._unpacked_bytes = len(payload)
        return RecordScanner(0).scan(payload, count)

    def _check_is_small(self, scan: RecordScan | None) -> None:
        """Raise ValidationTakesLong if it would take too long to decode the records and to build the batch again."""
        most_bytes = STEP_DECODED_BYTES if scan is None else STEP_REBUILT_BYTES
        if self._unpacked_bytes > most_bytes:
            raise ValidationTakesLong(f"records of {self._unpacked_bytes} bytes to decode")

    def _max_timestamp(self, scan: RecordScan) -> int:
        batch = self.batch
        if batch.record_count <= 0:
            return NO_TIMESTAMP
        if batch.timestamp_type is TimestampType.LOG_APPEND:
            return batch.max_timestamp
        return batch.base_timestamp + scan.greatest_timestamp_delta

    def _may_break_a_rule(self, scan: RecordScan) -> bool:
        """Whether a record may break a rule: then all are checked one by one, so that the error can name it."""
        batch, rules, now_ms = self.batch, self.rules, self.assignment.now_ms
        if rules.is_compacted and scan.has_null_key:
            return True
        least = batch.base_timestamp + scan.least_timestamp_delta
        greatest = batch.base_timestamp + scan.greatest_timestamp_delta
        # The second part is true where the sum overflows 64 bits.
        if least < NO_TIMESTAMP or greatest > NO_LIMIT:
            return True
        if batch.timestamp_type is TimestampType.LOG_APPEND:
            return True
        if rules.timestamp_type is not TimestampType.CREATE or not rules.limits_timestamps:
            return False
        return now_ms - least > rules.before_max_ms or greatest - now_ms > rules.after_max_ms

    def _check_records(self) -> tuple[bool, int]:
        """Check the records one after the other, none of which is kept: a batch of a few bytes may hold millions.

        Returns whether their offsets have no gap, and their greatest timestamp, -1 without one.
        """
        checks = RecordChecks(self.batch, self.rules, self.assignment.now_ms)
        is_dense, greatest = True, NO_TIMESTAMP
        for offset, record in enumerate(self.batch.records(), self.batch.base_offset):
            checks.check(record.key, record.timestamp)
            if record.offset != offset:
                is_dense = False
            if record.timestamp > greatest:
                greatest = record.timestamp
        checks.finish()
        return is_dense, greatest

    def finish_in_place(self, max_timestamp: int, target: Compression) -> CheckedSet:
        """Stamp offsets, leader epoch and timestamps into the header (LV10 to LV14, LV24).

        The last offset delta in the header and the bytes of the payload stay. Raises InvalidRecord for no records.
        """
        batch, rules, assignment = self.batch, self.rules, self.assignment
        if batch.record_count <= 0:
            raise InvalidRecord("the batch contains no records")
        first_offset = assignment.base_offset
        last_offset = first_offset + batch.last_offset_delta
        assert last_offset - first_offset + 1 == batch.record_count, (
            first_offset,
            last_offset,
            batch.record_count,
        )
        max_timestamp = assignment.now_ms if rules.is_log_append else max(max_timestamp, NO_TIMESTAMP)
        stamp(self.buffer, 0, base_offset=first_offset, partition_leader_epoch=assignment.leader_epoch)
        if batch.max_timestamp != max_timestamp or batch.timestamp_type is not rules.timestamp_type:
            set_max_timestamp(
                self.buffer, 0, timestamp_type=rules.timestamp_type, max_timestamp=max_timestamp
            )
        has_no_time = max_timestamp == NO_TIMESTAMP and target is Compression.NONE
        return stamped_set(
            self.buffer,
            first_offset=first_offset,
            last_offset=last_offset,
            max_timestamp=max_timestamp,
            offset_of_max_timestamp=-1 if has_no_time else last_offset,
            log_append_time_ms=assignment.now_ms if rules.is_log_append else NO_TIMESTAMP,
            leader_epoch=assignment.leader_epoch,
            has_producer_id=batch.producer_id >= 0,
        )


def _unpacked_in_step(source: Compression, compressed: memoryview, work: StepWork) -> bytes:
    """Decompress what one step may. Raises ValidationTakesLong for more, and what `decompress` raises."""
    try:
        pieces = list(islice(unpack(source, compressed, STEP_SCANNED_BYTES), STEP_PIECES + 1))
    except UnpacksTooFar as error:
        raise ValidationTakesLong(f"a batch of more than {STEP_SCANNED_BYTES} bytes") from error
    payload = b"".join(pieces)
    work.unpacked(len(payload), min(len(pieces), STEP_PIECES))
    if len(pieces) > STEP_PIECES:
        raise ValidationTakesLong(f"a batch of more than {STEP_PIECES} compressed pieces")
    return payload
