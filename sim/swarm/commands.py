"""The command `replog sim swarm`, which draws runs from seeds and runs them."""

from __future__ import annotations

import logging
import os
import sys
import time
from pathlib import Path

import click
from click.core import ParameterSource

from sim.bugs import BugError, install
from sim.seed_range import MOST_SEEDS, Seeds
from sim.seeds import default_jobs
from sim.swarm.drawing import draw
from sim.swarm.job import SwarmJob, parse_only
from sim.swarm.output import run_campaign
from sim.swarm.plans.catalogue import FAULTS
from sim.swarm.profiles import Profile, shares_text
from sim.swarm.results import ResultsError

UNUSABLE_INPUT = 2


def _parse_seeds(ctx: click.Context, param: click.Parameter, text: str | None) -> Seeds | None:
    try:
        return Seeds.parse(text) if text is not None else None
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


def _parse_only(ctx: click.Context, param: click.Parameter, text: str | None) -> tuple[str, ...]:
    try:
        return parse_only(text.split(","), FAULTS) if text is not None else ()
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


@click.command()
@click.option("--seeds", metavar="A..B", callback=_parse_seeds, help="The seeds from A to B, B excluded.")
@click.option(
    "--jobs",
    type=click.IntRange(min=1),
    help="Runs at the same time, each in a process.  [default: the processors]",
)
@click.option(
    "--profile",
    type=click.Choice([profile.value for profile in Profile]),
    help="How much the faults may take: within the promises, the edge (the controller is away), or beyond.  "
    f"[default: drawn, {shares_text()}]",
)
@click.option(
    "--only",
    metavar="FAULTS",
    callback=_parse_only,
    help="Keep only faults of these kinds, such as kill,power; all else stays as it was drawn. "
    "An unknown one prints the list.",
)
@click.option(
    "--buggify/--no-buggify",
    default=None,
    help="Perturb effects and settings at drawn points in each run, or in none.  [default: in half of the runs]",
)
@click.option(
    "--describe",
    type=click.IntRange(0, MOST_SEEDS),
    metavar="SEED",
    help="Print the scenario of this seed as a file that `replog sim run` takes, and run nothing.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Add each result to this file as a line of JSON; seeds that it has are not run again.",
)
@click.option("--bug", metavar="NAME", help="Plant a known bug first. An unknown NAME prints the list.")
@click.option("--full", is_flag=True, help="Run each seed to its end, also after a violation.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line, and a summary.")
@click.pass_context
def swarm(
    context: click.Context,
    /,
    seeds: Seeds | None,
    jobs: int | None,
    profile: str | None,
    only: tuple[str, ...],
    buggify: bool | None,
    describe: int | None,
    out: Path | None,
    bug: str | None,
    full: bool,
    as_json: bool,
) -> None:
    """Draw a cluster, its settings, its load, its network and a plan of faults from each seed, and run it.

    Every new kind of violation is printed with the commands that replay it. The end says what failed, by kind, which
    runs proved nothing (starved), and which points no run has reached. Each run ends at its first violation.

    Exit status: 0 every rule held, 1 a rule was violated, 2 a run failed or the input was unusable, 3 no run proved
    anything, or it was interrupted.
    """
    chosen = Profile(profile) if profile is not None else None
    if describe is not None:
        _check_description(context)
        click.echo(draw(describe, chosen, only, buggify=buggify).as_yaml(), nl=False)
        return
    if seeds is None:
        raise click.UsageError("missing --seeds A..B")
    job = SwarmJob(profile=chosen, only=only, bug=bug, is_full=full, buggify=buggify)
    # The rows report what the product's loggers would.
    logging.getLogger().addHandler(logging.NullHandler())
    try:
        _check_bug(bug)
        status = run_campaign(
            job, seeds, jobs=jobs or default_jobs(), out=out, as_json=as_json, stopwatch=_stopwatch
        )
    except (BugError, ResultsError) as error:
        click.echo(str(error), err=True)
        sys.exit(UNUSABLE_INPUT)
    sys.exit(status)


def _check_description(context: click.Context) -> None:
    """Raise a usage error for an option that only runs have: --describe runs nothing."""
    for name in ("seeds", "jobs", "out", "bug", "full", "as_json"):
        if context.get_parameter_source(name) is not ParameterSource.DEFAULT:
            option = name.removeprefix("as_")
            raise click.UsageError(f"--describe and --{option} exclude each other: --describe runs nothing")


def _stopwatch() -> tuple[float, float]:
    """Returns the time of the machine and the processor time of the processes that have ended, in seconds."""
    times = os.times()
    return time.perf_counter(), times.children_user + times.children_system


def _check_bug(bug: str | None) -> None:
    """Raise BugError once, and not for each seed."""
    if bug is not None:
        with install(bug):
            pass
