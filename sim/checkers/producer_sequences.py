"""Judges the sequences of idempotent producers in a log: no gap, nothing twice (rules T1 and G2)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from storage.batch import RecordBatch
from storage.batch.record import add_to_sequence

NAME = "producer-sequences"


def sequence_findings(
    partition: str, batches: Iterable[RecordBatch], may_forget: Callable[[int, int], bool]
) -> Iterator[str]:
    """Yields where a producer's batches do not follow each other in a log that is not compacted.

    Within an epoch each batch begins with the sequence after the one before it; a later epoch begins with 0. The first
    batch of a producer may begin anywhere, because the log's start may have moved. So may one whose leader
    `may_forget` the one before: it takes the offsets of both.
    """
    expected: dict[int, tuple[int, int]] = {}
    latest: dict[int, int] = {}
    for batch in batches:
        if not batch.has_producer_id or batch.is_control:
            continue
        found = (batch.producer_epoch, batch.base_sequence)
        epoch, sequence = expected.get(batch.producer_id, found)
        before = latest.get(batch.producer_id, batch.base_offset)
        latest[batch.producer_id] = batch.base_offset
        is_next = found in ((epoch, sequence), (max(epoch + 1, found[0]), 0))
        if not is_next and not may_forget(before, batch.base_offset):
            yield (
                f"{partition}: the batch of producer {batch.producer_id} at offset {batch.base_offset} has epoch and "
                f"sequence {found}, expected {(epoch, sequence)}"
            )
        expected[batch.producer_id] = (
            batch.producer_epoch,
            add_to_sequence(batch.base_sequence, batch.record_count),
        )
