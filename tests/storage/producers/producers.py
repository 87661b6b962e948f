"""Helpers for the tests of producer state: a disk, a manager, batches and appends."""

from __future__ import annotations

from sim.disk import SimDisk
from sim.disk.life import Life
from storage.batch import Record, RecordBatch, build_batch
from storage.disk.filesystem import FileSystem, OpenMode
from storage.draws import Draws
from storage.producers.entry import AppendOrigin, CompletedTransaction
from storage.producers.snapshot import snapshot_name
from storage.producers.state import ProducerStateManager
from tests.storage import logs

PID = 1
INT_MAX = (1 << 31) - 1
DAY_MS = 86_400_000
NOW = 1_700_000_000_000


def new_disk() -> tuple[SimDisk, FileSystem]:
    disk = SimDisk(Draws(1), lambda: 0)
    file_system = disk.file_system(Life())
    file_system.make_directory("/log")
    file_system.sync_directory("/")
    return disk, file_system


def data(
    offset: int,
    sequence: int,
    *,
    count: int = 1,
    pid: int = PID,
    epoch: int = 0,
    transactional: bool = False,
    timestamp: int = NOW,
) -> RecordBatch:
    """Return a batch of a producer's records at `offset`."""
    content = build_batch(
        [Record(offset + index, timestamp, b"k", b"v") for index in range(count)],
        base_offset=offset,
        producer_id=pid,
        producer_epoch=epoch,
        base_sequence=sequence,
        is_transactional=transactional,
    )
    return RecordBatch(content, 0, len(content))


def marker(
    offset: int,
    *,
    commit: bool,
    pid: int = PID,
    epoch: int = 0,
    coordinator_epoch: int = 0,
    timestamp: int = NOW,
) -> RecordBatch:
    """Return the batch of a transaction's marker at `offset`."""
    content = logs.marker(
        pid,
        is_commit=commit,
        offset=offset,
        producer_epoch=epoch,
        coordinator_epoch=coordinator_epoch,
        timestamp=timestamp,
    )
    return RecordBatch(content, 0, len(content))


def append(
    manager: ProducerStateManager, *batches: RecordBatch, origin: AppendOrigin = AppendOrigin.CLIENT
) -> list[CompletedTransaction]:
    """Append the batches to the state and complete their transactions. Returns those completed."""
    prepared = manager.prepare_append(batches, origin=origin)
    assert prepared.duplicate is None
    manager.commit(prepared)
    for completed in prepared.completed:
        manager.complete_transaction(completed)
    manager.reached(batches[-1].next_offset)
    return prepared.completed


def state(manager: ProducerStateManager) -> list[str]:
    return [repr(entry) for entry in manager.producers.values()]


def names(file_system: FileSystem) -> list[int]:
    return [int(name.split(".")[0]) for name in file_system.list("/log") if name.endswith(".snapshot")]


def write_garbage(file_system: FileSystem, offset: int, content: bytes) -> None:
    file = file_system.open(f"/log/{snapshot_name(offset)}", OpenMode.CREATE)
    file.set_length(0)
    file.write_at(0, content)
    file.close()
