"""Lays out the processes of a run, their ports and the proxies between them, and starts and ends all of it."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import final

from cluster.core.messages import CONTROLLER_ID
from replog.real.clients import Client, Consumer, Producer, parse_line
from replog.real.links import Links
from replog.real.processes import Process, node_command
from replog.real.proxy import Proxy
from replog.real.site import CONTROLLER, broker_name
from replog.real.watch import Watch
from sim.hosts.history import History
from sim.scenario.model import Scenario
from storage.draws import Draws

START_TIMEOUT_S = 60.0
# A process that had no time to handle the signal of an orderly stop ends by it.
_IN_ORDER = (0, -signal.SIGTERM)


class NotStarted(Exception):
    """A node that could not start; the message is what it said, in one line."""


@final
class Ground:
    """All processes of a run and the proxies between them. Every process ends with `end` or `end_at_once`."""

    def __init__(
        self, scenario: Scenario, seed: int, data: Path, history: History, watch: Watch,
        now_us: Callable[[], int], choose_ports: Callable[[int], Sequence[int]],
    ) -> None:  # fmt: skip
        self._choose_ports = choose_ports
        self._scenario, self._seed, self._data = scenario, seed, data
        self._history, self._watch, self._now_us = history, watch, now_us
        self.links = Links(Draws(seed), loss_percent=scenario.network.loss)
        self.proxies: list[Proxy] = []
        self.nodes: dict[str, Process] = {}
        self.clients: dict[str, Client] = {}
        self._ids = {CONTROLLER: CONTROLLER_ID}
        self._ids |= {broker_name(number): number for number in range(1, scenario.cluster.brokers + 1)}
        # By node, the port that it listens on.
        self._ports: dict[str, int] = {}
        self._ready: dict[str, asyncio.Event] = {name: asyncio.Event() for name in self._ids}
        self._failed: dict[str, str] = {}
        # By node, the number of its last life that has served.
        self._served: dict[str, int] = {}

    @property
    def broker_ports(self) -> list[int]:
        return [port for name, port in self._ports.items() if name != CONTROLLER]

    @property
    def producers(self) -> list[Producer]:
        return [each for each in self.clients.values() if isinstance(each, Producer)]

    @property
    def consumers(self) -> list[Consumer]:
        return [each for each in self.clients.values() if isinstance(each, Consumer)]

    @property
    def _processes(self) -> list[Process]:
        return [*(each.process for each in self.clients.values()), *self.nodes.values()]

    async def start_nodes(self) -> None:
        """Start the controller and the brokers; returns once all serve. Raises NotStarted, OSError."""
        self._ports = dict(zip(self._ids, self._choose_ports(len(self._ids)), strict=True))
        for name, node_id in self._ids.items():
            (self._data / name).mkdir(parents=True)
            routes = await self._routes(name)
            self.nodes[name] = self._node(name, node_id, routes)
        for process in self.nodes.values():
            await process.start()
        for name in self.nodes:
            await self._until_ready(name)

    def _node(self, name: str, node_id: int, routes: Mapping[int, int]) -> Process:
        def command() -> list[str]:
            port = self._ports[name]
            return node_command(self._scenario, node_id, port=port, routes=routes, data=self._data, name=name)

        return Process(name, self, self._data / f"{name}.txt", command)

    async def _routes(self, source: str) -> dict[int, int]:
        """Make a proxy on each way from `source` to a node; returns their ports by node id."""
        routes: dict[int, int] = {}
        for target, node_id in self._ids.items():
            if target != source:
                forth, back = self.links.link(source, target), self.links.link(target, source)
                proxy = Proxy(forth, back, self._ports[target])
                await proxy.start()
                self.proxies.append(proxy)
                routes[node_id] = proxy.port
        return routes

    async def _until_ready(self, name: str) -> None:
        try:
            async with asyncio.timeout(START_TIMEOUT_S):
                await self._ready[name].wait()
        except TimeoutError as error:
            raise NotStarted(f"{name} does not serve after {START_TIMEOUT_S:g} s") from error
        if name in self._failed:
            raise NotStarted(f"{name}: {self._failed[name]}")

    async def start_clients(self, since_us: int) -> None:
        """Start every producer and consumer; times of the history count from `since_us`."""
        producers = [model for model in self._scenario.producers for _ in range(model.clients)]
        for number, model in enumerate(producers, 1):
            name = f"producer-{number}"
            self.clients[name] = Producer(
                name, model, self._history, self, self._data / f"{name}.txt",
                routes=await self._broker_routes(name), seed=self._seed, since_us=since_us,
            )  # fmt: skip
        readers = [model for model in self._scenario.consumers for _ in range(model.clients)]
        for number, reader in enumerate(readers, 1):
            name = f"consumer-{number}"
            self.clients[name] = Consumer(
                name, reader, self._history, self, self._data / f"{name}.txt",
                routes=await self._broker_routes(name), since_us=since_us,
                partitions=self._scenario.topics[reader.topic].partitions,
                on_lost=lambda what: self._watch.jury.report("no-failure", what),
            )  # fmt: skip
        for client in self.clients.values():
            await client.process.start()

    async def _broker_routes(self, source: str) -> dict[int, int]:
        routes = await self._routes(source)
        return {node_id: port for node_id, port in routes.items() if node_id != CONTROLLER_ID}

    def on_line(self, process: Process, line: bytes) -> None:
        """Take what a process says: an event of a node, or a line of a client."""
        if process.name in self.nodes:
            self._on_event(process.name, json.loads(line))
            return
        client, said = self.clients[process.name], parse_line(line)
        if "sent" in said:
            self._watch.note_sent(client.model.topic, str(said["value"]))
        if client.on_line(said):
            self._watch.lookout.look()

    def _on_event(self, name: str, event: dict[str, object]) -> None:
        if event["event"] == "ready":
            self._served[name] = self.nodes[name].starts
            self._ready[name].set()
        elif event["event"] == "failed" and self._ready[name].is_set():
            self._watch.jury.report("no-failure", f"{name} could not start again: {event['reason']}")
        elif event["event"] == "failed":
            self._failed[name] = str(event["reason"])
            self._ready[name].set()
        elif event["event"] == "log_directory_offline":
            self._watch.jury.report("no-failure", f"{name}: a log directory is offline: {event['reason']}")

    @property
    def serving(self) -> list[str]:
        """The nodes that run and have served in their present life."""
        return [
            name for name, node in self.nodes.items() if node.is_up and self._served.get(name) == node.starts
        ]

    def lacking(self) -> str:
        """Returns which node does not serve in its present life, or is fenced, in words; empty if none."""
        serving, unfenced = self.serving, self._watch.unfenced_brokers()
        for name in self.nodes:
            if name not in serving:
                return f"{name} does not serve since its last start"
            if name != CONTROLLER and self._ids[name] not in unfenced:
                return f"{name} is fenced"
        return ""

    def on_ended(self, process: Process, status: int) -> None:
        """Note the end of a process; one that nobody asked for is a violation."""
        client = self.clients.get(process.name)
        if client is not None:
            client.on_ended(self._now_us())
        if not process.is_asked and not self._ready_failed(process.name):
            what = (
                f"{process.name} ended by itself with status {status}; its last words are in {process.output}"
            )
            self._watch.jury.report("no-failure", what)
        elif not process.is_killed and status not in _IN_ORDER:
            self._watch.jury.report(
                "no-failure", f"{process.name} ended with status {status} when asked to stop"
            )

    def _ready_failed(self, name: str) -> bool:
        """Let whoever waits for the start of a node know that it has ended. Returns whether it had said why."""
        ready = self._ready.get(name)
        if ready is None or ready.is_set():
            return name in self._failed
        self._failed.setdefault(name, "it ended before it could serve")
        ready.set()
        return True

    async def end(self) -> list[str]:
        """End all processes in order: clients, brokers, the controller. Returns the names of those that were killed."""
        clients = [client.process for client in self.clients.values()]
        in_order = await asyncio.gather(*(process.end() for process in clients))
        killed = [process.name for process, was in zip(clients, in_order, strict=True) if not was]
        # One broker after the other, so that each can hand over its leaderships; then the controller.
        brokers = [process for name, process in self.nodes.items() if name != CONTROLLER]
        for process in (*brokers, self.nodes[CONTROLLER]):
            if not await process.end():
                killed.append(process.name)
        return killed

    async def end_at_once(self) -> None:
        """Kill whatever runs, and close the proxies."""
        for process in self._processes:
            process.kill()
        for process in self._processes:
            await process.end_at_once()
        for proxy in self.proxies:
            await proxy.close()
