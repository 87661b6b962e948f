"""What a script of calls may do to the world in which it runs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

import pytest

from cluster.core.effects import Effect
from tests.ports.call_cores import Ask, Client, Server


class CallWorld(Protocol):
    """A server and two clients, each with connections of its own."""

    # The core of the server's present life.
    server: Server
    clients: list[Client]
    # What a script changes with it is undone after the script.
    patch: pytest.MonkeyPatch

    def send(self, *asks: Ask, by: int = 0) -> None:
        """Let a client send requests in one turn."""

    def serve(self, make: Callable[[int], list[Effect]]) -> None:
        """Let the server carry out the effects that `make` returns for its present time in ms."""

    async def until(self, holds: Callable[[], bool]) -> None:
        """Let time pass until the cores have come to a state."""

    async def crash_server(self) -> None:
        """End the server's process."""

    async def stop_server(self) -> None:
        """Ask the server's core for an orderly stop, and end the process after it."""

    async def start_server(self) -> None:
        """Start a new server process on the same address."""

    async def close(self, by: int = 0, *, meanwhile: Callable[[], Awaitable[None]] | None = None) -> None:
        """Let a client stop in order; `meanwhile` is called when it has begun to."""

    async def leave(self, by: int = 0) -> None:
        """Let a client end without a word."""

    def stop_reading(self) -> None:
        """Let the first client read no answer from now on."""

    def read_on(self) -> None:
        """Let the first client read again."""

    def begin_job(self, job: int, work: Callable[[], None]) -> None:
        """Let the server begin a job, whose work lasts until `end_jobs`."""

    async def end_jobs(self) -> None:
        """Let the jobs that were begun end."""
