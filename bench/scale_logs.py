"""Logs and log directories that the rows of `bench/scale.py` are measured on, written file by file."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

from bench.growth import Once, Sample, at_end, cpu
from storage.batch import Record, build_batch
from storage.batch.control_batches import build_end_transaction_marker
from storage.config import LogConfig
from storage.disk.os_filesystem import OsFileSystem
from storage.log import PartitionLog

CONFIG: Final = LogConfig(segment_bytes=1 << 30, segment_index_bytes=4096)
# For one large segment: where its index is full, a start does not look back for the last batches of producers.
ROOMY: Final = replace(CONFIG, segment_index_bytes=1 << 20)
FIRST_TIMESTAMP: Final = 1_700_000_000_000
VALUE: Final = b"value"
# The sizes of most rows: segments in a log, partitions in a directory.
SIZES: Final = (100, 1000, 3000, 10_000)
# Timestamp and offset relative to the base offset, as in a time index.
_TIME_ENTRY: Final = struct.pack(">qi", FIRST_TIMESTAMP, 0)


def one_record(
    offset: int,
    *,
    producer_id: int = -1,
    sequence: int = -1,
    is_transactional: bool = False,
    key: bytes | None = None,
    timestamp: int = FIRST_TIMESTAMP,
    leader_epoch: int = 0,
) -> bytes:
    """Build a batch of one record, as a leader has stamped it."""
    record = Record(offset=offset, timestamp=timestamp, key=key, value=VALUE)
    return build_batch(
        [record],
        base_offset=offset,
        partition_leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=-1 if producer_id < 0 else 0,
        base_sequence=sequence,
        is_transactional=is_transactional,
    )


def end_of(producer_id: int, offset: int, *, is_commit: bool = True) -> bytes:
    """Build the marker that ends a transaction."""
    return build_end_transaction_marker(
        producer_id=producer_id,
        producer_epoch=0,
        is_commit=is_commit,
        coordinator_epoch=0,
        timestamp=FIRST_TIMESTAMP,
        base_offset=offset,
        partition_leader_epoch=0,
    )


def overlapping(transactions: int, *, is_commit: bool = True) -> Iterator[bytes]:
    """Build pairs of transactions of two producers: the one that begins first ends last."""
    for number in range(transactions // 2):
        offset = 4 * number
        yield one_record(offset, producer_id=1, sequence=number, is_transactional=True)
        yield one_record(offset + 1, producer_id=2, sequence=number, is_transactional=True)
        yield end_of(2, offset + 2, is_commit=is_commit)
        yield end_of(1, offset + 3, is_commit=is_commit)


def write_segment(directory: Path, base_offset: int, content: bytes) -> None:
    """Write a segment with the indexes that an orderly stop leaves beside one batch."""
    name = directory / f"{base_offset:020d}"
    name.with_suffix(".log").write_bytes(content)
    name.with_suffix(".index").touch()
    name.with_suffix(".timeindex").write_bytes(_TIME_ENTRY)


def write_segments(directory: Path, count: int, *, keys: int = 0) -> None:
    """Write `count` segments of one batch each."""
    directory.mkdir()
    for offset in range(count):
        key = b"%d" % (offset % keys) if keys else None
        write_segment(directory, offset, one_record(offset, key=key))


def write_one_segment(directory: Path, batches: Iterator[bytes]) -> None:
    """Write one segment without indexes, as a process leaves it that dies."""
    directory.mkdir()
    with (directory / f"{0:020d}.log").open("wb") as file:
        file.writelines(batches)


def open_log(directory: Path, *, clean: bool, config: LogConfig = CONFIG) -> PartitionLog:
    """Open a log as a node does."""
    return PartitionLog.open(
        OsFileSystem(), str(directory), config, clean=clean, now_ms=FIRST_TIMESTAMP, recalls_batches=True
    )


def commit(log: PartitionLog) -> PartitionLog:
    """Take all records for committed. Returns the log."""
    log.marks.update_high_watermark(log.log_end_offset)
    return log


def open_committed(directory: Path, *, clean: bool, config: LogConfig = CONFIG) -> PartitionLog:
    """Open a log all of whose records are committed, until the end of the measurement."""
    log = open_log(directory, clean=clean, config=config)
    at_end(log.close_handles)
    return commit(log)


def start(directory: Path, *, clean: bool, config: LogConfig = CONFIG) -> Once:
    """Measure the opening of the log in `directory`. No step waits for it: a node serves after its start."""

    def once() -> Sample:
        opened: list[PartitionLog] = []
        sample = cpu(lambda: opened.append(open_log(directory, clean=clean, config=config)))
        opened[0].close_handles()
        return sample

    return once
