"""Rows of `bench/scale.py`: starts on many segments and transactions."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from bench.growth import LINEAR, Once, Row
from bench.scale_logs import SIZES, overlapping, start, write_one_segment, write_segments


def unclean_segments(size: int, root: Path) -> Once:
    write_segments(root / "t-0", size)
    return start(root / "t-0", clean=False)


def clean_segments(size: int, root: Path) -> Once:
    write_segments(root / "t-0", size)
    return start(root / "t-0", clean=True)


def unclean_transactions(size: int, root: Path) -> Once:
    write_one_segment(root / "t-0", overlapping(size))
    return start(root / "t-0", clean=False)


ROWS: Final = [
    Row(
        name="unclean-segments",
        what="an unclean start with n segments",
        sizes=(500, 1000, 2000, 4000),
        most=LINEAR,
        prepare=unclean_segments,
    ),
    Row(
        name="clean-segments",
        what="a clean start with n segments",
        sizes=SIZES,
        most=LINEAR,
        prepare=clean_segments,
    ),
    Row(
        name="unclean-transactions",
        what="an unclean start with n overlapping transactions",
        sizes=(5000, 10_000, 20_000, 40_000),
        most=LINEAR,
        prepare=unclean_transactions,
    ),
]
