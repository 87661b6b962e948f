"""Shows how much of the connection core and of the codec simulated runs go through, and which messages travel there.

`python -m tests.sim.runs.codec_coverage` (`make codec-coverage`) takes every bundled scenario and a few drawn ones, and
prints for each the lines of functions that it ran, then the lines that none of them has reached; a function that is
called only while its module is imported is one of these. It then runs one scenario on three simulated and on three real
nodes, and prints the kinds of messages on each stream of both.

Exit status: 0, or 1 where a run goes past the connection core or the codec, or where simulated nodes send other kinds
of messages than real ones.
"""

from __future__ import annotations

import argparse
import ast
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from itertools import groupby
from pathlib import Path

from coverage import Coverage

from sim.bundled import bundled_scenarios, find_scenario
from sim.run import run_scenario
from sim.scenario.loading import ScenarioError
from sim.swarm.job import SwarmJob
from tests.places import ROOT
from tests.sim.runs.message_kinds import Kinds, real, simulated

# The seed of the bundled scenarios.
SEED = 0
# The last of these has streams whose requests come in pieces, to nodes that take few calls at a time.
DRAWN = (44_000, 44_001, 44_002, 44_071)

# Lines by the path of their file.
Lines = Mapping[str, frozenset[int]]
# A run's name, and the call that makes it.
Run = tuple[str, Callable[[], object]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A part of the product that no message may go past."""

    name: str
    files: tuple[str, ...]

    def count(self, lines: Lines) -> int:
        return sum(len(lines[path]) for path in self.files)


def files_at(*places: str) -> tuple[str, ...]:
    """Return the paths of modules, and of all modules in folders."""
    found = [each for place in places for each in sorted((ROOT / place).glob("*.py")) or [ROOT / place]]
    return tuple(map(str, found))


CONNECTION = Part(name="connection core", files=files_at("cluster/core/connection"))
CODEC = Part(name="codec", files=files_at("cluster/shell/wire", "cluster/shell/streams.py"))
PARTS = (CONNECTION, CODEC)
FILES = (*CONNECTION.files, *CODEC.files)


def new_meter() -> Coverage:
    meter = Coverage(data_file=None, config_file=False, include=list(FILES))
    # The modules were imported before it: only lines of functions are counted.
    meter.set_option("run:disable_warnings", ["already-imported", "no-data-collected"])
    return meter


@cache
def all_lines() -> Lines:
    """Return the lines that a run could reach: those of the statements in functions."""
    meter = new_meter()
    return {path: lines_of_functions(path).intersection(meter.analysis2(path)[1]) for path in FILES}


def lines_of_functions(path: str) -> frozenset[int]:
    nodes = ast.walk(ast.parse(Path(path).read_bytes()))
    functions = [node for node in nodes if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]
    return frozenset(
        line for each in functions for line in range(each.body[0].lineno, (each.end_lineno or 0) + 1)
    )


def lines_run(work: Callable[[], object]) -> Lines:
    """Return the lines that `work` runs."""
    meter = new_meter()
    with meter.collect():
        work()
    data = meter.get_data()
    return {path: lines.intersection(data.lines(path) or ()) for path, lines in all_lines().items()}


def show_coverage(runs: Iterable[Run]) -> bool:
    """Print a line for each run, then what none of them has reached. Return whether each went through all parts."""
    print(f"{'lines run':<26}" + "".join(f"{part.name:>18}" for part in PARTS))
    reached: Lines = {path: frozenset() for path in FILES}
    past: list[str] = []
    for name, work in runs:
        lines = lines_run(work)
        show_row(name, lines)
        past += [f"{name} goes past the {part.name}" for part in PARTS if not part.count(lines)]
        reached = {path: reached[path] | lines[path] for path in FILES}
    show_row("all of them", reached)
    show_missed(reached)
    for each in past:
        print(f"error: {each}")
    return not past


def show_row(name: str, lines: Lines) -> None:
    counts = [f"{part.count(lines)} of {part.count(all_lines())}" for part in PARTS]
    print(f"{name:<26}" + "".join(f"{count:>18}" for count in counts), flush=True)


def show_missed(reached: Lines) -> None:
    print("\nlines that no run has reached")
    for path, lines in all_lines().items():
        if missed := ranges(lines, lines - reached[path]):
            print(f"  {Path(path).relative_to(ROOT)}: {missed}")


def ranges(lines: Iterable[int], missed: frozenset[int]) -> str:
    """Return the missed ones of `lines` as text; those with none of the others between them are one range."""
    groups = [list(group) for is_missed, group in groupby(sorted(lines), missed.__contains__) if is_missed]
    return ", ".join(f"{each[0]}-{each[-1]}" if len(each) > 1 else f"{each[0]}" for each in groups)


def show_kinds(simulated: Kinds, real: Kinds) -> bool:
    """Print which kinds of messages travel on which stream, of both worlds. Return whether they are the same."""
    print(f"\n{'stream or method':<46}{'message':<30}{'simulated':>10}{'real':>6}")
    for there, here in ((simulated.requests, real.requests), (simulated.answers, real.answers)):
        for path, name in sorted(there | here):
            marks = ["yes" if (path, name) in each else "no" for each in (there, here)]
            print(f"{path:<46}{name:<30}{marks[0]:>10}{marks[1]:>6}")
    if simulated != real:
        print("error: simulated nodes send other kinds of messages than real ones")
    return simulated == real


def runs_of(names: Iterable[str], seeds: Iterable[int]) -> Iterator[Run]:
    """Yield bundled scenarios by name, and the drawn ones of the seeds."""
    for name in names:
        yield name, partial(run_scenario, name, SEED)
    for seed in seeds:
        yield f"drawn from seed {seed}", partial(SwarmJob().run, seed)


def scenario(text: str) -> str:
    """A scenario, by name or file, on the command line."""
    try:
        find_scenario(text)
    except ScenarioError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    return text


def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns the exit status."""
    title, _, rest = (__doc__ or "").partition("\n")
    parser = argparse.ArgumentParser(
        prog="python -m tests.sim.runs.codec_coverage",
        description=title,
        epilog=rest,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("scenario", nargs="*", type=scenario, help="only these, and none that is drawn")
    names = parser.parse_args(arguments).scenario
    is_covered = show_coverage(runs_of(names, ()) if names else runs_of(bundled_scenarios(), DRAWN))
    with tempfile.TemporaryDirectory() as root:
        is_same = show_kinds(simulated(), real(Path(root)))
    return 0 if is_covered and is_same else 1


if __name__ == "__main__":
    sys.exit(main())
