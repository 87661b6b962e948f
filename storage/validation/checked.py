"""The one value that every append writes: whole batches that were checked and, by a leader, stamped."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, final

from storage.batch import RecordBatch
from storage.batch.columns import BatchColumns
from storage.batch.record import NO_TIMESTAMP
from storage.codec.buffer import Buffer
from storage.config import INT_MAX

# A place where the leader epoch differs from the batch before: (epoch, base offset); epoch None for magic 0 and 1.
EpochStart = tuple[int | None, int]
NO_OFFSET: Final = -1
NO_EPOCH: Final = -1
NOTHING_SKIPPED: Final = 0


@final
class CheckedSet:
    """Whole, sound batches in `records`, with all that a write needs to know of them.

    `first_offset` and `last_offset` are both inclusive, -1 for a set without a batch. `columns` is None for what a
    leader was handed as one set: the indexes take it for one batch. `epoch_starts` is None too then: all of it is of
    `leader_epoch`. `producer_batches` are the batches with a
    producer id, as views of `records`. `leader_epoch` is that of the last batch, -1 for magic 0 and 1.
    `offset_of_max_timestamp` is the last offset of the batch that has it; uncompressed magic 1 tells it exactly. It is
    -1 without a timestamp, but of a compressed batch that stayed in place the last offset all the same (LV24; Kafka
    before 4.1, which dropped it). `log_append_time_ms` is -1 on a topic of create time.
    `skipped_bytes` is the size of the batches that a follower left out, of a later leader epoch (FET-9).
    """

    __slots__ = (
        "columns",
        "epoch_starts",
        "first_offset",
        "last_offset",
        "leader_epoch",
        "log_append_time_ms",
        "max_timestamp",
        "offset_of_max_timestamp",
        "producer_batches",
        "records",
        "skipped_bytes",
    )

    def __init__(
        self,
        records: Buffer,
        first_offset: int,
        last_offset: int,
        max_timestamp: int,
        offset_of_max_timestamp: int,
        leader_epoch: int,
        epoch_starts: Sequence[EpochStart] | None = None,
        producer_batches: Sequence[RecordBatch] = (),
        log_append_time_ms: int = NO_TIMESTAMP,
        columns: BatchColumns | None = None,
        skipped_bytes: int = NOTHING_SKIPPED,
    ) -> None:
        self.records = records
        self.first_offset, self.last_offset = first_offset, last_offset
        self.max_timestamp, self.offset_of_max_timestamp = max_timestamp, offset_of_max_timestamp
        self.leader_epoch, self.epoch_starts = leader_epoch, epoch_starts
        self.producer_batches = producer_batches
        self.log_append_time_ms = log_append_time_ms
        self.columns, self.skipped_bytes = columns, skipped_bytes

    @property
    def roll_offset(self) -> int:
        """The least offset that the set may begin with: of magic 0 and 1 only the last one is known (AP11)."""
        starts = self.epoch_starts
        is_legacy = starts is not None and len(starts) > 0 and starts[0][0] is None
        return self.last_offset - INT_MAX if is_legacy else self.first_offset


def stamped_set(
    records: Buffer,
    *,
    first_offset: int,
    last_offset: int,
    max_timestamp: int,
    offset_of_max_timestamp: int,
    leader_epoch: int,
    log_append_time_ms: int = NO_TIMESTAMP,
    has_producer_id: bool = False,
) -> CheckedSet:
    """The set that a leader has just checked and stamped with `leader_epoch`: nothing is computed twice (AP7)."""
    return CheckedSet(
        records,
        first_offset,
        last_offset,
        max_timestamp,
        offset_of_max_timestamp,
        leader_epoch,
        None,
        (RecordBatch(records, 0, len(records)),) if has_producer_id else (),
        log_append_time_ms,
    )
