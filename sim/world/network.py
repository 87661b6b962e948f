"""The network in virtual time. Each `Send` ends in exactly one answer or `TransportError` at its sender.

There are two transports. `stream` behaves like TCP: messages between two nodes keep their order, a lost packet is a
delay that doubles (200 ms, 400 ms, …) until the connection breaks, and no message is delivered twice. `datagram` is
adversarial: every message may be lost, delivered twice or overtaken.
"""

from __future__ import annotations

from collections import deque
from enum import Enum
from typing import Protocol, final

from cluster.core.events import TransportError
from cluster.core.messages import RequestBody, ResponseBody
from sim.world.streams import Stream
from sim.world.time import Actor, World
from sim.world.trace import Trace
from storage.draws import Draws

# The first wait after a lost packet; each further wait is twice as long.
RETRANSMIT_US = 200_000
# A connection that could not deliver for this long is broken.
BREAK_US = 3_000_000


class Transport(Enum):
    """The way in which messages travel."""

    STREAM = "stream"
    DATAGRAM = "datagram"


class Reachability(Enum):
    """The reaction of a machine to messages that arrive for a process."""

    UP = "up"
    # The process has ended, and the machine refuses the connection.
    REFUSING = "refusing"
    # The machine has no power and does not answer.
    SILENT = "silent"


class Endpoint(Protocol):
    """A node or client as the network sees it."""

    node_id: int
    name: str
    life_number: int

    def reachability(self) -> Reachability: ...

    def accept(self, exchange: Exchange) -> None:
        """Receives a request."""

    def answered(self, exchange: Exchange, body: ResponseBody | TransportError) -> None:
        """Receives the end of an exchange that this endpoint began; called once for each."""


@final
class Exchange:
    """One request, until it has an answer or an error."""

    __slots__ = (
        "body",
        "call",
        "expects_reply",
        "is_over",
        "life_number",
        "replied_us",
        "sent_us",
        "source",
        "target",
        "target_life",
    )

    def __init__(
        self,
        *,
        source: Endpoint,
        target: int,
        call: int,
        body: RequestBody,
        expects_reply: bool,
        sent_us: int,
    ) -> None:
        self.source, self.target, self.call, self.body = source, target, call, body
        self.expects_reply, self.sent_us = expects_reply, sent_us
        self.life_number = source.life_number
        # The life of the process to which the connection was made; 0 without a connection.
        self.target_life = 0
        self.replied_us = -1
        self.is_over = False

    def finish(self, body: ResponseBody | TransportError) -> None:
        """End the exchange, unless it is over; an answer to an earlier life of the sender is dropped."""
        if not self.is_over:
            self.is_over = True
            if self.source.life_number == self.life_number:
                self.source.answered(self, body)


# A packet with None carries the request itself, any other its answer.
Packet = tuple[Exchange, ResponseBody | TransportError | None]


@final
class Link:
    """One direction of the connection between two nodes. Faults set `cuts`, `extra_us` and `loss_percent`."""

    __slots__ = (
        "actor", "blocked_since_us", "cuts", "extra_us", "generation", "held", "last_arrival_us", "latency", "loss",
        "loss_percent", "retries", "source", "target",
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
        self.last_arrival_us = 0
        # Packets of a stream that a cut holds up, in order.
        self.held: deque[Packet] = deque()
        self.blocked_since_us = 0
        self.retries = 0
        # Grows with each heal, which ends the faults before it.
        self.generation = 0

    def heal(self) -> None:
        self.cuts = self.extra_us = self.loss_percent = 0
        self.generation += 1


@final
class Network:
    """All links of a run; a link is made when it is first used. Times are microseconds."""

    def __init__(
        self,
        world: World,
        trace: Trace,
        *,
        transport: Transport = Transport.STREAM,
        base_us: int = 200,
        mean_us: int = 800,
        loss_percent: int = 0,
        duplicate_percent: int = 0,
    ) -> None:
        self._world, self._trace = world, trace
        self.transport = transport
        self.base_us, self.mean_us = base_us, mean_us
        self.loss_percent, self.duplicate_percent = loss_percent, duplicate_percent
        self._endpoints: dict[int, Endpoint] = {}
        self._links: dict[tuple[int, int], Link] = {}
        self.lost_count = 0

    def join(self, endpoint: Endpoint) -> None:
        assert endpoint.node_id not in self._endpoints, endpoint.node_id
        self._endpoints[endpoint.node_id] = endpoint

    def name_of(self, node_id: int) -> str:
        return self._endpoints[node_id].name

    def link(self, source: int, target: int) -> Link:
        link = self._links.get((source, target))
        if link is None:
            link = self._links[source, target] = Link(self._world.draws, source, target)
        return link

    def links(self) -> list[Link]:
        """Returns the links that were ever used, or struck by a fault."""
        return list(self._links.values())

    def request(self, exchange: Exchange, wait_us: int) -> None:
        """Send a request in `wait_us`, when the sender has ended its step."""
        target = self._endpoints[exchange.target]
        if self.transport is Transport.STREAM and target.reachability() is Reachability.UP:
            exchange.target_life = target.life_number
        self._carry(self.link(exchange.source.node_id, exchange.target), (exchange, None), wait_us)

    def reply(self, exchange: Exchange, body: ResponseBody | TransportError, wait_us: int) -> None:
        exchange.replied_us = self._world.now_us + wait_us
        self._carry(self.link(exchange.target, exchange.source.node_id), (exchange, body), wait_us)

    def reset(self, exchange: Exchange) -> None:
        """Let the machine report that the process with this request has ended, if the link is not cut."""
        link = self.link(exchange.target, exchange.source.node_id)
        if self.transport is Transport.STREAM and not link.cuts and not exchange.is_over:
            self._carry(link, (exchange, TransportError(reason="connection reset")), 0)

    def _carry(self, link: Link, packet: Packet, wait_us: int) -> None:
        if self.transport is Transport.DATAGRAM:
            self._carry_datagram(link, packet, wait_us)
        elif link.cuts or link.held:
            self._hold(link, packet)
        else:
            self._deliver_in_order(link, packet, wait_us + self._retransmissions_us(link))

    def _latency_us(self, link: Link) -> int:
        return self.base_us + link.latency.exponential(self.mean_us) + link.extra_us

    def _retransmissions_us(self, link: Link) -> int:
        """Returns the delay of a stream by lost packets; nothing is drawn for a link that loses none."""
        percent = max(self.loss_percent, link.loss_percent)
        delay_us, again_us = 0, RETRANSMIT_US
        while percent and delay_us < BREAK_US and link.loss.below(100) < percent:
            delay_us += again_us
            again_us *= 2
        return delay_us

    def _deliver_in_order(self, link: Link, packet: Packet, wait_us: int) -> None:
        now_us = self._world.now_us
        at_us = max(now_us + wait_us + self._latency_us(link), link.last_arrival_us + 1)
        link.last_arrival_us = at_us
        self._world.after(link.actor, at_us - now_us, self._arrive, packet)

    def _hold(self, link: Link, packet: Packet) -> None:
        assert link.cuts or link.held, (link.source, link.target)
        link.held.append(packet)
        if len(link.held) == 1:
            link.blocked_since_us, link.retries = self._world.now_us, 0
            self._world.after(link.actor, RETRANSMIT_US, self._retry, link)

    def _retry(self, link: Link) -> None:
        assert link.held, "a retry is scheduled once for each time a link blocks"
        waited_us = self._world.now_us - link.blocked_since_us
        # Each wait is twice as long as the one before it: one series of retries runs at a time.
        assert waited_us == (RETRANSMIT_US << link.retries + 1) - RETRANSMIT_US, (waited_us, link.retries)
        if not link.cuts:
            packets, link.held = link.held, deque()
            for packet in packets:
                self._deliver_in_order(link, packet, 0)
        elif waited_us >= BREAK_US:
            self._break(link)
        else:
            link.retries += 1
            self._world.after(link.actor, RETRANSMIT_US << link.retries, self._retry, link)

    def _break(self, link: Link) -> None:
        """Report a broken connection to the senders of held requests; the receivers of held replies time out."""
        assert link.cuts > 0, (link.source, link.target, link.cuts)
        packets, link.held = link.held, deque()
        assert packets, (link.source, link.target)
        self._note_lost(link, len(packets), "connection broken")
        for exchange, reply in packets:
            if reply is None:
                exchange.finish(TransportError(reason="connection broken"))

    def _carry_datagram(self, link: Link, packet: Packet, wait_us: int) -> None:
        percent = max(self.loss_percent, link.loss_percent)
        if link.cuts or (percent and link.loss.below(100) < percent):
            self._note_lost(link, 1, "cut" if link.cuts else "lost")
            return
        self._world.after(link.actor, wait_us + self._latency_us(link), self._arrive, packet)
        if self.duplicate_percent and packet[1] is None and link.loss.below(100) < self.duplicate_percent:
            self._world.after(link.actor, wait_us + self._latency_us(link), self._arrive, packet)

    def _note_lost(self, link: Link, count: int, why: str) -> None:
        self.lost_count += count
        self._trace.fields(
            self._world.now_us, "network", "lost",
            (("from", link.source), ("to", link.target), ("messages", count), ("why", why)),
        )  # fmt: skip

    def _arrive(self, packet: Packet) -> None:
        exchange, reply = packet
        if reply is not None:
            exchange.finish(reply)
            return
        target = self._endpoints[exchange.target]
        reachability = target.reachability()
        if reachability is Reachability.UP and exchange.target_life in (0, target.life_number):
            target.accept(exchange)
        elif reachability is Reachability.UP:
            self.reply(exchange, TransportError(reason="connection reset"), 0)
        elif reachability is Reachability.REFUSING and self.transport is Transport.STREAM:
            self.reply(exchange, TransportError(reason="connection refused"), 0)
