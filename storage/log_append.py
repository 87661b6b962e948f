"""What an append looks at before anything is written, and what it tells afterwards.

Kafka: UnifiedLog.analyzeAndValidateRecords, LogAppendInfo; rules AP2 to AP6.
"""

from __future__ import annotations

import struct
from operator import lt, sub
from typing import NamedTuple, final

from storage.batch import (
    CURRENT_MAGIC,
    HEADER_SIZE,
    HEADER_SIZE_UP_TO_MAGIC,
    LOG_OVERHEAD,
    MIN_SIZE_FIELD,
    NO_TIMESTAMP,
    RecordBatch,
    is_one_batch,
    iterate_batches,
)
from storage.batch_columns import BatchColumns
from storage.batch_format import CRC_COVERS_FROM, MAGIC_AT, SIZE_FIELD, SIZE_FIELD_AT
from storage.buffer import Buffer
from storage.config import INT_MAX
from storage.crc32c import crc32c
from storage.errors import CorruptBatch, InvalidRecord, OffsetsOutOfOrder, RecordTooLarge
from storage.validator import ValidationResult

NO_OFFSET = -1
NO_EPOCH = -1
NO_MAGIC = -1
# Of magic 2: base offset, size field, leader epoch, magic, CRC, last offset delta, max timestamp, producer id.
_FIELDS = struct.Struct(">qiibI2xi8xqq")


class AppendInfo(NamedTuple):
    """`first_offset` to `last_offset`, both inclusive; -1 and -1 when nothing was appended.

    Of a duplicate they are those of the batch as it was first written, and `log_append_time_ms` is its time.
    """

    first_offset: int
    last_offset: int
    max_timestamp: int = NO_TIMESTAMP
    offset_of_max_timestamp: int = NO_OFFSET
    log_append_time_ms: int = NO_TIMESTAMP
    log_start_offset: int = 0
    last_leader_epoch: int = NO_EPOCH
    batch_count: int = 0
    size_bytes: int = 0
    is_duplicate: bool = False
    has_rolled: bool = False
    skipped_bytes: int = 0  # whole batches of a later leader epoch, which were not appended (FET-9)

    @property
    def is_empty(self) -> bool:
        return self.first_offset < 0


def one_batch_appended(
    first_offset: int,
    last_offset: int,
    max_timestamp: int,
    log_start_offset: int,
    leader_epoch: int,
    size_bytes: int,
) -> AppendInfo:
    """By a leader, on a topic of create time. As the tuple that it is: its constructor takes four times as long."""
    fields = (
        first_offset,
        last_offset,
        max_timestamp,
        last_offset,
        NO_TIMESTAMP,
        log_start_offset,
        leader_epoch,
        1,
        size_bytes,
        False,
        False,
        0,
    )
    return tuple.__new__(AppendInfo, fields)


@final
class Analysis:
    """The whole, sound batches at the start of a set of records; `size_bytes` of them."""

    __slots__ = (
        "columns",
        "epoch_starts",
        "first_offset",
        "last_leader_epoch",
        "last_offset",
        "max_timestamp",
        "offset_of_max_timestamp",
        "producer_batches",
        "size_bytes",
        "skipped_bytes",
    )

    def __init__(self) -> None:
        self.first_offset = self.last_offset = NO_OFFSET
        self.max_timestamp, self.offset_of_max_timestamp = NO_TIMESTAMP, NO_OFFSET
        self.last_leader_epoch = NO_EPOCH
        self.size_bytes = self.skipped_bytes = 0
        self.columns = BatchColumns()
        # Where the leader epoch differs from the batch before: (epoch, base offset), epoch None for magic 0 and 1.
        self.epoch_starts: list[tuple[int | None, int]] = []
        self.producer_batches: list[RecordBatch] = []

    @property
    def batch_count(self) -> int:
        return len(self.columns)

    @property
    def is_monotonic(self) -> bool:
        """Whether each batch ends above the one before."""
        last_offsets = self.columns.last_offsets
        return last_offsets[0] > NO_OFFSET and all(map(lt, last_offsets, last_offsets[1:]))

    @property
    def largest_batch_bytes(self) -> int:
        starts = self.columns.starts
        sizes: list[int] = list(map(sub, [*starts[1:], self.size_bytes], starts))
        return max(sizes)

    @property
    def roll_offset(self) -> int:
        """The least offset that the set may begin with: of magic 0 and 1 only the last one is known (AP11)."""
        is_legacy = bool(self.epoch_starts) and self.epoch_starts[0][0] is None
        return self.last_offset - INT_MAX if is_legacy else self.first_offset

    def _add_legacy(self, batch: RecordBatch) -> None:
        batch.check_valid("records")
        if not self.columns.starts:
            # the true first needs decompression: this one stands in (AP3)
            self.first_offset = batch.last_offset
        if not self.epoch_starts or self.epoch_starts[-1][0] is not None:
            self.epoch_starts.append((None, batch.last_offset))
        self.last_leader_epoch = NO_EPOCH

    def _sum_up(self) -> None:
        columns = self.columns
        if not columns.starts:
            return
        self.last_offset = columns.last_offsets[-1]
        greatest = max(columns.max_timestamps)
        if greatest > NO_TIMESTAMP:
            self.max_timestamp = greatest
            self.offset_of_max_timestamp = columns.last_offsets[columns.max_timestamps.index(greatest)]


def analyze(records: Buffer, leader_epoch: int) -> Analysis:
    """Check every batch's frame and CRC, in one pass; stop before the first batch of an epoch above `leader_epoch`.

    An incomplete last batch is left out of `size_bytes`. Raises CorruptBatch: then nothing is to be appended.
    The work of one batch of magic 2 stands in one loop, without a call: a follower's fetch brings a thousand of them.
    """
    found = Analysis()
    view = memoryview(records)
    unpack, checksum, columns, epoch_starts = _FIELDS.unpack_from, crc32c, found.columns, found.epoch_starts
    add_start, add_last = columns.starts.append, columns.last_offsets.append
    add_timestamp = columns.max_timestamps.append
    position, end = 0, len(view)
    last_whole = end - HEADER_SIZE
    epoch_before: int | None = None  # of magic 2; None before the first of them and behind another magic
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
            if view[position + MAGIC_AT] == CURRENT_MAGIC:
                batch.check_valid("records")  # it is too short for its header
            found._add_legacy(batch)
            last, timestamp, epoch_before = batch.last_offset, batch.max_timestamp, None
        else:
            if epoch > leader_epoch:
                found.skipped_bytes = end - position
                break
            if checksum(view[position + CRC_COVERS_FROM : batch_end]) != crc:
                RecordBatch(view, position, size_bytes).check_valid("records")
            last = base + delta
            if epoch != epoch_before:
                if position == 0:
                    found.first_offset = base
                epoch_starts.append((epoch, base))
                epoch_before = found.last_leader_epoch = epoch
            if producer_id >= 0:
                found.producer_batches.append(RecordBatch(view, position, size_bytes))
        add_start(position)
        add_last(last)
        add_timestamp(timestamp)
        position = batch_end
    found.size_bytes = position
    found._sum_up()
    return found


def analyze_stamped(result: ValidationResult, leader_epoch: int) -> Analysis:
    """The one batch that a leader has just checked and stamped: nothing is computed twice (AP7)."""
    found = Analysis()
    found.first_offset, found.last_offset = result.first_offset, result.last_offset
    found.max_timestamp = result.max_timestamp
    found.offset_of_max_timestamp = result.offset_of_max_timestamp
    found.size_bytes = len(result.records)
    found.columns.starts.append(0)
    found.columns.last_offsets.append(result.last_offset)
    found.columns.max_timestamps.append(result.max_timestamp)
    found.epoch_starts.append((leader_epoch, result.first_offset))
    found.last_leader_epoch = leader_epoch
    if result.has_producer_id:
        found.producer_batches.append(RecordBatch(result.records, 0, len(result.records)))
    return found


def _frame(view: memoryview, position: int, end: int) -> int:
    """The size of the batch at `position`, 0 when it is not whole (FR10). Raises CorruptBatch."""
    (size_field,) = SIZE_FIELD.unpack_from(view, position + SIZE_FIELD_AT)
    if size_field < MIN_SIZE_FIELD:
        reason = f"a size field of {size_field}, below the least of {MIN_SIZE_FIELD}"
        raise CorruptBatch("records", position, reason)
    if end - position < HEADER_SIZE_UP_TO_MAGIC:
        return 0
    magic = view[position + MAGIC_AT]
    if magic > CURRENT_MAGIC:  # negative ones show as 128 and above
        raise CorruptBatch("records", position, f"magic {magic} is unknown")
    size_bytes = LOG_OVERHEAD + int(size_field)
    return size_bytes if size_bytes <= end - position else 0


def check_in_order(analysis: Analysis) -> None:
    """Raises OffsetsOutOfOrder: a leader's batches never go back (AP4)."""
    if not analysis.is_monotonic:
        raise OffsetsOutOfOrder(
            f"the offsets of {analysis.batch_count} batches from {analysis.first_offset} on do not increase"
        )


def check_produced(records: Buffer, *, max_message_bytes: int, is_client: bool) -> list[RecordBatch]:
    """Look at what a leader is handed, before it is copied; gives the batches (AP2).

    Raises InvalidRecord for a client's base offset other than 0, RecordTooLarge, CorruptBatch.
    """
    batches = (RecordBatch(records, 0, len(records)),) if is_one_batch(records) else iterate_batches(records)
    checked = []
    for batch in batches:
        if is_client and batch.magic >= CURRENT_MAGIC and batch.base_offset != 0:
            raise InvalidRecord(f"the base offset of a produced batch must be 0, not {batch.base_offset}")
        check_batch_size(batch.size_bytes, max_message_bytes)
        batch.check_valid("records")
        checked.append(batch)
    return checked


def check_batch_size(size_bytes: int, max_message_bytes: int) -> None:
    """Raises RecordTooLarge."""
    if size_bytes > max_message_bytes:
        raise RecordTooLarge(f"a batch of {size_bytes} bytes is above max.message.bytes={max_message_bytes}")
