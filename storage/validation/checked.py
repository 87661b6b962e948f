"""The one value that every append writes: whole batches that were checked and, by a leader, stamped."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, final

from storage.batch import RecordBatch, stamp
from storage.batch.columns import BatchColumns
from storage.batch.record import NO_TIMESTAMP
from storage.codec.buffer import Buffer
from storage.config import INT_MAX

# A place where the leader epoch differs from the batch before: (epoch, base offset); epoch None for magic 0 and 1.
EpochStart = tuple[int | None, int]
NO_OFFSET: Final = -1
NO_EPOCH: Final = -1
NOTHING_SKIPPED: Final = 0


class CheckedSet:
    """A set that a leader has checked and stamped, with everything that a write needs to know about it.

    `first_offset` and `last_offset` are both inclusive. `offset_of_max_timestamp` is the last offset of the batch
    with the greatest timestamp; for uncompressed magic 1 it is the offset of the message itself. Without timestamps
    it is -1, except for a compressed batch that stayed in place, where it is the last offset (LV24).
    `producer_batches` are the batches with a producer id, as views of `records`. `log_append_time_ms` is -1 on a
    create-time topic. `columns` and `epoch_starts` are None, because the indexes treat a leader's set as one batch.
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
        producer_batches: Sequence[RecordBatch],
        log_append_time_ms: int,
    ) -> None:
        self.records = records
        self.first_offset, self.last_offset = first_offset, last_offset
        self.max_timestamp, self.offset_of_max_timestamp = max_timestamp, offset_of_max_timestamp
        self.leader_epoch, self.log_append_time_ms = leader_epoch, log_append_time_ms
        self.producer_batches = producer_batches
        self.columns: BatchColumns | None = None
        self.epoch_starts: Sequence[EpochStart] | None = None
        self.skipped_bytes = NOTHING_SKIPPED

    @property
    def roll_offset(self) -> int:
        """The least offset that the set may begin with (AP11)."""
        return self.first_offset


@final
class NumberedSet(CheckedSet):
    """Whole batches that have offsets already: those of a follower's fetch, or of a quorum's leader.

    Both offsets are -1 if there is no batch. `columns` has a row for each batch, `epoch_starts` each place where the
    leader epoch differs from the batch before; `leader_epoch` is that of the last batch, -1 for magic 0 and 1.
    `skipped_bytes` is the size of the batches of a later leader epoch, which were left out (FET-9).
    """

    __slots__ = ()

    columns: BatchColumns
    epoch_starts: Sequence[EpochStart]

    def __init__(
        self,
        records: Buffer,
        first_offset: int,
        leader_epoch: int,
        columns: BatchColumns,
        epoch_starts: Sequence[EpochStart],
        producer_batches: Sequence[RecordBatch],
        skipped_bytes: int,
    ) -> None:
        last_offset, max_timestamp, offset_of_max_timestamp = _summary(columns)
        super().__init__(
            records,
            first_offset,
            last_offset,
            max_timestamp,
            offset_of_max_timestamp,
            leader_epoch,
            producer_batches,
            NO_TIMESTAMP,
        )
        self.columns, self.epoch_starts, self.skipped_bytes = columns, epoch_starts, skipped_bytes

    @property
    def roll_offset(self) -> int:
        """The least offset that the set may begin with: for magic 0 and 1 only the last offset is known (AP11)."""
        starts = self.epoch_starts
        is_legacy = len(starts) > 0 and starts[0][0] is None
        return self.last_offset - INT_MAX if is_legacy else self.first_offset


def _summary(columns: BatchColumns) -> tuple[int, int, int]:
    """The last offset, the greatest timestamp and the last offset of the first batch that has it; -1 for none."""
    if not columns.starts:
        return NO_OFFSET, NO_TIMESTAMP, NO_OFFSET
    last_offset, greatest = columns.last_offsets[-1], max(columns.max_timestamps)
    if greatest <= NO_TIMESTAMP:
        return last_offset, NO_TIMESTAMP, NO_OFFSET
    return last_offset, greatest, columns.last_offsets[columns.max_timestamps.index(greatest)]


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
        (RecordBatch(records, 0, len(records)),) if has_producer_id else (),
        log_append_time_ms,
    )


def renumbered(checked: CheckedSet, base_offset: int, leader_epoch: int) -> CheckedSet:
    """The one batch of a set that was checked with offsets from 0 on, stamped in place with its real ones."""
    assert checked.first_offset == 0, checked.first_offset
    assert isinstance(checked.records, bytearray), type(checked.records)
    stamp(checked.records, 0, base_offset=base_offset, partition_leader_epoch=leader_epoch)
    offset_of_max = checked.offset_of_max_timestamp
    return stamped_set(
        checked.records,
        first_offset=base_offset,
        last_offset=base_offset + checked.last_offset,
        max_timestamp=checked.max_timestamp,
        offset_of_max_timestamp=offset_of_max if offset_of_max == NO_OFFSET else base_offset + offset_of_max,
        leader_epoch=leader_epoch,
        log_append_time_ms=checked.log_append_time_ms,
        has_producer_id=bool(checked.producer_batches),
    )
