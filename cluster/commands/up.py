"""`replog up` and `replog nodes`."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import NoReturn

import click

from cluster.local.layout import CONTROLLER_PORT_DISTANCE, DEFAULT_PORT, ClusterSpec, UnusableInput

DEFAULT_DATA = Path("replog-data")


def _fail(message: object, status: int) -> NoReturn:
    click.echo(f"error: {message}", err=True)
    sys.exit(status)


def _pairs(values: tuple[str, ...], option: str) -> tuple[tuple[str, str], ...]:
    pairs = tuple(tuple(value.split("=", 1)) for value in values)
    for value, pair in zip(values, pairs, strict=True):
        if len(pair) != 2 or not pair[0]:
            raise UnusableInput(f"{option} {value}: NAME=VALUE is wanted")
    return tuple((pair[0], pair[1]) for pair in pairs)


@click.command()
@click.option("--nodes", default=3, show_default=True, help="Brokers; a controller runs beside them.")
@click.option("--port", default=DEFAULT_PORT, show_default=True, help="Of node 1; node I has PORT + I - 1.")
@click.option(
    "--controller-port", type=int, help=f"Of the controller; PORT + {CONTROLLER_PORT_DISTANCE} if not given."
)
@click.option("--data", type=click.Path(path_type=Path), default=DEFAULT_DATA, show_default=True)
@click.option(
    "--config", multiple=True, metavar="NAME=VALUE", help="A property of every node, in Kafka's name."
)
@click.option(
    "--log-dirs",
    metavar="DIR,DIR...",
    help="Where the brokers keep their logs, perhaps a disk each (Kafka's log.dirs): broker I in node-I of each. "
    "One that fails takes its partitions offline, the others go on.  [default: --data]",
)
def up(
    nodes: int,
    port: int,
    controller_port: int | None,
    data: Path,
    config: tuple[str, ...],
    log_dirs: str | None,
) -> None:
    """Run a cluster on this machine, a process a node, until Ctrl-C.

    Prints `ready HOST:PORT` in a pipe, a live table on a terminal. A node that dies stays dead:
    `replog nodes start I` brings it back.
    """
    from cluster.local.properties import check_properties, take_paths
    from cluster.local.up import prepared, run_up

    try:
        properties, paths, metadata_log_dir = take_paths(_pairs(config, "--config"), log_dirs)
        spec = ClusterSpec(
            data=data.absolute(),
            nodes=nodes,
            port=port,
            controller_port=port + CONTROLLER_PORT_DISTANCE if controller_port is None else controller_port,
            properties=properties,
            log_dirs=paths,
            metadata_log_dir=metadata_log_dir,
        )
        check_properties(spec.properties)
        with prepared(spec):
            status = asyncio.run(run_up(spec))
    except UnusableInput as error:
        _fail(error, 2)
    sys.exit(status)


@click.group()
def nodes() -> None:
    """Look at, stop, kill and start the nodes of a running `replog up`."""


def _node_command(name: str, text: str) -> None:
    @nodes.command(name, help=text)
    @click.argument("node")
    @click.option("--data", type=click.Path(path_type=Path), default=DEFAULT_DATA, show_default=True)
    @click.option("--json", "as_json", is_flag=True)
    def command(node: str, data: Path, as_json: bool) -> None:
        _run(name, node, data, as_json)


_node_command("start", "Start NODE (1, 2, … or controller) again; returns once it serves.")
_node_command("stop", "Stop NODE in order: it hands its leaderships over first.")
_node_command("kill", "Kill NODE with SIGKILL, as a crash would.")
_node_command("restart", "Stop NODE in order, then start it again.")


@nodes.command("list")
@click.option("--data", type=click.Path(path_type=Path), default=DEFAULT_DATA, show_default=True)
@click.option("--json", "as_json", is_flag=True)
def list_nodes(data: Path, as_json: bool) -> None:
    """Each process: address, process id, state."""
    _run("list", None, data, as_json)


def _run(command: str, node: str | None, data: Path, as_json: bool) -> None:
    from cluster.local.control import NodeCommandFailed, ask_cluster

    try:
        answer = ask_cluster(data.absolute(), command, int(node) if node and node.isdecimal() else node)
    except UnusableInput as error:
        _fail(error, 2)
    except NodeCommandFailed as error:
        _fail(error, 1)
    if as_json:
        click.echo(json.dumps({"nodes": answer}))
        return
    for item in answer:
        reason = f" ({item['reason']})" if item["reason"] else ""
        click.echo(
            f"{item['node']:>10}  {item['address']:<21}  {item['pid'] or '-':<8}  {item['state']}{reason}"
        )
