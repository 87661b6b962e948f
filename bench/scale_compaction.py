"""Rows of `bench/scale.py`: rounds of compaction over many segments."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Final

from bench.growth import LINEAR, Once, Row, Sample, Steps
from bench.scale_logs import CONFIG, FIRST_TIMESTAMP, commit, open_log, write_segments
from storage.cleaner.plan import CleanerConfig
from storage.log import PartitionLog
from storage.log.compaction import CleanableOffsets

KEYS: Final = 100
COMPACTED: Final = replace(CONFIG, cleanup_policy="compact")


def _log_to_compact(size: int, directory: Path) -> PartitionLog:
    write_segments(directory, size, keys=KEYS)
    log = commit(open_log(directory, clean=True, config=COMPACTED))
    log.flushes.roll(now_ms=FIRST_TIMESTAMP)
    return log


def _round(log: PartitionLog) -> Sample:
    """Run a round of compaction: the log does in its steps what is between two pieces of work, a worker the pieces."""
    end_offset = log.local.segments.active.base_offset
    offsets = CleanableOffsets(
        first_dirty_offset=0, first_uncleanable_offset=end_offset, is_checkpoint_invalid=False
    )
    config = CleanerConfig(dedupe_buffer_bytes=1 << 20)
    with Steps() as taken:
        compaction = taken.step(lambda: log.compactions.prepare(offsets, config, FIRST_TIMESTAMP))
        pieces = iter(compaction)
        while (work := taken.step(lambda: next(pieces, None))) is not None:
            taken.job(work)
    assert compaction.end_offset == end_offset, compaction.end_offset
    return taken.total


def compaction(size: int, root: Path) -> Once:
    """Compact a log of `size` segments, a new one each round."""
    directories = (root / f"t-{number}" for number in count())

    def once() -> Sample:
        log = _log_to_compact(size, next(directories))
        sample = _round(log)
        log.close_handles()
        return sample

    return once


ROWS: Final = [
    Row(
        name="compaction",
        what="a round of compaction over n segments",
        sizes=(500, 1000, 2000, 4000),
        most=LINEAR,
        prepare=compaction,
        rounds=3,
    )
]
