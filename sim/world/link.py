"""One direction of the connection between two nodes: what faults do to it, and what it keeps back meanwhile.

A fault strikes every packet, or those of some methods, such as `Fetch`: then the others pass those that wait.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from typing import final

from sim.world.flips import Where
from sim.world.packets import Connection, Packet
from sim.world.streams import Stream
from sim.world.time import Actor
from storage.draws import Draws


@final
class Hold:
    """Packets of a stream that a cut holds up, in order, since `since_us`: those of `method`; empty: of any."""

    __slots__ = ("link", "method", "packets", "retries", "since_us")

    def __init__(self, link: Link, method: str, since_us: int) -> None:
        self.link, self.method, self.since_us = link, method, since_us
        self.packets: deque[Packet] = deque()
        self.retries = 0


@final
class Link:
    """One direction of the connection between two nodes. Faults set what is between `cuts` and `bytes_per_s`."""

    __slots__ = (
        "actor",
        "bytes_per_s",
        "clogged",
        "clogs",
        "cuts",
        "extra_us",
        "flip_percent",
        "flip_where",
        "flips",
        "free_at_us",
        "generation",
        "held",
        "last_arrival_us",
        "latency",
        "loss",
        "loss_percent",
        "lost_methods",
        "method_clogs",
        "method_cuts",
        "slow_methods",
        "source",
        "target",
    )  # fmt: skip

    def __init__(self, draws: Draws, source: int, target: int) -> None:
        name = f"{source}->{target}"
        self.source, self.target = source, target
        self.actor = Actor(draws, name)
        self.latency = Stream(draws, "latency", name)
        self.loss = Stream(draws, "loss", name)
        # The number of faults that cut the link now, and of those that cut one method only, by method.
        self.cuts = 0
        self.method_cuts: dict[str, int] = {}
        # What is added to the latency, and the only methods that this strikes; empty: all.
        self.extra_us = 0
        self.slow_methods: Collection[str] = ()
        self.loss_percent = 0
        # The only methods, such as `AlterPartition`, whose packets are lost; empty: those of all.
        self.lost_methods: Collection[str] = ()
        # The share of frames in which a bit flips, and where; the draws of that are made when it first happens.
        self.flip_percent = 0
        self.flip_where = Where.RECORDS
        self.flips: Stream | None = None
        # The number of faults that clog the link now, all of it or one method, and what waits for their end, in order.
        self.clogs = 0
        self.method_clogs: dict[str, int] = {}
        self.clogged: list[Packet] = []
        # What the link carries in a second (0: anything), and when it has carried what was sent so far.
        self.bytes_per_s = 0
        self.free_at_us = 0
        self.last_arrival_us = 0
        # What cuts hold up, by method; a cut of everything has the empty name.
        self.held: dict[str, Hold] = {}
        # Grows with each heal, which ends the faults before it.
        self.generation = 0

    def heal(self) -> None:
        """End every fault of the link; what waits for that is still to be released."""
        self.cuts = self.extra_us = self.loss_percent = self.clogs = self.bytes_per_s = 0
        self.flip_percent = 0
        self.lost_methods = self.slow_methods = ()
        self.method_cuts.clear()
        self.method_clogs.clear()
        self.generation += 1

    def begin_cut(self, methods: Collection[str]) -> None:
        """Count a cut of these methods, of everything without any."""
        assert self.cuts >= 0, (self.source, self.target, self.cuts)
        self.cuts += not methods
        _begin(self.method_cuts, methods)

    def end_cut(self, methods: Collection[str]) -> None:
        """Count that cut no longer, unless a heal has ended it before."""
        assert self.cuts >= 0, (self.source, self.target, self.cuts)
        self.cuts = max(0, self.cuts - (not methods))
        _end(self.method_cuts, methods)

    def begin_clog(self, methods: Collection[str]) -> None:
        """Count a clog of these methods, of everything without any."""
        assert self.clogs >= 0, (self.source, self.target, self.clogs)
        self.clogs += not methods
        _begin(self.method_clogs, methods)

    def end_clog(self, methods: Collection[str]) -> None:
        """Count that clog no longer, unless a heal has ended it before."""
        assert self.clogs >= 0, (self.source, self.target, self.clogs)
        self.clogs = max(0, self.clogs - (not methods))
        _end(self.method_clogs, methods)

    def is_cut_for(self, method: str) -> bool:
        """Whether a packet of the method is cut off; the empty name stands for packets of any."""
        return self.cuts > 0 or method in self.method_cuts

    def is_clogged_for(self, packet: Packet) -> bool:
        return self.clogs > 0 or (bool(self.method_clogs) and packet.method in self.method_clogs)

    def hold_for(self, packet: Packet) -> str | None:
        """Returns the name of the hold in which a packet has to wait, behind those before it; None if it may go."""
        method = packet.method if self.method_cuts or self.held else ""
        if method and method in self.held:
            return method
        if self.cuts or "" in self.held:
            return ""
        return method if method in self.method_cuts else None

    def drop_selected(self, connection: Connection) -> None:
        """Drop the packets of a connection that its sender has ended, as far as they wait because of their method.

        The end of the connection would pass them.
        """
        for method, hold in self.held.items():
            if method:
                hold.packets = deque(each for each in hold.packets if each.connection is not connection)
        if self.method_clogs and not self.clogs:
            self.clogged = [each for each in self.clogged if each.connection is not connection]


def _begin(counts: dict[str, int], methods: Collection[str]) -> None:
    for method in methods:
        counts[method] = counts.get(method, 0) + 1


def _end(counts: dict[str, int], methods: Collection[str]) -> None:
    for method in methods:
        left = counts.pop(method, 1) - 1
        if left:
            counts[method] = left
