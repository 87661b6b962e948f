"""What lasts in a run: lives of processes, pauses, faults of disks and links. A span counts the events of the page."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple, final

from sim.told import LASTING, Lasting, Told, told_as

# The lane of faults that strike links, and so no node alone.
LINKS = "links"
# A scenario's own name for a node: picked, or used where the node is struck.
_PICKED = re.compile(r"(?P<name>\w+) is (?P<nodes>[a-z]+(?:-\d+)?(?:, [a-z]+-\d+)*), .+")
_STRUCK_AS = re.compile(r".*\b(?P<nodes>(?:broker|producer|consumer)-\d+|controller), the (?P<name>\w+)")
_EVERYONE = " <-> everyone"
# The words at the end of a link of which a fault strikes some methods only.
_ONLY = re.compile(r", \w+(?: and \w+)* only$")
_HEAL_ALL = "heal everything"
# The names of everyone; a heal of no others is one of all links.
_ALL = frozenset({"all", "links", "others", "->", "<->"})


class Span(NamedTuple):
    """Something that lasts from the event `first` to the event `end` (exclusive) in the lane of a node or of links."""

    lane: str
    what: str
    first: int
    end: int
    text: str


class _Open(NamedTuple):
    first: int
    text: str


@final
class Spans:
    """Collects spans from the events that begin and end them."""

    def __init__(self) -> None:
        self.closed: list[Span] = []
        self._open: dict[tuple[str, str, str], _Open] = {}
        self._nodes_by_name: dict[str, list[str]] = {}

    def begin(self, index: int, lane: str, what: str, text: str, who: str = "") -> None:
        """Begin a span; one of the same kind that is open goes on."""
        self._open.setdefault((lane, what, who), _Open(index, text))

    def end(self, index: int, lane: str, what: str, who: str = "") -> None:
        opened = self._open.pop((lane, what, who), None)
        if opened is not None:
            assert opened.first <= index, (opened, index)
            self.closed.append(Span(lane, what, opened.first, index, opened.text))

    def on_life(self, index: int, node: str, kind: str, members: Mapping[str, object]) -> None:
        """Take in the start or the end of a process; a pause ends with it."""
        if kind == "start":
            self.end(index, node, "down")
            return
        self.end(index, node, "paused")
        how = {"power": "power loss", "stop": "stopped"}.get(str(members.get("how")), str(members.get("how")))
        self.begin(index, node, "down", how)

    def on_told(self, index: int, text: str) -> None:
        """Take in a line of the world."""
        if text.startswith(_HEAL_ALL):
            for lane, what, who in list(self._open):
                if what != "down":
                    self.end(index, lane, what, who)
            return
        if found := _PICKED.fullmatch(text) or _STRUCK_AS.fullmatch(text):
            self._nodes_by_name[found["name"]] = found["nodes"].split(", ")
        for kind in LASTING:
            if found := kind.end.fullmatch(text):
                self._end_fault(index, kind, found["who"])
        if told_as(text) is not Told.FAULT:
            return
        for kind in LASTING:
            if found := kind.begin.fullmatch(text):
                lane, who = _place(kind, found["who"])
                self.begin(index, lane, kind.what, text, who)
                return

    def _end_fault(self, index: int, kind: Lasting, who: str) -> None:
        if kind.what == "cut":
            self._heal(index, who)
        else:
            lane, who = _place(kind, who)
            self.end(index, lane, kind.what, who)

    def _heal(self, index: int, who: str) -> None:
        """End the faults of one link, or of all links that name the target or one of its nodes.

        A target of which the trace has not said who it is must be the one that is cut off, if only one is.
        """
        links = [(what, each) for lane, what, each in self._open if lane == LINKS]
        names = {who, *self._nodes_by_name.get(who, [])}
        healed = [
            (what, each)
            for what, each in links
            if who in (each, _ONLY.sub("", each)) or names & set(re.split(r"[\s,]+", each))
        ]
        if set(who.split()) <= _ALL:
            healed = links
        cut_off = [(what, each) for what, each in links if _EVERYONE in each]
        if not healed and len(cut_off) == 1:
            healed = cut_off
        for what, each in healed:
            self.end(index, LINKS, what, each)

    def finish(self, index: int) -> list[Span]:
        """Returns all spans in the order of their begin; those that are open end at `index`.

        What was over before the first event of the page has no events, and is left out.
        """
        for lane, what, who in list(self._open):
            self.end(index, lane, what, who)
        seen = [span for span in self.closed if span.first < span.end]
        return sorted(seen, key=lambda span: (span.first, span.end, span.lane))


def _place(kind: Lasting, who: str) -> tuple[str, str]:
    """Returns the lane of a fault, and what it strikes there."""
    return (LINKS, who) if kind.is_of_links else (who, "")
