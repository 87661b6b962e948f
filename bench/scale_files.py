"""Rows of `bench/scale.py`: tools on files, codecs, what an open log holds."""

from __future__ import annotations

import os
import tracemalloc
from pathlib import Path
from typing import Final

from bench.growth import LINEAR, Once, Row, Sample, cpu
from bench.scale_logs import (
    FIRST_TIMESTAMP,
    one_record,
    open_log,
    write_one_segment,
    write_segment,
    write_segments,
)
from storage.codec.compression import Compression, compress, decompress
from storage.disk.os_filesystem import OsFileSystem
from storage.inspection.verify.partition import verify_partition
from storage.producers.entry import ProducerStateEntry
from storage.producers.rows import encode_snapshot
from storage.producers.snapshot import snapshot_name

PRODUCERS: Final = 500


def verify_snapshots(size: int, root: Path) -> Once:
    """Verify a log of 500 producers that are idle since, and `size` segments with a snapshot each."""
    directory = root / "t-0"
    write_one_segment(
        directory, (one_record(offset, producer_id=offset, sequence=0) for offset in range(PRODUCERS))
    )
    entries = []
    for producer_id in range(PRODUCERS):
        entry = ProducerStateEntry(producer_id, producer_epoch=0, last_timestamp=FIRST_TIMESTAMP)
        entry.batches = ((0, producer_id, 0, FIRST_TIMESTAMP),)
        entries.append(entry)
    content = encode_snapshot(entries)
    for base_offset in range(PRODUCERS, PRODUCERS + size):
        write_segment(directory, base_offset, one_record(base_offset))
        (directory / snapshot_name(base_offset)).write_bytes(content)
    return lambda: cpu(lambda: verify_partition(OsFileSystem(), str(directory)))


def gzip_members(size: int, root: Path) -> Once:
    data = compress(Compression.GZIP, b"") * size
    return lambda: cpu(lambda: decompress(Compression.GZIP, data))


def descriptors(size: int, root: Path) -> Once:
    """Count the descriptors that an open log holds for `size` segments which nobody has read."""
    write_segments(root / "t-0", size)

    def once() -> Sample:
        before = len(os.listdir("/proc/self/fd"))
        log = open_log(root / "t-0", clean=True)
        held = len(os.listdir("/proc/self/fd")) - before
        log.close_handles()
        return Sample(value=held)

    return once


def memory(size: int, root: Path) -> Once:
    """Measure the memory that an open log holds for `size` segments which nobody has read, in KiB."""
    write_segments(root / "t-0", size)

    def once() -> Sample:
        tracemalloc.start()
        log = open_log(root / "t-0", clean=True)
        held = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        log.close_handles()
        return Sample(value=held / 1024)

    return once


ROWS: Final = [
    Row(
        name="verify-snapshots",
        what="verify, n snapshots of 500 producers",
        sizes=(25, 50, 100, 200),
        most=LINEAR,
        prepare=verify_snapshots,
    ),
    Row(
        name="gzip-members",
        what="n empty gzip members",
        sizes=(5000, 10_000, 25_000, 50_000),
        most=LINEAR,
        prepare=gzip_members,
    ),
    Row(
        name="idle-descriptors",
        what="descriptors of n idle segments",
        sizes=(100, 500, 1000, 4000),
        most=LINEAR,
        prepare=descriptors,
        unit="descriptors",
        rounds=1,
    ),
    Row(
        name="idle-memory",
        what="memory of n idle segments",
        sizes=(100, 500, 1000, 4000),
        most=LINEAR,
        prepare=memory,
        unit="KiB",
        rounds=1,
    ),
]
