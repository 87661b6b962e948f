"""The live table of `replog up` on a terminal: all processes, and each replica's role, ISR, log end, high watermark."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import final

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from cluster.core.messages import DescribeReplicasResponse, ReplicaDescription
from cluster.local.layout import HOST
from cluster.local.polling import Poller
from cluster.local.supervisor import ManagedNode, Supervisor

REFRESH_S = 0.5
# The lines of borders, headings and the hint around the two tables.
_FRAME_LINES = 12
_COLOURS = {"ready": "green", "leader": "bold green", "dead": "bold red", "failed": "bold red"}

Descriptions = Mapping[int, DescribeReplicasResponse | None]


def nodes_table(nodes: tuple[ManagedNode, ...], descriptions: Descriptions) -> Table:
    """Returns the table of processes, one row each; a broker that serves is shown with the state that it reports."""
    table = Table(title="nodes")
    for column in ("node", "address", "pid", "state"):
        table.add_column(column)
    for node in nodes:
        description = descriptions.get(node.spec.node_id)
        state = description.state if description is not None and node.state == "ready" else node.state
        shown = Text(f"{state} ({node.remark})" if node.remark else state, _COLOURS.get(node.state, "yellow"))
        table.add_row(node.spec.name, f"{HOST}:{node.spec.port}", str(node.pid or "-"), shown)
    return table


def replicas_table(descriptions: Descriptions, max_rows: int) -> Table:
    """Returns the table of replicas, at most `max_rows`, sorted by partition; the caption counts those left out."""
    assert max_rows > 0, max_rows
    table = Table(title="replicas")
    for column in ("topic-partition", "node", "role", "epoch", "ISR"):
        table.add_column(column)
    for column in ("log end", "high watermark"):
        table.add_column(column, justify="right")
    rows = sorted(
        (replica.topic_partition, node_id, replica)
        for node_id, description in descriptions.items()
        if description is not None
        for replica in description.replicas
    )
    for topic_partition, node_id, replica in rows[:max_rows]:
        table.add_row(str(topic_partition), str(node_id), *_replica_cells(replica))
    if len(rows) > max_rows:
        table.caption = f"{len(rows) - max_rows} more replicas: replog topics describe NAME"
    if not rows:
        table.caption = "no topics yet: replog topics create NAME --partitions 1 --replication-factor 1"
    assert table.row_count <= max_rows, (table.row_count, max_rows)
    return table


def _replica_cells(replica: ReplicaDescription) -> tuple[str | Text, ...]:
    return (
        Text(replica.role, _COLOURS.get(replica.role, "")),
        str(replica.leader_epoch),
        ",".join(map(str, replica.isr)) or "-",
        str(replica.log_end_offset),
        str(replica.high_watermark),
    )


@final
class LiveTable:
    """The tables of nodes and replicas, which `replog up` redraws every REFRESH_S seconds."""

    def __init__(self, supervisor: Supervisor, console: Console) -> None:
        self._supervisor = supervisor
        self._console = console
        self._poller = Poller(supervisor.spec.brokers)
        self._descriptions: dict[int, DescribeReplicasResponse | None] = {}

    async def run(self) -> None:
        """Draws until it is cancelled."""
        try:
            with Live(console=self._console, auto_refresh=False) as live:
                while True:
                    await self._poll()
                    live.update(self._render(), refresh=True)
                    await asyncio.sleep(REFRESH_S)
        finally:
            await self._poller.close()

    async def _poll(self) -> None:
        ready = [node for node, managed in self._supervisor.brokers.items() if managed.state == "ready"]
        answers = await asyncio.gather(*(self._poller.describe(node) for node in ready))
        self._descriptions = dict(zip(ready, answers, strict=True))

    def _render(self) -> Group:
        nodes = self._supervisor.nodes
        room = max(3, self._console.size.height - len(nodes) - _FRAME_LINES)
        hint = Text(
            "Ctrl-C stops the cluster. In another terminal: replog topics, produce, consume, nodes", "dim"
        )
        return Group(nodes_table(nodes, self._descriptions), replicas_table(self._descriptions, room), hint)
