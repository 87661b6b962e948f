"""Connects `replog nodes` with the `replog up` that owns the processes: one JSON line each way over the loopback."""

from __future__ import annotations

import asyncio
import json
import secrets
import socket
from pathlib import Path
from typing import final

from cluster.local.layout import HOST, Control, UnusableInput, control_path
from cluster.local.supervisor import ManagedNode, StartFailed, Supervisor

COMMANDS = ("list", "start", "stop", "kill", "restart")
ANSWER_TIMEOUT_S = 90.0
MAX_LINE_BYTES = 4096


class NodeCommandFailed(Exception):
    """A failure of a command that the cluster accepted and could not carry out."""


@final
class ControlServer:
    """Carries out one command at a time; a caller without the token gets no answer."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor
        self._token = secrets.token_hex(16)
        self._turn = asyncio.Lock()
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        assert self._server is None, "started twice"
        self._server = await asyncio.start_server(self._serve, HOST, 0, limit=MAX_LINE_BYTES)
        port = self._server.sockets[0].getsockname()[1]
        Control(port=port, token=self._token).save(self._supervisor.spec.data)

    async def stop(self) -> None:
        control_path(self._supervisor.spec.data).unlink(missing_ok=True)
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            asked = json.loads(await reader.readline())
            if secrets.compare_digest(str(asked["token"]), self._token):
                async with self._turn:
                    answer = await self._answer(str(asked["command"]), asked.get("node"))
                writer.write(json.dumps(answer).encode() + b"\n")
                await writer.drain()
        except (ValueError, KeyError, TypeError, OSError):
            # The caller is not `replog nodes`, or has left: it gets no answer.
            pass
        finally:
            writer.close()

    async def _answer(self, command: str, node_id: object) -> dict[str, object]:
        if command == "list":
            return {"nodes": [_describe(node) for node in self._supervisor.nodes]}
        node = self._find(node_id)
        if node is None:
            return {
                "error": f"there is no node {node_id}: nodes are 1 to {self._supervisor.spec.nodes} and controller",
                "is_unusable": True,
            }
        try:
            await self._carry_out(command, node)
        except (StartFailed, TimeoutError) as error:
            return {"error": str(error)}
        return {"nodes": [_describe(node)]}

    def _find(self, node_id: object) -> ManagedNode | None:
        if node_id == "controller":
            return self._supervisor.controller
        return self._supervisor.brokers.get(node_id) if isinstance(node_id, int) else None

    async def _carry_out(self, command: str, node: ManagedNode) -> None:
        assert command in COMMANDS, command
        if command == "kill":
            await self._supervisor.kill(node)
        if command in ("stop", "restart"):
            await self._supervisor.stop(node)
        if command in ("start", "restart"):
            await self._supervisor.start(node)


def _describe(node: ManagedNode) -> dict[str, object]:
    spec = node.spec
    return {
        "node": "controller" if spec.is_controller else spec.node_id,
        "state": node.state,
        "pid": node.pid,
        "address": f"{HOST}:{spec.port}",
        "directory": str(spec.directory),
        "log_directories": [str(path) for path in spec.log_directories],
        "offline_directories": list(node.offline_directories),
        "reason": node.remark,
    }


def ask_cluster(data: Path, command: str, node: int | str | None = None) -> list[dict[str, object]]:
    """Sends a command to the running `up`; returns the state of the nodes concerned after it.

    Raises UnusableInput where no cluster runs on `data` or there is no such node, NodeCommandFailed where the command
    failed.
    """
    control = Control.load(data)
    try:
        with socket.create_connection((HOST, control.port), timeout=ANSWER_TIMEOUT_S) as connection:
            line = json.dumps({"token": control.token, "command": command, "node": node})
            connection.sendall(line.encode() + b"\n")
            answer = json.loads(connection.makefile("rb").readline())
    except (OSError, ValueError) as error:
        raise UnusableInput(f"no cluster is running on {data} ({error})") from error
    if "error" in answer:
        kind = UnusableInput if answer.get("is_unusable") else NodeCommandFailed
        raise kind(str(answer["error"]))
    nodes: list[dict[str, object]] = answer["nodes"]
    return nodes
