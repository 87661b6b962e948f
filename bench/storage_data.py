"""The parts that the storage measurements share: batches, directories, and the way to take a ratio."""

from __future__ import annotations

import os
import shutil
import statistics
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkdtemp

from storage.batch import build_batch, set_max_timestamp, stamp
from storage.batch.format import TimestampType
from storage.batch.record import Record
from storage.config import LogConfig
from storage.disk.os_filesystem import OsFileSystem
from storage.log import PartitionLog

FILE_BYTES = 128 << 20
BLOCK_BYTES = 1 << 20
ROUNDS = 7
BATCH_SIZES = (1 << 10, 16 << 10, 256 << 10)
FIRST_TIMESTAMP = 1_700_000_000_000
CONFIG = LogConfig(segment_bytes=1 << 30)


@contextmanager
def scratch() -> Iterator[Path]:
    """Create a temporary directory, which is deleted at the end."""
    path = Path(mkdtemp(prefix="replog-bench-"))
    try:
        yield path
    finally:
        shutil.rmtree(path)


def label(size_bytes: int) -> str:
    return f"{size_bytes >> 10} KiB batches"


def batch_of(size_bytes: int) -> bytes:
    """Build one batch of about `size_bytes`, with a single record of noise."""
    noise = os.urandom(size_bytes)
    overhead = len(build_batch([Record(offset=0, timestamp=1, key=None, value=noise)])) - size_bytes
    batch = build_batch([Record(offset=0, timestamp=1, key=None, value=noise[: size_bytes - overhead])])
    assert abs(len(batch) - size_bytes) <= 4, (len(batch), size_bytes)
    return batch


def batch_of_records(size_bytes: int) -> tuple[bytes, int]:
    """Build one batch as a producer sends it, with as many records of 1,000 bytes as fit `size_bytes`.

    Returns the batch and the number of its records.
    """
    records = _records_of(size_bytes)
    return build_batch(records), len(records)


def batches_of_a_producer(size_bytes: int, count: int) -> list[bytes]:
    """Build `count` batches as an idempotent producer sends them: one id and epoch, each sequence after the last.

    Their records are those of `batch_of_records`. The CRC covers the sequence, so each batch is built for itself.
    """
    records = _records_of(size_bytes)
    return [
        build_batch(records, producer_id=1, producer_epoch=0, base_sequence=number * len(records))
        for number in range(count)
    ]


def _records_of(size_bytes: int) -> list[Record]:
    value = os.urandom(min(1000, size_bytes - 80))
    count = max(1, (size_bytes - 61) // (len(value) + 10))
    return [Record(offset=each, timestamp=FIRST_TIMESTAMP, key=None, value=value) for each in range(count)]


def blocks_of(size_bytes: int) -> list[bytes]:
    """Build fetched blocks: about 1 MiB of whole batches each, of epoch 0, with consecutive offsets and rising
    timestamps.
    """
    batch, blocks, offset = batch_of(size_bytes), [], 0
    each = max(1, BLOCK_BYTES // len(batch))
    for _ in range(FILE_BYTES // (each * len(batch))):
        block = bytearray(batch * each)
        for index in range(each):
            at = index * len(batch)
            stamp(block, at, base_offset=offset, partition_leader_epoch=0)
            newest = FIRST_TIMESTAMP + offset
            set_max_timestamp(block, at, timestamp_type=TimestampType.CREATE, max_timestamp=newest)
            offset += 1
        blocks.append(bytes(block))
    return blocks


def ratio(floor: Callable[[], float], product: Callable[[], float]) -> tuple[float, float]:
    """Measure both in turns, after a first pair that does not count.

    Returns the median of floor seconds / product seconds, pair by pair, and the product's median seconds.
    """
    floor(), product()
    pairs = [(floor(), product()) for _ in range(ROUNDS)]
    return statistics.median(f / p for f, p in pairs), statistics.median(p for _, p in pairs)


def open_log(directory: Path, config: LogConfig = CONFIG) -> PartitionLog:
    return PartitionLog.open(OsFileSystem(), str(directory), config, clean=True, now_ms=FIRST_TIMESTAMP)
