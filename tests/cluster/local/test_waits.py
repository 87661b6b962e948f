"""What a stop waits for is said at once to a terminal, and in a pipe only where it takes long."""

from __future__ import annotations

import asyncio

from cluster.local.waits import PATIENCE_S, ManyWaits, Waits, patience


def test_a_terminal_is_told_at_once_and_a_pipe_is_not() -> None:
    assert patience(is_terminal=True) == 0
    assert patience(is_terminal=False) == PATIENCE_S > 0


def test_a_wait_without_patience_is_said_when_it_begins() -> None:
    said: list[str] = []
    Waits(said.append, 0).begin("node 1")
    assert said == ["waiting for node 1"]


def test_a_wait_that_ends_in_time_is_not_said() -> None:
    async def run() -> list[str]:
        said: list[str] = []
        waits = Waits(said.append, 1e-9)
        waits.begin("node 1")
        waits.begin("node 2")
        await asyncio.get_running_loop().run_in_executor(None, lambda: None)
        waits.begin("node 3")
        waits.end()
        await asyncio.get_running_loop().run_in_executor(None, lambda: None)
        return said

    assert asyncio.run(run()) == ["waiting for node 2"]


def test_who_joins_late_is_told_what_is_waited_for() -> None:
    said: list[str] = []
    many = ManyWaits()
    many.begin("node 1")
    many.join(Waits(said.append, 0))
    many.begin("node 2")
    many.end()
    many.join(Waits(said.append, 0))
    assert said == ["waiting for node 1", "waiting for node 2"]
