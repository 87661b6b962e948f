"""The lives of one process: what it says, how it ends, and what signals do to it."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from itertools import pairwise
from pathlib import Path
from typing import final

import pytest

from cluster.core.messages import CONTROLLER_ID
from replog.real.processes import Process, node_command
from sim.scenario.loading import parse_scenario

# Says that it is there, and then every line that it is told; ends when told nothing more.
ECHO = "import sys\nprint('here', flush=True)\nfor line in sys.stdin: print(line, end='', flush=True)"


@final
class Listener:
    """Keeps what processes say and how they end."""

    def __init__(self) -> None:
        self.lines: asyncio.Queue[bytes] = asyncio.Queue()
        self.ends: list[int] = []

    def on_line(self, process: Process, line: bytes) -> None:
        self.lines.put_nowait(line)

    def on_ended(self, process: Process, status: int) -> None:
        self.ends.append(status)


def with_process(path: Path, test: Callable[[Process, Listener], Awaitable[None]]) -> None:
    async def run() -> None:
        listener = Listener()
        process = Process("echo", listener, path / "echo.txt", lambda: [sys.executable, "-S", "-c", ECHO])
        await process.start()
        try:
            assert await listener.lines.get() == b"here\n"
            await test(process, listener)
        finally:
            await process.end_at_once()

    asyncio.run(asyncio.wait_for(run(), 60))


def test_a_process_is_told_lines_and_what_it_says_is_heard(tmp_path: Path) -> None:
    async def test(process: Process, listener: Listener) -> None:
        process.tell(b"one")
        assert await listener.lines.get() == b"one\n"

    with_process(tmp_path, test)


def test_a_killed_process_has_ended_by_a_signal_and_begins_another_life(tmp_path: Path) -> None:
    async def test(process: Process, listener: Listener) -> None:
        process.kill()
        await process.until_ended()
        assert (process.is_up, process.is_killed, listener.ends) == (False, True, [-9])
        await process.start()
        assert await listener.lines.get() == b"here\n"
        assert (process.starts, process.is_killed, process.is_asked) == (2, False, False)

    with_process(tmp_path, test)


def test_a_process_that_was_killed_is_down_at_once_and_its_next_life_begins_after_its_end(
    tmp_path: Path,
) -> None:
    async def test(process: Process, listener: Listener) -> None:
        process.kill()
        assert not process.is_up
        assert await process.start()
        assert await listener.lines.get() == b"here\n"
        assert (process.is_up, process.starts, listener.ends) == (True, 2, [-9])

    with_process(tmp_path, test)


def test_two_starts_at_once_begin_one_life(tmp_path: Path) -> None:
    async def test(process: Process, listener: Listener) -> None:
        process.kill()
        began = await asyncio.gather(process.start(), process.start(), process.start(after=1))
        assert (list(began), process.starts) == ([True, False, False], 2)
        assert await listener.lines.get() == b"here\n"
        process.kill()
        await process.until_ended()
        # It was planned for a life before the last one.
        assert not await process.start(after=1)
        assert (process.is_up, listener.ends) == (False, [-9, -9])

    with_process(tmp_path, test)


def test_a_suspended_process_says_nothing_until_it_goes_on(tmp_path: Path) -> None:
    async def test(process: Process, listener: Listener) -> None:
        process.pause()
        process.tell(b"one")
        await asyncio.sleep(0.02)
        assert listener.lines.empty()
        # A pause within it takes nothing away.
        process.pause()
        assert process.resume() >= 20_000
        assert process.resume() == 0
        assert await listener.lines.get() == b"one\n"

    with_process(tmp_path, test)


def test_a_suspended_process_ends_in_order_too(tmp_path: Path) -> None:
    async def test(process: Process, listener: Listener) -> None:
        process.pause()
        assert await process.end()
        assert listener.ends == [-15]

    with_process(tmp_path, test)


def test_a_node_gets_the_settings_and_the_route_to_each_peer(tmp_path: Path) -> None:
    scenario = parse_scenario(
        "scenario: s\ntopics: {t: {}}\ncluster: {directories: 2, settings: {replica.lag.time.max.ms: 7777,"
        " log.cleaner.enable: 0}}\n"
    )
    command = node_command(
        scenario, 1, port=5, routes={CONTROLLER_ID: 6, 2: 7}, data=tmp_path, name="broker-1"
    )
    pairs = list(pairwise(command))
    assert ("--controller", "127.0.0.1:6") in pairs
    assert ("--route", "2=127.0.0.1:7") in pairs
    assert ("--property", "replica.lag.time.max.ms=7777") in pairs
    assert ("--property", "log.cleaner.enable=false") in pairs
    assert [value for name, value in pairs if name == "--directory"] == [
        str(tmp_path / "broker-1" / "log-1"), str(tmp_path / "broker-1" / "log-2"),
    ]  # fmt: skip


def test_what_a_process_was_killed_in_the_midst_of_is_no_line(tmp_path: Path) -> None:
    async def run() -> None:
        listener = Listener()
        process = Process(
            "torn", listener, tmp_path / "torn.txt",
            lambda: [sys.executable, "-S", "-c", "print('whole'); print('to', end='', flush=True)"],
        )  # fmt: skip
        await process.start()
        await process.until_ended()
        assert listener.lines.get_nowait() == b"whole\n" and listener.lines.empty()
        assert listener.ends == [0]

    asyncio.run(asyncio.wait_for(run(), 60))


def test_the_end_of_a_life_is_told_though_a_line_of_it_was_refused(tmp_path: Path) -> None:
    @final
    class Refuses:
        def __init__(self) -> None:
            self.ends: list[int] = []

        def on_line(self, process: Process, line: bytes) -> None:
            raise ValueError(line)

        def on_ended(self, process: Process, status: int) -> None:
            self.ends.append(status)

    async def run() -> None:
        owner = Refuses()
        process = Process("p", owner, tmp_path / "p.txt", lambda: [sys.executable, "-S", "-c", "print('x')"])
        await process.start()
        with pytest.raises(ValueError, match="x"):
            await process.until_ended()
        assert owner.ends == [0]

    asyncio.run(asyncio.wait_for(run(), 60))
