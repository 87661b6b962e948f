"""Rows of `bench/scale.py`: starts on many segments, transactions, producers, partitions."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from bench.scale import LINEAR, Row, cpu_seconds
from bench.storage_data import FIRST_TIMESTAMP
from storage.batch import Record, build_batch
from storage.batch.control_batches import build_end_transaction_marker
from storage.config import LogConfig
from storage.disk.os_filesystem import OsFileSystem
from storage.index.time_index import ENTRY as TIME_ENTRY
from storage.log import PartitionLog

CONFIG: Final = LogConfig(segment_bytes=1 << 30, segment_index_bytes=4096)
VALUE: Final = b"value"


def one_record(
    offset: int,
    *,
    producer_id: int = -1,
    sequence: int = -1,
    is_transactional: bool = False,
    key: bytes | None = None,
    timestamp: int = FIRST_TIMESTAMP,
) -> bytes:
    """Build a batch of one record, as a leader has stamped it."""
    record = Record(offset=offset, timestamp=timestamp, key=key, value=VALUE)
    return build_batch(
        [record],
        base_offset=offset,
        partition_leader_epoch=0,
        producer_id=producer_id,
        producer_epoch=-1 if producer_id < 0 else 0,
        base_sequence=sequence,
        is_transactional=is_transactional,
    )


def write_segments(directory: Path, count: int, *, keys: int = 0) -> None:
    """Write `count` segments of one batch each, with indexes as an orderly stop leaves them."""
    directory.mkdir()
    for offset in range(count):
        key = b"%d" % (offset % keys) if keys else None
        name = directory / f"{offset:020d}"
        name.with_suffix(".log").write_bytes(one_record(offset, key=key))
        name.with_suffix(".index").touch()
        name.with_suffix(".timeindex").write_bytes(TIME_ENTRY.pack(FIRST_TIMESTAMP, 0))


def open_log(directory: Path, *, clean: bool, config: LogConfig = CONFIG) -> PartitionLog:
    """Open a log as a node does."""
    return PartitionLog.open(
        OsFileSystem(), str(directory), config, clean=clean, now_ms=FIRST_TIMESTAMP, recalls_batches=True
    )


def _start(directory: Path, *, clean: bool) -> Callable[[], float]:
    def once() -> float:
        opened: list[PartitionLog] = []
        seconds = cpu_seconds(lambda: opened.append(open_log(directory, clean=clean)))
        opened[0].close_handles()
        return seconds

    return once


def unclean_segments(size: int, root: Path) -> Callable[[], float]:
    write_segments(root / "t-0", size)
    return _start(root / "t-0", clean=False)


def clean_segments(size: int, root: Path) -> Callable[[], float]:
    write_segments(root / "t-0", size)
    return _start(root / "t-0", clean=True)


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


def unclean_transactions(size: int, root: Path) -> Callable[[], float]:
    directory = root / "t-0"
    directory.mkdir()
    (directory / f"{0:020d}.log").write_bytes(b"".join(overlapping(size)))
    return _start(directory, clean=False)


def _write_producers(directory: Path, count: int) -> None:
    """Write a log of one batch for each of `count` producers, with a snapshot of all as an orderly stop leaves it."""
    directory.mkdir()
    with (directory / f"{0:020d}.log").open("wb") as file:
        for offset in range(count):
            file.write(one_record(offset, producer_id=offset, sequence=7))
    PartitionLog.open(
        OsFileSystem(), str(directory), CONFIG, clean=False, now_ms=FIRST_TIMESTAMP, recalls_batches=True
    ).close()


def clean_producers(size: int, root: Path) -> Callable[[], float]:
    _write_producers(root / "t-0", size)
    return _start(root / "t-0", clean=True)


def unclean_producers(size: int, root: Path) -> Callable[[], float]:
    _write_producers(root / "t-0", size)
    return _start(root / "t-0", clean=False)


_GROWTH: Final = """
import sys
from pathlib import Path
from bench.scale_starts import open_log
peak = lambda: int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0])
before = peak()
log = open_log(Path(sys.argv[1]), clean=True)
print(peak() - before)
"""


def producers_memory(size: int, root: Path) -> Callable[[], float]:
    """The greatest memory of a clean start, in a process of its own, in MiB."""
    _write_producers(root / "t-0", size)
    command = [sys.executable, "-c", _GROWTH, str(root / "t-0")]

    def once() -> float:
        return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout) / 1024

    return once


ROWS: Final = [
    Row(
        name="clean-producers",
        what="a clean start with n producers",
        sizes=(25_000, 50_000, 100_000, 200_000),
        most=LINEAR,
        prepare=clean_producers,
        most_share=0.5,
        rounds=3,
    ),
    Row(
        name="unclean-producers",
        what="an unclean start with n producers",
        sizes=(25_000, 50_000, 100_000, 200_000),
        most=LINEAR,
        prepare=unclean_producers,
        most_share=0.5,
        rounds=3,
    ),
    Row(
        name="producers-memory",
        what="the memory of a clean start with n producers",
        sizes=(25_000, 50_000, 100_000, 200_000),
        most=LINEAR,
        prepare=producers_memory,
        unit="MiB",
        most_share=0.5,
        rounds=1,
    ),
    Row(
        name="unclean-segments",
        what="an unclean start with n segments",
        sizes=(250, 500, 1000, 2000),
        most=LINEAR,
        prepare=unclean_segments,
    ),
    Row(
        name="clean-segments",
        what="a clean start with n segments",
        sizes=(100, 1000, 5000, 10_000),
        most=LINEAR,
        prepare=clean_segments,
        rounds=3,
    ),
    Row(
        name="unclean-transactions",
        what="an unclean start with n overlapping transactions",
        sizes=(5000, 10_000, 20_000, 40_000),
        most=LINEAR,
        prepare=unclean_transactions,
    ),
]
