"""Rows of `bench/scale.py`: descriptors and memory of segments and partitions, in use and idle."""

from __future__ import annotations

import os
import resource
import struct
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

from bench.growth import INDEPENDENT, LINEAR, Once, Row, Sample, cpu
from bench.scale_logs import CONFIG, FIRST_TIMESTAMP, one_record, write_segments
from storage.disk.filesystem import FileSystem
from storage.disk.os_filesystem import OsFileSystem
from storage.log import PartitionLog

SEGMENTS: Final = 10
# What the process may open in the row of ten thousand partitions.
DESCRIPTORS: Final = 20_000
FEW_HANDLES: Final = 200
# An index without an entry is not mapped when it is read.
_INDEX_ENTRY: Final = struct.pack(">ii", 0, 0)


def _count_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def _with_handles(limit: int | None = None) -> OsFileSystem:
    # Revisions on which the other rows are measured too do not have it.
    from storage.disk.handle_pool import HandlePool

    return OsFileSystem(handles=HandlePool() if limit is None else HandlePool(limit))


def _open(file_system: FileSystem, directory: Path, *, clean: bool) -> PartitionLog:
    return PartitionLog.open(file_system, str(directory), CONFIG, clean=clean, now_ms=FIRST_TIMESTAMP)


def _write_partitions(root: Path, count: int) -> list[Path]:
    directories = [root / f"t-{number}" for number in range(count)]
    for directory in directories:
        write_segments(directory, SEGMENTS)
    return directories


def _use(log: PartitionLog) -> None:
    """Read all segments, and append to the last one."""
    for offset in range(SEGMENTS):
        assert log.read(offset, max_size=1000).records
    log.append_as_leader(one_record(0), leader_epoch=0, now_ms=FIRST_TIMESTAMP)


def used_descriptors(size: int, root: Path) -> Once:
    """Count the descriptors that a log holds for `size` segments, each of which was read."""
    directory = root / "t-0"
    write_segments(directory, size)
    for offset in range(size):
        (directory / f"{offset:020d}.index").write_bytes(_INDEX_ENTRY)

    def once() -> Sample:
        before = _count_descriptors()
        log = _open(_with_handles(), directory, clean=True)
        for offset in range(size):
            assert log.read(offset, max_size=1000).records
        held = _count_descriptors() - before
        log.close_handles()
        return Sample(value=held)

    return once


def limited_descriptors(size: int, root: Path) -> Once:
    """Count the descriptors that `size` partitions hold which are read and appended to, with 200 handles for all."""
    directories = _write_partitions(root, size)

    def once() -> Sample:
        file_system, before = _with_handles(FEW_HANDLES), _count_descriptors()
        logs = [_open(file_system, directory, clean=True) for directory in directories]
        for log in logs:
            _use(log)
        held = _count_descriptors() - before
        for log in logs:
            log.close_handles()
        return Sample(value=held)

    return once


def partition_memory(size: int, root: Path) -> Once:
    """Measure the memory of `size` idle partitions of ten segments, in KiB."""
    directories = _write_partitions(root, size)

    def once() -> Sample:
        file_system = OsFileSystem()
        tracemalloc.start()
        logs = [_open(file_system, directory, clean=True) for directory in directories]
        held = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        for log in logs:
            log.close_handles()
        return Sample(value=held / 1024)

    return once


@contextmanager
def descriptors_limited_to(count: int) -> Iterator[None]:
    """Let this process open no more than `count` files within the block."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (count, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def many_partitions(size: int, root: Path) -> Once:
    """Open, read, append to and recover `size` partitions of ten segments in a process of 20,000 descriptors."""
    directories = _write_partitions(root, size)

    def once() -> Sample:
        with descriptors_limited_to(DESCRIPTORS):
            return cpu(partial(use_and_recover, directories))

    return once


def use_and_recover(directories: list[Path]) -> None:
    """Use all partitions, close their files as a crash does, and recover them."""
    file_system = _with_handles()
    logs = [_open(file_system, directory, clean=True) for directory in directories]
    for log in logs:
        _use(log)
    assert len(file_system.handles) <= file_system.handles.limit, len(file_system.handles)
    for log in logs:
        log.close_handles()
    for before in logs:
        log = _open(file_system, Path(before.directory), clean=False)
        assert log.log_end_offset == before.log_end_offset, (log, before)
        log.close_handles()


ROWS: Final = [
    Row(
        name="used-descriptors",
        what="descriptors of n segments that are read",
        sizes=(100, 500, 1000, 4000),
        most=LINEAR,
        prepare=used_descriptors,
        unit="descriptors",
        rounds=1,
    ),
    Row(
        name="limited-descriptors",
        what=f"descriptors of n partitions in use, {FEW_HANDLES} handles",
        sizes=(100, 200, 400, 800),
        most=INDEPENDENT,
        prepare=limited_descriptors,
        unit="descriptors",
        rounds=1,
    ),
    Row(
        name="partition-memory",
        what=f"memory of n idle partitions of {SEGMENTS} segments",
        sizes=(100, 200, 400, 800),
        most=LINEAR,
        prepare=partition_memory,
        unit="KiB",
        rounds=1,
    ),
    Row(
        name="many-partitions",
        what=f"n partitions of {SEGMENTS} segments are opened, used and recovered, ulimit -n {DESCRIPTORS:,}",
        sizes=(1250, 2500, 5000, 10_000),
        most=LINEAR,
        prepare=many_partitions,
        rounds=1,
    ),
]
