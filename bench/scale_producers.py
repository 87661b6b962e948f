"""Rows of `bench/scale.py`: starts with many producers, beside those of an earlier revision."""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Final

from bench.growth import LINEAR, Once, Row, Sample
from bench.scale_logs import FIRST_TIMESTAMP, ROOMY, one_record, open_log, start, write_one_segment

# Not fewer: only from here on does a start walk all of them as garbage that is none, which would look like growth.
SIZES: Final = (50_000, 100_000, 150_000, 200_000)


_CHUNK: Final = 25_000


@cache
def _batches(first: int) -> bytes:
    """The batches of a chunk of producers, one each millisecond, built once: several rows write the same ones."""
    return b"".join(
        one_record(offset, producer_id=offset, sequence=7, timestamp=FIRST_TIMESTAMP + offset)
        for offset in range(first, first + _CHUNK)
    )


def write_producers(directory: Path, count: int) -> None:
    """Write a log of one batch for each of `count` producers, with a snapshot of all as an orderly stop leaves it."""
    assert count % _CHUNK == 0, count
    write_one_segment(directory, map(_batches, range(0, count, _CHUNK)))
    open_log(directory, clean=False, config=ROOMY).close()


def clean_producers(size: int, root: Path) -> Once:
    write_producers(root / "t-0", size)
    return start(root / "t-0", clean=True, config=ROOMY)


def unclean_producers(size: int, root: Path) -> Once:
    write_producers(root / "t-0", size)
    return start(root / "t-0", clean=False, config=ROOMY)


_GROWTH: Final = """
import sys
from pathlib import Path
from bench.older import add_former_names
add_former_names()
from bench.scale_logs import ROOMY, open_log
peak = lambda: int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0])
before = peak()
log = open_log(Path(sys.argv[1]), clean=True, config=ROOMY)
print(peak() - before)
"""


def producers_memory(size: int, root: Path) -> Once:
    """The greatest memory of a clean start, in a process of its own, in MiB."""
    write_producers(root / "t-0", size)
    command = [sys.executable, "-c", _GROWTH, str(root / "t-0")]

    def once() -> Sample:
        return Sample(value=int(subprocess.run(command, capture_output=True, check=True).stdout) / 1024)

    return once


ROWS: Final = [
    Row(
        name="clean-producers",
        what="a clean start with n producers",
        sizes=SIZES,
        most=LINEAR,
        prepare=clean_producers,
        most_share=0.5,
    ),
    Row(
        name="unclean-producers",
        what="an unclean start with n producers",
        sizes=SIZES,
        most=LINEAR,
        prepare=unclean_producers,
        most_share=0.5,
    ),
    Row(
        name="producers-memory",
        what="the memory of a clean start with n producers",
        sizes=SIZES,
        most=LINEAR,
        prepare=producers_memory,
        unit="MiB",
        most_share=0.5,
        rounds=1,
    ),
]
