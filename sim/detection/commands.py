"""The command `replog sim bugs`, which lists the known bugs and measures how soon random seeds find them."""

from __future__ import annotations

import json
import logging
import resource
import secrets
import sys
from collections.abc import Mapping
from pathlib import Path

import click
from click.core import ParameterSource

from sim.bugs import Bug, BugError, bugs, check_targets
from sim.detection.measure import Plan, measure
from sim.detection.results import columns, detections, table
from sim.scenario.values import parse_duration
from sim.seed_range import MOST_SEEDS
from sim.seeds import default_jobs
from sim.swarm.results import ResultsError

UNUSABLE_INPUT = 2
INTERRUPTED = 3


def _parse_budget(ctx: click.Context, param: click.Parameter, text: str) -> float:
    """Returns seconds: `60s`, `1.5m`, `500ms` or plain `60`."""
    try:
        seconds = parse_duration(f"{text}s" if text[-1:].isdecimal() else text) / 1e6
    except ValueError as error:
        raise click.BadParameter(f"{text!r} is no time: write 60s, 2m or 500ms") from error
    if not 0.1 <= seconds <= 86_400:
        raise click.BadParameter(f"{text!r} is not from 0.1s to 24h")
    return seconds


def _parse_only(ctx: click.Context, param: click.Parameter, text: str | None) -> Mapping[str, Bug]:
    """Returns the bugs of these names, in the order of the catalogue; all of them without a text."""
    known = bugs()
    names = list(known) if text is None else text.split(",")
    for name in names:
        if name not in known:
            raise click.BadParameter(f"unknown bug {name!r}: `replog sim bugs` lists them")
    return {name: bug for name, bug in known.items() if name in names}


@click.command("bugs")
@click.option("--measure", "is_measure", is_flag=True, help="Search for each bug with random seeds.")
@click.option(
    "--budget",
    "budget_s",
    default="60s",
    show_default=True,
    callback=_parse_budget,
    help="Processor time of one start, such as 60s, 2m or 500ms.",
)
@click.option(
    "--starts", type=click.IntRange(1, 1_000), default=9, show_default=True, help="Searches for each bug."
)
@click.option(
    "--only", "chosen", metavar="NAME,...", callback=_parse_only, help="Only these bugs.  [default: all]"
)
@click.option(
    "--jobs",
    type=click.IntRange(min=1),
    help="Searches at the same time, each in a process.  [default: the processors]",
)
@click.option(
    "--seed",
    "base",
    type=click.IntRange(0, MOST_SEEDS),
    help="What the first seed of each start is drawn from, to repeat a measurement.  [default: drawn now]",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Add each start to this file as a line of JSON; starts that it has are not run again.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.pass_context
def bugs_command(
    context: click.Context,
    /,
    is_measure: bool,
    budget_s: float,
    starts: int,
    chosen: Mapping[str, Bug],
    jobs: int | None,
    base: int | None,
    out: Path | None,
    as_json: bool,
) -> None:
    """List the bugs that `--bug NAME` plants, or measure how soon random seeds find each.

    A start runs the seeds that `replog sim swarm` would, from a random one on, until one is violated that holds without
    the bug, or the budget is spent. A bug is found if its median start finds it; starts that cannot change that are
    left out, and its numbers are upper bounds then.

    Exit status: 0, 2 the input was unusable, 3 it was interrupted.
    """
    if not is_measure:
        _check_options(context)
        _print_list(chosen, as_json=as_json)
        return
    # The rows report what the product's loggers would.
    logging.getLogger().addHandler(logging.NullHandler())
    plan = Plan(
        bugs=tuple(chosen), starts=starts, budget_s=budget_s, base=base, jobs=jobs or default_jobs(), out=out
    )
    try:
        for bug in chosen.values():
            check_targets(bug)
        measured = measure(plan, draw_base=lambda: secrets.randbelow(1 << 32), cpu_s=_cpu_s)
    except (BugError, ResultsError) as error:
        click.echo(str(error), err=True)
        sys.exit(UNUSABLE_INPUT)
    found = detections(chosen, measured.rows, starts)
    if as_json:
        click.echo(json.dumps({"bugs": [each.as_json() for each in found]} | measured.as_json()))
    else:
        click.echo("\n".join([*table(found), measured.line()]))
    if measured.is_interrupted:
        click.echo("interrupted", err=True)
        sys.exit(INTERRUPTED)


def _check_options(context: click.Context) -> None:
    """Raise a usage error for an option that only a measurement has."""
    options = {"budget_s": "budget", "starts": "starts", "jobs": "jobs", "base": "seed", "out": "out"}
    for name, option in options.items():
        if context.get_parameter_source(name) is not ParameterSource.DEFAULT:
            raise click.UsageError(f"--{option} needs --measure: without it the bugs are listed")


def _print_list(chosen: Mapping[str, Bug], *, as_json: bool) -> None:
    if as_json:
        rows = [
            {"id": bug.name, "ticket": bug.ticket, "story": bug.story, "found_by": bug.found_by}
            for bug in chosen.values()
        ]
        click.echo(json.dumps({"bugs": rows}))
        return
    head = ("bug", "ticket", "found by", "mistake")
    lines = [(bug.name, bug.ticket or "-", bug.found_by or "-", bug.story) for bug in chosen.values()]
    click.echo("\n".join(columns([head, *lines])))


def _cpu_s() -> float:
    """Returns the processor time of this process, in seconds. No run sees it."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
