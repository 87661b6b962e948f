"""What `replog nodes` and `replog down` ask of a running `up`; the processes are scripts."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from cluster.local.control import ControlServer
from cluster.local.layout import HOST, ClusterSpec, Control, NodeSpec
from cluster.local.supervisor import Supervisor
from cluster.local.waits import ManyWaits

READY = 'print(\'{"event": "ready"}\', flush=True); '
WAITS = "import sys; sys.stdin.read()"
SERVES = "import signal, sys; signal.signal(15, lambda *_: sys.exit(0)); " + READY + "sys.stdin.read()"
GIVES_UP = "import os, signal, sys; signal.signal(15, lambda *_: os._exit(1)); " + READY + "sys.stdin.read()"
# It stops once a file is there.
SLOW = (
    "import os, signal, sys, time; go = []; signal.signal(15, lambda *_: go.append(1)); " + READY + "\n"
    "while not (go and os.path.exists('GO')): time.sleep(0.01)"
)


class Asking:
    """One command on a connection of its own."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def answer(self) -> dict[str, object]:
        while True:
            told: dict[str, object] = json.loads(await self._reader.readline())
            if "waits" not in told:
                self._writer.close()
                return told

    def leave(self) -> None:
        self._writer.close()


Ask = Callable[[str, int | str], Awaitable[Asking]]


async def until(condition: Callable[[], bool]) -> None:
    """Let the loop go on until the condition holds."""
    for _ in iter(condition, True):
        await asyncio.sleep(0)


def run(
    monkeypatch: pytest.MonkeyPatch,
    data: Path,
    scripts: dict[str, str],
    test: Callable[[Supervisor, Ask], Awaitable[None]],
) -> None:
    """Run a test with nodes 1 and 2 and the controller, which are these scripts and do not run yet."""

    def command(self: Supervisor, spec: NodeSpec) -> list[str]:
        return [sys.executable, "-c", scripts[spec.name]]

    async def check() -> None:
        supervisor = Supervisor(ClusterSpec(data=data, nodes=2, port=1, controller_port=5), lambda line: None)
        server = ControlServer(supervisor, asyncio.Event(), ManyWaits())
        await server.start()
        control = Control.load(data)

        async def ask(asked: str, node: int | str) -> Asking:
            reader, writer = await asyncio.open_connection(HOST, control.port)
            writer.write(
                json.dumps({"token": control.token, "command": asked, "node": node}).encode() + b"\n"
            )
            return Asking(reader, writer)

        try:
            await test(supervisor, ask)
        finally:
            await supervisor.kill_all()
            await server.finish()

    monkeypatch.setattr(Supervisor, "_command", command)
    asyncio.run(asyncio.wait_for(check(), 30))


def test_a_start_that_waits_for_another_node_does_not_keep_that_one_from_its_start(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async def test(supervisor: Supervisor, ask: Ask) -> None:
        waits = await ask("start", 1)
        await until(lambda: supervisor.brokers[1].is_alive)
        answer = await (await ask("start", "controller")).answer()
        assert "error" not in answer and supervisor.controller.state == "ready"
        # Nor itself from being stopped and killed.
        assert "error" not in await (await ask("stop", 1)).answer()
        assert await waits.answer() == {"error": "node 1: killed by SIGTERM"}
        again = await ask("start", 1)
        await until(lambda: supervisor.brokers[1].is_alive)
        assert "error" not in await (await ask("kill", 1)).answer()
        assert await again.answer() == {"error": "node 1: killed by SIGKILL"}

    run(monkeypatch, tmp_path, {"controller": SERVES, "node 1": WAITS}, test)


def test_a_command_whose_caller_has_left_before_its_turn_is_dropped(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async def test(supervisor: Supervisor, ask: Ask) -> None:
        node = supervisor.brokers[1]
        await supervisor.start(node)
        stop = await ask("stop", 1)
        await until(lambda: node.is_stopping)
        (await ask("start", 1)).leave()
        later = await ask("list", 1)
        await later.answer()
        (tmp_path / "go").touch()
        assert "error" not in await stop.answer()
        # It has its turn after the one that has left.
        assert "error" not in await (await ask("stop", 1)).answer()
        assert not node.is_alive

    run(monkeypatch, tmp_path, {"node 1": SLOW.replace("GO", str(tmp_path / "go"))}, test)


def test_a_stop_that_was_not_in_order_is_an_error_and_a_restart_starts_the_node_all_the_same(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async def test(supervisor: Supervisor, ask: Ask) -> None:
        await supervisor.start(supervisor.brokers[1])
        answer = await (await ask("restart", 1)).answer()
        wanted = "node 1 did not stop in order: exit status 1"
        assert answer == {"error": f"{wanted}; it was started again"}
        assert supervisor.brokers[1].state == "ready" and not supervisor.failed
        assert await (await ask("stop", 1)).answer() == {"error": wanted}
        assert supervisor.failed == {"node 1": "exit status 1"}

    run(monkeypatch, tmp_path, {"node 1": GIVES_UP}, test)
