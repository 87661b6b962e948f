"""What a supervisor says of processes that end by themselves; the processes are scripts."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from cluster.local.layout import ClusterSpec, NodeSpec
from cluster.local.supervisor import StartFailed, Supervisor

READY = 'print(\'{"event": "ready"}\', flush=True); '


def died(monkeypatch: pytest.MonkeyPatch, data: Path, script: str) -> tuple[str, list[str]]:
    """Run `script` as node 1 until it has ended by itself. Return what the table shows, and what was said."""

    def command(self: Supervisor, spec: NodeSpec) -> list[str]:
        return [sys.executable, "-c", script]

    async def run() -> tuple[str, list[str]]:
        said: list[str] = []
        spec = ClusterSpec(data=data, nodes=1, port=1, controller_port=2)
        supervisor = Supervisor(spec, said.append)
        node = supervisor.brokers[1]
        await supervisor.start(node)
        assert node.process is not None and node.process.stdin is not None and node.watcher is not None
        # The script goes on.
        node.process.stdin.close()
        await node.watcher
        return f"{node.state} ({node.remark})", said

    monkeypatch.setattr(Supervisor, "_command", command)
    return asyncio.run(run())


def test_a_process_that_breaks_is_shown_with_the_last_line_of_its_log(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    shown, said = died(monkeypatch, tmp_path, READY + "input()")
    assert shown == "dead (exit status 1: EOFError: EOF when reading a line)"
    log = tmp_path / "node-1.txt"
    assert said == [f"node 1 died: exit status 1: EOFError: EOF when reading a line (its log: {log})"]


def test_a_process_that_says_why_it_stops_is_shown_with_that(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    told = """print('{"event": "stopped", "reason": "metadata log: No space left"}', flush=True); """
    shown, _ = died(monkeypatch, tmp_path, READY + "import sys; sys.stdin.read(); " + told + "sys.exit(1)")
    assert shown == "dead (exit status 1: metadata log: No space left)"


SERVES = READY + "import signal, sys; signal.signal(15, lambda *_: sys.exit(0)); sys.stdin.read()"


def test_what_is_started_while_all_are_stopped_is_not_left_running(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A restart of a node whose turn in the end of the cluster is over, and one whose process is being made."""
    monkeypatch.setattr(Supervisor, "_command", lambda self, spec: [sys.executable, "-c", SERVES])

    async def run() -> None:
        supervisor = Supervisor(ClusterSpec(data=tmp_path, nodes=2, port=1, controller_port=5), print)
        first, second = supervisor.brokers[1], supervisor.brokers[2]
        await supervisor.start(first)
        on_its_way = asyncio.create_task(supervisor.start(second))
        # Its process is being made, and is none yet.
        await asyncio.sleep(0)
        assert second.process is None
        await supervisor.stop_all()
        with pytest.raises(StartFailed):
            await on_its_way
        with pytest.raises(StartFailed, match="node 1: the cluster is ending"):
            await supervisor.start(first)
        assert not any(node.is_alive for node in supervisor.nodes)

    asyncio.run(asyncio.wait_for(run(), 60))


def test_a_node_does_not_import_from_the_current_directory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A user's queue.py took the place of Python's, and no node started."""
    for name in ("storage.py", "queue.py", "cluster.py"):
        (tmp_path / name).write_text("raise SystemExit('the wrong module')")
    monkeypatch.chdir(tmp_path)
    shown, _ = died(
        monkeypatch, tmp_path / "data", "import cluster, queue, storage, sys; " + READY + "sys.stdin.read()"
    )
    assert shown == "dead (exit status 0)"


def stopped(monkeypatch: pytest.MonkeyPatch, data: Path, script: str, *, timeout_s: float) -> Supervisor:
    """Run `script` as node 1 until it is stopped. Return its supervisor after that."""
    monkeypatch.setattr(Supervisor, "_command", lambda self, spec: [sys.executable, "-c", script])

    async def run() -> Supervisor:
        supervisor = Supervisor(ClusterSpec(data=data, nodes=1, port=1, controller_port=2), lambda line: None)
        await supervisor.start(supervisor.brokers[1])
        await supervisor.stop(supervisor.brokers[1], timeout_s=timeout_s)
        return supervisor

    return asyncio.run(asyncio.wait_for(run(), 60))


GIVES_UP = "import os, signal, sys; signal.signal(15, lambda *_: os._exit(1)); " + READY + "sys.stdin.read()"
DEAF = "import signal, sys; signal.signal(15, signal.SIG_IGN); " + READY + "sys.stdin.read()"
STOPS = "import signal, sys; signal.signal(15, lambda *_: sys.exit(0)); " + READY + "sys.stdin.read()"


def test_a_node_that_gives_up_its_stop_has_not_stopped_in_order(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    supervisor = stopped(monkeypatch, tmp_path, GIVES_UP, timeout_s=60)
    assert (supervisor.killed, supervisor.failed) == ([], {"node 1": "exit status 1"})
    assert supervisor.brokers[1].state == "stopped"


def test_a_node_that_has_to_be_killed_has_not_stopped_in_order(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    supervisor = stopped(monkeypatch, tmp_path, DEAF, timeout_s=0)
    assert (supervisor.killed, supervisor.failed) == (["node 1"], {})


def test_a_node_that_stops_in_order_is_no_failure(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    supervisor = stopped(monkeypatch, tmp_path, STOPS, timeout_s=60)
    assert (supervisor.killed, supervisor.failed) == ([], {})
