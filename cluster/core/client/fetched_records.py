"""Reads the records that a consumer may see out of fetched bytes. Kafka: CompletedFetch."""

from __future__ import annotations

from dataclasses import dataclass

from cluster.core.client.effects import FetchedBatch
from storage.batch import RecordBatch, iterate_batches
from storage.batch.record import Record
from storage.errors import StorageError
from storage.values import quickly_made


@quickly_made
@dataclass(frozen=True, slots=True, kw_only=True)
class FetchedRecords:
    """The records before `damage`, if there is any, and the leader epoch of the last batch that was read.

    `last_epoch` is -1 where no batch was read; `next_offset` is the position after the last one.
    """

    records: tuple[Record, ...]
    next_offset: int
    last_epoch: int
    batches: tuple[FetchedBatch, ...] = ()
    damage: StorageError | None = None


def read_fetched(data: bytes, position: int, high_watermark: int, *, check_crcs: bool) -> FetchedRecords:
    """Reads records from `position` to `high_watermark` (exclusive) out of whole or cut off batches.

    The first batch may begin below `position`, and the last may be cut off by the size of the fetch: the caller sees
    neither. Control batches only move the position. Damage ends the reading and is returned, not raised.
    """
    records: list[Record] = []
    batches: list[FetchedBatch] = []
    next_offset, last_epoch = position, -1
    damage: StorageError | None = None
    try:
        for batch in iterate_batches(data):
            if batch.base_offset >= high_watermark:
                break
            if batch.last_offset < position:
                continue
            if check_crcs:
                batch.check_valid()
            visible = _visible(batch, next_offset, high_watermark)
            records += visible
            batches.append(FetchedBatch(len(visible), batch.partition_leader_epoch, batch.timestamp_type))
            next_offset, last_epoch = min(batch.next_offset, high_watermark), batch.partition_leader_epoch
    except StorageError as error:
        damage = error
    assert next_offset <= max(high_watermark, position), (next_offset, high_watermark)
    assert sum(batch.record_count for batch in batches) == len(records), (batches, len(records))
    return FetchedRecords(
        records=tuple(records),
        next_offset=next_offset,
        last_epoch=last_epoch,
        batches=tuple(batches),
        damage=damage,
    )


def _visible(batch: RecordBatch, position: int, high_watermark: int) -> list[Record]:
    if batch.is_control:
        return []
    return [record for record in batch.records() if position <= record.offset < high_watermark]
