"""The network in virtual time: packets of connections between nodes, over links that fail.

A connection has channels: three streams, and one for each unary call. There are two transports. `stream` behaves like
TCP: a connection is made before its first frame, a lost packet is a delay that doubles (200 ms, 400 ms, …) until the
connection breaks, and no frame comes twice. Frames keep their order within a channel, and only there. `datagram` is
adversarial: there is no connection, and every packet may be lost, delivered twice or overtaken.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from functools import partial
from typing import final

from cluster.core.connection.codec import Codec
from cluster.core.connection.pieces import is_piece
from cluster.shell.streams import CODEC
from sim.buggify.links import LinkPoints
from sim.world.flips import Where, flip_anywhere, flip_in_records, flip_in_structure, is_readable
from sim.world.link import Hold, Link
from sim.world.packets import Channel, Connection, Endpoint, Kind, Packet, Reachability
from sim.world.streams import Stream
from sim.world.time import World
from sim.world.trace import Trace

# The first wait after a lost packet; each further wait is twice as long.
RETRANSMIT_US = 200_000
# A connection that could not deliver for this long is broken.
BREAK_US = 3_000_000


class Transport(Enum):
    """The way in which packets travel."""

    STREAM = "stream"
    DATAGRAM = "datagram"


@final
class PacketCounts:
    """How many packets faults of the network have struck in a run."""

    __slots__ = ("lost", "selected", "unchecked", "unreadable")

    def __init__(self) -> None:
        self.lost = 0
        # Kept back or lost because of their method, while others passed.
        self.selected = 0
        # Frames with a bit flipped so that they are no message, and those where it may be anywhere.
        self.unreadable = self.unchecked = 0


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
        self._connections = self._channels = 0
        self.counts = PacketCounts()
        # What turns the messages of all connections into bytes.
        self.codec: Codec = CODEC
        # Called with reader and reason for each frame that cannot be read, although it came as it was sent.
        self.on_unreadable: Callable[[str, str], None] = lambda reader, reason: None
        # The buggify points of all links; None where all of them are off.
        self.points: LinkPoints | None = None

    def join(self, endpoint: Endpoint) -> None:
        assert endpoint.node_id not in self._endpoints, endpoint.node_id
        self._endpoints[endpoint.node_id] = endpoint

    def name_of(self, node_id: int) -> str:
        endpoint = self._endpoints.get(node_id)
        assert endpoint is not None or self.counts.unchecked, node_id
        return f"node-{node_id}" if endpoint is None else endpoint.name

    def link(self, source: int, target: int) -> Link:
        link = self._links.get((source, target))
        if link is None:
            link = self._links[source, target] = Link(self._world.draws, source, target)
        return link

    def links(self) -> list[Link]:
        """Returns the links that were ever used, or struck by a fault."""
        return list(self._links.values())

    def connect(self, dialer: Endpoint, target: int) -> Connection:
        """Returns a new connection, which the other side does not know yet."""
        self._connections += 1
        return Connection(self._connections, dialer, target)

    def open(self, connection: Connection, path: str) -> Channel:
        """Returns a new channel; the other side learns of it by its first frame."""
        self._channels += 1
        channel = Channel(connection, self._channels, path)
        if self.points is not None and self.points.has_small_window(connection.dialer.name):
            channel.there.window_bytes = channel.back.window_bytes = 1
        small_bytes = None if self.points is None else self.points.small_frame_bytes(connection.dialer.name)
        if small_bytes is not None:
            # Calls wait for each other only while the one before them is not read.
            channel.there.window_bytes, channel.frame_bytes = 1, small_bytes
        # A piece that is lost would leave the others without their frame: only a stream keeps them together.
        if self.points is not None and self.transport is Transport.STREAM:
            channel.piece_bytes = self.points.piece_bytes(connection.dialer.name) or channel.piece_bytes
            channel.write_us = self.points.write_us(connection.dialer.name)
        return channel

    def note_unreadable(self, reader: str, reason: str) -> None:
        """Tell that a frame cannot be read, unless a bit may have flipped in it, or a part of it been lost."""
        is_changed = self.counts.unreadable or self.counts.unchecked
        if self.transport is Transport.STREAM and not is_changed:
            self.on_unreadable(reader, reason)

    def reachability_of(self, node_id: int) -> Reachability:
        return self._endpoints[node_id].reachability()

    def send(
        self, kind: Kind, connection: Connection, wait_us: int, *, to_target: bool,
        channel: Channel | None = None, data: bytes = b"",
    ) -> None:  # fmt: skip
        """Send a packet in `wait_us`, when the sender has ended its step, unless it is killed before."""
        if connection.target not in self._endpoints:
            # A flipped bit has named a node that there is not: nobody answers.
            assert self.counts.unchecked, connection.target
            return
        dialer, target = connection.dialer, self._endpoints[connection.target]
        source, other = (dialer, target) if to_target else (target, dialer)
        link = self.link(source.node_id, other.node_id)
        if link.flip_percent and kind is Kind.FRAME:
            assert channel is not None, kind
            data = self._flipped(link, channel.path, data, to_target=to_target)
        packet = Packet(
            kind, connection, to_target, channel, data, source.sender, self._world.now_us + wait_us
        )
        if link.bytes_per_s:
            wait_us += self._carrying_us(link, packet, wait_us)
        if kind is Kind.RESET:
            link.drop_selected(connection)
        if link.is_clogged_for(packet):
            link.clogged.append(packet)
            self.counts.selected += not link.clogs
        elif self.transport is Transport.DATAGRAM:
            self._carry_datagram(link, packet, wait_us)
        elif kind is Kind.RESET and link.cuts:
            # The machine says it once; whoever missed it learns it by the answer to the next packet.
            return
        elif (held_in := link.hold_for(packet)) is not None:
            self._hold(link, held_in, packet)
        else:
            if self.loss_percent or link.loss_percent:
                wait_us += self._retransmissions_us(link, packet)
            self._deliver_in_order(link, packet, wait_us)

    def release(self, link: Link) -> None:
        """Deliver all that waits for the end of a clog, at once, unless another clog lasts."""
        if link.clogs:
            return
        packets, link.clogged = link.clogged, []
        for packet in packets:
            if link.is_clogged_for(packet):
                link.clogged.append(packet)
            elif self.transport is Transport.DATAGRAM:
                self._carry_datagram(link, packet, 0)
            else:
                self._carry_stream(link, packet)
        assert not link.clogged or link.method_clogs, (link.source, link.target)

    def _carrying_us(self, link: Link, packet: Packet, wait_us: int) -> int:
        """Returns how much longer a packet takes that is sent in `wait_us`, because the link carries so much only."""
        sent_us = self._world.now_us + wait_us
        begins_us = max(sent_us, link.free_at_us)
        link.free_at_us = begins_us + len(packet.data) * 1_000_000 // link.bytes_per_s
        assert link.free_at_us >= sent_us, (link.free_at_us, sent_us)
        return link.free_at_us - sent_us

    def _flipped(self, link: Link, path: str, data: bytes, *, to_target: bool) -> bytes:
        """Returns the frame as it arrives: a link that flips bits changes a share of those where it may.

        Pieces of frames arrive as they are: only whole ones can be read here, and so be changed where it is asked for.
        """
        if is_piece(data):
            return data
        if link.flips is None:
            link.flips = Stream(self._world.draws, "flips", f"{link.source}->{link.target}")
        if link.flips.below(100) >= link.flip_percent:
            return data
        flipped: bytes | None = None
        match link.flip_where:
            case Where.RECORDS:
                flipped = flip_in_records(data, link.flips)
            case Where.STRUCTURE:
                is_sound = partial(is_readable, path, to_target=to_target)
                flipped = flip_in_structure(data, is_sound, link.flips)
                self.counts.unreadable += flipped is not None
            case Where.ANYWHERE:
                flipped = flip_anywhere(data, link.flips) if data else None
                self.counts.unchecked += flipped is not None
        if flipped is None:
            return data
        self._trace.fields(
            self._world.now_us, "network", "flipped", (("from", link.source), ("to", link.target))
        )
        return flipped

    def _loss_percent(self, link: Link, packet: Packet) -> int:
        """Returns the share of such packets that the link loses."""
        is_spared = bool(link.lost_methods) and packet.method not in link.lost_methods
        return self.loss_percent if is_spared else max(self.loss_percent, link.loss_percent)

    def _latency_us(self, link: Link, packet: Packet) -> int:
        latency_us = self.base_us + link.latency.exponential(self.mean_us)
        if not link.slow_methods or packet.method in link.slow_methods:
            latency_us += link.extra_us
        return latency_us if self.points is None else latency_us + self._late_us(self.points, link, packet)

    def _late_us(self, points: LinkPoints, link: Link, packet: Packet) -> int:
        """Returns how much longer the packet takes because of a buggify point."""
        sender = self.name_of(link.source)
        if packet.kind is Kind.FRAME and packet.channel is not None:
            return points.frame_us(sender, packet.channel.path, to_target=packet.to_target)
        return points.accept_us(sender) if packet.kind is Kind.ACCEPT else 0

    def _retransmissions_us(self, link: Link, packet: Packet) -> int:
        """Returns the delay of a stream by lost packets; nothing is drawn for packets that the link does not lose."""
        percent = self._loss_percent(link, packet)
        delay_us, again_us = 0, RETRANSMIT_US
        while percent and delay_us < BREAK_US and link.loss.below(100) < percent:
            delay_us += again_us
            again_us *= 2
        return delay_us

    def _deliver_in_order(self, link: Link, packet: Packet, wait_us: int) -> None:
        """Deliver after all earlier packets of the channel; the end of a connection comes after everything."""
        now_us = self._world.now_us
        # A network may be without latency, but nothing arrives in the step that sends it.
        at_us = now_us + max(1, wait_us + self._latency_us(link, packet))
        connection = packet.connection
        side = 1 if packet.to_target else 0
        if (channel := packet.channel) is not None:
            lane = channel.there if packet.to_target else channel.back
            at_us = max(at_us, lane.last_arrival_us + 1)
            lane.last_arrival_us = at_us
        elif packet.kind is Kind.RESET:
            at_us = max(at_us, connection.last_arrival_us(side, now_us) + 1)
        connection.note_arrival(side, packet, at_us, now_us)
        assert at_us > now_us, (at_us, now_us)
        self._world.after(link.actor, at_us - now_us, self._arrive, packet)

    def _hold(self, link: Link, method: str, packet: Packet) -> None:
        hold = link.held.get(method)
        if hold is None:
            assert link.is_cut_for(method), (link.source, link.target, method)
            hold = link.held[method] = Hold(link, method, self._world.now_us)
            self._world.after(link.actor, RETRANSMIT_US, self._retry, hold)
        hold.packets.append(packet)
        self.counts.selected += bool(method)

    def _retry(self, hold: Hold) -> None:
        link = hold.link
        assert link.held[hold.method] is hold, "a retry is scheduled once for each time a link blocks"
        waited_us = self._world.now_us - hold.since_us
        # Each wait is twice as long as the one before it: one series of retries runs at a time.
        assert waited_us == (RETRANSMIT_US << hold.retries + 1) - RETRANSMIT_US, (waited_us, hold.retries)
        if not link.is_cut_for(hold.method):
            del link.held[hold.method]
            for packet in hold.packets:
                self._carry_stream(link, packet)
        elif waited_us >= BREAK_US:
            self._break(hold)
        else:
            hold.retries += 1
            self._world.after(link.actor, RETRANSMIT_US << hold.retries, self._retry, hold)

    def _carry_stream(self, link: Link, packet: Packet) -> None:
        """Carry a packet that has waited for the end of a fault, unless a cut strikes it now."""
        held_in = link.hold_for(packet)
        if held_in is None:
            self._deliver_in_order(link, packet, 0)
        else:
            self._hold(link, held_in, packet)

    def _break(self, hold: Hold) -> None:
        """Report broken connections to the senders of held packets; the other sides do not learn of it."""
        link = hold.link
        assert link.is_cut_for(hold.method), (link.source, link.target, hold.method)
        del link.held[hold.method]
        # All of a single method may have been dropped with their connection.
        assert hold.packets or hold.method, (link.source, link.target)
        if hold.packets:
            self._note_lost(link, len(hold.packets), "connection broken")
        broken = {packet.connection.number: packet for packet in hold.packets}
        for packet in broken.values():
            connection = packet.connection
            link.drop_selected(connection)
            sender, life_number = connection.dialer, connection.dialer_life
            if not packet.to_target:
                sender, life_number = self._endpoints[connection.target], connection.target_life
            if sender.life_number == life_number:
                sender.on_broken(connection)

    def _carry_datagram(self, link: Link, packet: Packet, wait_us: int) -> None:
        percent = self._loss_percent(link, packet)
        is_selected = bool(link.method_cuts) and packet.method in link.method_cuts
        self.counts.selected += is_selected and not link.cuts
        is_cut = link.cuts > 0 or is_selected
        if is_cut or (percent and link.loss.below(100) < percent):
            self._note_lost(link, 1, "cut" if is_cut else "lost")
            return
        self._world.after(link.actor, wait_us + self._latency_us(link, packet), self._arrive, packet)
        if (
            self.duplicate_percent
            and packet.kind is Kind.FRAME
            and link.loss.below(100) < self.duplicate_percent
        ):
            self._world.after(link.actor, wait_us + self._latency_us(link, packet), self._arrive, packet)

    def _note_lost(self, link: Link, count: int, why: str) -> None:
        self.counts.lost += count
        self._trace.fields(
            self._world.now_us, "network", "lost",
            (("from", link.source), ("to", link.target), ("messages", count), ("why", why)),
        )  # fmt: skip

    def _arrive(self, packet: Packet) -> None:
        if packet.sent_us > packet.sender.killed_us:
            return
        connection = packet.connection
        if packet.to_target:
            endpoint, life_number = self._endpoints[connection.target], connection.target_life
        else:
            endpoint, life_number = connection.dialer, connection.dialer_life
        reachability = endpoint.reachability()
        if reachability is Reachability.UP and life_number in (0, endpoint.life_number):
            endpoint.receive(packet)
        elif reachability is Reachability.SILENT or self.transport is Transport.DATAGRAM:
            return
        elif packet.kind is Kind.CONNECT:
            self.send(Kind.REFUSE, connection, 0, to_target=False)
        elif packet.kind is not Kind.RESET:
            self.send(Kind.RESET, connection, 0, to_target=not packet.to_target)
