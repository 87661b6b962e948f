"""What `replog spark campaign --swarm` does before and after Spark runs: its options, its directory, and its sum."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from pipeline.drawn_results import ResultsDirectory
    from sim.swarm.campaign import Campaign
    from sim.swarm.job import SwarmJob

# Those of sim.swarm.profiles, whose import would load the simulator for `--help`.
PROFILES = ("within", "edge", "beyond")


def checked_job(profile: str | None, only: str | None, bug: str | None) -> SwarmJob:
    """Returns what all seeds share. Raises a usage error for a fault or a bug that there is not."""
    from sim.bugs import BugError, install
    from sim.swarm.job import SwarmJob, parse_only
    from sim.swarm.plans.catalogue import FAULTS
    from sim.swarm.profiles import Profile

    try:
        kinds = parse_only(only.split(","), FAULTS) if only is not None else ()
        if bug is not None:
            with install(bug):
                pass
    except (ValueError, BugError) as error:
        raise click.UsageError(str(error)) from error
    return SwarmJob(profile=Profile(profile) if profile is not None else None, only=kinds, bug=bug)


def open_results(path: Path, job: SwarmJob) -> ResultsDirectory:
    """Open or create the directory of the campaign. Raises a usage error for one that it cannot go on with."""
    from pipeline.drawn_results import CampaignDirectoryError, ResultsDirectory

    try:
        return ResultsDirectory(path, job)
    except CampaignDirectoryError as error:
        raise click.UsageError(str(error)) from error


def print_sum(campaign: Campaign, target: Path, *, as_json: bool) -> int:
    """Print the sum of all rows, also of those that were there before. Returns the exit status."""
    if as_json:
        # The processor time of the executors is not known here.
        summary = {name: value for name, value in campaign.as_json(0.0).items() if name != "cpu_s"}
        click.echo(json.dumps(summary | {"out": str(target)}, sort_keys=True))
    else:
        click.echo("\n".join([*campaign.lines(), f"results in {target}"]))
    if campaign.is_interrupted:
        click.echo(f"interrupted: the same command with --out {target} goes on", err=True)
    return campaign.status()
