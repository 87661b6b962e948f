"""The real shell over the loopback: cores on `Runtime`, `NodeServer` and `Peers`, as in the processes of a cluster."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import final

import pytest

from cluster.core.effects import Effect, RunJob
from cluster.shell import transport
from cluster.shell.runtime import Runtime
from cluster.shell.server import BROKER_SERVICES, NodeServer
from cluster.shell.transport import Reader, read_or_end
from tests.ports.call_cores import SERVER, Ask, Client, Server

HOST = "127.0.0.1"
# A script that hangs fails after this; none waits so long.
PATIENCE_S = 20
# A node takes half a second.
GRACE_S = 0.05


@final
class RealCalls:
    """Server and clients on one loop, each with a runtime, and connections between them."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.patch = patch
        self._changed = asyncio.Event()
        self._may_read = asyncio.Event()
        self._may_read.set()
        self._may_end = threading.Event()
        self.clients = [Client(self._changed.set) for _ in range(2)]
        self._callers = [Runtime(client) for client in self.clients]
        self._port = 0
        # The connections of clients read by this name, those of servers by their own.
        patch.setattr(transport, "read_or_end", self._read_or_end)

    async def _read_or_end(self, reader: Reader) -> bytes | None:
        carriers = [
            carrier for peer in self._callers[0].peers._peers.values() for carrier in peer._streams.values()
        ]
        if any(carrier._call is reader for carrier in carriers):
            await self._may_read.wait()
        return await read_or_end(reader)

    async def start_server(self) -> None:
        self.server = Server(self._changed.set)
        self._runtime = Runtime(self.server)
        self._listener = NodeServer(self._runtime, BROKER_SERVICES)
        self._port = await self._listener.start(HOST, self._port)
        self._runtime.start(self.server.start)
        self._serving = asyncio.get_running_loop().create_task(self._serve())

    async def _serve(self) -> None:
        """Serves until the core has ended, as the process of a node does."""
        await self._runtime.stopped
        await self._listener.stop(GRACE_S)
        await self._runtime.close()

    async def start(self) -> None:
        await self.start_server()
        for caller in self._callers:
            caller.start()
            caller.peers.learn(SERVER, HOST, self._port)

    def send(self, *asks: Ask, by: int = 0) -> None:
        self._callers[by].run(lambda _: [ask.effect() for ask in asks])

    def serve(self, make: Callable[[int], list[Effect]]) -> None:
        self._runtime.run(make)

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not holds():
                self._changed.clear()
                await self._changed.wait()

    async def crash_server(self) -> None:
        self._serving.cancel()
        await self._listener.stop(0)
        await self._runtime.close()

    async def stop_server(self) -> None:
        self._runtime.shut_down()
        await self._serving

    async def close(self, by: int = 0, *, meanwhile: Callable[[], Awaitable[None]] | None = None) -> None:
        closing = asyncio.get_running_loop().create_task(self._callers[by].close())
        await asyncio.sleep(0)
        if meanwhile is not None:
            await meanwhile()
        await closing

    async def leave(self, by: int = 0) -> None:
        for peer in self._callers[by].peers._peers.values():
            await peer._channel.close(None)

    def stop_reading(self) -> None:
        self._may_read.clear()

    def read_on(self) -> None:
        self._may_read.set()

    def begin_job(self, job: int, work: Callable[[], None]) -> None:
        def wait_and_work() -> None:
            self._may_end.wait(PATIENCE_S)
            work()

        self.serve(lambda _: [RunJob(job=job, kind="flush", work=wait_and_work)])

    async def end_jobs(self) -> None:
        self._may_end.set()

    async def end(self) -> None:
        self._may_end.set()
        self._may_read.set()
        await self.crash_server()
        for caller in self._callers:
            await caller.close()


@asynccontextmanager
async def real_calls(patch: pytest.MonkeyPatch) -> AsyncIterator[RealCalls]:
    """The real world, with its server up; ends it afterwards."""
    world = RealCalls(patch)
    await world.start()
    try:
        yield world
    finally:
        await world.end()
