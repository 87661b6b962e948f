"""The proxy between two processes, on the loopback: what it carries, keeps back, delays and breaks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import cast

import pytest

from cluster.local.layout import HOST
from replog.real.links import Link
from replog.real.proxy import Connection, Proxy, Pump
from storage.draws import Draws

# Longer than the loopback ever takes, and short enough for a test.
MOMENT_S = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Ends:
    """Both ends of one connection through a proxy, and the proxy."""

    proxy: Proxy
    near: tuple[asyncio.StreamReader, asyncio.StreamWriter]
    far: tuple[asyncio.StreamReader, asyncio.StreamWriter]


@asynccontextmanager
async def connected() -> AsyncIterator[Ends]:
    """Yields a connection of process a to node b, which listens."""
    arrived: asyncio.Queue[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = asyncio.Queue()
    server = await asyncio.start_server(lambda *ends: arrived.put_nowait(ends), HOST, 0)
    port = server.sockets[0].getsockname()[1]
    proxy = Proxy(Link("a", "b", Draws(0)), Link("b", "a", Draws(0)), port)
    await proxy.start()
    near = await asyncio.open_connection(HOST, proxy.port)
    far = await arrived.get()
    # What comes through shows that the proxy has both ends too.
    near[1].write(b"-")
    await far[0].readexactly(1)
    try:
        yield Ends(proxy=proxy, near=near, far=far)
    finally:
        for _, writer in (near, far):
            writer.transport.abort()
        await proxy.close()
        server.close()
        # What was aborted is closed in the next turn of the loop.
        await asyncio.sleep(0)


def with_connection(test: Callable[[Ends], Awaitable[None]]) -> None:
    async def run() -> None:
        async with connected() as ends:
            await test(ends)

    asyncio.run(asyncio.wait_for(run(), 10))


async def comes(reader: asyncio.StreamReader) -> bytes | None:
    """Returns what comes within a moment, None if nothing does, empty bytes at the end."""
    try:
        async with asyncio.timeout(MOMENT_S):
            return await reader.read(100)
    except TimeoutError:
        return None
    except ConnectionError:
        return b""


def test_bytes_go_both_ways() -> None:
    async def test(ends: Ends) -> None:
        ends.near[1].write(b"question")
        assert await comes(ends.far[0]) == b"question"
        ends.far[1].write(b"answer")
        assert await comes(ends.near[0]) == b"answer"

    with_connection(test)


def test_a_held_link_keeps_its_direction_back_and_delivers_it_in_order_when_it_is_free() -> None:
    async def test(ends: Ends) -> None:
        ends.proxy.forth.hold()
        ends.near[1].write(b"one ")
        assert await comes(ends.far[0]) is None
        ends.far[1].write(b"back")
        assert await comes(ends.near[0]) == b"back"
        ends.near[1].write(b"two")
        ends.proxy.forth.release()
        assert await ends.far[0].readexactly(7) == b"one two"

    with_connection(test)


def test_no_connection_is_made_while_one_direction_is_held() -> None:
    async def test(ends: Ends) -> None:
        ends.proxy.back.hold()
        reader, writer = await asyncio.open_connection(HOST, ends.proxy.port)
        writer.write(b"hello")
        assert len(ends.proxy._connections) == 1
        assert await comes(reader) is None
        assert len(ends.proxy._connections) == 1
        writer.transport.abort()

    with_connection(test)


def test_a_slow_link_delivers_later() -> None:
    async def test(ends: Ends) -> None:
        clock = asyncio.get_running_loop().time
        ends.proxy.forth.extra_us = 80_000
        begun_s = clock()
        ends.near[1].write(b"late")
        assert await ends.far[0].readexactly(4) == b"late"
        assert clock() - begun_s >= 0.08

    with_connection(test)


def test_a_narrow_link_carries_so_many_bytes_a_second() -> None:
    async def test(ends: Ends) -> None:
        clock = asyncio.get_running_loop().time
        ends.proxy.forth.bytes_per_s = 10_000
        begun_s = clock()
        ends.near[1].write(bytes(1_000))
        await ends.far[0].readexactly(1_000)
        # The pause after the last slice is not waited for.
        assert clock() - begun_s >= 0.04

    with_connection(test)


@pytest.mark.parametrize("ending", ["near", "far"])
def test_when_one_side_ends_the_other_one_hears_of_it(ending: str) -> None:
    async def test(ends: Ends) -> None:
        first, second = (ends.near, ends.far) if ending == "near" else (ends.far, ends.near)
        first[1].close()
        assert await comes(second[0]) == b""

    with_connection(test)


def test_a_connection_that_one_side_forgot_stays_open_until_the_other_side_sends() -> None:
    async def test(ends: Ends) -> None:
        ends.proxy.hang_up("a")
        assert await comes(ends.near[0]) == b""
        assert await comes(ends.far[0]) is None
        ends.far[1].write(b"are you there?")
        assert await comes(ends.far[0]) == b""

    with_connection(test)


def test_a_connection_to_a_node_that_does_not_listen_is_broken() -> None:
    async def run() -> None:
        server = await asyncio.start_server(lambda *_: None, HOST, 0)
        port = server.sockets[0].getsockname()[1]
        server.close()
        await server.wait_closed()
        proxy = Proxy(Link("a", "b", Draws(0)), Link("b", "a", Draws(0)), port)
        await proxy.start()
        reader, writer = await asyncio.open_connection(HOST, proxy.port)
        assert await comes(reader) == b""
        writer.transport.abort()
        await proxy.close()
        await asyncio.sleep(0)

    asyncio.run(run())


class Aborted:
    """An end of a connection that counts how often it is broken."""

    def __init__(self) -> None:
        self.count = 0
        self.transport = self

    def abort(self) -> None:
        self.count += 1


def test_a_connection_that_comes_as_the_proxy_closes_is_broken_too() -> None:
    async def run() -> None:
        proxy = Proxy(Link("a", "b", Draws(0)), Link("b", "a", Draws(0)), 1)
        before, after = Aborted(), Aborted()
        reader = asyncio.StreamReader()
        # Its task is cancelled before it begins.
        proxy._accept(reader, cast(asyncio.StreamWriter, before))
        await proxy.close()
        proxy._accept(reader, cast(asyncio.StreamWriter, after))
        assert (before.count, after.count) == (1, 1)

    asyncio.run(run())


class Passing:
    """A direction of a connection that has ended, or whose end takes a turn of the loop after it was cancelled."""

    def __init__(self, *, has_ended: bool) -> None:
        self._has_ended = has_ended

    async def run(self) -> None:
        if not self._has_ended:
            try:
                await asyncio.Event().wait()
            finally:
                await asyncio.sleep(0)


def test_a_connection_that_ends_as_the_proxy_closes_is_broken_at_both_sides() -> None:
    """The close cancels the wait for the other direction: that must not leave the socket to the node open."""

    async def run() -> None:
        for turns in range(8):
            near, far = Aborted(), Aborted()
            connection = Connection(cast(asyncio.StreamWriter, near), cast(asyncio.StreamWriter, far))
            ended, other = (cast(Pump, Passing(has_ended=each)) for each in (True, False))
            task = asyncio.get_running_loop().create_task(connection.run(ended, other))
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            if turns:
                assert (near.count, far.count) == (1, 1), turns
            await asyncio.sleep(0)

    asyncio.run(run())
