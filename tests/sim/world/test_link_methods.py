"""Faults that strike packets of some methods: which ones wait, which ones pass, and what becomes of those that wait."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import pytest

from cluster.rpc import methods
from sim.world.link import Link
from sim.world.network import BREAK_US, RETRANSMIT_US, Network, Transport
from sim.world.packets import Channel, Connection, Kind, Packet, Reachability, Sender
from sim.world.time import World
from sim.world.trace import Trace
from storage.draws import Draws

PROPOSAL = f"/{methods.CONTROLLER}/AlterPartition"
HEARTBEAT = f"/{methods.CONTROLLER}/BrokerHeartbeat"
STREAM, DATAGRAM = Transport.STREAM, Transport.DATAGRAM


@final
class Place:
    """An endpoint that keeps what arrives."""

    def __init__(self, node_id: int) -> None:
        self.node_id, self.name = node_id, f"place-{node_id}"
        self.life_number, self.sender = 1, Sender()
        self.arrived: list[bytes] = []
        self.broken = 0

    def reachability(self) -> Reachability:
        return Reachability.UP

    def receive(self, packet: Packet) -> None:
        self.arrived.append(packet.data if packet.kind is Kind.FRAME else packet.kind.value.encode())

    def on_broken(self, connection: Connection) -> None:
        self.broken += 1


@final
class Wire:
    """Two places, the link from the first to the second, and a channel for each of two methods."""

    def __init__(self, transport: Transport = STREAM) -> None:
        draws = Draws(1)
        self.world = World(draws)
        self.network = Network(self.world, Trace(), transport=transport, mean_us=1)
        self.source, self.target = Place(1), Place(2)
        self.network.join(self.source)
        self.network.join(self.target)
        self.connection = self.network.connect(self.source, 2)
        self.link: Link = self.network.link(1, 2)
        self.proposals = self.network.open(self.connection, PROPOSAL)
        self.heartbeats = self.network.open(self.connection, HEARTBEAT)

    def send(self, channel: Channel, *texts: bytes) -> None:
        for data in texts:
            self.network.send(Kind.FRAME, self.connection, 0, to_target=True, channel=channel, data=data)

    def arrived_in(self, us: int) -> Sequence[bytes]:
        """Returns what arrives within the time from now on."""
        self.target.arrived.clear()
        self.world.run_to(self.world.now_us + us)
        return list(self.target.arrived)


@pytest.mark.parametrize("transport", [STREAM, DATAGRAM])
def test_a_clog_of_a_method_keeps_back_its_packets_in_order_and_no_others(transport: Transport) -> None:
    wire = Wire(transport)
    wire.link.begin_clog(("AlterPartition",))
    wire.send(wire.proposals, b"p1", b"p2")
    wire.send(wire.heartbeats, b"h1")
    assert wire.arrived_in(BREAK_US * 2) == [b"h1"] and wire.network.counts.selected == 2
    wire.link.end_clog(("AlterPartition",))
    wire.network.release(wire.link)
    found = wire.arrived_in(RETRANSMIT_US)
    assert sorted(found) == [b"p1", b"p2"] and (transport is DATAGRAM or found == [b"p1", b"p2"])


def test_the_end_of_a_whole_clog_leaves_the_clog_of_a_method_as_it_is() -> None:
    wire = Wire()
    wire.link.begin_clog(())
    wire.link.begin_clog(("AlterPartition",))
    wire.send(wire.proposals, b"p1")
    wire.send(wire.heartbeats, b"h1")
    wire.link.end_clog(())
    wire.network.release(wire.link)
    assert wire.arrived_in(RETRANSMIT_US) == [b"h1"]
    wire.link.end_clog(("AlterPartition",))
    wire.network.release(wire.link)
    assert wire.arrived_in(RETRANSMIT_US) == [b"p1"]


def test_a_cut_of_a_method_holds_its_packets_until_it_ends() -> None:
    wire = Wire()
    wire.link.begin_cut(("AlterPartition",))
    wire.send(wire.proposals, b"p1", b"p2")
    wire.send(wire.heartbeats, b"h1")
    assert wire.arrived_in(RETRANSMIT_US * 2) == [b"h1"]
    wire.link.end_cut(("AlterPartition",))
    # A packet that comes before the next attempt waits behind the others.
    wire.send(wire.proposals, b"p3")
    assert wire.arrived_in(RETRANSMIT_US * 4) == [b"p1", b"p2", b"p3"]
    assert not wire.link.held and wire.source.broken == 0


def test_a_cut_of_a_method_that_lasts_breaks_the_connection() -> None:
    wire = Wire()
    wire.link.begin_cut(("AlterPartition",))
    wire.send(wire.proposals, b"p1")
    assert wire.arrived_in(BREAK_US * 2) == []
    assert wire.source.broken == 1 and wire.network.counts.lost == 1 and not wire.link.held


def test_a_cut_of_a_method_loses_its_datagrams_alone() -> None:
    wire = Wire(DATAGRAM)
    wire.link.begin_cut(("AlterPartition",))
    wire.send(wire.proposals, b"p1")
    wire.send(wire.heartbeats, b"h1")
    assert wire.arrived_in(BREAK_US) == [b"h1"]
    assert (wire.network.counts.lost, wire.network.counts.selected) == (1, 1)


def test_what_a_whole_cut_holds_waits_on_for_the_cut_of_its_method() -> None:
    wire = Wire()
    wire.link.begin_cut(())
    wire.send(wire.proposals, b"p1")
    wire.send(wire.heartbeats, b"h1")
    wire.link.begin_cut(("AlterPartition",))
    wire.link.end_cut(())
    assert wire.arrived_in(RETRANSMIT_US * 2) == [b"h1"]
    wire.link.end_cut(("AlterPartition",))
    assert wire.arrived_in(RETRANSMIT_US * 4) == [b"p1"]


def test_a_method_that_is_cut_twice_is_cut_until_both_have_ended() -> None:
    wire = Wire()
    wire.link.begin_cut(("AlterPartition", "Fetch"))
    wire.link.begin_cut(("AlterPartition",))
    wire.link.end_cut(("AlterPartition",))
    assert wire.link.is_cut_for("AlterPartition") and wire.link.is_cut_for("Fetch")
    wire.link.heal()
    # The end of a fault that a heal has ended already changes nothing.
    wire.link.end_cut(("AlterPartition", "Fetch"))
    assert not wire.link.is_cut_for("AlterPartition") and not wire.link.is_cut_for("")


def test_the_end_of_a_connection_takes_what_waits_because_of_its_method() -> None:
    wire = Wire()
    wire.link.begin_clog(("AlterPartition",))
    wire.send(wire.proposals, b"p1")
    wire.network.send(Kind.RESET, wire.connection, 0, to_target=True)
    wire.link.heal()
    wire.network.release(wire.link)
    assert wire.arrived_in(BREAK_US) == [b"reset"]


def test_a_delay_of_a_method_lets_the_others_pass() -> None:
    wire = Wire()
    wire.link.extra_us, wire.link.slow_methods = RETRANSMIT_US, ("AlterPartition",)
    wire.send(wire.proposals, b"p1")
    wire.send(wire.heartbeats, b"h1")
    assert wire.arrived_in(RETRANSMIT_US) == [b"h1"] and wire.arrived_in(RETRANSMIT_US) == [b"p1"]


def test_the_end_of_a_connection_does_not_wait_for_what_a_killed_step_would_have_sent() -> None:
    """The step of a process whose disk hangs ends after a minute, or never."""
    wire = Wire()
    wire.send(wire.heartbeats, b"h1")
    wire.network.send(
        Kind.FRAME, wire.connection, 60_000_000, to_target=True, channel=wire.proposals, data=b"p1"
    )
    wire.source.sender.killed_us = wire.world.now_us
    wire.network.send(Kind.RESET, wire.connection, 0, to_target=True)
    assert wire.arrived_in(BREAK_US) == [b"h1", b"reset"]


def test_the_end_of_a_connection_comes_after_what_left_with_a_step_that_has_ended() -> None:
    wire = Wire()
    wire.link.extra_us = RETRANSMIT_US
    wire.network.send(Kind.FRAME, wire.connection, 10, to_target=True, channel=wire.proposals, data=b"p1")
    assert wire.arrived_in(20) == []
    wire.link.extra_us = 0
    wire.network.send(Kind.RESET, wire.connection, 0, to_target=True)
    assert wire.arrived_in(BREAK_US) == [b"p1", b"reset"]
