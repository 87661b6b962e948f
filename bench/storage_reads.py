"""Measures fetches, index lookups, the start on many segments, and compaction."""

from __future__ import annotations

import statistics
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

from bench.storage_data import BLOCK_BYTES, CONFIG, FIRST_TIMESTAMP, blocks_of, open_log, scratch
from bench.table import Line
from storage.batch import Record, build_batch
from storage.cleaner.plan import CleanerConfig
from storage.config import LogConfig
from storage.disk.os_filesystem import OsFileSystem
from storage.index.memory_mapped import WARM_BYTES
from storage.index.offset_index import OffsetIndex
from storage.log import PartitionLog

LOOKUPS = 20_000
SEGMENTS = 2_000
COMPACTED_RECORDS = 60_000
COMPACTED_KEYS = 20_000
WARM_MARK_US, COLD_MARK_US, OPEN_MARK_MS, COMPACTION_MARK_MB_S, COPIES_MARK = 5, 15, 0.3, 100, 1.05


def lines() -> Iterator[Line]:
    """Measure all of them, each in a directory of its own."""
    with scratch() as root:
        yield fetch(root)
    with scratch() as root:
        yield from lookups(root)
    with scratch() as root:
        yield from many_segments(root)
    with scratch() as root:
        yield compaction(root)


def fetch(root: Path) -> Line:
    """Measure how much memory the interpreter uses at most for each fetched byte."""
    directory = root / "fetched-0"
    directory.mkdir()
    log = open_log(directory)
    for block in blocks_of(16 << 10)[:32]:
        log.append_as_follower(block, leader_epoch=0, now_ms=FIRST_TIMESTAMP)
    start_offset = log.log_end_offset // 2
    log.read(start_offset, max_size=BLOCK_BYTES)
    start = time.perf_counter()
    for _ in range(50):
        log.read(start_offset, max_size=BLOCK_BYTES)
    seconds = (time.perf_counter() - start) / 50
    tracemalloc.start()
    fetched = log.read(start_offset, max_size=BLOCK_BYTES)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    log.close_handles()
    assert len(fetched.records) == BLOCK_BYTES, len(fetched.records)
    return Line(
        what="fetch of 1 MiB from a warm segment",
        value=peak / len(fetched.records),
        unit="bytes of memory for a byte",
        target=COPIES_MARK,
        lower_is_better=True,
        detail=f"{BLOCK_BYTES / seconds / 1e6:,.0f} MB/s",
    )


def lookups(root: Path) -> Iterator[Line]:
    """Measure look-ups in a full index of 10 MiB: warm ones in its last 8 KiB, cold ones before these."""
    index = OffsetIndex(
        OsFileSystem(), str(root / f"{0:020d}.index"), 0, max_index_size=CONFIG.segment_index_bytes
    )
    entries = index.max_entries
    index.append_all([3 * slot for slot in range(entries)], list(range(entries)))
    warm = WARM_BYTES // index.entry_size
    for what, first, count, mark in (
        ("warm", entries - warm, warm, WARM_MARK_US),
        ("cold", 0, entries - warm, COLD_MARK_US),
    ):
        # The stride is a prime, so that no two consecutive look-ups are near each other.
        stride = 7919
        targets = [3 * (first + each * stride % count) + 1 for each in range(LOOKUPS)]
        yield Line(
            what=f"{what} index lookup, {entries:,} entries",
            value=statistics.median(_lookup_us(index, targets) for _ in range(7)),
            unit="microseconds",
            target=mark,
            lower_is_better=True,
        )
    index.close_handler()


def _lookup_us(index: OffsetIndex, targets: list[int]) -> float:
    lookup = index.lookup
    start = time.perf_counter()
    for target in targets:
        lookup(target)
    return (time.perf_counter() - start) / len(targets) * 1e6


def many_segments(root: Path) -> Iterator[Line]:
    """Measure the start after an orderly stop, and how many indexes it maps."""
    directory = root / "many-0"
    directory.mkdir()
    for number in range(SEGMENTS):
        _write_segment(directory, 10 * number)
    open_log(directory).close()
    rounds = []
    for _ in range(5):
        start = time.perf_counter()
        log = open_log(directory)
        rounds.append((time.perf_counter() - start) / SEGMENTS * 1e3)
        mapped = sum(segment.indexes.lazy_offset.is_open for segment in log.local.segments)
        log.close()
    yield Line(
        what=f"start on {SEGMENTS:,} segments after an orderly stop",
        value=statistics.median(rounds),
        unit="ms a segment",
        target=OPEN_MARK_MS,
        lower_is_better=True,
    )
    yield Line(
        what="offset indexes mapped by that", value=mapped, unit="of 2,000", target=2, lower_is_better=True
    )


def _write_segment(directory: Path, base_offset: int) -> None:
    """Write a segment as a roll leaves it: one batch, an offset index without entries, a time index with its last
    entry.
    """
    records = [Record(base_offset + each, FIRST_TIMESTAMP + base_offset, None, b"v") for each in range(10)]
    batch = build_batch(records, base_offset=base_offset, partition_leader_epoch=0)
    name = f"{base_offset:020d}"
    (directory / f"{name}.log").write_bytes(batch)
    (directory / f"{name}.index").touch()
    entry = (FIRST_TIMESTAMP + base_offset).to_bytes(8, "big") + (9).to_bytes(4, "big")
    (directory / f"{name}.timeindex").write_bytes(entry)


def compaction(root: Path) -> Line:
    """Measure one compaction; only the dirty bytes that it reads count."""
    directory = root / "compacted-0"
    directory.mkdir()
    config = LogConfig(cleanup_policy="compact", segment_bytes=16 << 20)
    log = open_log(directory, config)
    _fill(log)
    log.flushes.roll(now_ms=FIRST_TIMESTAMP)
    log.marks.update_high_watermark(log.log_end_offset)
    offsets = log.compactions.cleanable_offsets(None, FIRST_TIMESTAMP)
    size_bytes = log.compactions.log_to_clean(offsets, FIRST_TIMESTAMP).cleanable_bytes
    start = time.perf_counter()
    for work in log.compactions.prepare(offsets, CleanerConfig(), FIRST_TIMESTAMP):
        work()
    seconds = time.perf_counter() - start
    after = log.local.segments.size_bytes
    log.close_handles()
    return Line(
        what="compaction, records of 1 KiB",
        value=size_bytes / seconds / 1e6,
        unit="MB/s of dirty bytes",
        target=COMPACTION_MARK_MB_S,
        detail=f"{size_bytes / 1e6:,.0f} MB to {after / 1e6:,.0f} MB",
    )


def _fill(log: PartitionLog) -> None:
    """Append batches of sixteen records; every key occurs three times, so two of three records are superseded."""
    value = bytes(range(256)) * 4
    for first in range(0, COMPACTED_RECORDS, 16):
        records = [
            Record(each, FIRST_TIMESTAMP, b"key-%05d" % ((first + each) * 7 % COMPACTED_KEYS), value)
            for each in range(16)
        ]
        log.append_as_leader(build_batch(records), leader_epoch=0, now_ms=FIRST_TIMESTAMP)
