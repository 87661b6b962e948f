"""`python -m bench scale`: how the cost of the store grows with the size of what it holds.

Each row is measured at four sizes: the CPU time of one thing, the median of five. The exponent of its growth is the
slope of a straight line through the logarithms: 1 is linear, 0 is independent of the size, 2 is quadratic. A row fails
above 1.15 where it should be linear, above 0.15 where it should be independent.

`--row NAME` selects rows. `--before REVISION` measures the same rows on that revision too, in turns with this one;
a row with a mark of its own must then cost at most that share of before.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import io
import json
import math
import os
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

LINEAR: Final = 1.15
INDEPENDENT: Final = 0.15
ROUNDS: Final = 5
PARTS: Final = ("scale_starts", "scale_steps", "scale_files")
ROOT: Final = Path(__file__).parents[1]
# What a measurement imports, besides the folder of this file.
_MEASURED: Final = ("storage", "cluster", "sim", "proto", "replog")

# Prepares in a new directory something of a size. The function that it returns is called for each round, and returns
# the value of that round: CPU seconds of the measured part alone, or whatever the unit of the row says.
Prepare = Callable[[int, Path], Callable[[], float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One thing that is measured at four sizes. `most` is the greatest exponent.

    `most_share` is the greatest share of the cost before, with `--before`; `most_value` the greatest value at any size.
    """

    name: str
    what: str
    sizes: tuple[int, ...]
    most: float
    prepare: Prepare
    unit: str = "s"
    rounds: int = ROUNDS
    most_share: float | None = None
    most_value: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """The values of a row, one for each size."""

    row: Row
    values: tuple[float, ...]
    before: tuple[float, ...] = ()

    @property
    def exponent(self) -> float:
        return exponent(self.row.sizes, self.values)

    @property
    def share(self) -> float | None:
        """The value at the greatest size over that of before; None where before was not measured."""
        return self.values[-1] / self.before[-1] if self.before else None

    @property
    def is_met(self) -> bool:
        """Whether all marks of the row are reached; a share only where before was measured."""
        row, share = self.row, self.share
        if row.most_share is not None and share is not None and share > row.most_share:
            return False
        if row.most_value is not None and max(self.values) > row.most_value:
            return False
        return self.exponent <= row.most


def exponent(sizes: Sequence[int], values: Sequence[float]) -> float:
    """The slope of the straight line through the logarithms of sizes and values, by least squares."""
    assert len(sizes) == len(values) > 1, (sizes, values)
    # A value of 0 has no logarithm; nothing measured here is below a nanosecond.
    points = [(math.log(size), math.log(max(value, 1e-9))) for size, value in zip(sizes, values, strict=True)]
    mean_x, mean_y = (statistics.fmean(column) for column in zip(*points, strict=True))
    return sum((x - mean_x) * (y - mean_y) for x, y in points) / sum((x - mean_x) ** 2 for x, _ in points)


@contextmanager
def scratch() -> Iterator[Path]:
    """Create a temporary directory, in memory if the machine has such a place: a real sync takes time, not work."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(prefix="replog-scale-", dir=memory if memory.is_dir() else None) as root:
        yield Path(root)


def cpu_seconds(work: Callable[[], object]) -> float:
    """The CPU seconds of this process, all threads, while `work` runs. Garbage from before is not counted."""
    gc.collect()
    start = time.process_time()
    work()
    return time.process_time() - start


def measure(row: Row) -> tuple[float, ...]:
    """The median of the rounds at each size."""
    values = []
    for size in row.sizes:
        with scratch() as root:
            once = row.prepare(size, root)
            values.append(statistics.median(once() for _ in range(row.rounds)))
    return tuple(values)


def all_rows() -> list[Row]:
    rows = [row for part in PARTS for row in importlib.import_module(f"bench.{part}").ROWS]
    assert len({row.name for row in rows}) == len(rows), [row.name for row in rows]
    return rows


@contextmanager
def checkout(revision: str) -> Iterator[Path]:
    """The packages of `revision` in a temporary directory, beside the measurements of this one."""
    with tempfile.TemporaryDirectory(prefix="replog-before-") as root:
        command = ["git", "archive", "--format=tar", revision, *_MEASURED]
        archive = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout
        with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
            tar.extractall(root, filter="data")
        (Path(root) / "bench").symlink_to(ROOT / "bench")
        yield Path(root)


def measure_before(row: Row, root: Path) -> tuple[float, ...]:
    """Measure the row with the packages in `root`, in a process of its own."""
    command = [sys.executable, "-m", "bench.scale", "--row", row.name, "--json"]
    # Without the path of this checkout an installed copy of the packages could not come first.
    environment = {**os.environ, "PYTHONPATH": str(root)}
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"error: {row.name} cannot be measured on the revision before:\n{done.stderr}")
    return tuple(json.loads(done.stdout)[row.name])


def show(results: Sequence[Measured]) -> None:
    """Print the table."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title="growth, measured in this run (medians of CPU time)", title_justify="left")
    for heading in ("row", "sizes", "values", "exponent", "most", "share of before", "met"):
        table.add_column(heading, justify="right" if heading == "exponent" else "left")
    for each in results:
        row, share = each.row, each.share
        limits = f"<= {row.most:g}" + (
            "" if row.most_value is None else f", <= {row.most_value:g} {row.unit}"
        )
        table.add_row(
            row.what,
            "\n".join(f"{size:,}" for size in row.sizes),
            "\n".join(_of_unit(value, row.unit) for value in each.values),
            f"{each.exponent:.2f}",
            limits,
            ""
            if share is None
            else f"{share:.2f}" + ("" if row.most_share is None else f" <= {row.most_share:g}"),
            "yes" if each.is_met else "NO",
        )
    Console(width=160).print(table)


def _of_unit(value: float, unit: str) -> str:
    return f"{value * 1e3:,.3g} ms" if unit == "s" else f"{value:,.3g} {unit}"


def main(arguments: Sequence[str]) -> int:
    """Measure and print. Returns 1 if a row does not meet its mark, 2 for an unknown row."""
    parser = argparse.ArgumentParser(prog="python -m bench scale", description=__doc__.splitlines()[0])
    parser.add_argument(
        "--row", action="append", default=[], metavar="NAME", help="may be given several times"
    )
    parser.add_argument("--before", metavar="REVISION", help="measure that revision too")
    parser.add_argument("--json", action="store_true", help="print the values alone")
    options = parser.parse_args(arguments)
    rows = all_rows()
    if unknown := sorted(set(options.row) - {row.name for row in rows}):
        print(
            f"error: no row {unknown[0]!r}; there are {', '.join(row.name for row in rows)}", file=sys.stderr
        )
        return 2
    chosen = [row for row in rows if not options.row or row.name in options.row]
    if options.json:
        print(json.dumps({row.name: measure(row) for row in chosen}))
        return 0
    results = []
    with checkout(options.before) if options.before else _nothing() as before:
        for row in chosen:
            print(f"  {row.name} ...", file=sys.stderr, flush=True)
            earlier = measure_before(row, before) if before is not None else ()
            results.append(Measured(row=row, values=measure(row), before=earlier))
    show(results)
    return 0 if all(each.is_met for each in results) else 1


@contextmanager
def _nothing() -> Iterator[None]:
    yield None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
