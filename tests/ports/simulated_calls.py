"""The simulated shell: the same cores as nodes and clients of a simulated network."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import final

import pytest

from cluster.core.effects import Effect, RunJob
from sim.hosts.lives import ClientShell
from tests.ports.call_cores import SERVER, Ask, Client, Server
from tests.sim.hosts.fake_cores import Site

# In simulated time.
PATIENCE_US = 1_000_000_000
# A job lasts so long in the mean that calls come and go meanwhile.
JOB_MEANS_US = {"flush": 60_000_000}


class SimulatedClient(ClientShell):
    """A client's process over the core of a script."""

    client: Client

    def _live(self) -> None:
        self.core = self.client

    def _forget_all(self, *, is_orderly: bool) -> None:
        return


def _nothing() -> None:
    return


@final
class SimulatedCalls:
    """Server and clients as processes of their own."""

    def __init__(self, patch: pytest.MonkeyPatch, seed: int) -> None:
        self.patch = patch
        self._site = Site(self._make, 1, seed=seed, job_means_us=JOB_MEANS_US)
        self._node = self._site.nodes[SERVER]
        self.clients = [Client(_nothing) for _ in range(2)]
        self._shells = [self._shell(number, client) for number, client in enumerate(self.clients)]
        self._site.start()

    def _make(self, _: int) -> Server:
        self.server = Server(_nothing)
        return self.server

    def _shell(self, number: int, client: Client) -> SimulatedClient:
        site = self._site
        shell = SimulatedClient(
            site.world, site.network, site.trace, site.onlooker, name=f"client-{number}", node_id=10 + number
        )
        shell.client = client
        shell.begin()
        return shell

    def send(self, *asks: Ask, by: int = 0) -> None:
        self._shells[by].perform([ask.effect() for ask in asks])

    def serve(self, make: Callable[[int], list[Effect]]) -> None:
        self._node.perform(make(self._node.clock.now_ms()))
        # What waited for room may be in the inbox now, and no step goes on to it.
        self._node._go_on()

    async def until(self, holds: Callable[[], bool]) -> None:
        world = self._site.world
        if not holds():
            world.run_to(world.now_us + PATIENCE_US, holds)
        assert holds(), "what the script waits for does not come"

    async def crash_server(self) -> None:
        self._node.crash()

    async def stop_server(self) -> None:
        self._node.stop()
        await self.until(lambda: not self._node.is_up)

    async def start_server(self) -> None:
        self._node.start()

    async def close(self, by: int = 0, *, meanwhile: Callable[[], Awaitable[None]] | None = None) -> None:
        self._shells[by].stop()
        if meanwhile is not None:
            await meanwhile()
        await self.until(lambda: not self._shells[by].is_up)

    async def leave(self, by: int = 0) -> None:
        self._shells[by].crash()

    def stop_reading(self) -> None:
        self._shells[0].pause()

    def read_on(self) -> None:
        self._shells[0].resume()

    def begin_job(self, job: int, work: Callable[[], None]) -> None:
        self.serve(lambda _: [RunJob(job=job, kind="flush", work=work)])

    async def end_jobs(self) -> None:
        return
