"""One direction of the connection between two nodes: what faults do to it, and what it keeps back meanwhile."""

from __future__ import annotations

from collections import deque
from typing import final

from sim.world.packets import Packet
from sim.world.streams import Stream
from sim.world.time import Actor
from storage.draws import Draws


@final
class Link:
    """One direction of the connection between two nodes. Faults set what is between `cuts` and `bytes_per_s`."""

    __slots__ = (
        "actor",
        "blocked_since_us",
        "bytes_per_s",
        "clogged",
        "clogs",
        "cuts",
        "extra_us",
        "flip_percent",
        "flips",
        "free_at_us",
        "generation",
        "held",
        "last_arrival_us",
        "latency",
        "loss",
        "loss_percent",
        "lost_method",
        "retries",
        "source",
        "target",
    )  # fmt: skip

    def __init__(self, draws: Draws, source: int, target: int) -> None:
        name = f"{source}->{target}"
        self.source, self.target = source, target
        self.actor = Actor(draws, name)
        self.latency = Stream(draws, "latency", name)
        self.loss = Stream(draws, "loss", name)
        # The number of faults that cut the link now.
        self.cuts = 0
        self.extra_us = 0
        self.loss_percent = 0
        # The only method, such as `AlterPartition`, whose packets are lost; empty: those of all.
        self.lost_method = ""
        # The share of frames with records in which a bit flips; the draws of that are made when it first happens.
        self.flip_percent = 0
        self.flips: Stream | None = None
        # The number of faults that clog the link now, and what waits for the last of them to end, in order.
        self.clogs = 0
        self.clogged: list[Packet] = []
        # What the link carries in a second (0: anything), and when it has carried what was sent so far.
        self.bytes_per_s = 0
        self.free_at_us = 0
        self.last_arrival_us = 0
        # Packets that a cut holds up, in order.
        self.held: deque[Packet] = deque()
        self.blocked_since_us = 0
        self.retries = 0
        # Grows with each heal, which ends the faults before it.
        self.generation = 0

    def heal(self) -> None:
        self.cuts = self.extra_us = self.loss_percent = self.clogs = self.bytes_per_s = 0
        self.flip_percent = 0
        self.lost_method = ""
        self.generation += 1
