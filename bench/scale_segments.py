"""Rows of `bench/scale.py`: what a node does in its steps with one log of many segments."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Final

from bench.growth import INDEPENDENT, LINEAR, Once, Row, Sample, sliced, steps
from bench.scale_logs import (
    CONFIG,
    FIRST_TIMESTAMP,
    SIZES,
    commit,
    one_record,
    open_committed,
    open_log,
    write_segments,
)
from storage.log import Isolation, PartitionLog
from storage.segment import LogSegment

STEPS: Final = 50
# What a step of a node does at most, in every revision.
SEGMENTS_A_STEP: Final = 16


def _on_a_log(step: Callable[[PartitionLog, int], object]) -> Callable[[int, Path], Once]:
    """Measure `step` STEPS times on one log of a size, which is opened once; it gets the number of the step."""

    def prepare(size: int, root: Path) -> Once:
        write_segments(root / "t-0", size)
        log = open_committed(root / "t-0", clean=True)
        return lambda: steps(partial(step, log, number) for number in range(STEPS))

    return prepare


def _append(log: PartitionLog, _: int) -> None:
    log.append_as_leader(one_record(0), leader_epoch=0, now_ms=FIRST_TIMESTAMP)


def append(size: int, root: Path) -> Once:
    return _on_a_log(_append)(size, root)


def _roll(log: PartitionLog, number: int) -> None:
    _append(log, number)
    log.flushes.roll(now_ms=FIRST_TIMESTAMP)


def roll(size: int, root: Path) -> Once:
    return _on_a_log(_roll)(size, root)


def _fetch(isolation: Isolation, log: PartitionLog, number: int) -> None:
    # Each from a segment of its own, from all over the log.
    offset = (log.log_end_offset - 1) * number // STEPS
    assert log.read(offset, max_size=1000, isolation=isolation).records


def fetch(size: int, root: Path) -> Once:
    return _on_a_log(partial(_fetch, Isolation.HIGH_WATERMARK))(size, root)


def committed_fetch(size: int, root: Path) -> Once:
    return _on_a_log(partial(_fetch, Isolation.TXN_COMMITTED))(size, root)


def truncate(size: int, root: Path) -> Once:
    """Truncate the last segment, then append it again."""
    write_segments(root / "t-0", size)
    log = open_committed(root / "t-0", clean=True)

    def step() -> None:
        log.truncate_to(log.log_end_offset - 1, now_ms=FIRST_TIMESTAMP)

    def once() -> Sample:
        for number in range(STEPS):
            _roll(log, number)
        return steps(step for _ in range(STEPS))

    return once


def truncate_half(size: int, root: Path) -> Once:
    """Truncate the newer half of the segments, in the parts that a follower cuts in one step each."""
    directories = (root / f"t-{number}" for number in count())

    def once() -> Sample:
        directory = next(directories)
        write_segments(directory, size)
        log = open_log(directory, clean=True)

        def step() -> bool:
            # As a follower does: `Truncations.truncate_in_part`.
            first = log.local.segments.last_base_offsets(SEGMENTS_A_STEP)[0]
            log.truncate_to(max(size // 2, first), now_ms=FIRST_TIMESTAMP)
            return log.log_end_offset > size // 2

        sample = sliced(step)
        log.close_handles()
        return sample

    return once


def retention_of_nothing(size: int, root: Path) -> Once:
    return _on_a_log(lambda log, _: log.retention.delete_old(FIRST_TIMESTAMP))(size, root)


def retention(size: int, root: Path) -> Once:
    """Delete the older half of the segments, by size."""
    directories = (root / f"t-{number}" for number in count())

    def once() -> Sample:
        directory = next(directories)
        write_segments(directory, size)
        log, deleted = commit(open_log(directory, clean=True)), list[LogSegment]()
        log.update_config(replace(CONFIG, retention_bytes=log.local.segments.size_bytes // 2))
        log.retention.delete_files_with(deleted.append)
        sample = sliced(lambda: log.retention.delete_old(FIRST_TIMESTAMP, at_most=SEGMENTS_A_STEP) > 0)
        assert len(log.local.segments) == size - size // 2, (len(log.local.segments), size)
        for segment in deleted:
            segment.close_handlers()
        log.close_handles()
        return sample

    return once


ROWS: Final = [
    Row(name="append", what="an append to n segments", sizes=SIZES, most=INDEPENDENT, prepare=append),
    Row(name="roll", what="an append and a roll, n segments", sizes=SIZES, most=INDEPENDENT, prepare=roll),
    Row(name="fetch", what="a fetch from n segments", sizes=SIZES, most=INDEPENDENT, prepare=fetch),
    Row(
        name="committed-fetch",
        what="a committed fetch without transactions, n segments",
        sizes=SIZES,
        most=INDEPENDENT,
        prepare=committed_fetch,
    ),
    Row(
        name="truncate",
        what="a truncation by one of n segments",
        sizes=SIZES,
        most=INDEPENDENT,
        prepare=truncate,
    ),
    Row(
        name="truncate-half",
        what="a truncation of half of n segments",
        sizes=SIZES,
        most=LINEAR,
        prepare=truncate_half,
        rounds=3,
    ),
    Row(
        name="retention-of-nothing",
        what="retention that deletes none of n segments",
        sizes=SIZES,
        most=INDEPENDENT,
        prepare=retention_of_nothing,
    ),
    Row(
        name="retention",
        what="retention of half of n segments",
        sizes=SIZES,
        most=LINEAR,
        prepare=retention,
        rounds=3,
    ),
]
