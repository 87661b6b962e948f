"""Looks up the nodes, clients and links that a target of a scenario means, at the moment when a step strikes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import final

from sim.checkers.ghost import Ghost
from sim.faults.misses import Misses
from sim.hosts.clients import TopicAdminShell
from sim.hosts.lives import ClientShell
from sim.hosts.node import Node
from sim.hosts.shell import Shell
from sim.scenario.base import Named, Step
from sim.scenario.model import TopicModel
from sim.scenario.values import LinkPair, Target
from sim.world.link import Link
from sim.world.network import Network
from sim.world.time import World

# What a step may kill, stop, pause and start again.
Process = Node | ClientShell


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """The world that faults strike and look their targets up in. `tell` adds a line to the story and the trace."""

    world: World
    network: Network
    ghost: Ghost
    brokers: Mapping[int, Node]
    controller: Node
    clients: Sequence[ClientShell]
    # The client that creates, deletes and alters topics, and the topics as the scenario describes them.
    admin: TopicAdminShell
    topics: Mapping[str, TopicModel]
    tell: Callable[[str], None]
    misses: Misses


@final
class Targets:
    """Looks up what the target of a step means now.

    Where the target leaves a choice, as between followers, the draw is keyed by the step's own words: without that
    step, a scenario draws the same for the other steps.
    """

    def __init__(self, site: Site) -> None:
        self._site = site
        self._names: dict[str, list[Process]] = {}

    def everyone(self) -> list[Shell]:
        return [*self._site.brokers.values(), self._site.controller, *self._site.clients]

    def nodes(self, target: Target, step: Step) -> list[Node]:
        """Returns the nodes that `target` means now, without clients; empty while it means none."""
        return [each for each in self.processes(target, step) if isinstance(each, Node)]

    def processes(self, target: Target, step: Step) -> list[Process]:
        """Returns the nodes and clients that `target` means now; empty while it means none."""
        site = self._site
        match target.kind:
            case "broker":
                return [site.brokers[target.broker]]
            case "controller":
                return [site.controller]
            case "all":
                return list(site.brokers.values())
            case "name":
                return self._names.get(target.text, [])
            case "producer" | "consumer":
                name = f"{target.kind}-{target.broker}"
                return [client for client in site.clients if client.name == name]
            case "leader" | "follower":
                return [*self._role(target, step)]
            case _:
                raise AssertionError(f"{target.text} is no node")

    def _role(self, target: Target, step: Step) -> list[Node]:
        partition = self._site.ghost.partition(f"{target.topic}-{target.partition}")
        if target.kind == "leader":
            chosen = [partition.leader] if partition.leader >= 0 else []
        else:
            followers = [broker for broker in partition.isr if broker != partition.leader]
            chosen = []
            if followers and partition.leader >= 0:
                drawn = self._site.world.draws.below(len(followers), "follower", repr(step))
                chosen = [followers[min(target.number, len(followers)) - 1 if target.number else drawn]]
        return [node for broker in chosen if (node := self._site.brokers[broker]).is_up]

    def shells(self, target: Target, step: Step, besides: Sequence[Shell] = ()) -> list[Shell]:
        """Returns the nodes and clients on one side of a link; `all` and `others` leave out those in `besides`."""
        if target.kind == "clients":
            return list(self._site.clients)
        if target.kind in ("all", "others"):
            return [shell for shell in self.everyone() if shell not in besides]
        return list(self.processes(target, step))

    def links(self, pair: LinkPair, step: Step) -> list[Link]:
        """Returns the links that `pair` means now; empty while one of its sides means nothing."""
        if {pair.source.kind, pair.target.kind} <= {"all", "others"}:
            # Without a node on one side, each link there is.
            sources = targets = self.everyone()
        elif pair.source.kind == "others":
            targets = self.shells(pair.target, step)
            sources = self.shells(pair.source, step, targets)
        else:
            sources = self.shells(pair.source, step)
            targets = self.shells(pair.target, step, sources)
        return self.between(sources, targets, both_ways=pair.both_ways)

    def between(self, sources: Sequence[Shell], targets: Sequence[Shell], *, both_ways: bool) -> list[Link]:
        """Returns the links from each source to each target and, with `both_ways`, those back."""
        links: dict[tuple[int, int], Link] = {}
        for source in sources:
            for target in targets:
                if source is not target:
                    ends = (source.node_id, target.node_id)
                    for key in (ends, ends[::-1]) if both_ways else (ends,):
                        links[key] = self._site.network.link(*key)
        return list(links.values())

    def bind(self, step: Named, nodes: Sequence[Process]) -> None:
        if step.name is not None:
            self._names[step.name] = list(nodes)
