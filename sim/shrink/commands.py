"""The command `replog sim shrink`, which makes a failing scenario small."""

from __future__ import annotations

import gc
import json
import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import final

import click

from sim.bugs import BugError, install
from sim.bundled import find_scenario
from sim.scenario.loading import ScenarioError
from sim.scenario.values import parse_duration
from sim.seed_range import MOST_SEEDS
from sim.seeds import default_jobs
from sim.shrink.data import Data, read_data
from sim.shrink.report import NothingFails, Shrunk, Size, file_text, shrink_failure
from sim.shrink.search import Failing
from sim.swarm.drawing import draw
from sim.whole_file import whole_file

MOST_TRIALS = 2_000
UNUSABLE_INPUT = 2
INTERRUPTED = 3
UNPROVEN = 4


def _parse_budget(ctx: click.Context, param: click.Parameter, text: str) -> float:
    try:
        return parse_duration(text) / 1e6
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


@click.command()
@click.argument("scenario", required=False)
@click.option(
    "--seed",
    type=click.IntRange(0, MOST_SEEDS),
    help="The seed with which SCENARIO fails, 0 without it; alone, as --swarm N.",
)
@click.option(
    "--swarm",
    type=click.IntRange(0, MOST_SEEDS),
    metavar="N",
    help="Shrink what this seed of the swarm draws.",
)
@click.option("--bug", metavar="NAME", help="Plant a known bug first. An unknown NAME prints the list.")
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    default="min.yaml",
    show_default=True,
    help="Write the small scenario to this file.",
)
@click.option(
    "--budget",
    default="120s",
    show_default=True,
    callback=_parse_budget,
    help="The processor time that the search may take; proof and likelihood come on top.",
)
@click.option(
    "--jobs",
    type=click.IntRange(min=1),
    help="Runs at the same time, each in a process.  [default: the processors]",
)
@click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON object.")
def shrink(
    scenario: str | None,
    seed: int | None,
    swarm: int | None,
    bug: str | None,
    out: Path,
    budget: float,
    jobs: int | None,
    as_json: bool,
) -> None:
    """Take away from a failing scenario all that its failure does not need.

    SCENARIO is a bundled scenario or a file, as for `replog sim run`; without one, what --seed draws. Whatever fails
    with the same kind of violation is kept: fewer faults, clients, brokers and records, the defaults instead of
    settings, rounder times. The small scenario is written, and run again in two new interpreters. Ctrl-C ends the
    search and keeps the best so far.

    Exit status: 0 it is written, 2 the input was unusable or does not fail, 3 interrupted, and the best so far is
    written, 4 the result does not fail each time.
    """
    logging.getLogger().addHandler(logging.NullHandler())
    file = _File(out, bug)
    try:
        data, chosen = _asked(scenario, seed, swarm)
        file.check(None if scenario is None else find_scenario(scenario))
        if bug is not None:
            with install(bug):
                pass
        # A collection in a child would write to, and so copy, the memory that it shares.
        gc.collect()
        gc.freeze()
        shrunk = shrink_failure(
            data, chosen, bug, jobs=jobs or default_jobs(), budget_s=budget, most_trials=MOST_TRIALS,
            cpu_clock=_children_cpu(), on_smaller=_print_smaller, on_found=file.write,
        )  # fmt: skip
    except (ScenarioError, BugError, NothingFails, OSError) as error:
        click.echo(str(error), err=True)
        sys.exit(UNUSABLE_INPUT)
    except KeyboardInterrupt:
        click.echo(f"interrupted{file.told()}", err=True)
        sys.exit(INTERRUPTED)
    click.echo(json.dumps(shrunk.as_json(str(out))) if as_json else "\n".join(shrunk.lines(str(out))))
    sys.exit(_status(shrunk))


@final
class _File:
    """The file that the small scenario is written to, as soon as there is one."""

    def __init__(self, path: Path, bug: str | None) -> None:
        self._path, self._bug = path, bug
        self._is_written = False

    def check(self, scenario: Path | None) -> None:
        """Raises OSError if it cannot be written, better now than after the search; a usage error if it is SCENARIO."""
        if scenario is not None and self._path.is_file() and self._path.samefile(scenario):
            raise click.UsageError(f"SCENARIO and --out are the same file: {self._path}")
        directory = Path(os.path.realpath(self._path)).parent
        is_replaced = self._path.is_file() or not self._path.exists()
        if is_replaced and not directory.is_dir():
            raise NotADirectoryError(f"{self._path}: no directory {directory}")
        written = [self._path] * self._path.exists() + [directory] * is_replaced
        if self._path.is_dir() or not all(os.access(each, os.W_OK) for each in written):
            raise PermissionError(f"{self._path}: must not be written")

    def write(self, last: Failing) -> None:
        """Writes the scenario; if that fails, prints it instead, and raises OSError."""
        text = file_text(last, self._bug, str(self._path))
        try:
            with whole_file(self._path) as output:
                output.write(text)
        except OSError:
            click.echo(text, nl=False)
            raise
        self._is_written = True

    def told(self) -> str:
        """Returns where the result of the search is, in words; empty as long as there is none."""
        return f": the small scenario, not proven, is in {self._path}" if self._is_written else ""


def _asked(scenario: str | None, seed: int | None, swarm: int | None) -> tuple[Data, int]:
    """Returns the data and the seed that the options name. Raises ScenarioError, or a usage error."""
    if swarm is not None:
        if scenario is not None or seed is not None:
            raise click.UsageError("--swarm N is scenario and seed at once")
        return dict(draw(swarm).parts), swarm
    if scenario is not None:
        return read_data(find_scenario(scenario)), seed or 0
    if seed is None:
        raise click.UsageError("missing SCENARIO, or --seed N of the swarm")
    return dict(draw(seed).parts), seed


def _children_cpu() -> Callable[[], float]:
    """Returns a clock of the processor time of the processes that end from now on, in seconds."""
    begin = os.times()

    def passed() -> float:
        now = os.times()
        return now.children_user + now.children_system - begin.children_user - begin.children_system

    return passed


def _print_smaller(name: str, best: Failing) -> None:
    click.echo(f"{name}: {Size.of(best)}", err=True)


def _status(shrunk: Shrunk) -> int:
    if not shrunk.proof.holds:
        return UNPROVEN
    return INTERRUPTED if shrunk.is_interrupted else 0
