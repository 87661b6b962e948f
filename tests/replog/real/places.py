"""Stand-ins for what a step needs when no process runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import final

from replog.real.links import Links
from replog.real.processes import Process
from replog.real.site import Site
from sim.checkers.ghost import Ghost
from sim.faults.misses import Misses
from sim.hosts.clients import TopicRequest
from sim.scenario.loading import parse_scenario
from storage.draws import Draws

NODES = ("controller", "broker-1", "broker-2", "broker-3")
HEAD = "scenario: s\ntopics: {t: {}}\nproducers: [{topic: t}]\nsteps:\n"


@final
class Nobody:
    """Keeps the requests about topics."""

    def __init__(self) -> None:
        self.asked: list[TopicRequest] = []

    def ask(self, request: TopicRequest) -> None:
        self.asked.append(request)


@final
class Deaf:
    """Hears nothing: no process runs."""

    def on_line(self, process: Process, line: bytes) -> None:
        raise AssertionError(line)

    def on_ended(self, process: Process, status: int) -> None:
        raise AssertionError(status)


@final
class Quiet:
    """Takes note of nothing that processes say, nor of how they end."""

    def on_line(self, process: Process, line: bytes) -> None:
        """Drop the line."""

    def on_ended(self, process: Process, status: int) -> None:
        """Note nothing."""


def _ignore(what: str) -> None:
    """Keep no story."""


def site(admin: Nobody | None = None, tell: Callable[[str], None] = _ignore) -> Site:
    """Returns a site of processes that never run; broker 2 leads t-0, and 3 and 1 are in sync."""
    ghost = Ghost()
    partition = ghost.partition("t-0")
    partition.leader, partition.isr = 2, (2, 3, 1)
    nodes = {name: Process(name, Deaf(), Path("unused"), lambda: []) for name in NODES}
    return Site(
        nodes=nodes, clients={}, links=Links(Draws(0)), proxies=(), ghost=ghost, draws=Draws(0),
        topics=parse_scenario(HEAD + "  - heal: all\n").topics, admin=admin or Nobody(), tell=tell,
        misses=Misses(),
    )  # fmt: skip
