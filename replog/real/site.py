"""Everything that the steps of a run strike: processes, links, proxies and topics."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, final

from replog.real.clients import Client
from replog.real.links import Link, Links
from replog.real.processes import Process
from replog.real.proxy import Proxy
from sim.checkers.ghost import Ghost
from sim.faults.misses import Misses
from sim.hosts.clients import TopicRequest
from sim.scenario.base import Named, Step
from sim.scenario.model import TopicModel
from sim.scenario.values import LinkPair, Target
from storage.draws import Draws

CONTROLLER = "controller"


class Topics(Protocol):
    """The part of an admin client that carries out requests about topics, one after the other."""

    def ask(self, request: TopicRequest) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """The processes of a run, by name, and what is between them. `tell` adds a line to the story."""

    # The brokers in order, and the controller.
    nodes: Mapping[str, Process]
    clients: Mapping[str, Client]
    links: Links
    proxies: Sequence[Proxy]
    ghost: Ghost
    draws: Draws
    topics: Mapping[str, TopicModel]
    admin: Topics
    tell: Callable[[str], None]
    misses: Misses

    @property
    def brokers(self) -> list[str]:
        return [name for name in self.nodes if name != CONTROLLER]

    def process(self, name: str) -> Process:
        """Returns the process of a node or client."""
        return self.nodes[name] if name in self.nodes else self.clients[name].process


def broker_name(number: int) -> str:
    return f"broker-{number}"


@final
class Targets:
    """Looks up what the target of a step means now, as names of processes."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._names: dict[str, list[str]] = {}

    def processes(self, target: Target, step: Step) -> list[str]:
        """Returns the nodes and clients that `target` means now; empty while it means none."""
        match target.kind:
            case "broker":
                return [broker_name(target.broker)]
            case "controller":
                return [CONTROLLER]
            case "all":
                return self._site.brokers
            case "name":
                return self._names.get(target.text, [])
            case "producer" | "consumer":
                return [f"{target.kind}-{target.broker}"]
            case "leader" | "follower":
                chosen = self._role(target, step)
                return [name for name in chosen if self._site.nodes[name].is_up]
            case _:
                raise AssertionError(f"{target.text} is no process")

    def _role(self, target: Target, step: Step) -> list[str]:
        partition = self._site.ghost.partition(f"{target.topic}-{target.partition}")
        if partition.leader < 0:
            return []
        if target.kind == "leader":
            return [broker_name(partition.leader)]
        followers = [broker for broker in partition.isr if broker != partition.leader]
        if not followers:
            return []
        drawn = self._site.draws.below(len(followers), "follower", repr(step))
        number = min(target.number, len(followers)) - 1 if target.number else drawn
        return [broker_name(followers[number])]

    def sides(self, target: Target, step: Step, besides: Sequence[str] = ()) -> list[str]:
        """Returns the processes on one side of a link; `all` and `others` leave out those in `besides`."""
        if target.kind == "clients":
            return list(self._site.clients)
        if target.kind in ("all", "others"):
            return [name for name in self.everyone() if name not in besides]
        return self.processes(target, step)

    def everyone(self) -> list[str]:
        return [*self._site.nodes, *self._site.clients]

    def links(self, pair: LinkPair, step: Step) -> list[Link]:
        """Returns the links that `pair` means now; empty while one of its sides means nothing."""
        if {pair.source.kind, pair.target.kind} <= {"all", "others"}:
            # Without a node on one side, each link there is.
            sources = targets = self.everyone()
        elif pair.source.kind == "others":
            targets = self.sides(pair.target, step)
            sources = self.sides(pair.source, step, targets)
        else:
            sources = self.sides(pair.source, step)
            targets = self.sides(pair.target, step, sources)
        return self._site.links.between(sources, targets, both_ways=pair.both_ways)

    def bind(self, step: Named, names: Sequence[str]) -> None:
        """Keep what the step meant under the name in its `as`, for later steps."""
        if step.name is not None:
            self._names[step.name] = list(names)
