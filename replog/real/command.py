"""Runs a scenario on processes for `replog sim run --real`, and prints what came of it."""

from __future__ import annotations

import asyncio
import json
import shlex
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import click

from replog.real.ground import NotStarted
from replog.real.result import RealResult
from replog.real.run import RealRun
from sim.interruption import terminated_like_interrupted
from sim.judgement import Verdict
from sim.result_lines import operation_lines, verdict_lines
from sim.scenario.loading import load_scenario
from sim.scenario.model import Scenario

_EXIT = {Verdict.HELD: 0, Verdict.VIOLATED: 1, Verdict.STARVED: 3}
UNUSABLE_INPUT = 2


def run_on_processes(path: Path, seed: int, *, source: str, as_json: bool, with_story: bool) -> int:
    """Run the scenario at `path` and print its story and the verdict; returns the exit status.

    Raises ScenarioError, OSError and, after every process has ended, KeyboardInterrupt.
    """
    scenario = load_scenario(path)
    on_line = click.echo if with_story and not as_json else _ignore
    try:
        result = run_scenario_on_processes(scenario, seed, source=source, on_line=on_line)
    except NotStarted as error:
        click.echo(str(error), err=True)
        return UNUSABLE_INPUT
    if as_json:
        click.echo(json.dumps(result.as_json()))
    else:
        _print(result, with_story=with_story)
    return _EXIT[result.verdict]


def _ignore(line: str) -> None:
    """Print no story."""


def run_scenario_on_processes(
    scenario: Scenario, seed: int, *, source: str = "FILE", on_line: Callable[[str], None] = _ignore,
    before_judgement: Callable[[Path], None] | None = None, is_short: bool = False,
) -> RealResult:  # fmt: skip
    """Run a scenario on processes of this machine to the verdict. `seed` draws what a scenario leaves open.

    `on_line` gets each line of the story as it happens. `before_judgement` is called with the directory of all that
    was written, when every process has ended and nothing is judged yet. A run that `is_short` heals everything soon
    after its last step, and not only when the time of the scenario is over. The directory is kept if a rule was
    violated. Raises NotStarted, OSError and, after every process has ended, KeyboardInterrupt.
    """
    again = f"replog sim run {shlex.quote(source)} --seed {seed} --real"
    data = Path(tempfile.mkdtemp(prefix="replog-real-"))
    is_kept = False
    try:
        with asyncio.Runner() as runner, terminated_like_interrupted():
            run = RealRun(scenario, seed, data, on_line, before_judgement, is_short=is_short)
            result = runner.run(run.go(again))
        is_kept = result.data is not None
    finally:
        if not is_kept:
            shutil.rmtree(data, ignore_errors=True)
    return result


def _print(result: RealResult, *, with_story: bool) -> None:
    if with_story:
        click.echo()
    for line in operation_lines(result):
        click.echo(line)
    click.echo(f"reads: {result.reads}")
    if result.skipped:
        click.echo(f"skipped on processes: {len(result.skipped)}")
    for what in result.skipped:
        click.echo(f"skipped: {what}")
    for line in verdict_lines(result):
        click.echo(line)
    click.echo(f"time: {result.real_ms / 1000:.1f} seconds")
    if result.data is not None:
        click.echo(f"data: {result.data}")
    click.echo(f"again: {result.again}")
