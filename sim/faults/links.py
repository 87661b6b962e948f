"""Faults of links. Each verb returns False while its target does not exist yet."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import final

from sim.faults.targets import Site, Targets
from sim.scenario.link_steps import Clog, FlipBits, HangUp, Narrow
from sim.scenario.steps import Cut, Heal, Isolate, Lose, Slow
from sim.scenario.values import LinkPair
from sim.world.flips import Where
from sim.world.link import Link
from sim.world.time import Actor

LinksEnd = tuple[list[tuple[Link, int]], str, Callable[[Link], None]]


@final
class LinkFaults:
    """Cuts, slows and makes links lose messages; a fault with `for` ends by itself, unless a heal comes first."""

    def __init__(self, site: Site, targets: Targets, actor: Actor) -> None:
        self._site, self._targets, self._actor = site, targets, actor

    def _for_a_while(
        self, links: list[Link], lasting: int | None, what: str, end: Callable[[Link], None]
    ) -> None:
        if lasting is not None:
            marks = [(link, link.generation) for link in links]
            self._site.world.after(self._actor, lasting, self._end_of_links, (marks, what, end))

    def _end_of_links(self, token: LinksEnd) -> None:
        marks, what, end = token
        left = [link for link, generation in marks if link.generation == generation]
        if left:
            self._site.tell(what)
            for link in left:
                end(link)

    def _cut_links(
        self, links: list[Link], lasting: int | None, what: str, methods: tuple[str, ...] = ()
    ) -> bool:
        if not links:
            return False
        self._site.tell(f"cut {what}")
        for link in links:
            link.begin_cut(methods)
        self._for_a_while(links, lasting, f"heal {what}", partial(Link.end_cut, methods=methods))
        return True

    def cut(self, step: Cut) -> bool:
        what = step.cut.text + _of(step.only)
        return self._cut_links(self._targets.links(step.cut, step), step.lasting, what, step.only)

    def isolate(self, step: Isolate) -> bool:
        """Cut the links between the target and everyone else, except those in `except`."""
        nodes = self._targets.processes(step.isolate, step)
        spared = self._targets.shells(step.sparing, step) if step.sparing is not None else []
        if not nodes:
            return False
        self._targets.bind(step, nodes)
        others = [shell for shell in self._targets.everyone() if shell not in nodes and shell not in spared]
        what = f"{', '.join(node.name for node in nodes)} <-> everyone"
        if step.sparing is not None:
            what += f" but {step.sparing.text}"
        return self._cut_links(self._targets.between(nodes, others, both_ways=True), step.lasting, what)

    def slow(self, step: Slow) -> bool:
        """Set the delay of the links."""
        assert step.by >= 0, step.by
        links = self._targets.links(step.slow, step)
        for link in links:
            link.extra_us, link.slow_methods = step.by, step.only
        if links:
            what = step.slow.text + _of(step.only)
            self._site.tell(f"slow {what} by {step.by / 1000:g} ms")
            self._for_a_while(links, step.lasting, f"{what} is fast again", _speed_up)
        return bool(links)

    def lose(self, step: Lose) -> bool:
        """Set the share of messages that the links lose."""
        assert 0 <= step.share <= 100, step.share
        links = self._targets.links(step.lose, step)
        for link in links:
            link.loss_percent, link.lost_methods = step.share, step.only
        if links:
            what = f" of {' and '.join(step.only)}" if step.only else ""
            self._site.tell(f"lose {step.share}%{what} on {step.lose.text}")
            self._for_a_while(links, step.lasting, f"{step.lose.text} loses nothing any more", _keep_all)
        return bool(links)

    def heal(self, step: Heal) -> bool:
        """End all faults of one link, or of all links of a target; never fails to strike."""
        target = step.heal
        if isinstance(target, LinkPair):
            links = self._targets.links(target, step)
        else:
            sides = self._targets.shells(target, step)
            links = [
                link
                for link in self._site.network.links()
                if any(s.node_id in (link.source, link.target) for s in sides)
            ]
        self._site.tell(f"heal {target.text}")
        for link in links:
            self._heal(link)
        return True

    def _heal(self, link: Link) -> None:
        link.heal()
        self._site.network.release(link)

    def clog(self, step: Clog) -> bool:
        """Keep back what the links carry."""
        links = self._targets.links(step.clog, step)
        for link in links:
            link.begin_clog(step.only)
        if links:
            what = step.clog.text + _of(step.only)
            self._site.tell(f"clog {what}")
            end = partial(self._unclog, methods=step.only)
            self._for_a_while(links, step.lasting, f"unclog {what}", end)
        return bool(links)

    def _unclog(self, link: Link, methods: tuple[str, ...]) -> None:
        link.end_clog(methods)
        self._site.network.release(link)

    def narrow(self, step: Narrow) -> bool:
        """Set what the links carry in a second."""
        assert step.to > 0, step.to
        links = self._targets.links(step.narrow, step)
        for link in links:
            link.bytes_per_s = step.to
        if links:
            self._site.tell(f"{step.narrow.text} carries {step.to} bytes a second")
            self._for_a_while(links, step.lasting, f"{step.narrow.text} is wide again", _widen)
        return bool(links)

    def flip_bits(self, step: FlipBits) -> bool:
        """Set the share of messages in which a bit flips, and where."""
        assert 0 <= step.share <= 100, step.share
        links = self._targets.links(step.flip_bits, step)
        for link in links:
            link.flip_percent, link.flip_where = step.share, Where(step.where)
        if links:
            what = step.flip_bits.text
            of = {
                "records": " with records",
                "structure": ", so that they are none,",
                "anywhere": ", anywhere,",
            }
            self._site.tell(f"flip a bit in {step.share}% of the messages{of[step.where]} on {what}")
            self._for_a_while(links, step.lasting, f"{what} flips no bits any more", _flip_nothing)
        return bool(links)

    def hang_up(self, step: HangUp) -> bool:
        """Let the nodes on the left forget their connections with those on the right."""
        links = self._targets.links(step.hang_up, step)
        shells = {shell.node_id: shell for shell in self._targets.everyone()}
        if links:
            self._site.tell(f"hang up {step.hang_up.text}, without a word")
        for link in links:
            shells[link.source].hang_up(link.target)
        return bool(links)

    def heal_all(self) -> None:
        for link in self._site.network.links():
            self._heal(link)


def _of(methods: tuple[str, ...]) -> str:
    """Returns the words that follow a link of which a fault strikes these methods only; nothing without any."""
    return f", {' and '.join(methods)} only" if methods else ""


def _flip_nothing(link: Link) -> None:
    link.flip_percent = 0


def _widen(link: Link) -> None:
    link.bytes_per_s = 0


def _speed_up(link: Link) -> None:
    link.extra_us, link.slow_methods = 0, ()


def _keep_all(link: Link) -> None:
    link.loss_percent, link.lost_methods = 0, ()
