"""Measures recovery: over the bare walk of floors.py, over Kafka's, on two processors, and its memory."""

from __future__ import annotations

import functools
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from bench import kafka_peer
from bench.floors import recovery_floor
from bench.storage_data import BATCH_SIZES, CONFIG, batch_of, blocks_of, label, ratio, scratch
from bench.table import Line
from cluster.local.log_workers import for_each_partition
from storage.batch import stamp
from storage.codec.crc32c import crc32c
from storage.disk.os_filesystem import OsFileSystem
from storage.leader_epochs import LeaderEpochCache
from storage.log import PartitionLog
from storage.producers.state import ProducerStateManager
from storage.recovery.walk import recover_segment
from storage.segment import LogSegment

MARKS = {1 << 10: 0.4, 16 << 10: 0.65, 256 << 10: 0.7}
# The ratios of Kafka's recovery to the same floor, on a machine of this size.
KAFKA = {1 << 10: 0.34, 16 << 10: 0.57, 256 << 10: 0.59}
PARALLEL_MARK = 1.7
PARALLEL_BYTES = 1 << 30
MEMORY_SIZES = (64 << 20, 1 << 30)
MEMORY_MARK_MIB = 16
_GROWTH = """
import sys
from pathlib import Path
from bench.storage_recovery import recover_once
peak = lambda: int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0])
before = peak()
recover_once(Path(sys.argv[1]))
print(peak() - before)
"""


def lines() -> Iterator[Line]:
    """Measure recovery at each batch size, then two partitions at once, then the memory."""
    for size_bytes in BATCH_SIZES:
        with scratch() as root:
            yield from recovery(size_bytes, root)
    with scratch() as root:
        yield two_partitions(root)
    if Path("/proc/self/status").exists():
        with scratch() as root:
            yield memory(root)


def recovery(size_bytes: int, root: Path) -> Iterator[Line]:
    """Measure the recovery of one segment, over the bare walk and over Kafka's if that can run here."""
    directory = root / "bench-0"
    directory.mkdir()
    path = directory / f"{0:020d}.log"
    path.write_bytes(b"".join(blocks_of(size_bytes)))
    over_floor, seconds = ratio(
        lambda: recovery_floor(str(path), crc32c), functools.partial(recover_once, directory)
    )
    mb_s = path.stat().st_size / seconds / 1e6
    yield Line(
        what=f"recovery, {label(size_bytes)}",
        value=over_floor,
        unit="of the bare CRC walk",
        target=MARKS[size_bytes],
        peer=f"Kafka {KAFKA[size_bytes]}",
        detail=f"{mb_s:,.0f} MB/s",
    )
    if kafka_peer.absence() is None:
        kafkas = kafka_peer.recovery_mb_s(directory)
        yield Line(
            what=f"the same, {label(size_bytes)}",
            value=mb_s / kafkas,
            unit="of Kafka's LogSegment.recover",
            peer=f"Kafka {kafkas:,.0f} MB/s",
            detail="the same file, in this run",
        )


def recover_once(directory: Path) -> float:
    """Recover a sound segment as Kafka's LogSegment.recover does: every CRC, all indexes, epochs, producer state.

    Returns the seconds of the recovery alone.
    """
    file_system = OsFileSystem()
    epochs_path = directory / "leader-epoch-checkpoint"
    epochs_path.unlink(missing_ok=True)
    segment = LogSegment.open(file_system, str(directory), 0, CONFIG, 1, file_already_exists=True)
    size_bytes = segment.size_bytes
    producers = ProducerStateManager(file_system, str(directory))
    epochs = LeaderEpochCache(file_system, str(epochs_path))
    start = time.perf_counter()
    removed_bytes = recover_segment(segment, producers, epochs)
    seconds = time.perf_counter() - start
    assert removed_bytes == 0 and segment.size_bytes == size_bytes and epochs.last_epoch == 0
    assert segment.offset_index.last_offset > 0
    segment.close_handlers()
    return seconds


def long_segment(directory: Path, size_bytes: int) -> Path:
    """Write one `.log` of 16 KiB batches into a new directory, which is returned."""
    directory.mkdir()
    batch = bytearray(batch_of(16 << 10))
    with (directory / f"{0:020d}.log").open("wb") as file:
        for offset in range(size_bytes // len(batch)):
            stamp(batch, 0, base_offset=offset, partition_leader_epoch=0)
            file.write(batch)
    return directory


def recover_partition(path: str) -> int:
    """Recover one partition, as each process of `replog log recover` and of a starting node does; returns its end."""
    log = PartitionLog.open(OsFileSystem(), path, CONFIG, clean=False, now_ms=1)
    end_offset = log.log_end_offset
    log.close_handles()
    return end_offset


def two_partitions(root: Path) -> Line:
    """Measure the recovery of two partitions by two processes over that by one."""
    paths = [str(long_segment(root / f"bench-{each}", PARALLEL_BYTES)) for each in range(2)]

    def seconds(jobs: int) -> float:
        start = time.perf_counter()
        list(for_each_partition(recover_partition, paths, jobs=jobs, title="recover"))
        return time.perf_counter() - start

    speed_up, both = ratio(lambda: seconds(1), lambda: seconds(2))
    return Line(
        what="two partitions of 1 GiB, a process each",
        value=speed_up,
        unit="times the speed of one process",
        target=PARALLEL_MARK,
        detail=f"{both:.2f} s, the start of the processes in it",
    )


def memory(root: Path) -> Line:
    """Measure how much more memory recovery uses for a segment that is sixteen times as long."""
    short, long = (_memory_growth_mib(long_segment(root / f"m-{size}", size)) for size in MEMORY_SIZES)
    return Line(
        what="memory of recovery, a segment of 1 GiB over one of 64 MiB",
        value=long - short,
        unit="MiB more",
        target=MEMORY_MARK_MIB,
        lower_is_better=True,
        detail=f"{short:.0f} and {long:.0f} MiB",
    )


def _memory_growth_mib(directory: Path) -> float:
    run = [sys.executable, "-c", _GROWTH, str(directory)]
    return int(subprocess.run(run, capture_output=True, text=True, check=True).stdout) / 1024
