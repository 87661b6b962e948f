"""Judges what a broker remembers of idempotent producers by the log that it has (a part of rule R3)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from storage.batch import RecordBatch

NAME = "producer-state"


class LastBatch(NamedTuple):
    """The last batch of one producer: its epoch, its last sequence and its last offset."""

    epoch: int
    sequence: int
    offset: int


def last_batches(batches: Iterable[RecordBatch], log_start: int) -> dict[int, LastBatch]:
    """Returns the last batch of each producer in a log, by producer id; those below the log's start do not count."""
    found: dict[int, LastBatch] = {}
    for batch in batches:
        if batch.has_producer_id and not batch.is_control and batch.last_offset >= log_start:
            found[batch.producer_id] = LastBatch(batch.producer_epoch, batch.last_sequence, batch.last_offset)
    return found


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
