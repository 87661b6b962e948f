"""Recovery and follower append over the bare loops of floors.py, in the same run, on the same files.

A ratio of 1 would mean that the product costs nothing beyond the CRC of every batch and the system calls.
"""

from __future__ import annotations

import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from bench.floors import append_floor, recovery_floor
from bench.table import Line
from storage.batch import build_batch, stamp
from storage.config import LogConfig
from storage.crc32c import crc32c
from storage.log import PartitionLog
from storage.os_filesystem import OsFileSystem
from storage.record import Record

FILE_BYTES = 128 << 20
BLOCK_BYTES = 1 << 20
ROUNDS = 5
RECOVERY_TARGETS = {1 << 10: 0.35, 16 << 10: 0.55, 256 << 10: None}
APPEND_TARGETS = {1 << 10: None, 16 << 10: 0.4, 256 << 10: None}
KAFKA_RECOVERY = {
    1 << 10: 0.34,
    16 << 10: 0.57,
    256 << 10: 0.59,
}  # of the same floor, on a machine of this size
CONFIG = LogConfig(segment_bytes=1 << 30)


def batch_of(size_bytes: int) -> bytes:
    """One batch of exactly `size_bytes`, a single record of noise."""
    noise = os.urandom(size_bytes)
    overhead = len(build_batch([Record(offset=0, timestamp=1, key=None, value=noise)])) - size_bytes
    batch = build_batch([Record(offset=0, timestamp=1, key=None, value=noise[: size_bytes - overhead])])
    assert abs(len(batch) - size_bytes) <= 4, (len(batch), size_bytes)
    return batch


def blocks_of(size_bytes: int) -> list[bytes]:
    """Fetched blocks of about 1 MiB of whole batches, consecutive offsets, epoch 0."""
    batch, blocks, offset = batch_of(size_bytes), [], 0
    each = max(1, BLOCK_BYTES // len(batch))
    for _ in range(FILE_BYTES // (each * len(batch))):
        block = bytearray(batch * each)
        for index in range(each):
            stamp(block, index * len(batch), base_offset=offset, partition_leader_epoch=0)
            offset += 1
        blocks.append(bytes(block))
    return blocks


def ratio(floor: Callable[[], float], product: Callable[[], float]) -> tuple[float, float]:
    """Median of floor seconds / product seconds, pair by pair, and the product's median seconds."""
    floor(), product()
    pairs = [(floor(), product()) for _ in range(ROUNDS)]
    return statistics.median(f / p for f, p in pairs), statistics.median(p for _, p in pairs)


def recovery(size_bytes: int, directory: Path, blocks: list[bytes]) -> Line:
    path = directory / f"{0:020d}.log"
    path.write_bytes(b"".join(blocks))

    def floor() -> float:
        return recovery_floor(str(path), crc32c)

    def product() -> float:
        return recover_once(directory, path)

    over_floor, seconds = ratio(floor, product)
    return Line(
        what=f"recovery, {size_bytes >> 10} KiB batches",
        value=over_floor,
        unit="of the bare CRC walk",
        target=RECOVERY_TARGETS[size_bytes],
        peer=f"Kafka {KAFKA_RECOVERY[size_bytes]}",
        detail=f"{path.stat().st_size / seconds / 1e6:,.0f} MB/s",
    )


def recover_once(directory: Path, path: Path) -> float:
    """The whole of an unclean open: scan, CRCs, both indexes, epochs, producer state."""
    for name in os.listdir(directory):
        if not name.endswith(".log"):
            os.unlink(directory / name)
    size = path.stat().st_size
    start = time.perf_counter()
    log = PartitionLog.open(
        OsFileSystem(), str(directory), CONFIG, log_start_offset=0, recovery_point=0, clean=False, now_ms=1
    )
    seconds = time.perf_counter() - start
    assert log.log_end_offset > 0 and path.stat().st_size == size
    log.close_handles()
    return seconds


def append(size_bytes: int, directory: Path, blocks: list[bytes]) -> Line:
    def floor() -> float:
        return append_floor(blocks, str(directory / "floor"), crc32c)

    def product() -> float:
        target = directory / "appended-0"
        target.mkdir()
        log = PartitionLog.open(
            OsFileSystem(), str(target), CONFIG, log_start_offset=0, recovery_point=0, clean=True, now_ms=1
        )
        start = time.perf_counter()
        for block in blocks:
            log.append_as_follower(block, leader_epoch=0, now_ms=1)
        seconds = time.perf_counter() - start
        log.close_handles()
        shutil.rmtree(target)
        return seconds

    over_floor, seconds = ratio(floor, product)
    return Line(
        what=f"follower append, {size_bytes >> 10} KiB batches",
        value=over_floor,
        unit="of the bare CRC and write",
        target=APPEND_TARGETS[size_bytes],
        detail=f"{sum(map(len, blocks)) / seconds / 1e6:,.0f} MB/s",
    )


def run() -> list[Line]:
    lines = []
    for size_bytes in RECOVERY_TARGETS:
        with tempfile.TemporaryDirectory(prefix="replog-bench-") as name:
            directory = Path(name) / "bench-0"
            directory.mkdir()
            blocks = blocks_of(size_bytes)
            lines.append(recovery(size_bytes, directory, blocks))
        with tempfile.TemporaryDirectory(prefix="replog-bench-") as name:
            lines.append(append(size_bytes, Path(name), blocks))
    return lines
