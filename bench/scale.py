"""`python -m bench scale`: how the cost of the store grows with the size of what it holds.

Each row is measured at several sizes: the CPU time of one thing, the median of five. The exponent of its growth is the
slope of a straight line through the logarithms: 1 is linear, 0 is independent of the size, 2 is quadratic. A row fails
above 1.15 where it should be linear, above 0.15 where it should be independent, and if a step of a node takes longer
than 50 ms at any size. A row that misses a mark is measured twice more and judged by the medians of all rounds, so that
a moment in which something else works on the machine fails no row; the table shows the rounds.

`--row NAME` selects rows, `--part NAME` the rows of one file. `--quick` takes the two least sizes, one round each.
`--before REVISION` measures the same rows on that revision too, in turns with this one; a row with a mark of its own
must then cost at most that share of before.
"""

from __future__ import annotations

import argparse
import importlib
import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Final

from bench.growth import STEP_S, Measured, Row, collect, judge, medians
from bench.older import add_former_names

PARTS: Final = (
    "scale_starts",
    "scale_producers",
    "scale_compaction",
    "scale_segments",
    "scale_lookups",
    "scale_partitions",
    "scale_year",
    "scale_files",
    "scale_handles",
)
ROOT: Final = Path(__file__).parents[1]
# What a measurement imports, besides the folder of this file.
_MEASURED: Final = ("storage", "cluster", "sim", "proto", "replog")


def rows_of(parts: Sequence[str]) -> list[Row]:
    rows = [row for part in parts for row in importlib.import_module(f"bench.{part}").ROWS]
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


def measure_before(row: Row, root: Path, *, is_quick: bool) -> tuple[float, ...]:
    """Measure the row with the packages in `root`, in a process of its own."""
    command = [sys.executable, "-m", "bench.scale", "--part", row.part, "--row", row.name, "--json"]
    # Without the path of this checkout an installed copy of the packages could not come first.
    environment = {**os.environ, "PYTHONPATH": str(root)}
    done = subprocess.run(
        [*command, *(["--quick"] if is_quick else [])],
        cwd=root,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise SystemExit(f"error: {row.name} cannot be measured on the revision before:\n{done.stderr}")
    return tuple(json.loads(done.stdout)[row.name])


def show(results: Sequence[Measured]) -> None:
    """Print the table."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title="growth, measured in this run (medians of CPU time)", title_justify="left")
    for heading in (
        "row",
        "sizes",
        "values",
        "rounds",
        "exponent",
        "most",
        "longest step",
        "share of before",
        "met",
    ):
        table.add_column(heading, justify="right" if heading == "exponent" else "left")
    for each in results:
        row, longest = each.row, each.longest_step_s
        table.add_row(
            f"{row.what} ({row.name})",
            "\n".join(f"{size:,}" for size in each.sizes),
            "\n".join(_of_unit(sample.value, row.unit) for sample in each.samples),
            str(each.rounds),
            f"{each.exponent:.2f}",
            f"{row.most:g}",
            "" if longest is None else f"{longest * 1e3:.1f} ms <= {STEP_S * 1e3:g}",
            _shown_share(each),
            "yes" if each.is_met else "NO",
        )
    Console(width=160).print(table)


def _shown_share(measured: Measured) -> str:
    if measured.share is None:
        return ""
    most = measured.row.most_share
    return f"{measured.share:.2f}" + ("" if most is None else f" <= {most:g}")


def _of_unit(value: float, unit: str) -> str:
    return f"{value * 1e3:,.3g} ms" if unit == "s" else f"{value:,.3g} {unit}"


def _measured(row: Row, before: Path | None, *, is_quick: bool) -> Measured:
    earlier = () if before is None else measure_before(row, before, is_quick=is_quick)
    if not is_quick:
        return judge(row, row.sizes, earlier)
    sizes = row.sizes[:2]
    return Measured(row=row, sizes=sizes, samples=medians(collect(row, sizes, 1)), before=earlier)


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench scale", description=__doc__.splitlines()[0])
    parser.add_argument(
        "--row", action="append", default=[], metavar="NAME", help="may be given several times"
    )
    parser.add_argument("--part", choices=PARTS, help="the rows of one file")
    parser.add_argument("--quick", action="store_true", help="the two least sizes, one round: no verdict")
    parser.add_argument("--before", metavar="REVISION", help="measure that revision too")
    parser.add_argument("--json", action="store_true", help="print the values alone")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str]) -> int:
    """Measure and print. Returns 1 if a row does not meet its mark (never with `--quick`), 2 for an unknown row."""
    options = _parse(arguments)
    rows = rows_of([options.part] if options.part else PARTS)
    if unknown := sorted(set(options.row) - {row.name for row in rows}):
        print(
            f"error: no row {unknown[0]!r}; there are {', '.join(row.name for row in rows)}", file=sys.stderr
        )
        return 2
    chosen = [row for row in rows if not options.row or row.name in options.row]
    results = []
    with checkout(options.before) if options.before else nullcontext() as before:
        for row in chosen:
            start = time.monotonic()
            results.append(_measured(row, before, is_quick=options.quick))
            print(f"  {row.name}: {time.monotonic() - start:.0f} s", file=sys.stderr, flush=True)
    if options.json:
        print(json.dumps({each.row.name: [sample.value for sample in each.samples] for each in results}))
        return 0
    show(results)
    # Two sizes and one round show that a row runs; its exponent is noise.
    return 0 if options.quick or all(each.is_met for each in results) else 1


if __name__ == "__main__":
    add_former_names()
    sys.exit(main(sys.argv[1:]))
