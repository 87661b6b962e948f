"""Judges what a broker remembers of idempotent producers by the log that it has (a part of rule R3)."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from storage.batch import RecordBatch
from storage.batch.record import add_to_sequence
from storage.codec.crc32c import crc32c

NAME = "producer-state"
# The batches of a producer that a broker remembers.
_MOST_BATCHES = 5
# Version, checksum and count of a snapshot; then by producer: id, epoch, last sequence, last offset, offset delta,
# timestamp, coordinator epoch, first offset of a transaction.
_HEADER = struct.Struct(">hIi")
_CRC_COVERS_FROM = 6
_ENTRY = struct.Struct(">qhiqiqiq")
# A start looks for them among the last batches of the log, of which there may be many: at least among so many.
_LOOKED_BACK = 20


class LastBatch(NamedTuple):
    """The last batch of one producer: its epoch, its last sequence and its last offset."""

    epoch: int
    sequence: int
    offset: int


def entries_of(snapshot: bytes) -> dict[int, LastBatch] | None:
    """Returns the last batch of each producer in the file of a snapshot, by its id (PS15); None of a damaged one."""
    if len(snapshot) < _HEADER.size:
        return None
    _, crc, count = _HEADER.unpack_from(snapshot)
    if len(snapshot) != _HEADER.size + count * _ENTRY.size or crc32c(snapshot[_CRC_COVERS_FROM:]) != crc:
        return None
    found: dict[int, LastBatch] = {}
    for at in range(_HEADER.size, len(snapshot), _ENTRY.size):
        producer, epoch, sequence, offset = _ENTRY.unpack_from(snapshot, at)[:4]
        if offset >= 0:
            found[producer] = LastBatch(epoch, sequence, offset)
    return found


def last_batches(batches: Iterable[RecordBatch], log_start: int) -> dict[int, LastBatch]:
    """Returns the last batch of each producer in a log, by producer id; those below the log's start do not count."""
    found: dict[int, LastBatch] = {}
    for batch in batches:
        if batch.has_producer_id and not batch.is_control and batch.last_offset >= log_start:
            found[batch.producer_id] = LastBatch(batch.producer_epoch, batch.last_sequence, batch.last_offset)
    return found


def recent_ends(batches: Sequence[RecordBatch], log_start: int) -> dict[int, tuple[int, ...]]:
    """Returns the last offsets of up to five batches that end a log, by producer id.

    They follow each other without a gap in sequences, in one producer epoch, and none begins below the log's start.
    """
    found: dict[int, list[RecordBatch]] = {}
    for batch in batches[-_LOOKED_BACK:]:
        if not batch.has_producer_id or batch.is_control or batch.base_offset < log_start:
            continue
        known = found.setdefault(batch.producer_id, [])
        if known and not _follows(known[-1], batch):
            known.clear()
        known.append(batch)
    return {
        producer: tuple([each.last_offset for each in known[-_MOST_BATCHES:]])
        for producer, known in found.items()
    }


def _follows(before: RecordBatch, batch: RecordBatch) -> bool:
    is_next = batch.base_sequence == add_to_sequence(before.last_sequence, 1)
    return is_next and batch.producer_epoch == before.producer_epoch


def recent_findings(held: Mapping[int, Sequence[int]], logged: Mapping[int, Sequence[int]]) -> Iterator[str]:
    """Yields where a broker would not know a retry of one of a producer's last five batches.

    `held` has the last offsets of the batches that it remembers, `logged` those that end its log.
    """
    for producer, ends in logged.items():
        known = held.get(producer, ())
        # That the last batch is another one, or that there is none, is told by `producer_state_findings`.
        if known and known[-1] == ends[-1] and list(known[-len(ends) :]) != list(ends):
            yield f"remembers the batches up to {list(known)} of producer {producer}; its log has {list(ends)}"


def ends_by_epoch(batches: Iterable[RecordBatch]) -> dict[tuple[int, int], set[int]]:
    """Returns the last offsets of all batches of each producer in a log, by producer id and epoch."""
    found: dict[tuple[int, int], set[int]] = {}
    for batch in batches:
        if batch.has_producer_id and not batch.is_control:
            found.setdefault((batch.producer_id, batch.producer_epoch), set()).add(batch.last_offset)
    return found


def strange_findings(
    held: Mapping[tuple[int, int], Sequence[int]], logged: Mapping[tuple[int, int], set[int]], log_start: int
) -> Iterator[str]:
    """Yields where a broker would take a new batch for the retry of one that is not in its log (PS5).

    `held` has the last offsets of the batches that it remembers of a producer, in the epoch in which it knows it.
    """
    for (producer, epoch), ends in held.items():
        strange = [end for end in ends if end >= log_start and end not in logged.get((producer, epoch), ())]
        if strange:
            yield f"remembers batches up to {strange} in epoch {epoch} of producer {producer}; its log has none there"


def producer_state_findings(
    held: Mapping[int, LastBatch], logged: Mapping[int, LastBatch], log_start: int, *, may_expire: bool
) -> Iterator[str]:
    """Yields where the state in memory, `held`, is not that of the log, `logged`.

    Each producer with a batch in the log is known by its last one, unless producers may expire. Another producer is
    known by a batch below the log's start only: the log has no such batch any more.
    """
    for producer, last in logged.items():
        if producer not in held:
            if not may_expire:
                yield f"forgot producer {producer}, whose last batch is {tuple(last)}"
        elif held[producer] != last:
            yield f"remembers {tuple(held[producer])} of producer {producer}, whose last batch is {tuple(last)}"
    for producer, remembered in held.items():
        if producer not in logged and remembered.offset >= log_start:
            yield f"remembers {tuple(remembered)} of producer {producer}, of which its log has no batch"


def last_times(batches: Iterable[RecordBatch], log_start: int) -> dict[int, int]:
    """Returns the greatest timestamp in the last batch of each producer, as `last_batches` finds it."""
    return {
        batch.producer_id: batch.max_timestamp
        for batch in batches
        if batch.has_producer_id and not batch.is_control and batch.last_offset >= log_start
    }


def time_findings(held: Mapping[int, int], logged: Mapping[int, int]) -> Iterator[str]:
    """Yields whose age does not count from its last batch: such a producer would be forgotten too early or too late."""
    for producer, newest_ms in logged.items():
        if producer in held and held[producer] != newest_ms:
            yield f"counts the age of producer {producer} from {held[producer]}; its last batch is of {newest_ms}"


def forgotten_findings(
    producer: int, before: int | None, epoch: int, remembered: Sequence[int], first_offset: int
) -> Iterator[str]:
    """Yields a batch that a log remembers of a producer's epoch which another one has followed (PS5).

    The append that begins at `first_offset` has raised the epoch, if it was another one `before`; `remembered` are the
    last offsets of the batches that count for duplicates. A new batch of the same sequences would be taken for one of
    them, and be answered without being stored.
    """
    old = [offset for offset in remembered if offset < first_offset]
    if before is not None and before != epoch and old:
        yield f"remembers batches of producer {producer} that end at {old}, from before its epoch {epoch}"
