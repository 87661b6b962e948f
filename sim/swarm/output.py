"""Runs a campaign and prints it: each new kind of failure at once, and the sum at the end."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import click

from sim.cpu_limit import MOST_CPU_S
from sim.interruption import terminated_like_interrupted
from sim.seed_range import Seeds
from sim.seeds import KILLED, SeedResult, reason_of, run_seeds
from sim.seeds_output import echo_beside, progress_bar
from sim.swarm.campaign import Campaign
from sim.swarm.groups import signature_of
from sim.swarm.job import SwarmJob, warm
from sim.swarm.results import ResultsFile

# Returns the time of the machine and the processor time of all runs that have ended, in seconds. They are for the pace
# alone: nothing of a run depends on them.
Stopwatch = Callable[[], tuple[float, float]]


def run_campaign(
    job: SwarmJob, seeds: Seeds, *, jobs: int, out: Path | None, as_json: bool, stopwatch: Stopwatch
) -> int:
    """Run the seeds that the file has not yet, print the results, and return the exit status.

    Raises ResultsError for a file that the campaign cannot go on with.
    """
    assert jobs > 0, jobs
    campaign, (began_s, began_cpu_s) = Campaign(seeds), stopwatch()
    with ExitStack() as stack:
        stack.enter_context(terminated_like_interrupted())
        file = _opened(stack, out, job, campaign, seeds) if out is not None else None
        known = campaign.count
        warm(job)
        try:
            _run(campaign, job, _left(seeds, file), len(seeds) - known, jobs=jobs, file=file, as_json=as_json)
        except KeyboardInterrupt:
            campaign.is_interrupted = True
    # A seed without a row would count as one that held.
    assert campaign.is_interrupted or campaign.count == len(seeds), (campaign.count, len(seeds))
    ended_s, ended_cpu_s = stopwatch()
    summary = campaign.as_json(ended_cpu_s - began_cpu_s)
    click.echo(json.dumps(summary) if as_json else "\n".join(campaign.lines()))
    _print_pace(campaign, known, ended_s - began_s)
    return campaign.status()


def _opened(stack: ExitStack, out: Path, job: SwarmJob, campaign: Campaign, seeds: Seeds) -> ResultsFile:
    """Returns the file of a campaign, whose rows of its seeds are counted."""

    def count(row: dict[str, Any]) -> None:
        if row["seed"] in seeds:
            campaign.add(row)

    return stack.enter_context(closing(ResultsFile(out, job, count)))


def _left(seeds: Seeds, file: ResultsFile | None) -> Iterable[int]:
    """Returns the seeds that have no row yet, of which there may be more than any memory holds."""
    return seeds if file is None else (seed for seed in seeds if seed not in file.seeds)


def _run(
    campaign: Campaign,
    job: SwarmJob,
    left: Iterable[int],
    count: int,
    *,
    jobs: int,
    file: ResultsFile | None,
    as_json: bool,
) -> None:
    with ExitStack() as stack:
        bar = progress_bar(stack, count, job.title)

        def advance() -> None:
            if bar is not None:
                bar.update(bar.task_ids[0], advance=1, refresh=True)

        results = run_seeds(job, left, jobs=jobs, on_done=advance, most_cpu_s=MOST_CPU_S)
        for result in stack.enter_context(closing(results)):
            row = result.row | {"signature": signature_of(result.row)}
            # What somebody has killed says nothing about its seed, which runs again at the next start.
            if file is not None and KILLED not in row:
                file.add(row)
            is_new = campaign.add(row)
            if lines := [json.dumps(row)] if as_json else _failure_lines(result, is_new=is_new):
                echo_beside(lines, bar)


def _failure_lines(result: SeedResult, *, is_new: bool) -> list[str]:
    """Returns what to print of a run: the first failure of each signature, with the commands that replay it."""
    if not is_new:
        return []
    row: dict[str, Any] = result.row
    where = ", ".join(str(row[key]) for key in ("profile", "shape") if key in row)
    text = f"seed {result.seed}" + (f" ({where})" if where else "")
    return [f"{text}: {result.verdict}: {reason_of(row)}", f"  replay: {result.replay}"]


def _print_pace(campaign: Campaign, known: int, lasted: float) -> None:
    """Print to stderr how fast the seeds ran that this process has run."""
    ran = campaign.count - known
    if campaign.is_interrupted:
        click.echo("interrupted", err=True)
    if known:
        were = "seed was" if known == 1 else "seeds were"
        click.echo(f"{known} {were} in the file already", err=True)
    if ran and lasted > 0:
        simulated = campaign.simulated_ms / 1000 / campaign.count * ran
        click.echo(
            f"{ran} seeds in {lasted:.1f} s: {ran / lasted:.2f} seeds/s, {simulated / lasted:.0f} simulated s/s",
            err=True,
        )
