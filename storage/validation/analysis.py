"""The first checks of every append. Kafka: UnifiedLog.analyzeAndValidateRecords; rules AP2 to AP6."""

from __future__ import annotations

import struct
from operator import lt, sub

from storage.batch import (
    CURRENT_MAGIC,
    HEADER_SIZE,
    HEADER_SIZE_UP_TO_MAGIC,
    LOG_OVERHEAD,
    MIN_SIZE_FIELD,
    RecordBatch,
    is_one_batch,
    iterate_batches,
)
from storage.batch.columns import BatchColumns
from storage.batch.format import CRC_COVERS_FROM, MAGIC_AT, SIZE_FIELD, SIZE_FIELD_AT
from storage.codec.buffer import Buffer
from storage.codec.crc32c import crc32c
from storage.errors import CorruptBatch, InvalidRecord, OffsetsOutOfOrder
from storage.validation.checked import NO_EPOCH, NO_OFFSET, NOTHING_SKIPPED, EpochStart, NumberedSet
from storage.validation.rules import ValidationRules, check_batch_size

NO_MAGIC = -1
# In magic 2: base offset, size field, leader epoch, magic, CRC, last offset delta, max timestamp, producer id.
_FIELDS = struct.Struct(">qiibI2xi8xqq")


def analyze(records: Buffer, leader_epoch: int) -> NumberedSet:
    """Check the frame and the CRC of every batch in one pass, up to the first batch of an epoch above `leader_epoch`.

    Returns a set whose `records` end before an incomplete last batch; without a batch its offsets are -1. Raises
    CorruptBatch: then nothing may be appended.
    """
    view, columns = memoryview(records), BatchColumns()
    epoch_starts: list[EpochStart] = []
    producer_batches: list[RecordBatch] = []
    # One loop without calls does the work of a batch of magic 2: a fetch brings a thousand of them.
    unpack, checksum = _FIELDS.unpack_from, crc32c
    add_start, add_last = columns.starts.append, columns.last_offsets.append
    add_timestamp = columns.max_timestamps.append
    position, end, skipped_bytes = 0, len(view), NOTHING_SKIPPED
    first_offset, last_epoch = NO_OFFSET, NO_EPOCH
    last_whole = end - HEADER_SIZE
    # The leader epoch of the batch before, None if that batch is of magic 0 or 1.
    epoch_before: int | None = None
    while end - position >= LOG_OVERHEAD:
        magic, size_bytes = NO_MAGIC, 0
        if position <= last_whole:
            base, size_field, epoch, magic, crc, delta, timestamp, producer_id = unpack(view, position)
            size_bytes = LOG_OVERHEAD + size_field
        batch_end = position + size_bytes
        if magic != CURRENT_MAGIC or size_bytes < HEADER_SIZE or batch_end > end:
            size_bytes = _frame(view, position, end)
            if size_bytes == 0:
                break
            batch, batch_end = RecordBatch(view, position, size_bytes), position + size_bytes
            # This also refuses a batch of magic 2 that is too short for its header.
            batch.check_valid("records")
            last, timestamp = batch.last_offset, batch.max_timestamp
            if position == 0:
                # The true first offset would need decompression: the last offset is used in its place (AP3).
                first_offset = last
            if not epoch_starts or epoch_starts[-1][0] is not None:
                epoch_starts.append((None, last))
            epoch_before, last_epoch = None, NO_EPOCH
        else:
            if epoch > leader_epoch:
                skipped_bytes = end - position
                break
            if checksum(view[position + CRC_COVERS_FROM : batch_end]) != crc:
                RecordBatch(view, position, size_bytes).check_valid("records")
            last = base + delta
            if epoch != epoch_before:
                if position == 0:
                    first_offset = base
                epoch_starts.append((epoch, base))
                epoch_before = last_epoch = epoch
            if producer_id >= 0:
                producer_batches.append(RecordBatch(view, position, size_bytes))
        add_start(position)
        add_last(last)
        add_timestamp(timestamp)
        position = batch_end
    assert position <= end, (position, end)
    whole = records if position == end else view[:position]
    return NumberedSet(
        whole, first_offset, last_epoch, columns, epoch_starts, producer_batches, skipped_bytes
    )


def _frame(view: memoryview, position: int, end: int) -> int:
    """The size of the batch at `position`, 0 when it is not whole (FR10). Raises CorruptBatch."""
    (size_field,) = SIZE_FIELD.unpack_from(view, position + SIZE_FIELD_AT)
    if size_field < MIN_SIZE_FIELD:
        reason = f"a size field of {size_field}, below the least of {MIN_SIZE_FIELD}"
        raise CorruptBatch("records", position, reason)
    if end - position < HEADER_SIZE_UP_TO_MAGIC:
        return 0
    magic = view[position + MAGIC_AT]
    # A negative magic is read as 128 or more.
    if magic > CURRENT_MAGIC:
        raise CorruptBatch("records", position, f"magic {magic} is unknown")
    size_bytes = LOG_OVERHEAD + int(size_field)
    return size_bytes if size_bytes <= end - position else 0


def check_in_order(columns: BatchColumns) -> None:
    """Check that each batch ends above the one before: a leader's offsets never go back (AP4).

    Raises OffsetsOutOfOrder.
    """
    last_offsets = columns.last_offsets
    if last_offsets[0] <= NO_OFFSET or not all(map(lt, last_offsets, last_offsets[1:])):
        raise OffsetsOutOfOrder(
            f"the offsets of {len(columns)} batches, the first of which ends at {last_offsets[0]}, do not increase"
        )


def largest_batch_bytes(checked: NumberedSet) -> int:
    """The size of the largest batch of a set that has one."""
    starts = checked.columns.starts
    sizes: list[int] = list(map(sub, [*starts[1:], len(checked.records)], starts))
    return max(sizes)


def check_produced(records: Buffer, rules: ValidationRules, *, is_client: bool) -> list[RecordBatch]:
    """Check each batch of a produced set, before the set is copied. Returns the batches (AP2).

    Raises InvalidRecord for a client's base offset other than 0, RecordTooLarge, CorruptBatch.
    """
    batches = (RecordBatch(records, 0, len(records)),) if is_one_batch(records) else iterate_batches(records)
    checked = []
    for batch in batches:
        if is_client and batch.magic >= CURRENT_MAGIC and batch.base_offset != 0:
            raise InvalidRecord(f"the base offset of a produced batch must be 0, not {batch.base_offset}")
        check_batch_size(batch.size_bytes, rules)
        batch.check_valid("records")
        checked.append(batch)
    return checked
