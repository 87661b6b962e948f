"""What each directed link between two processes does to the bytes that it carries, now."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import final

from sim.world.streams import Stream
from storage.draws import Draws

# Bytes of a lost packet come after the time in which TCP sends them again. Linux: TCP_RTO_MIN.
RETRANSMIT_US = 200_000


@final
class Link:
    """One direction between two processes: bytes from `source` to `target`, on connections that either has made."""

    def __init__(self, source: str, target: str, draws: Draws, *, loss_percent: int = 0) -> None:
        self.source, self.target = source, target
        self._own_loss_percent = self.loss_percent = loss_percent
        self.extra_us = self.bytes_per_s = 0
        # Grows when the link is healed: the end of an earlier fault must not end a later one.
        self.generation = 0
        self._holds = 0
        self._free = asyncio.Event()
        self._free.set()
        self._losses = Stream(draws, "loss", source, target)

    @property
    def is_held(self) -> bool:
        """Whether the link carries nothing now."""
        return self._holds > 0

    def hold(self) -> None:
        """Carry nothing until `release`: as with a cut cable, what is sent meanwhile waits to be sent again."""
        self._holds += 1
        self._free.clear()
        assert self.is_held, self._holds

    def release(self) -> None:
        """End one `hold`; does nothing if a heal has ended it before."""
        self._holds = max(0, self._holds - 1)
        if not self._holds:
            self._free.set()
        assert self.is_held != self._free.is_set(), self._holds

    async def until_free(self) -> None:
        """Wait until nothing holds the link."""
        while self.is_held:
            await self._free.wait()

    def delay_us(self) -> int:
        """Returns how long the bytes that are sent now take beside the loopback; the loss of a packet is drawn."""
        is_lost = self._losses.below(100) < self.loss_percent
        return self.extra_us + (RETRANSMIT_US if is_lost else 0)

    def heal(self) -> None:
        """End all faults of the link; what its scenario's network loses stays."""
        self.generation += 1
        self.extra_us = self.bytes_per_s = self._holds = 0
        self.loss_percent = self._own_loss_percent
        self._free.set()
        assert not self.is_held, self._holds


@final
class Links:
    """The links between all processes of a run, each made when it is first asked for."""

    def __init__(self, draws: Draws, *, loss_percent: int = 0) -> None:
        self._draws, self._loss_percent = draws, loss_percent
        self._links: dict[tuple[str, str], Link] = {}

    def link(self, source: str, target: str) -> Link:
        """Returns the link for bytes from `source` to `target`."""
        assert source != target, source
        link = self._links.get((source, target))
        if link is None:
            link = Link(source, target, self._draws, loss_percent=self._loss_percent)
            self._links[source, target] = link
        return link

    def between(self, sources: Iterable[str], targets: Iterable[str], *, both_ways: bool) -> list[Link]:
        """Returns the links from each source to each target and, with `both_ways`, those back."""
        ends: dict[tuple[str, str], None] = {}
        for source in sources:
            for target in targets:
                if source != target:
                    ends[source, target] = None
                    if both_ways:
                        ends[target, source] = None
        return [self.link(*each) for each in ends]

    def all(self) -> list[Link]:
        return list(self._links.values())
