"""Rows of `bench/scale.py`: what a step of the log does, and rounds of compaction."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

from bench.scale import INDEPENDENT, LINEAR, Row, cpu_seconds
from bench.scale_starts import CONFIG, end_of, one_record, open_log, write_segments
from bench.storage_data import FIRST_TIMESTAMP
from storage.cleaner.plan import CleanerConfig
from storage.directory.manager import LogManager
from storage.disk.os_filesystem import OsFileSystem
from storage.draws import Draws
from storage.log import Isolation, PartitionLog
from storage.log.compaction import CleanableOffsets

# A step that works longer makes every reader and writer of the node wait.
PAUSE_S: Final = 0.05
KEYS: Final = 100
COMPACTED: Final = replace(CONFIG, cleanup_policy="compact")


def _log_to_compact(size: int, root: Path, number: int) -> PartitionLog:
    directory = root / f"t-{number}"
    write_segments(directory, size, keys=KEYS)
    log = open_log(directory, clean=True, config=COMPACTED)
    log.flushes.roll(now_ms=FIRST_TIMESTAMP)
    log.marks.update_high_watermark(log.log_end_offset)
    return log


def _round(log: PartitionLog) -> tuple[float, float]:
    """Run a round of compaction. Returns its CPU time and that of its longest step in the log."""
    offsets = CleanableOffsets(
        first_dirty_offset=0,
        first_uncleanable_offset=log.local.segments.active.base_offset,
        is_checkpoint_invalid=False,
    )
    start = time.process_time()
    compaction = log.compactions.prepare(offsets, CleanerConfig(dedupe_buffer_bytes=1 << 20), FIRST_TIMESTAMP)
    pieces, longest, before = iter(compaction), 0.0, start
    while True:
        work = next(pieces, None)
        longest = max(longest, time.process_time() - before)
        if work is None:
            break
        work()
        before = time.process_time()
    assert compaction.end_offset == log.local.segments.active.base_offset, compaction.end_offset
    return time.process_time() - start, longest


def _rounds(size: int, root: Path, place: int) -> Callable[[], float]:
    numbers = iter(range(100))

    def once() -> float:
        log = _log_to_compact(size, root, next(numbers))
        found = _round(log)[place]
        log.close_handles()
        return found

    return once


def compaction_round(size: int, root: Path) -> Callable[[], float]:
    return _rounds(size, root, 0)


def compaction_pause(size: int, root: Path) -> Callable[[], float]:
    return _rounds(size, root, 1)


def committed_read(size: int, root: Path) -> Callable[[], float]:
    """Read the first batch, committed records only, of a log without transactions."""
    write_segments(root / "t-0", size)
    log = open_log(root / "t-0", clean=True)
    log.marks.update_high_watermark(log.log_end_offset)
    return _reads(log)


def _reads(log: PartitionLog) -> Callable[[], float]:
    def read() -> None:
        for offset in range(100):
            log.read(offset, max_size=1000, isolation=Isolation.TXN_COMMITTED)

    read()
    return lambda: cpu_seconds(read) / 100


def committed_read_of_aborted(size: int, root: Path) -> Callable[[], float]:
    """Read from the end of a segment with `size` aborted transactions."""
    directory = root / "t-0"
    directory.mkdir()
    with (directory / f"{0:020d}.log").open("wb") as file:
        for number in range(size):
            file.write(one_record(2 * number, producer_id=1, sequence=number, is_transactional=True))
            file.write(end_of(1, 2 * number + 1, is_commit=False))
    log = open_log(directory, clean=False, config=replace(CONFIG, segment_index_bytes=1 << 20))
    log.marks.update_high_watermark(log.log_end_offset)
    first = log.log_end_offset - 100

    def read() -> None:
        for offset in range(first, first + 100):
            found = log.read(offset, max_size=300, isolation=Isolation.TXN_COMMITTED)
            assert found.aborted_transactions

    read()
    return lambda: cpu_seconds(read) / 100


def deletions(size: int, root: Path) -> Callable[[], float]:
    """Delete 100 of `size` partitions, and create them again."""
    file_system = OsFileSystem()
    logs = LogManager(file_system, str(root / "data"), CONFIG, FIRST_TIMESTAMP, Draws(1))
    logs.load(FIRST_TIMESTAMP)
    for partition in range(size):
        logs.create("t", partition)

    def once() -> float:
        def delete() -> None:
            for partition in range(100):
                assert logs.delete_later("t", partition, FIRST_TIMESTAMP)

        seconds = cpu_seconds(delete)
        logs.delete_due(FIRST_TIMESTAMP + (1 << 40))
        for partition in range(100):
            logs.create("t", partition)
        return seconds

    return once


ROWS: Final = [
    Row(
        name="deletions",
        what="100 deletions among n partitions",
        sizes=(250, 500, 1000, 2000),
        most=INDEPENDENT,
        prepare=deletions,
        rounds=9,
    ),
    Row(
        name="compaction",
        what="a round of compaction over n segments",
        sizes=(250, 500, 1000, 2000),
        most=LINEAR,
        prepare=compaction_round,
        rounds=3,
    ),
    Row(
        name="compaction-pause",
        what="the longest step of a round over n segments",
        sizes=(500, 1000, 2000, 4000),
        most=LINEAR,
        prepare=compaction_pause,
        most_value=PAUSE_S,
        rounds=3,
    ),
    Row(
        name="committed-read",
        what="a committed read without transactions, n segments",
        sizes=(100, 1000, 4000, 10_000),
        most=INDEPENDENT,
        prepare=committed_read,
    ),
    Row(
        name="committed-read-aborted",
        what="a committed read behind n aborted transactions",
        sizes=(4000, 8000, 16_000, 64_000),
        most=INDEPENDENT,
        prepare=committed_read_of_aborted,
    ),
]
