"""The command `replog view`, which writes a trace as a page for a browser."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import click

from sim.view.recording import TooManyEvents, Window
from sim.view.trace_file import TraceFileError
from sim.view.write import page_beside, write_view

UNUSABLE_INPUT = 2
_US = 1_000_000


@click.command("view", short_help="Write the trace of a run as one HTML page.")
@click.argument("trace", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option(
    "--compare",
    "other",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="A second trace, shown below the first one from their first difference on.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The page.  [default: TRACE with the suffix .html]",
)
@click.option(
    "--from", "from_s", type=click.FloatRange(min=0), default=0, help="Show events from this second on."
)
@click.option("--until", "until_s", type=click.FloatRange(min=0), help="Show events before this second.")
def view(trace: Path, other: Path | None, out: Path | None, from_s: float, until_s: float | None) -> None:
    """Write the trace of a run as one HTML page, which any browser opens from the file.

    TRACE is what `replog sim run --trace TRACE` wrote. The page holds the whole run and needs no network.

    Exit status: 0 done, 2 a trace cannot be read.
    """
    for option, seconds in (("--from", from_s), ("--until", until_s)):
        if seconds is not None and not math.isfinite(seconds * _US):
            raise click.UsageError(f"{option}: {seconds:g} is no number of seconds")
    if until_s is not None and until_s <= from_s:
        raise click.UsageError(f"--until {until_s:g} is not after --from {from_s:g}")
    until_us = None if until_s is None else round(until_s * _US)
    window = Window(from_us=round(from_s * _US), until_us=until_us)
    page = out if out is not None else page_beside(trace)
    if page.resolve() in {each.resolve() for each in (trace, other) if each is not None}:
        raise click.UsageError(f"{click.format_filename(page)} is a trace: choose another file with --out")
    try:
        write_view(page, trace, other, window)
    except (TraceFileError, TooManyEvents, OSError) as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(UNUSABLE_INPUT)
    click.echo(f"page: {click.format_filename(page)}")
