"""The records of a fetched block that a consumer may see. Kafka: CompletedFetch."""

from __future__ import annotations

from dataclasses import dataclass

from storage.batch import RecordBatch, iterate_batches
from storage.batch.record import Record
from storage.errors import StorageError


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchedRecords:
    """What came before `damage`, if there is any; `last_epoch` is that of the last batch that was read."""

    records: tuple[Record, ...]
    next_offset: int
    last_epoch: int
    damage: StorageError | None = None


def read_fetched(data: bytes, position: int, high_watermark: int, *, check_crcs: bool) -> FetchedRecords:
    """Records from `position` to below `high_watermark`.

    The first batch may begin below the position, the last may be cut off by the size of the fetch: neither
    shows. Control batches move the position only.
    """
    records: list[Record] = []
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
            records += _visible(batch, next_offset, high_watermark)
            next_offset, last_epoch = min(batch.next_offset, high_watermark), batch.partition_leader_epoch
    except StorageError as error:
        damage = error
    assert next_offset <= max(high_watermark, position), (next_offset, high_watermark)
    return FetchedRecords(
        records=tuple(records), next_offset=next_offset, last_epoch=last_epoch, damage=damage
    )


def _visible(batch: RecordBatch, position: int, high_watermark: int) -> list[Record]:
    if batch.is_control:
        return []
    return [record for record in batch.records() if position <= record.offset < high_watermark]
