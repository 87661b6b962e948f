"""Rows of `bench/scale.py`: steps in one long segment whose timestamps are level, and over many segments at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from inspect import signature
from pathlib import Path
from typing import Final

from bench.growth import LINEAR, Once, Row, Sample, Steps, sliced
from bench.scale_logs import (
    FIRST_TIMESTAMP,
    ROOMY,
    SIZES,
    one_record,
    open_committed,
    open_log,
    write_one_segment,
    write_segments,
)
from bench.scale_partitions import open_directory
from storage.log import FetchData, PartitionLog
from storage.validation.work import STEP_REBUILT_BYTES

# Batches in the segment.
BATCHES: Final = (25_000, 50_000, 100_000, 200_000)
CUT_BATCHES: Final = 10
# The offset index of a segment gets no entry.
SPARSE: Final = replace(ROOMY, index_interval_bytes=1 << 30)


def _write_level(directory: Path, size: int) -> None:
    """Write a segment of `size` batches of one timestamp, with the indexes of an orderly stop."""
    write_one_segment(directory, map(one_record, range(size)))
    open_log(directory, clean=False, config=ROOMY).close()


def truncate_level(size: int, root: Path) -> Once:
    """Truncate ten batches of a segment that was loaded after an orderly stop, as a follower does."""
    _write_level(root / "t-0", size)

    def once() -> Sample:
        log = open_log(root / "t-0", clean=True, config=ROOMY)
        offset = log.log_end_offset - CUT_BATCHES

        def step() -> bool:
            # As a follower does: `Truncations.truncate_in_part`.
            if not log.truncation.prepare(offset, now_ms=FIRST_TIMESTAMP):
                return True
            log.truncate_to(offset, now_ms=FIRST_TIMESTAMP)
            return False

        sample = sliced(step)
        log.close()
        return sample

    return once


def search_level(size: int, root: Path) -> Once:
    """Look for the only later batch after `size` batches of one timestamp, as a leader does."""
    _write_level(root / "t-0", size)
    log = open_committed(root / "t-0", clean=True, config=ROOMY)
    later = one_record(0, timestamp=FIRST_TIMESTAMP + 1)
    log.append_as_leader(later, leader_epoch=0, now_ms=FIRST_TIMESTAMP)
    return lambda: _searched(log, FIRST_TIMESTAMP + 1)


def search_segments(size: int, root: Path) -> Once:
    """Look for a time that none of `size` segments has, right after a start."""
    write_segments(root / "t-0", size)

    def once() -> Sample:
        log = open_log(root / "t-0", clean=True)
        sample = _searched(log, FIRST_TIMESTAMP + 1)
        log.close_handles()
        return sample

    return once


def _searched(log: PartitionLog, timestamp: int) -> Sample:
    # Revisions on which the other rows are measured too do not have it.
    from storage.errors import ReadGoesOn, ReadTakesLong

    # As `ListOffsetsHandler` does.
    def step() -> str:
        try:
            log.reads.offset_for_timestamp(timestamp, STEP_REBUILT_BYTES)
        except ReadGoesOn:
            return "again"
        except ReadTakesLong:
            return "in a job"
        return "done"

    with Steps() as taken:
        while (outcome := taken.step(step)) == "again":
            pass
        search = log.reads.search_for_timestamp(timestamp)
        if outcome == "in a job" and search is not None:
            taken.job(lambda: search(None))
    return taken.total


def read_unindexed(size: int, root: Path) -> Once:
    """Read the last of `size` batches, where the offset index has no entry, after a start."""
    write_one_segment(root / "t-0", map(one_record, range(size)))
    open_log(root / "t-0", clean=False, config=SPARSE).close()

    def once() -> Sample:
        log = open_log(root / "t-0", clean=True, config=SPARSE)
        read: Callable[[], FetchData] = partial(log.read, size - 1, max_size=1000)
        # Revisions on which the other rows are measured too do not have it.
        if "in_step" in signature(log.read).parameters:
            read = partial(log.read, size - 1, max_size=1000, in_step=True)

        # As `FetchHandler` does.
        def step() -> bool:
            from storage.errors import ReadGoesOn

            try:
                assert read().records, size
            except ReadGoesOn:
                return True
            return False

        sample = sliced(step)
        log.close_handles()
        return sample

    return once


def delete(size: int, root: Path) -> Once:
    """Delete a log of `size` segments as a broker does, whose job deletes the files."""
    (root / "data").mkdir()

    def once() -> Sample:
        write_segments(root / "data" / "t-0", size)
        logs = open_directory(root / "data")
        with Steps() as taken:
            delete_files = taken.step(lambda: logs.begin_deletion("t", 0))
            assert delete_files is not None, size
            taken.job(delete_files)
        logs.close_handles()
        (root / "data" / ".kafka_cleanshutdown").touch()
        return taken.total

    return once


ROWS: Final = [
    Row(
        name="truncate-level",
        what="a truncation of ten of n batches of one timestamp, after a clean start",
        sizes=BATCHES,
        most=LINEAR,
        prepare=truncate_level,
    ),
    Row(
        name="search-level",
        what="a search by time behind n batches of one timestamp",
        sizes=BATCHES,
        most=LINEAR,
        prepare=search_level,
    ),
    Row(
        name="search-segments",
        what="a search by time over n segments, after a start",
        sizes=SIZES,
        most=LINEAR,
        prepare=search_segments,
    ),
    Row(
        name="read-unindexed",
        what="a read of the last of n batches, where the offset index is empty, after a start",
        sizes=BATCHES,
        most=LINEAR,
        prepare=read_unindexed,
    ),
    Row(
        name="delete",
        what="a deletion of a log of n segments",
        sizes=SIZES,
        most=LINEAR,
        prepare=delete,
        rounds=3,
    ),
]
