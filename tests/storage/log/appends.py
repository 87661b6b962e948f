"""Appends to a log by a leader, a follower, a producer with sequences and a coordinator."""

from __future__ import annotations

from storage.log import AppendInfo, AppendOrigin, PartitionLog
from tests.storage.logs import NOW_MS, batch, marker

INT_MAX = 2**31 - 1
PRODUCER_ID = 9


def lead(
    log: PartitionLog,
    data: bytes,
    epoch: int = 0,
    *,
    now_ms: int = NOW_MS,
    origin: AppendOrigin = AppendOrigin.CLIENT,
) -> AppendInfo:
    """Append as the leader of `epoch`."""
    return log.append_as_leader(data, leader_epoch=epoch, now_ms=now_ms, origin=origin)


def follow(log: PartitionLog, data: bytes, epoch: int = 100) -> AppendInfo:
    return log.append_as_follower(data, leader_epoch=epoch, now_ms=NOW_MS)


def sequenced(
    sequence: int,
    count: int = 1,
    *,
    producer_id: int = PRODUCER_ID,
    epoch: int = 0,
    is_transactional: bool = False,
) -> bytes:
    """Make a batch as a producer sends it; `epoch` is the producer's."""
    return batch(
        0,
        count,
        epoch=-1,
        producer_id=producer_id,
        producer_epoch=epoch,
        sequence=sequence,
        is_transactional=is_transactional,
    )


def end_transaction(
    log: PartitionLog,
    producer_id: int = PRODUCER_ID,
    *,
    is_commit: bool,
    producer_epoch: int = 0,
    coordinator_epoch: int = 0,
) -> AppendInfo:
    """Append the marker of a transaction, as the coordinator does."""
    data = marker(
        producer_id, is_commit=is_commit, producer_epoch=producer_epoch, coordinator_epoch=coordinator_epoch
    )
    return lead(log, data, origin=AppendOrigin.COORDINATOR)
