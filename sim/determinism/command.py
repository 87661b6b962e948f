"""The command `replog sim check`: does a seed always have the same run?"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import click

from sim.bundled import find_scenario
from sim.determinism.divergence import first_divergence
from sim.determinism.double import DoubleRun, SideError, double_runs, traces
from sim.scenario.loading import ScenarioError, load_scenario
from sim.seed_range import Seeds
from sim.swarm.drawing import NAME as DRAWN

MISMATCH = 4
UNUSABLE_INPUT = 2
INTERRUPTED = 3
# With no mismatch in N runs, the rate is below 3 / N with 95 % confidence.
RULE_OF_THREE = 3

ParseSeeds = Callable[[click.Context, click.Parameter, str | None], Seeds | None]


def check_command(parse_seeds: ParseSeeds) -> click.Command:
    """Returns the command; `parse_seeds` is the callback of the option --seeds, the same as that of `sim run`."""

    @click.command("check")
    @click.argument("scenario")
    @click.option(
        "--seeds",
        metavar="A..B",
        default="0..10",
        show_default=True,
        callback=parse_seeds,
        help="Check each seed from A to B, B excluded.",
    )
    @click.option("--json", "as_json", is_flag=True, help="Print one JSON object a seed, and a summary.")
    def check(scenario: str, seeds: Seeds, as_json: bool) -> None:
        """Run each seed twice and compare the runs.

        SCENARIO is a file or the name of a bundled scenario, or `swarm` for the scenario that is drawn from each seed.

        The two interpreters differ in hash seed, addresses, working directory, environment, time zone, locale, what
        they ran before, garbage collection and trace file. A run that opens a file, asks for the time or starts a
        thread fails too. Of each seed that differs, the first event that does is printed from both runs.

        Runs that end with the same error are compared up to it, and counted. If all do, the first error is printed.

        Exit status: 0 all equal, 2 the input was unusable or no run came to its end, 3 interrupted, 4 a run differs.
        """
        sys.exit(_check(scenario, seeds, as_json=as_json))

    return check


def _check(scenario: str, seeds: Seeds, *, as_json: bool) -> int:
    try:
        # A scenario that cannot be run is told in one line, before two processes start.
        work = _anywhere(scenario)
        mismatches = errors = 0
        first_error = ""
        with closing(double_runs(work, seeds)) as pairs:
            for pair in pairs:
                mismatches += not pair.is_equal
                errors += pair.is_error
                first_error = first_error or pair.first.error
                _print(work, pair, as_json=as_json)
    except (ScenarioError, SideError, OSError) as error:
        click.echo(str(error), err=True)
        return UNUSABLE_INPUT
    except KeyboardInterrupt:
        click.echo("interrupted", err=True)
        return INTERRUPTED
    if as_json:
        counts = {"double_runs": len(seeds), "mismatches": mismatches, "errors": errors}
        summary = {"scenario": scenario} | counts
        click.echo(json.dumps({"summary": summary}))
    else:
        click.echo(closing_line(scenario, seeds, mismatches, errors))
    if errors == len(seeds) and not mismatches:
        click.echo(f"no run came to its end: {first_error}", err=True)
        return UNUSABLE_INPUT
    return MISMATCH if mismatches else 0


def _anywhere(scenario: str) -> str:
    """Returns the scenario as both sides find it, which run in other directories. Raises ScenarioError."""
    if scenario == DRAWN:
        return scenario
    path = find_scenario(scenario)
    load_scenario(path)
    return str(path.resolve())


def _print(scenario: str, pair: DoubleRun, *, as_json: bool) -> None:
    if as_json:
        row = {"seed": pair.seed, "equal": pair.is_equal, "trace_hash": pair.first.trace_hash}
        error = pair.first.error or pair.second.error
        click.echo(json.dumps(row | {"difference": pair.difference(), "error": error}))
    elif not pair.is_equal:
        click.echo(f"seed {pair.seed} differs: {pair.difference()}")
        for line in _where(scenario, pair.seed):
            click.echo(f"  {line}")


def _where(scenario: str, seed: int) -> list[str]:
    """Returns the first event that differs, from two more runs with whole traces."""
    with tempfile.TemporaryDirectory() as directory:
        found = first_divergence(*traces(scenario, seed, Path(directory)))
    return found.lines() if found is not None else ["two more runs have equal traces"]


def closing_line(scenario: str, seeds: Seeds, mismatches: int, errors: int) -> str:
    """Returns the counts and, if nothing differs, what they prove."""
    count = len(seeds)
    line = f"{scenario}, seeds {seeds}: {count} double run{'s' * (count != 1)}, {mismatches} differ"
    if errors:
        line += f", {errors} ended with an error"
    # A run that ended with an error says nothing of what would have followed.
    whole = count - errors
    if mismatches or whole <= RULE_OF_THREE:
        return line
    return f"{line}: with 95 % confidence fewer than {100 * RULE_OF_THREE / whole:.3g} % of runs do"
