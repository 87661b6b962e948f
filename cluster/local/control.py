"""Connects `replog nodes` and `replog down` with the `replog up` that owns the processes, over the loopback.

The command is one JSON line. What it waits for comes back as lines with `waits`, the answer as the last line.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from cluster.local.layout import HOST, Control, UnusableInput, control_path
from cluster.local.report import describe
from cluster.local.supervisor import ManagedNode, StartFailed, Supervisor
from cluster.local.waits import ManyWaits, Say, Waits
from storage.errors import reason_of

COMMANDS = ("list", "start", "stop", "kill", "restart", "down")
ANSWER_TIMEOUT_S = 90.0
# A `down` whose caller reads no more does not hold up the end of `up`.
FINISH_TIMEOUT_S = 2.0
MAX_LINE_BYTES = 4096
_LOOK_S = 0.02
# Whether the caller of a command waits for its answer no more.
HasLeft = Callable[[], bool]


class NodeCommandFailed(Exception):
    """A failure of a command that the cluster accepted and could not carry out."""


class _StopFailed(Exception):
    """A stop of a node that was not in order."""


@final
class ControlServer:
    """Carries out the commands of callers that have the token; others get no answer.

    The stops and starts of a node are in the order in which they came. No turn lasts until the node serves: that may
    wait for another node's start. A command whose caller has left before its turn is dropped.
    The command `down` sets `stop`, and is answered by `finish`, after the cluster has ended. `ending` is told what
    that end waits for.
    """

    def __init__(self, supervisor: Supervisor, stop: asyncio.Event, ending: ManyWaits) -> None:
        self._supervisor = supervisor
        self._stop = stop
        self._ending = ending
        self._ended = asyncio.Event()
        self._downs: set[asyncio.Task[object]] = set()
        self._token = secrets.token_hex(16)
        # By node id.
        self._turns = {node.spec.node_id: asyncio.Lock() for node in supervisor.nodes}
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        assert self._server is None, "started twice"
        self._server = await asyncio.start_server(self._serve, HOST, 0, limit=MAX_LINE_BYTES)
        port = self._server.sockets[0].getsockname()[1]
        Control(port=port, token=self._token).save(self._supervisor.spec.data)

    async def finish(self) -> None:
        """Answers each `down`, whose cluster has ended, and takes no more commands."""
        with contextlib.suppress(OSError):
            control_path(self._supervisor.spec.data).unlink(missing_ok=True)
        if self._server is not None:
            self._server.close()
        self._ended.set()
        if self._downs:
            await asyncio.wait(self._downs, timeout=FINISH_TIMEOUT_S)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            asked = json.loads(await reader.readline())
            if secrets.compare_digest(str(asked["token"]), self._token):

                def say(what: str) -> None:
                    writer.write(json.dumps({"waits": what}).encode() + b"\n")

                waits = Waits(say, float(asked.get("patience_s", 0)))
                answer = await self._answer(str(asked["command"]), asked.get("node"), waits, reader.at_eof)
                writer.write(json.dumps(answer).encode() + b"\n")
                await writer.drain()
        except (ValueError, KeyError, TypeError, OSError, OverflowError, RecursionError):
            # The caller is not `replog nodes`, or has left: it gets no answer.
            pass
        finally:
            writer.close()

    async def _answer(
        self, command: str, node_id: object, waits: Waits, has_left: HasLeft
    ) -> dict[str, object]:
        if command == "down":
            return await self._down(waits)
        if command == "list":
            return {"nodes": self._describe_all()}
        if self._stop.is_set():
            return {"error": "the cluster is ending"}
        node = self._find(node_id)
        if node is None:
            return {
                "error": f"there is no node {node_id}: nodes are 1 to {self._supervisor.spec.nodes} and controller",
                "is_unusable": True,
            }
        try:
            await self._carry_out(command, node, waits, has_left)
        except (StartFailed, TimeoutError, _StopFailed) as error:
            return {"error": str(error)}
        except OSError as error:
            # A full disk refuses the node's directory or its log.
            return {"error": f"{node.spec.name}: {reason_of(error)}"}
        return {"nodes": [describe(node)]}

    async def _down(self, waits: Waits) -> dict[str, object]:
        """Ends the cluster, or joins those who wait for its end; returns how each node ended."""
        task = asyncio.current_task()
        assert task is not None
        self._downs.add(task)
        try:
            self._ending.join(waits)
            self._stop.set()
            await self._ended.wait()
        finally:
            waits.end()
            task.add_done_callback(self._downs.discard)
        supervisor = self._supervisor
        return {"nodes": self._describe_all(), "killed": supervisor.killed, "failed": supervisor.failed}

    def _describe_all(self) -> list[dict[str, object]]:
        return [describe(node) for node in self._supervisor.nodes]

    def _find(self, node_id: object) -> ManagedNode | None:
        if node_id == "controller":
            return self._supervisor.controller
        return self._supervisor.brokers.get(node_id) if isinstance(node_id, int) else None

    async def _carry_out(self, command: str, node: ManagedNode, waits: Waits, has_left: HasLeft) -> None:
        """Carries out a command, and returns once the node serves if it is to. Raises StartFailed and the like."""
        assert command in COMMANDS, command
        if command == "kill" and node.is_alive:
            # Whatever is under way for the node, it is not to be waited for.
            await self._supervisor.kill(node)
            return
        async with self._turns[node.spec.node_id]:
            if self._stop.is_set():
                raise StartFailed(node.spec, "the cluster is ending", is_unusable_input=False)
            if has_left():
                return
            failure = await self._take_turn(command, node, waits)
        if command in ("start", "restart"):
            waits.begin(f"{node.spec.name} to serve")
            try:
                await self._supervisor.until_ready(node)
            finally:
                waits.end()
        if failure:
            again = "; it was started again" if command == "restart" else ""
            raise _StopFailed(f"{node.spec.name} did not stop in order: {failure}{again}")

    async def _take_turn(self, command: str, node: ManagedNode, waits: Waits) -> str:
        """Stops or starts the node, or both; returns why a stop was not in order, or nothing."""
        failure = ""
        if command == "kill":
            await self._supervisor.kill(node)
        if command in ("stop", "restart") and node.is_alive:
            await self._supervisor.stop(node, waits)
            failure = node.reason if node.was_killed or node.failure else ""
        if command in ("start", "restart"):
            await self._supervisor.begin(node)
        return failure


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The nodes concerned after a command, and those that did not stop in order as the cluster ended.

    Of these, `killed` has the names of those that had to be killed, `failed` how each of the others ended.
    """

    nodes: list[dict[str, object]]
    killed: list[str]
    failed: dict[str, str]


def ask_cluster(
    data: Path, command: str, node: int | str | None = None, *, say: Say, patience_s: float = 0.0
) -> Outcome:
    """Sends a command to the running `up`; returns its outcome.

    `say` is given a line when something is waited for longer than `patience_s`. Raises UnusableInput where no cluster
    runs on `data` or there is no such node, NodeCommandFailed where the command failed.
    """
    control = Control.load(data)
    try:
        with socket.create_connection((HOST, control.port), timeout=ANSWER_TIMEOUT_S) as connection:
            asked = {"token": control.token, "command": command, "node": node, "patience_s": patience_s}
            connection.sendall(json.dumps(asked).encode() + b"\n")
            answer = _last_answer(connection, say)
    except ConnectionRefusedError as error:
        raise UnusableInput(
            f"no cluster is running on {data}: its `replog up` was killed, and its nodes stop by themselves"
        ) from error
    except TimeoutError as error:
        message = f"the cluster on {data} did not answer within {ANSWER_TIMEOUT_S:.0f} s"
        raise NodeCommandFailed(message) from error
    except (OSError, ValueError) as error:
        raise NodeCommandFailed(f"`replog up` on {data} ended without an answer") from error
    if "error" in answer:
        kind = UnusableInput if answer.get("is_unusable") else NodeCommandFailed
        raise kind(str(answer["error"]))
    return Outcome(nodes=answer["nodes"], killed=answer.get("killed", []), failed=answer.get("failed", {}))


def end_cluster(data: Path, *, say: Say, patience_s: float = 0.0) -> Outcome:
    """Ends the cluster on `data` in order; returns once its `up` has released the directory.

    Raises as `ask_cluster`.
    """
    outcome = ask_cluster(data, "down", say=say, patience_s=patience_s)
    deadline_s = time.monotonic() + FINISH_TIMEOUT_S * 2
    # An `up` deletes this file when all that it started has ended.
    while (data / "up.lock").exists() and time.monotonic() < deadline_s:
        time.sleep(_LOOK_S)
    return outcome


def _last_answer(connection: socket.socket, say: Say) -> dict[str, Any]:
    """Reads the lines of `up` up to its answer; those before it are said. Raises OSError or ValueError without one."""
    with connection.makefile("rb") as lines:
        while line := lines.readline():
            answer: dict[str, Any] = json.loads(line)
            if "waits" not in answer:
                return answer
            say(answer["waits"])
    raise ConnectionResetError("the connection was closed")
