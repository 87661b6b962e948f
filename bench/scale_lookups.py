"""Rows of `bench/scale.py`: steps in one long segment whose timestamps are level, and over many segments at once."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from bench.growth import LINEAR, Once, Row, Sample, sliced
from bench.scale_logs import (
    FIRST_TIMESTAMP,
    ROOMY,
    one_record,
    open_log,
    write_one_segment,
)

# Batches in the segment.
BATCHES: Final = (25_000, 50_000, 100_000, 200_000)
CUT_BATCHES: Final = 10


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


ROWS: Final = [
    Row(
        name="truncate-level",
        what="a truncation of ten of n batches of one timestamp, after a clean start",
        sizes=BATCHES,
        most=LINEAR,
        prepare=truncate_level,
    ),
]
