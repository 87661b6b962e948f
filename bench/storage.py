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
from storage.batch import build_batch, set_max_timestamp, stamp
from storage.batch_format import TimestampType
from storage.config import LogConfig
from storage.crc32c import crc32c
from storage.leader_epochs import LeaderEpochCache
from storage.log import PartitionLog
from storage.os_filesystem import OsFileSystem
from storage.producer_state import ProducerStateManager
from storage.record import Record
from storage.segment import LogSegment
from storage.segment_recovery import recover_segment

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
    """One batch of about `size_bytes`, a single record of noise."""
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
            at = index * len(batch)
            stamp(block, at, base_offset=offset, partition_leader_epoch=0)
            newest = 1_700_000_000_000 + offset
            set_max_timestamp(block, at, timestamp_type=TimestampType.CREATE, max_timestamp=newest)
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
    over_floor, seconds = ratio(
        lambda: recovery_floor(str(path), crc32c), lambda: recover_once(directory, path.stat().st_size)
    )
    return Line(
        what=f"recovery, {size_bytes >> 10} KiB batches",
        value=over_floor,
        unit="of the bare CRC walk",
        target=RECOVERY_TARGETS[size_bytes],
        peer=f"Kafka {KAFKA_RECOVERY[size_bytes]}",
        detail=f"{path.stat().st_size / seconds / 1e6:,.0f} MB/s",
    )


def recover_once(directory: Path, size_bytes: int) -> float:
    """What Kafka's LogSegment.recover does: every CRC, both indexes, epochs, producer state, the cut."""
    file_system = OsFileSystem()
    epochs_path = directory / "leader-epoch-checkpoint"
    epochs_path.unlink(missing_ok=True)
    segment = LogSegment.open(file_system, str(directory), 0, CONFIG, 1, file_already_exists=True)
    producers = ProducerStateManager(file_system, str(directory))
    epochs = LeaderEpochCache(file_system, str(epochs_path))
    start = time.perf_counter()
    removed_bytes = recover_segment(segment, producers, epochs)
    seconds = time.perf_counter() - start
    assert removed_bytes == 0 and segment.size_bytes == size_bytes and epochs.last_epoch == 0
    assert segment.offset_index.last_offset > 0
    segment.close_handlers()
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
