"""Starts a local cluster's processes, watches them, and stops them in order. It restarts nothing by itself.

Each process is a new interpreter, because gRPC must not be forked. It has a session of its own, so that the
terminal's Ctrl-C reaches only this process. Its standard input is its lifeline: when this process ends for any reason,
the pipe closes and the node stops. On its standard output it writes one JSON object per line: ready, failed, stopped.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import final

from cluster.local.endings import how_it_ended
from cluster.local.layout import HOST, ClusterSpec, NodeSpec
from cluster.local.own_files import open_output
from cluster.local.python_path import python_path
from cluster.local.waits import ManyWaits, Waits

STATES = ("stopped", "starting", "ready", "failed", "dead")
START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 15.0


class StartFailed(Exception):
    """A failed start of a node, with the reason that it reported; with `is_unusable_input` the user's input is at
    fault."""

    def __init__(self, node: NodeSpec, reason: str, *, is_unusable_input: bool) -> None:
        super().__init__(f"{node.name}: {reason}")
        self.is_unusable_input = is_unusable_input


@final
@dataclass(eq=False)
class ManagedNode:
    """One process as its parent sees it; `state` is one of STATES."""

    spec: NodeSpec
    state: str = "stopped"
    reason: str = ""
    process: asyncio.subprocess.Process | None = None
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    watcher: asyncio.Task[None] | None = None
    is_stopping: bool = False
    is_unusable_input: bool = False
    # Whether its last stop had to kill it, and how it ended if it ended by itself then, but not in order.
    was_killed: bool = False
    failure: str = ""
    # Why the process stopped by itself, as it said; empty: it did not say, or was asked to stop.
    parting: str = ""
    # The size of its log when it started: what is written from there on is of this life.
    log_start: int = 0
    # The log directories that have failed since the last start.
    offline_directories: list[str] = field(default_factory=list)

    @property
    def pid(self) -> int | None:
        return self.process.pid if self.process is not None and self.is_alive else None

    @property
    def is_alive(self) -> bool:
        return self.process is not None and self.process.returncode is None

    @property
    def remark(self) -> str:
        """The trouble of the node in words; empty if there is none."""
        if self.reason or not self.offline_directories or not self.is_alive:
            return self.reason
        return f"offline: {', '.join(self.offline_directories)}"

    def become(self, state: str, reason: str = "") -> None:
        assert state in STATES, state
        self.state, self.reason = state, reason
        self.changed.set()


@final
class Supervisor:
    """Owns the processes: call `start_all`, then `start`, `stop` or `kill` for single nodes, `stop_all` at the end."""

    def __init__(self, spec: ClusterSpec, report: Callable[[str], None]) -> None:
        self.spec = spec
        self._report = report
        self.controller = ManagedNode(spec.controller)
        self.brokers = {broker.node_id: ManagedNode(broker) for broker in spec.brokers}
        # Whether all nodes are being stopped: none is started any more.
        self._is_ending = False

    @property
    def nodes(self) -> tuple[ManagedNode, ...]:
        return (self.controller, *self.brokers.values())

    @property
    def killed(self) -> list[str]:
        """The nodes whose last stop had to kill them."""
        return [node.spec.name for node in self.nodes if node.was_killed]

    @property
    def failed(self) -> dict[str, str]:
        """The nodes that ended by themselves in their last stop, but not in order, each with how it ended."""
        return {node.spec.name: node.failure for node in self.nodes if node.failure}

    async def start_all(self) -> None:
        """Starts every node; returns once all serve. Raises StartFailed or TimeoutError; the caller then stops all."""
        for node in self.nodes:
            await self._spawn(node)
        await asyncio.gather(*(self.until_ready(node) for node in self.nodes))

    async def start(self, node: ManagedNode) -> None:
        """Starts a node unless it runs; returns once it serves. Raises StartFailed or TimeoutError."""
        await self.begin(node)
        await self.until_ready(node)

    async def begin(self, node: ManagedNode) -> None:
        """Starts a node unless it runs; returns once it has a process. Raises StartFailed while the cluster ends."""
        if not node.is_alive:
            await self._spawn(node)

    async def stop(
        self, node: ManagedNode, waits: Waits | ManyWaits | None = None, *, timeout_s: float = STOP_TIMEOUT_S
    ) -> None:
        """Stops a node in order; kills it after `timeout_s`, because a suspended process reacts to SIGKILL only.

        `waits` is told what this waits for. `was_killed` and `failure` of the node say whether it stopped in order.
        """
        # The process of another supervisor would be stopped behind its back.
        assert node in self.nodes, node.spec.name
        if node.process is None or not node.is_alive:
            return
        node.is_stopping = True
        node.process.send_signal(signal.SIGTERM)
        if waits is not None:
            waits.begin(_stopping(node, timeout_s))
        try:
            if not await self._ends_within(node, timeout_s):
                self._report(f"{node.spec.name} did not stop within {timeout_s:.0f} s and is killed")
                node.was_killed = True
                await self.kill(node)
            elif _has_failed(node):
                node.failure = node.reason
                self._report(f"{node.spec.name} did not stop in order: {node.reason}")
        finally:
            if waits is not None:
                waits.end()

    async def kill(self, node: ManagedNode) -> None:
        """Kills a node with SIGKILL, like a crash."""
        if node.process is not None and node.is_alive:
            node.process.kill()
            await self._ends_within(node, STOP_TIMEOUT_S)

    async def stop_all(self, waits: Waits | ManyWaits | None = None) -> None:
        """Stops the brokers one after the other, so that each can hand over its leaderships, then the controller."""
        self._is_ending = True
        for node in (*self.brokers.values(), self.controller):
            await self.stop(node, waits)

    async def kill_all(self) -> None:
        self._is_ending = True
        for node in self.nodes:
            node.is_stopping = True
            await self.kill(node)

    async def _spawn(self, node: ManagedNode) -> None:
        assert not node.is_alive, (node.spec.name, node.pid)
        assert node in self.nodes, node.spec.name
        spec = node.spec
        if self._is_ending:
            raise StartFailed(spec, "the cluster is ending", is_unusable_input=False)
        # With several log directories the node makes them itself, and starts without one that cannot be made.
        if not spec.log_dirs:
            spec.directory.mkdir(parents=True, exist_ok=True)
        node.offline_directories.clear()
        node.become("starting")
        node.changed.clear()
        node.is_stopping = node.was_killed = False
        node.parting = node.failure = ""
        with open_output(spec.output_path) as output:
            node.log_start = output.tell()
            node.process = await asyncio.create_subprocess_exec(
                *self._command(spec),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                start_new_session=True,
                env={"GRPC_VERBOSITY": "NONE", **os.environ, **python_path(os.environ)},
            )
        node.watcher = asyncio.get_running_loop().create_task(self._watch(node, node.process))
        if self._is_ending:
            # It was on its way as the others were stopped, and nobody else would end it.
            node.is_stopping = True
            await self.kill(node)

    def _command(self, spec: NodeSpec) -> list[str]:
        arguments = ["--node-id", str(spec.node_id), "--host", HOST, "--port", str(spec.port)]
        arguments += ["--controller", f"{HOST}:{self.spec.controller_port}"]
        arguments += ["--pid-file", str(spec.pid_path)]
        for directory in spec.log_directories:
            arguments += ["--directory", str(directory)]
        for name, value in self.spec.properties:
            arguments += ["--property", f"{name}={value}"]
        return [sys.executable, "-m", "cluster.local.node", "--lifeline", *arguments]

    async def _watch(self, node: ManagedNode, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        while line := await process.stdout.readline():
            self._on_line(node, line)
        status = await process.wait()
        if process.stdin is not None:
            process.stdin.close()
        if node.process is not process:
            # A child of the process held its output open, and the node was started again meanwhile.
            return
        # A process that stopped has deleted this file; one that was killed has not.
        # Where it cannot be deleted, its death is told all the same.
        with contextlib.suppress(OSError):
            node.spec.pid_path.unlink(missing_ok=True)
        if node.state == "failed":
            return
        reason = how_it_ended(status, node.parting, node.spec.output_path, node.log_start)
        if node.is_stopping:
            node.become("stopped", reason)
            return
        node.become("dead", reason or f"exit status {status}")
        self._report(f"{node.spec.name} died: {node.reason} (its log: {node.spec.output_path})")

    def _on_line(self, node: ManagedNode, line: bytes) -> None:
        with contextlib.suppress(ValueError):
            event = json.loads(line)
            if event.get("event") == "ready":
                node.become("ready")
            if event.get("event") == "log_directory_offline":
                directory = str(event.get("directory"))
                node.offline_directories.append(directory)
                self._report(f"{node.spec.name}: log directory {directory} is offline: {event.get('reason')}")
            if event.get("event") == "stopped" and event.get("reason") != "shutdown":
                node.parting = str(event.get("reason"))
            if event.get("event") == "failed":
                node.is_unusable_input = bool(event.get("is_unusable_input"))
                node.become("failed", str(event.get("reason")))

    async def until_ready(self, node: ManagedNode) -> None:
        """Waits until a node that was started serves. Raises StartFailed or TimeoutError."""
        try:
            async with asyncio.timeout(START_TIMEOUT_S):
                while node.state == "starting":
                    await node.changed.wait()
                    node.changed.clear()
        except TimeoutError as error:
            raise TimeoutError(f"{node.spec.name} was not ready within {START_TIMEOUT_S:.0f} s") from error
        if node.state != "ready":
            raise StartFailed(node.spec, node.reason or node.state, is_unusable_input=node.is_unusable_input)

    async def _ends_within(self, node: ManagedNode, timeout_s: float) -> bool:
        assert node.watcher is not None
        done, _ = await asyncio.wait({node.watcher}, timeout=timeout_s)
        return bool(done)


def _has_failed(node: ManagedNode) -> bool:
    """Whether a node that was asked to stop has ended otherwise. One whose start failed has said so already."""
    assert node.process is not None and not node.is_alive, node.spec.name
    # A process that has only just begun does not catch the signal yet.
    return node.process.returncode not in (0, -signal.SIGTERM) and node.state != "failed"


def _stopping(node: ManagedNode, timeout_s: float) -> str:
    """Returns what a stop of the node waits for."""
    does = "writes its log" if node.spec.is_controller else "hands over its leaderships and closes its logs"
    return f"{node.spec.name} (process {node.pid}), which {does}; it is killed after {timeout_s:.0f} s"
