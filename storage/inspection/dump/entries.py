"""The entries of the files beside a log, decoded from their bytes without checks: a dump shows what is stored.

| file | entry |
| --- | --- |
| `.index` | offset relative to the base int32, position int32 |
| `.timeindex` | timestamp int64, relative offset int32 |
| `.txnindex` | version int16, producer id, first, last and last stable offset int64 |
| `.snapshot` | version int16, CRC-32C of all after it uint32, count int32; then for each |
| | producer id int64, epoch int16, last sequence int32, last offset int64, offset delta int32, |
| | timestamp int64, coordinator epoch int32, first offset of the open transaction int64 |

Kafka: OffsetIndex, TimeIndex, AbortedTxn, ProducerStateManager.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from storage.batch.record import subtract_from_sequence
from storage.codec.crc32c import crc32c
from storage.disk.filesystem import File
from storage.errors import CorruptIndex, CorruptSnapshot

OFFSET_ENTRY = struct.Struct(">ii")
TIME_ENTRY = struct.Struct(">qi")
ABORTED_ENTRY = struct.Struct(">hqqqq")
_NO_TRANSACTION = (0,) * 5
_SNAPSHOT_HEADER = struct.Struct(">hIi")
_SNAPSHOT_CRC_COVERS_FROM = 6
_PRODUCER_ENTRY = struct.Struct(">qhiqiqiq")
_ENTRIES_A_BLOCK = 8192
_SNAPSHOT_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetEntry:
    """One entry of an offset index, with an absolute offset."""

    position_in_index: int
    offset: int
    position: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeEntry:
    """One entry of a time index, with an absolute offset."""

    position_in_index: int
    timestamp: int
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AbortedTransactionEntry:
    """One entry of a transaction index."""

    version: int
    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerEntry:
    """One producer in a snapshot."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    # -1 if no batch is remembered.
    last_offset: int
    offset_delta: int
    timestamp: int
    coordinator_epoch: int
    transaction_first_offset: int | None

    @property
    def has_batch(self) -> bool:
        return self.last_offset >= 0

    @property
    def first_sequence(self) -> int:
        return subtract_from_sequence(self.last_sequence, self.offset_delta)


def read_offset_entries(file: File, base_offset: int) -> Iterator[OffsetEntry]:
    """Yield the entries before the preallocated tail, which begins where a later entry than the first has the base
    offset.
    """
    for at, (relative_offset, position) in _blocks(file, OFFSET_ENTRY):
        if relative_offset == 0 and at > 0:
            return
        yield OffsetEntry(position_in_index=at, offset=base_offset + relative_offset, position=position)


def read_time_entries(file: File, base_offset: int) -> Iterator[TimeEntry]:
    """Yield the entries before the preallocated tail, which begins as in `read_offset_entries`."""
    for at, (timestamp, relative_offset) in _blocks(file, TIME_ENTRY):
        if relative_offset == 0 and at > 0:
            return
        yield TimeEntry(position_in_index=at, timestamp=timestamp, offset=base_offset + relative_offset)


def read_aborted_transactions(file: File) -> Iterator[AbortedTransactionEntry]:
    """Yield the whole entries. Raises CorruptIndex if the first byte of a version, the only one that Kafka reads, is
    above 0, and at an entry whose bytes are all 0.
    """
    for at, fields in _blocks(file, ABORTED_ENTRY):
        version, producer_id, first_offset, last_offset, last_stable_offset = fields
        if version >> 8 > 0:
            raise CorruptIndex(file.path, f"at byte {at}: version {version} is unknown")
        # A transaction has its marker after its data. Zeros are what a power loss leaves of bytes that were never
        # written, and there may be billions of them.
        if fields == _NO_TRANSACTION:
            left = (file.size() - at) // ABORTED_ENTRY.size - 1
            raise CorruptIndex(file.path, f"at byte {at}: zeros, no transaction; {left} entries follow")
        yield AbortedTransactionEntry(
            version=version >> 8,
            producer_id=producer_id,
            first_offset=first_offset,
            last_offset=last_offset,
            last_stable_offset=last_stable_offset,
        )


def _blocks(file: File, layout: struct.Struct) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Yield each whole entry with its position; the memory is bounded for an index of any size."""
    position = 0
    while True:
        block = file.read_at(position, _ENTRIES_A_BLOCK * layout.size)
        whole_bytes = len(block) - len(block) % layout.size
        if not whole_bytes:
            return
        for at, fields in enumerate(layout.iter_unpack(memoryview(block)[:whole_bytes])):
            yield position + at * layout.size, fields
        position += whole_bytes


def read_producer_entries(path: str, data: bytes) -> list[ProducerEntry]:
    """Decode all entries of a producer snapshot. Raises CorruptSnapshot for a wrong version, CRC or length."""
    if len(data) < _SNAPSHOT_HEADER.size:
        raise CorruptSnapshot(f"{path}: {len(data)} bytes are no producer snapshot")
    version, crc, count = _SNAPSHOT_HEADER.unpack_from(data)
    if version != _SNAPSHOT_VERSION:
        raise CorruptSnapshot(f"{path}: snapshot version {version} is unknown")
    computed_crc = crc32c(data[_SNAPSHOT_CRC_COVERS_FROM:])
    if computed_crc != crc:
        raise CorruptSnapshot(f"{path}: the checksum does not match (stored {crc}, computed {computed_crc})")
    if count * _PRODUCER_ENTRY.size != len(data) - _SNAPSHOT_HEADER.size:
        raise CorruptSnapshot(f"{path}: {len(data)} bytes do not hold exactly {count} entries")
    return [_producer(fields) for fields in _PRODUCER_ENTRY.iter_unpack(data[_SNAPSHOT_HEADER.size :])]


def _producer(fields: tuple[int, ...]) -> ProducerEntry:
    producer_id, epoch, last_sequence, last_offset, delta, timestamp, coordinator_epoch, first_offset = fields
    return ProducerEntry(
        producer_id=producer_id,
        producer_epoch=epoch,
        last_sequence=last_sequence,
        last_offset=last_offset,
        offset_delta=delta,
        timestamp=timestamp,
        coordinator_epoch=coordinator_epoch,
        transaction_first_offset=first_offset if first_offset >= 0 else None,
    )
