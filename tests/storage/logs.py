"""Batches and logs for the tests of segments and logs, on a simulated disk."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sim.disk import SimDisk, SimFileSystem
from sim.disk.life import Life
from storage.batch import Record, RecordBatch, build_batch, iterate_batches
from storage.batch.control_batches import build_end_transaction_marker
from storage.config import LogConfig
from storage.draws import Draws
from storage.leader_epochs import LeaderEpochCache
from storage.log import PartitionLog
from storage.producers.state import ProducerStateManager
from storage.recovery.cut import RecoveryCut
from storage.segment import LogSegment

DIRECTORY = "logs/topic-0"
NOW_MS = 1_700_000_000_000
# The limits are so small that a test can reach each.
SMALL = LogConfig(segment_bytes=2000, segment_index_bytes=1200, index_interval_bytes=200)


def new_disk(seed: int = 1) -> SimDisk:
    return SimDisk(Draws(seed), lambda: NOW_MS)


def new_file_system(disk: SimDisk | None = None) -> SimFileSystem:
    file_system = (new_disk() if disk is None else disk).file_system(Life())
    file_system.make_directory(DIRECTORY)
    return file_system


def durable_file_system(disk: SimDisk) -> SimFileSystem:
    """Return a file system with a log directory whose name survives a power loss."""
    file_system = new_file_system(disk)
    file_system.sync_directory("")
    file_system.sync_directory("logs")
    return file_system


def batch(
    base_offset: int = 0,
    count: int = 1,
    *,
    epoch: int = 0,
    timestamp: int = NOW_MS,
    value_bytes: int = 10,
    producer_id: int = -1,
    producer_epoch: int = -1,
    sequence: int = -1,
    offsets: Sequence[int] | None = None,
    is_transactional: bool = False,
) -> bytes:
    """Make a batch as a leader has stamped it, with records from `base_offset` on or at `offsets`."""
    used = list(offsets) if offsets is not None else list(range(base_offset, base_offset + count))
    records = [
        Record(
            offset=offset, timestamp=timestamp + index, key=None, value=bytes([offset % 251]) * value_bytes
        )
        for index, offset in enumerate(used)
    ]
    return build_batch(
        records,
        base_offset=base_offset,
        partition_leader_epoch=epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=sequence,
        is_transactional=is_transactional,
    )


def produced(
    count: int = 1,
    *,
    timestamp: int = NOW_MS,
    value_bytes: int = 10,
    producer_id: int = -1,
    producer_epoch: int = -1,
    sequence: int = -1,
) -> bytes:
    """Make a batch as a client sends it: from offset 0 on, without an epoch."""
    return batch(
        0,
        count,
        epoch=-1,
        timestamp=timestamp,
        value_bytes=value_bytes,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        sequence=sequence,
    )


def marker(
    producer_id: int,
    *,
    is_commit: bool,
    offset: int = 0,
    epoch: int = -1,
    producer_epoch: int = 0,
    coordinator_epoch: int = 0,
    timestamp: int = NOW_MS,
) -> bytes:
    """Make the marker that ends a transaction."""
    return build_end_transaction_marker(
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        is_commit=is_commit,
        coordinator_epoch=coordinator_epoch,
        timestamp=timestamp,
        base_offset=offset,
        partition_leader_epoch=epoch,
    )


SIZE = len(batch(0))
THREE = LogConfig(segment_bytes=3 * SIZE, segment_index_bytes=1200, index_interval_bytes=SIZE)
ROOMY = LogConfig(segment_index_bytes=1200)


def open_segment(
    file_system: SimFileSystem,
    base_offset: int = 0,
    config: LogConfig = SMALL,
    *,
    file_already_exists: bool = False,
) -> LogSegment:
    """Open a segment in the test's directory, by default as a new one."""
    return LogSegment.open(
        file_system, DIRECTORY, base_offset, config, NOW_MS, file_already_exists=file_already_exists
    )


def append_batch(segment: LogSegment, data: bytes) -> None:
    """Append one set of one batch, in the form in which the log passes it."""
    view = RecordBatch(data, 0, len(data))
    segment.append(view.last_offset, data)


def filled_segment(
    file_system: SimFileSystem, bases: Iterable[int] = range(0, 10), base_offset: int = 0
) -> LogSegment:
    """Return a segment of batches of one record at each of `bases`, all of one size."""
    segment = open_segment(file_system, base_offset)
    for offset in bases:
        append_batch(segment, batch(offset, timestamp=NOW_MS + offset))
    return segment


def new_producers(file_system: SimFileSystem) -> ProducerStateManager:
    return ProducerStateManager(file_system, DIRECTORY)


def new_epochs(file_system: SimFileSystem) -> LeaderEpochCache:
    return LeaderEpochCache(file_system, f"{DIRECTORY}/leader-epoch-checkpoint")


def open_log(
    file_system: SimFileSystem,
    config: LogConfig = SMALL,
    *,
    clean: bool = False,
    recovery_point: int = 0,
    log_start_offset: int = 0,
    cuts: list[RecoveryCut] | None = None,
    directory: str = DIRECTORY,
    recalls_batches: bool = False,
) -> PartitionLog:
    """Open the log of the test's directory. What recovery cuts is added to `cuts`."""
    return PartitionLog.open(
        file_system,
        directory,
        config,
        clean=clean,
        recovery_point=recovery_point,
        log_start_offset=log_start_offset,
        now_ms=NOW_MS,
        report=(cuts if cuts is not None else []).append,
        recalls_batches=recalls_batches,
    )


def disk_and_log(config: LogConfig = ROOMY) -> tuple[SimDisk, PartitionLog]:
    disk = new_disk()
    return disk, open_log(new_file_system(disk), config)


def append_each(log: PartitionLog, count: int, *, epoch: int = 0, value_bytes: int = 10) -> None:
    """Append `count` batches of one record, as a leader."""
    for _ in range(count):
        log.append_as_leader(produced(value_bytes=value_bytes), leader_epoch=epoch, now_ms=NOW_MS)


def filled_log(count: int, *, segment_batches: int) -> PartitionLog:
    """Return a log of batches of one record, all of one size. Nearly each has an index entry."""
    config = LogConfig(
        segment_bytes=segment_batches * SIZE, segment_index_bytes=1200, index_interval_bytes=SIZE
    )
    log = open_log(new_file_system(), config)
    append_each(log, count)
    return log


def offsets_in(data: bytes) -> list[int]:
    """Return the offsets of the records of the whole batches in `data`."""
    return [record.offset for each in iterate_batches(data) for record in each.records()]


def read_offsets(log: PartitionLog, start_offset: int | None = None) -> list[int]:
    """Return all offsets from `start_offset` (by default the log start) to the end, read batch by batch."""
    position = log.log_start_offset if start_offset is None else start_offset
    found: list[int] = []
    while position < log.log_end_offset:
        data = log.read(position, max_size=1).records
        if not data:
            break
        offsets = [offset for offset in offsets_in(data) if offset >= position]
        found += offsets
        position = next(iter(iterate_batches(data))).next_offset
    return found


def all_bytes(log: PartitionLog) -> bytes:
    return b"".join(each.records.read_slice(0, each.size_bytes) for each in log.local.segments)


def bases(log: PartitionLog) -> list[int]:
    return log.local.segments.base_offsets


def epochs(log: PartitionLog) -> list[tuple[int, int]]:
    return [(entry.epoch, entry.start_offset) for entry in log.epochs.entries]
