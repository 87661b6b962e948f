"""The commands of `replog sim`, which run scenarios in simulated time."""

from __future__ import annotations

import json
import logging
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO

import click

from sim.bugs import BugError
from sim.run import RunResult, Verdict, run_scenario
from sim.scenario.model import ScenarioError

_EXIT = {Verdict.HELD: 0, Verdict.VIOLATED: 1, Verdict.STARVED: 3}
UNUSABLE_INPUT = 2
INTERRUPTED = 3


@click.group()
def sim() -> None:
    """Run scenarios in simulated time."""


@sim.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--seed",
    type=click.IntRange(0, (1 << 63) - 1),
    default=0,
    show_default=True,
    help="Seed of all random choices; a run with the same seed is the same run.",
)
@click.option(
    "--trace",
    type=click.Path(path_type=Path),
    help="Write every event of the run to this file as a line of JSON.",
)
@click.option(
    "--json", "as_json", is_flag=True, help="Print the result as one JSON object, without the story."
)
@click.option("--no-story", is_flag=True, help="Print the result without the story.")
@click.option("--bug", metavar="NAME", help="Plant a known bug first. An unknown NAME prints the list.")
def run(file: Path, seed: int, trace: Path | None, as_json: bool, no_story: bool, bug: str | None) -> None:
    """Run the scenario in FILE and print its story and the verdict.

    The last lines are the trace hash and the command that replays the run.

    Exit status: 0 every rule held, 1 a rule was violated, 2 the input was unusable, 3 the run proved nothing (starved)
    or was interrupted.
    """
    # The story and the trace report what the product's loggers would.
    logging.getLogger().addHandler(logging.NullHandler())
    with ExitStack() as stack:
        try:
            trace_file: BinaryIO | None = stack.enter_context(trace.open("wb")) if trace is not None else None
            result = run_scenario(file, seed, trace_file=trace_file, bug=bug)
        except (ScenarioError, BugError, OSError) as error:
            click.echo(str(error), err=True)
            sys.exit(UNUSABLE_INPUT)
        except KeyboardInterrupt:
            click.echo("interrupted", err=True)
            sys.exit(INTERRUPTED)
    if as_json:
        click.echo(json.dumps(result.as_json()))
    else:
        _print(result, with_story=not no_story)
    sys.exit(_EXIT[result.verdict])


def _print(result: RunResult, *, with_story: bool) -> None:
    if with_story:
        for line in result.story:
            click.echo(line)
        click.echo()
    counts = ", ".join(f"{count} {outcome}" for outcome, count in result.operations.items() if count)
    click.echo(f"sends: {counts or 'none'}")
    for reason, count in result.excused.items():
        click.echo(f"lost and excused: {count} acknowledged records: {reason}")
    for violation in result.violations:
        click.echo(f"VIOLATED at {violation.at_us / 1e6:.3f} s: {violation.checker}: {violation.what}")
    why = f" ({result.starved_because})" if result.starved_because else ""
    click.echo(f"verdict: {result.verdict.value}{why}")
    click.echo(f"events: {result.events} in {result.simulated_ms / 1000:g} simulated seconds")
    click.echo(f"trace hash: {result.trace_hash}")
    click.echo(f"replay: {result.replay}")
