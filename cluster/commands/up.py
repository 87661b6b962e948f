"""The commands `replog up` and `replog nodes`."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shlex
import sys
from pathlib import Path
from typing import Any, NoReturn

import click

from cluster.local.layout import CONTROLLER_PORT_DISTANCE, DEFAULT_PORT, ClusterSpec, UnusableInput

DEFAULT_DATA = Path("replog-data")


class _Data(click.Path):
    """A directory. The empty text of an unset variable would be the current one."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "":
            self.fail("a directory is expected, not an empty text", param, ctx)
        return super().convert(value, param, ctx)


DATA = _Data(path_type=Path)


def fail(message: object, status: int) -> NoReturn:
    """Prints one line on standard error and exits with `status`."""
    click.echo(f"error: {message}", err=True)
    sys.exit(status)


def say(line: str) -> None:
    """Prints a line on standard error, which holds up nobody if it cannot be written."""
    with contextlib.suppress(OSError):
        click.echo(line, err=True)


def _pairs(values: tuple[str, ...], option: str) -> tuple[tuple[str, str], ...]:
    pairs = tuple(tuple(value.split("=", 1)) for value in values)
    for value, pair in zip(values, pairs, strict=True):
        if len(pair) != 2 or not pair[0]:
            raise UnusableInput(f"{option}: expected NAME=VALUE, got {value!r}")
    return tuple((pair[0], pair[1]) for pair in pairs)


@click.command()
@click.option(
    "--nodes", default=3, show_default=True, help="Number of brokers; one controller runs beside them."
)
@click.option(
    "--port",
    default=DEFAULT_PORT,
    show_default=True,
    help="Port of node 1; node I listens on PORT + I - 1. With 0, every process takes a port that is free; "
    "`replog nodes list` shows them.",
)
@click.option(
    "--controller-port",
    type=int,
    help=f"Port of the controller.  [default: PORT + {CONTROLLER_PORT_DISTANCE}]",
)
@click.option(
    "--data",
    type=DATA,
    default=DEFAULT_DATA,
    show_default=True,
    help="Directory of the cluster's files.",
)
@click.option(
    "--config",
    multiple=True,
    metavar="NAME=VALUE",
    help="Set a property of every node by its Kafka name. May be repeated.",
)
@click.option(
    "--detach",
    "-d",
    is_flag=True,
    help="Return when the cluster is ready, and leave it running until `replog down`.",
)
@click.option(
    "--json", "as_json", is_flag=True, help="Print JSON objects, one per line, instead of the table."
)
@click.option("--in-background", is_flag=True, hidden=True)
@click.option(
    "--log-dirs",
    metavar="DIR,DIR...",
    help="Directories of the brokers' logs (Kafka's log.dirs), for example one per disk: broker I uses node-I in each. "
    "If one fails, its partitions are offline there; the others are not affected.  [default: --data]",
)
def up(
    nodes: int,
    port: int,
    controller_port: int | None,
    data: Path,
    config: tuple[str, ...],
    log_dirs: str | None,
    detach: bool,
    as_json: bool,
    in_background: bool,
) -> None:
    """Run a cluster on this machine, one process per node, until Ctrl-C or `replog down`.

    Prints a live table on a terminal, `ready HOST:PORT` in a pipe. A node that dies is not restarted: use
    `replog nodes start I`.
    """
    from cluster.local.properties import check_properties, take_paths

    try:
        properties, paths, metadata_log_dir = take_paths(_pairs(config, "--config"), log_dirs)
        spec = ClusterSpec(
            data=data.absolute(),
            nodes=nodes,
            port=port,
            controller_port=_controller_port(port) if controller_port is None else controller_port,
            properties=properties,
            log_dirs=paths,
            metadata_log_dir=metadata_log_dir,
        )
        check_properties(spec.properties)
        status = _detach(spec, as_json) if detach else _run_up(spec, as_json, in_background)
    except UnusableInput as error:
        fail(error, 2)
    sys.exit(status)


def _controller_port(port: int) -> int:
    return port + CONTROLLER_PORT_DISTANCE if port else 0


def _run_up(spec: ClusterSpec, as_json: bool, in_background: bool) -> int:
    from cluster.local.detached import log_path
    from cluster.local.report import Report
    from cluster.local.up import prepared, run_up

    report = Report(as_json=as_json, log=log_path(spec.data) if in_background else None)
    with prepared(spec, report.say) as chosen:
        return asyncio.run(run_up(chosen, report))


def _detach(spec: ClusterSpec, as_json: bool) -> int:
    """Starts the cluster in the background; returns the exit status of the command."""
    from cluster.local.detached import NotReady, start_detached

    try:
        ready = start_detached(spec)
    except NotReady as error:
        say(str(error) or "error: the cluster was ended before it was ready")
        return error.status if error.status > 0 else 3
    if said := ready.pop("said"):
        say(said)
    if as_json:
        click.echo(json.dumps(ready))
    else:
        click.echo(f"ready {ready['nodes'][1]['address']}")
        click.echo(f"It runs as process {ready['pid']} and writes to {ready['log']}.")
        click.echo(f"End it with: replog down --data {shlex.quote(str(spec.data))}")
    return 0


@click.group()
def nodes() -> None:
    """List, start, stop, kill and restart the nodes of a running `replog up`."""


_data_option = click.option(
    "--data",
    type=DATA,
    default=DEFAULT_DATA,
    show_default=True,
    help="Data directory of the running `replog up`.",
)
_json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")


# No node has a longer name.
_MOST_NAME = 20


def _node_command(name: str, text: str) -> None:
    @nodes.command(name, help=text)
    @click.argument("node")
    @_data_option
    @_json_option
    def command(node: str, data: Path, as_json: bool) -> None:
        _run(name, node, data, as_json)


_node_command("start", "Start NODE (1, 2, … or controller) and wait until it serves.")
_node_command("stop", "Stop NODE in order, after it has handed over its leaderships.")
_node_command("kill", "Kill NODE with SIGKILL, like a crash.")
_node_command("restart", "Stop NODE in order, then start it again.")


@nodes.command("list")
@_data_option
@_json_option
def list_nodes(data: Path, as_json: bool) -> None:
    """List each process with its address, process id and state."""
    _run("list", None, data, as_json)


def _run(command: str, node: str | None, data: Path, as_json: bool) -> None:
    from cluster.local.control import NodeCommandFailed, ask_cluster
    from cluster.local.waits import patience

    if node is not None and len(node) > _MOST_NAME:
        fail(f"no node {node[:_MOST_NAME]}…: expected 1, 2, … or controller", 2)
    chosen = int(node) if node and node.isdecimal() else node
    patience_s = patience(is_terminal=sys.stderr.isatty())
    try:
        answer = ask_cluster(data.absolute(), command, chosen, say=say, patience_s=patience_s).nodes
    except UnusableInput as error:
        fail(error, 2)
    except NodeCommandFailed as error:
        fail(error, 1)
    if as_json:
        click.echo(json.dumps({"nodes": answer}))
        return
    for item in answer:
        reason = f" ({item['reason']})" if item["reason"] else ""
        click.echo(
            f"{item['node']:>10}  {item['address']:<21}  {item['pid'] or '-':<8}  {item['state']}{reason}"
        )
