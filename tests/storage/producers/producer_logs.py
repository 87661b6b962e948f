"""A log that a producer writes to, and its known producers."""

from __future__ import annotations

from sim.disk.handles import SimFileSystem
from storage.log import AppendInfo, PartitionLog
from storage.producers.snapshot import snapshot_name, snapshot_offset
from tests.storage.logs import DIRECTORY, NOW_MS, ROOMY, batch, open_log


def send(
    log: PartitionLog,
    sequence: int = 0,
    count: int = 1,
    *,
    pid: int = 1,
    epoch: int = 0,
    is_transactional: bool = False,
    timestamp: int = NOW_MS,
    now_ms: int = NOW_MS,
) -> AppendInfo:
    """Append a batch of a producer, as the leader."""
    records = batch(
        0,
        count,
        epoch=-1,
        producer_id=pid,
        producer_epoch=epoch,
        sequence=sequence,
        is_transactional=is_transactional,
        timestamp=timestamp,
    )
    return log.append_as_leader(records, leader_epoch=0, now_ms=now_ms)


def snapshots(file_system: SimFileSystem) -> list[int]:
    found = (snapshot_offset(name) for name in file_system.list(DIRECTORY))
    return sorted(offset for offset in found if offset is not None)


def remove_snapshots(file_system: SimFileSystem) -> None:
    for offset in snapshots(file_system):
        file_system.unlink(f"{DIRECTORY}/{snapshot_name(offset)}")


def last_sequences(log: PartitionLog) -> dict[int, int]:
    return {pid: entry.last_sequence for pid, entry in sorted(log.producers.producers.items())}


def segmented(file_system: SimFileSystem, segments: int) -> PartitionLog:
    """Return a log with a record of producer 1 in each segment, the last one too."""
    log = open_log(file_system, ROOMY)
    for number in range(segments):
        if number:
            log.flushes.roll(now_ms=NOW_MS)
        send(log, number)
    return log
