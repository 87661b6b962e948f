"""A side that has said all closes its sending direction, and still gets every answer: on links of both kinds."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from cluster.core.connection import rooms
from cluster.core.effects import Effect, Reply, Send
from cluster.core.events import Event, Request, TimerFired
from cluster.core.messages import ProducePartition, ProducePartitionResponse, ProduceRequest, ProduceResponse
from sim.bugs import install
from sim.hosts.lives import FINISH_US, ClientShell
from sim.world.network import Transport
from sim.world.packets import WINDOW_BYTES
from tests.sim.hosts.fake_cores import T0, Echo, Silent, Site, timer

SECOND = 1_000_000
TRANSPORTS = pytest.mark.parametrize("transport", list(Transport), ids=lambda each: each.value)


def produce(call: int, *, acks: int, size: int = 10) -> Send:
    item = ProducePartition(topic_partition=T0, topic_id="", records=bytes(size))
    body = ProduceRequest(acks=acks, timeout_ms=30_000, partitions=(item,))
    return Send(to=2, call=call, body=body, timeout_ms=30_000, expects_reply=acks != 0)


def waiting_calls(events: Sequence[Event]) -> list[int]:
    """The requests among the events whose sender waits for a reply."""
    return [
        event.call
        for event in events
        if isinstance(event, Request) and isinstance(event.body, ProduceRequest) and event.body.acks != 0
    ]


class Late(Silent):
    """A core that answers all requests 300 ms after the last one."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting: list[int] = []

    def steps(self, now_ms: int, events: Sequence[Event]) -> Sequence[object]:
        super().steps(now_ms, events)
        if not isinstance(events[0], TimerFired):
            self.waiting += waiting_calls(events)
            return [timer("answer", now_ms + 300)]
        item = ProducePartitionResponse(topic_partition=T0)
        calls, self.waiting = self.waiting, []
        return [Reply(call=call, body=ProduceResponse(partitions=(item,))) for call in calls]


def requests(core: Echo) -> int:
    return sum(isinstance(event, Request) for _, event in core.log)


def half_closed(
    first: Sequence[Effect], server: Echo, transport: Transport = Transport.STREAM
) -> tuple[Site, Echo]:
    """A site whose first node has sent `first`, and closes its sending direction while the calls are on the way."""
    asker = Echo(first)
    site = Site(lambda number: asker if number == 1 else server, transport=transport)
    site.start()
    site.world.run_to(20_000)
    assert site.nodes[1]._dialer.finish()
    return site, asker


@TRANSPORTS
def test_calls_in_flight_are_answered_after_a_half_close(transport: Transport) -> None:
    server = Late()
    site, asker = half_closed(
        [produce(1, acks=0), produce(2, acks=1), produce(3, acks=-1)], server, transport
    )
    site.world.run_to(200_000)
    assert requests(server) == 3 and asker.answers() == []
    site.world.run_to(SECOND)
    assert asker.answers() == [2, 3] and asker.errors() == [] and server.forgotten == []


@TRANSPORTS
def test_a_half_closed_stream_ends_on_both_sides_once_all_is_answered(transport: Transport) -> None:
    site, _ = half_closed([produce(1, acks=0), produce(2, acks=1)], Late(), transport)
    site.world.run_to(200_000)
    assert site.nodes[1]._dialer.finish() and len(site.nodes[2]._listener.rooms.items()) == 1
    site.world.run_to(SECOND)
    assert not site.nodes[1]._dialer.finish() and site.nodes[2]._listener.rooms.items() == []


@TRANSPORTS
def test_after_a_half_close_the_next_call_begins_a_new_stream(transport: Transport) -> None:
    server = Late()
    site, asker = half_closed([produce(1, acks=0), produce(2, acks=1)], server, transport)
    site.world.run_to(SECOND)
    site.nodes[1].perform([produce(3, acks=1)])
    site.world.run_to(2 * SECOND)
    assert asker.answers() == [2, 3] and asker.errors() == []


def test_calls_that_wait_for_room_reach_the_core_after_a_half_close(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rooms, "MOST_CALLS", 2)
    server = Late()
    site, asker = half_closed([produce(0, acks=0), *[produce(call, acks=1) for call in range(1, 7)]], server)
    site.world.run_to(200_000)
    # The one without a reply needs no place, and two have one.
    assert requests(server) == 3
    site.world.run_to(5 * SECOND)
    assert asker.answers() == [1, 2, 3, 4, 5, 6] and asker.errors() == []


def errors_on_bad_links(seed: int) -> list[str]:
    """The reasons of the calls that failed, where packets are lost, doubled and overtaken during a half-close."""
    asker, server = Echo([produce(1, acks=0), produce(2, acks=1)]), Late()
    site = Site(
        lambda number: asker if number == 1 else server,
        seed=seed, transport=Transport.DATAGRAM, loss_percent=20, duplicate_percent=50,
    )  # fmt: skip
    site.start()
    site.nodes[1]._dialer.finish()
    site.world.run_to(40 * SECOND)
    assert asker.answers() == [2] and site.onlooker.failures == []
    return asker.errors()


def test_where_datagrams_are_lost_and_overtaken_each_call_has_one_end() -> None:
    errors = [errors_on_bad_links(seed) for seed in range(12)]
    assert [] in errors and ["the peer ended the stream"] in errors


def test_a_half_close_that_is_taken_for_a_break_loses_the_calls_in_flight() -> None:
    with install("connection-breaks-at-half-close"):
        server = Late()
        site, asker = half_closed([produce(1, acks=0), produce(2, acks=1)], server)
        site.world.run_to(SECOND)
    assert len(server.forgotten) == 1 and asker.errors() == ["the peer ended the stream"]


class Client(ClientShell):
    """A client that has handed over ten windows of calls without a reply when it stops."""

    def _live(self) -> None:
        self.core = Echo()
        self.perform([produce(call, acks=0, size=WINDOW_BYTES) for call in range(10)])

    def _forget_all(self, *, is_orderly: bool) -> None:
        assert is_orderly


def stopped_client() -> tuple[Site, Silent, Client]:
    server = Silent()
    site = Site(lambda number: Echo() if number == 1 else server)
    site.start()
    client = Client(site.world, site.network, site.trace, site.onlooker, name="client", node_id=9)
    client.begin()
    client.stop()
    return site, server, client


def test_an_orderly_stop_waits_until_the_node_has_read_what_expects_no_reply() -> None:
    site, server, client = stopped_client()
    site.world.run_to(FINISH_US // 2)
    assert requests(server) == 10 and not client.is_up


def test_an_orderly_stop_waits_for_no_node_that_reads_nothing() -> None:
    site, server, client = stopped_client()
    site.network.link(9, 2).cuts = 1
    site.world.run_to(FINISH_US - 1)
    assert client.is_up
    site.world.run_to(FINISH_US + 1)
    assert requests(server) == 0 and not client.is_up
