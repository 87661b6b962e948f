"""Truncations in slices, and the whole of what a log knows of its producers."""

from __future__ import annotations

from storage.log import PartitionLog
from tests.storage.logs import NOW_MS


def prepare_all(log: PartitionLog, offset: int, *, now_ms: int = NOW_MS) -> int:
    """Prepare a truncation to the end. Returns the number of slices, with that in which a snapshot is loaded."""
    slices = 0
    while not log.truncation.prepare(offset, now_ms=now_ms):
        slices += 1
    return slices


def state_of(log: PartitionLog) -> object:
    """Every field of each producer, with the batches that a retry is compared with, and the transactions."""
    producers = log.producers
    entries = {
        pid: (repr(entry), entry.recalled, entry.batch_metadata)
        for pid, entry in sorted(producers.producers.items())
    }
    ongoing = [(each.producer_id, each.first_offset) for each in producers.ongoing_transactions]
    return (
        entries,
        ongoing,
        producers.first_unstable_offset,
        producers.map_end_offset,
        producers.last_snapshot_offset,
        producers.snapshots.offsets,
    )
