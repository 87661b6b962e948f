"""Reads the records that a consumer may see out of fetched bytes. Kafka: CompletedFetch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from cluster.core.client.config import MOST_RECORDS
from cluster.core.client.effects import FetchedBatch
from storage.batch import RecordBatch, iterate_batches
from storage.batch.record import Record
from storage.errors import StorageError
from storage.values import quickly_made

# The most that is read of all partitions of a fetch.
MOST_RECORD_BYTES = 64 << 20


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


def read_fetched(
    data: bytes, position: int, high_watermark: int, *, check_crcs: bool, shares: int = 1,
    most_records: int = MOST_RECORDS,
) -> FetchedRecords:  # fmt: skip
    """Reads records from `position` to `high_watermark` (exclusive) out of whole or cut off batches.

    The first batch may begin below `position`, and the last may be cut off by the size of the fetch: the caller sees
    neither. Control batches only move the position. Damage ends the reading and is returned, not raised. A reading
    also ends, perhaps within a batch, with the record that fills its room: the next fetch goes on after it. `shares` is
    the number of partitions that are read together: each takes its share of `most_records`, at least one.
    """
    records: list[Record] = []
    batches: list[FetchedBatch] = []
    room = Room(shares, most_records)
    next_offset, last_epoch = position, -1
    damage: StorageError | None = None
    try:
        for batch in iterate_batches(data):
            if batch.base_offset >= high_watermark:
                break
            # Before anything but its place is believed: a damaged last offset would hide the batch.
            if check_crcs:
                batch.check_valid()
            if batch.last_offset < position:
                continue
            visible = _visible(batch, next_offset, high_watermark, room)
            records += visible
            batches.append(FetchedBatch(len(visible), batch.partition_leader_epoch, batch.timestamp_type))
            next_offset, last_epoch = min(batch.next_offset, high_watermark), batch.partition_leader_epoch
            if room.is_full:
                # What is left of this batch is read again with the next fetch.
                next_offset = min(next_offset, visible[-1].offset + 1)
                break
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


@final
class Room:
    """How many records, and how many bytes of them, one reading may still take."""

    __slots__ = ("_bytes_left", "_records_left")

    def __init__(self, shares: int = 1, most_records: int = MOST_RECORDS) -> None:
        """Makes the room of one of so many partitions that are read together."""
        assert shares > 0, shares
        self._records_left = most_records // shares or 1
        self._bytes_left = MOST_RECORD_BYTES // shares or 1

    @property
    def is_full(self) -> bool:
        return self._records_left <= 0 or self._bytes_left <= 0

    def take(self, record: Record) -> None:
        self._records_left -= 1 + len(record.headers)
        self._bytes_left -= len(record.key or b"") + len(record.value or b"")


def _visible(batch: RecordBatch, position: int, high_watermark: int, room: Room) -> list[Record]:
    """Returns the records that the caller may see, up to the first for which there is no more room after it."""
    visible: list[Record] = []
    if batch.is_control:
        return visible
    for record in batch.records():
        if position <= record.offset < high_watermark:
            visible.append(record)
            room.take(record)
            if room.is_full:
                break
    return visible
