"""The command `replog down`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from cluster.commands.up import DATA, DEFAULT_DATA, fail, say
from cluster.local.layout import UnusableInput


@click.command()
@click.option(
    "--data",
    type=DATA,
    default=DEFAULT_DATA,
    show_default=True,
    help="Directory that `replog up` was given.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def down(data: Path, as_json: bool) -> None:
    """End the cluster that runs on a data directory, in order, and wait until it has ended.

    Exit status: 0 every node stopped in order, 1 one did not or had to be killed, 2 no cluster runs there,
    3 interrupted; then the cluster goes on ending.
    """
    from cluster.local.control import NodeCommandFailed, end_cluster
    from cluster.local.waits import patience

    try:
        outcome = end_cluster(data.absolute(), say=say, patience_s=patience(is_terminal=sys.stderr.isatty()))
    except UnusableInput as error:
        fail(error, 2)
    except NodeCommandFailed as error:
        fail(error, 1)
    if as_json:
        told = {"ended": True, "killed": outcome.killed, "failed": outcome.failed, "nodes": outcome.nodes}
        click.echo(json.dumps(told))
    else:
        click.echo(f"The cluster on {data} has ended.")
    troubles = [f"did not stop in order: {name}: {how}" for name, how in outcome.failed.items()]
    if outcome.killed:
        troubles.append(f"did not stop in order and was killed: {', '.join(outcome.killed)}")
    if troubles:
        fail("; ".join(troubles), 1)
