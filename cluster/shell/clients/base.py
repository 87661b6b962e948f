"""The base of the asyncio clients: the runtime around a core, its orderly end, and its failure."""

from __future__ import annotations

import asyncio
import os
from types import TracebackType
from typing import Self

from cluster.core.effects import Stop
from cluster.core.errors import ClusterError, ErrorCode
from cluster.shell.forks import check_process
from cluster.shell.runtime import Core, Entry, Runtime
from cluster.shell.transport import Address
from storage.draws import Draws

# The first three nodes of `replog up`: one that runs is enough, also when the first one was killed.
DEFAULT_BOOTSTRAP = "127.0.0.1:19092,127.0.0.1:19093,127.0.0.1:19094"


def parse_bootstrap(servers: str) -> list[Address]:
    """Parses `host:port[,host:port…]`. Raises TypeError or ValueError with the reason."""
    if not isinstance(servers, str):
        raise TypeError(f"bootstrap servers: expected a str HOST:PORT,…, got {type(servers).__name__}")
    addresses = []
    for server in servers.split(","):
        host, colon, port = server.strip().rpartition(":")
        if not colon or not host or not port.isdecimal() or not 0 < int(port) < 65_536:
            raise ValueError(f"bootstrap server: expected HOST:PORT, got {server!r}")
        addresses.append((host, int(port)))
    return addresses


def system_draws() -> Draws:
    """Returns draws for a real process, seeded by the operating system."""
    return Draws(int.from_bytes(os.urandom(8), "big"))


class AsyncClient:
    """The base of the three clients. `async with` starts and ends one; `start` and `close` do the same by hand.

    When the core fails, every call and future that waits for it ends with a ClusterError that says why, and so does
    every later call.
    """

    def __init__(self, core: Core, bootstrap: str, start: Entry | None = None) -> None:
        self._core_of_runtime = core
        self._entry = start
        self._bootstrap = parse_bootstrap(bootstrap)
        self._runtime: Runtime | None = None
        self._is_ending = self._is_closed = False
        self._ended = asyncio.Event()

    @property
    def runtime(self) -> Runtime:
        """The runtime of a started client. Raises RuntimeError before `async with`, and after it."""
        name = type(self).__name__
        if self._runtime is None:
            raise RuntimeError(f"the {name} has not started: write `async with {name}(…)`")
        if self._is_closed:
            raise RuntimeError(f"the {name} is closed")
        return self._runtime

    async def start(self) -> None:
        """Starts the client; `async with` does it. The nodes are called when there is something to ask.

        Raises RuntimeError in a process that was forked from one with a client.
        """
        if self._runtime is not None:
            raise RuntimeError(f"the {type(self).__name__} was started before: make a new one")
        assert not self._is_closed, "closed before its start"
        check_process(type(self).__name__)
        self._runtime = Runtime(self._core_of_runtime, bootstrap=self._bootstrap, notify=self._on_notice)
        self._runtime.stopped.add_done_callback(lambda stopped: self._on_stopped(stopped.result()))
        self._runtime.start(self._entry)

    async def close(self) -> None:
        """Ends the client in order: a producer first delivers what was sent. Does nothing at the second call."""
        if not self._is_closed:
            await self._end(is_orderly=True)

    async def abort(self) -> None:
        """Ends the client at once: what is open fails. Does nothing at the second call."""
        if not self._is_closed:
            await self._end(is_orderly=False)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await (self.close() if kind is None else self.abort())

    async def _end(self, *, is_orderly: bool) -> None:
        runtime = self.runtime
        if self._is_ending:
            # Another task ends it already; an abort makes it quick.
            if not is_orderly:
                self._abort()
            await self._ended.wait()
            return
        self._is_ending = True
        try:
            if is_orderly:
                await self._finish()
            else:
                self._abort()
        finally:
            self._is_closed = True
            try:
                # First, because a caller that is cancelled twice gets no further.
                self._fail_open(ClusterError(ErrorCode.UNKNOWN_SERVER_ERROR, "the client was closed"))
                await runtime.close()
            finally:
                self._ended.set()

    def _run(self, advance: Entry) -> None:
        """Calls an entry of the core. Raises ClusterError, with the reason, if the core has stopped or stops in it."""
        runtime = self.runtime
        if not runtime.stopped.done():
            runtime.run(advance)
        self._check_alive(runtime)

    def _check_open(self) -> None:
        """Raises where nothing new is taken: the client is ending, or its core has stopped."""
        runtime = self.runtime
        if self._is_ending:
            raise RuntimeError(f"the {type(self).__name__} is closed")
        self._check_alive(runtime)

    def _check_alive(self, runtime: Runtime) -> None:
        if runtime.stopped.done():
            raise ClusterError(ErrorCode.UNKNOWN_SERVER_ERROR, runtime.stopped.result().reason)

    def _on_stopped(self, stop: Stop) -> None:
        self._fail_open(ClusterError(ErrorCode.UNKNOWN_SERVER_ERROR, stop.reason))

    def _on_notice(self, effect: object) -> None:
        raise NotImplementedError

    def _fail_open(self, error: ClusterError) -> None:
        """Ends everything that waits for the core with this error."""
        raise NotImplementedError

    async def _finish(self) -> None:
        """Ends the client in order; `async with` awaits it where its body raised nothing."""

    def _abort(self) -> None:
        """Ends the client at once; `async with` calls it where its body raised."""


def fail(future: asyncio.Future[object], error: BaseException) -> None:
    """Ends a future that is still open with an error. asyncio reports no such error that nobody fetches: it is one
    for all open futures, and the core's failure is logged once.
    """
    if not future.done():
        future.set_exception(error)
        future.exception()
