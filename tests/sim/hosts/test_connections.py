"""Simulated links drive the connection core of the product: streams, unary calls, ends, room and turns."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from cluster.core.connection import rooms
from cluster.core.effects import Effect, Reply, Send, Stop
from cluster.core.events import Event, Request, Response, TransportError
from cluster.core.messages import FetchPartitionResponse, FetchResponse
from sim.bugs import install
from sim.hosts.lives import ClientShell
from sim.world.network import Transport
from sim.world.time import ORIGIN_MS
from tests.sim.hosts.fake_cores import T0, Asker, Echo, Silent, Site, ask, ask_alone, timer

SECOND = 1_000_000
LONG_MS = 60_000


def site_of(asker: Echo, server: Echo, **options: int) -> Site:
    return Site(lambda number: asker if number == 1 else server, **options)  # type: ignore[arg-type]


def calls_failed(core: Echo) -> list[int]:
    """The calls that ended in an error, in order."""
    return [
        event.call
        for _, event in core.log
        if isinstance(event, Response) and isinstance(event.body, TransportError)
    ]


def test_the_calls_of_one_turn_are_one_frame_and_one_step() -> None:
    asker, server = Echo([ask(2, call, call) for call in range(7)]), Silent()
    site = site_of(asker, server)
    site.start()
    site.world.run_to(SECOND // 2)
    assert server.turns == [7] and server.asked() == list(range(7))


def test_requests_that_wait_while_the_core_is_busy_are_one_step() -> None:
    asker, server = Asker([ask(2, call, call) for call in range(20)], ORIGIN_MS + 20), Silent()
    site = site_of(asker, server)
    site.start()
    site.world.run_to(20_000)
    site.nodes[2].pause()
    site.world.run_to(200_000)
    site.nodes[2].resume()
    site.world.run_to(SECOND // 2)
    assert sorted(server.turns)[-1] >= 18 and server.asked() == list(range(20))


def test_a_time_out_fails_every_call_on_its_stream_and_none_elsewhere() -> None:
    asks = [
        ask(2, 1, timeout_ms=300),
        ask(2, 2, timeout_ms=LONG_MS),
        ask(2, 3, timeout_ms=LONG_MS, replica_id=7),
        ask_alone(2, 4, timeout_ms=LONG_MS),
        ask_alone(2, 5, timeout_ms=400),
    ]
    asker, server = Echo(asks), Silent()
    site = site_of(asker, server)
    site.start()
    site.world.run_to(2 * SECOND)
    assert calls_failed(asker) == [1, 2, 5]
    # What was waited for there is dropped: both calls of the stream, and the unary one.
    assert len(server.forgotten) == 3


def test_after_a_time_out_the_next_call_begins_a_new_stream() -> None:
    asker, server = Echo([ask(2, 1, timeout_ms=300)]), Echo()
    site = site_of(asker, server)
    site.start()
    site.world.run_to(4_000)
    site.network.link(2, 1).cuts = 1
    site.world.run_to(400_000)
    site.network.link(2, 1).heal()
    site.nodes[1].perform([ask(2, 2)])
    site.world.run_to(SECOND)
    assert asker.answers() == [1, 2] and calls_failed(asker) == [1]


def test_order_holds_within_a_stream_only() -> None:
    mixed = [
        ask(2, call, call, LONG_MS, replica_id=(-1, 3)[call % 2]) if call % 3 else ask_alone(2, call, call)
        for call in range(60)
    ]
    asker, server = Asker(mixed, ORIGIN_MS + 20), Echo()
    site = site_of(asker, server)
    site.start()
    site.world.run_to(2 * SECOND)
    asked = server.asked()
    assert sorted(asked) == list(range(60)) and asked != sorted(asked)
    for remainder in (0, 1):
        of_stream = [call for call in asked if call % 3 and call % 2 == remainder]
        assert of_stream == sorted(of_stream)


def test_unary_calls_have_no_order() -> None:
    server = Echo()
    site = site_of(Echo([ask_alone(2, call, call) for call in range(20)]), server)
    site.start()
    site.world.run_to(SECOND)
    assert server.asked() != sorted(server.asked()) == list(range(20))


def test_c8_what_a_dead_client_waited_for_is_dropped_in_the_core() -> None:
    asker, server = Echo([ask(2, call, timeout_ms=LONG_MS) for call in range(3)]), Silent()
    site = site_of(asker, server)
    site.start()
    site.world.run_to(SECOND)
    assert server.forgotten == []
    site.nodes[1].crash()
    site.world.run_to(2 * SECOND)
    assert len(server.forgotten) == 3


def test_c8_what_a_killed_client_waited_for_is_dropped_in_the_core_at_once() -> None:
    class Client(ClientShell):
        def _live(self) -> None:
            self.core = Echo()
            self.perform([ask(2, 1, timeout_ms=LONG_MS)])

        def _forget_all(self, *, is_orderly: bool) -> None:
            assert not is_orderly

    server = Silent()
    site = site_of(Echo(), server)
    site.start()
    client = Client(site.world, site.network, site.trace, site.onlooker, name="client", node_id=9)
    client.begin()
    site.world.run_to(SECOND)
    assert len(server.asked()) == 1 and server.forgotten == []
    client.crash()
    client.start()
    site.world.run_to(2 * SECOND)
    # The request of its second life waits.
    assert len(server.asked()) == 2 and server.forgotten == [1]


def test_a_time_out_noticed_after_a_pause_may_end_the_life() -> None:
    class Last(Echo):
        """Ends with the first answer."""

        def step(self, now_ms: int, event: Event) -> Sequence[object]:
            super().step(now_ms, event)
            return [Stop(reason="answered")] if isinstance(event, Response) else []

    asker = Last([ask(2, 1, timeout_ms=300), ask(3, 2, timeout_ms=300)])
    site = Site(lambda number: asker if number == 1 else Silent(), 3)
    site.start()
    site.world.run_to(100_000)
    site.nodes[1].pause()
    site.world.run_to(SECOND)
    site.nodes[1].resume()
    site.world.run_to(2 * SECOND)
    assert site.onlooker.stops == ["answered"] and asker.answers() == [1]


def test_c8_a_connection_that_cannot_be_written_is_dropped_at_the_server() -> None:
    class Late(Silent):
        """Answers the first request two seconds late, and never the second."""

        def steps(self, now_ms: int, events: tuple[Event, ...]) -> list[Effect]:  # type: ignore[override]
            super().steps(now_ms, events)
            if isinstance(events[0], Request):
                return [timer("answer", now_ms + 2_000)]
            item = FetchPartitionResponse(topic_partition=T0)
            return [Reply(call=1, body=FetchResponse(partitions=(item,)))]

    server = Late()
    asker = Echo([ask(2, 1, timeout_ms=LONG_MS), ask(2, 2, timeout_ms=LONG_MS)])
    site = site_of(asker, server)
    site.start()
    site.world.run_to(SECOND)
    site.network.link(2, 1).cuts = 1
    site.world.run_to(10 * SECOND)
    assert server.forgotten == [2]


def test_c8_a_connection_that_its_client_gave_up_is_dropped_with_its_next_answer() -> None:
    class Second(Silent):
        """Answers the first request when the second has come, and never the second."""

        def steps(self, now_ms: int, events: Sequence[Event]) -> Sequence[object]:
            super().steps(now_ms, events)
            item = FetchPartitionResponse(topic_partition=T0)
            late = timer("answer", now_ms + 6_000)
            return [late if type(event) is Request else Reply(call=1, body=FetchResponse(partitions=(item,)))
                    for event in events]  # fmt: skip

    server = Second()
    asker = Echo([ask(2, 1, timeout_ms=LONG_MS), ask(2, 2, timeout_ms=LONG_MS)])
    site = site_of(asker, server)
    site.start()
    site.world.run_to(SECOND)
    site.network.link(1, 2).cuts = 1
    site.nodes[1].perform([ask(2, 3, timeout_ms=LONG_MS)])
    site.world.run_to(5 * SECOND)
    assert asker.errors() == ["connection broken"] * 3 and server.forgotten == []
    site.network.link(1, 2).heal()
    site.world.run_to(10 * SECOND)
    assert server.forgotten == [2] and asker.answers() == [1, 2, 3]


def test_a_connection_that_its_acceptor_gave_up_is_reset_by_the_next_call() -> None:
    asker = Echo([ask(2, 1, timeout_ms=LONG_MS)])
    site = site_of(asker, Echo())
    site.start()
    site.world.run_to(SECOND)
    site.network.link(2, 1).cuts = 1
    site.nodes[1].perform([ask(2, 2, timeout_ms=LONG_MS)])
    # The answer could not be sent for too long: the machine of the acceptor ends the connection.
    site.world.run_to(9 * SECOND)
    site.network.link(2, 1).heal()
    assert (asker.answers(), calls_failed(asker)) == ([1], [])
    site.nodes[1].perform([ask(2, 3, timeout_ms=LONG_MS)])
    site.world.run_to(10 * SECOND)
    # Its next frame begins no new stream on it, so the lost answer is told.
    assert calls_failed(asker) == [2, 3]


def test_a_half_open_connection_is_reset_by_its_next_frame() -> None:
    lives: list[Echo] = []

    def make(number: int) -> Echo:
        if number == 1:
            return asker
        lives.append(Echo())
        return lives[-1]

    asker = Echo([ask(2, 1)])
    site = Site(make)
    site.start()
    site.world.run_to(SECOND)
    site.network.link(2, 1).cuts = 1
    site.nodes[2].crash()
    site.nodes[2].start()
    site.world.run_to(2 * SECOND)
    site.network.link(2, 1).heal()
    site.nodes[1].perform([ask(2, 2)])
    site.world.run_to(3 * SECOND)
    site.nodes[1].perform([ask(2, 3)])
    site.world.run_to(4 * SECOND)
    assert asker.errors() == ["connection reset"] and lives[1].asked() == [0]


def test_a_node_that_refuses_is_tried_again_after_a_while_only() -> None:
    asker = Echo()
    site = site_of(asker, Echo())
    site.start()
    site.world.run_to(50_000)
    site.nodes[2].crash()
    for call in range(20):
        site.nodes[1].perform([ask(2, call)])
        site.world.run_to(50_000 + 10_000 * (call + 1))
    assert asker.errors() == ["connection refused"] * 20
    # Most calls failed without a packet.
    assert site.network._connections <= 4
    site.nodes[2].start()
    site.world.run_to(2 * SECOND)
    site.nodes[1].perform([ask(2, 99)])
    site.world.run_to(3 * SECOND)
    assert asker.answers()[-1] == 99 and len(asker.errors()) == 20


def test_a_machine_that_comes_back_is_found_by_a_later_knock() -> None:
    asker = Echo()
    site = site_of(asker, Echo())
    site.start()
    site.world.run_to(50_000)
    site.nodes[2].lose_power("none")
    site.nodes[1].perform([ask(2, 1, timeout_ms=LONG_MS)])
    site.world.run_to(SECOND)
    site.nodes[2].start()
    site.world.run_to(3 * SECOND)
    assert asker.answers() == [1] and asker.errors() == []


def test_a_refusal_that_comes_after_a_later_knock_was_accepted_ends_nothing() -> None:
    asker = Echo()
    site = site_of(asker, Echo())
    site.start()
    site.world.run_to(SECOND)
    site.nodes[2].crash()
    site.nodes[1].perform([ask(2, 1)])
    # The refusal takes 300 ms. The second knock follows 200 ms after the first, and finds the node up.
    site.network.link(2, 1).extra_us = 300_000
    site.world.run_to(SECOND + 100_000)
    site.network.link(2, 1).extra_us = 0
    site.nodes[2].start()
    site.world.run_to(SECOND + 250_000)
    assert asker.answers() == [1]
    site.world.run_to(SECOND + 310_000)
    site.nodes[1].perform([ask(2, 2)])
    site.world.run_to(2 * SECOND)
    assert asker.answers() == [1, 2] and not asker.errors()


def test_a_machine_that_stays_silent_is_given_up() -> None:
    asker = Echo()
    site = site_of(asker, Echo())
    site.start()
    site.world.run_to(50_000)
    site.nodes[2].lose_power("none")
    site.nodes[1].perform([ask(2, 1, timeout_ms=LONG_MS)])
    site.world.run_to(10 * SECOND)
    assert asker.errors() == ["connection timed out"]


class Generous(Silent):
    """A core that answers each fetch with 20,000 bytes."""

    def steps(self, now_ms: int, events: tuple[Event, ...]) -> list[Effect]:  # type: ignore[override]
        super().steps(now_ms, events)
        item = FetchPartitionResponse(topic_partition=T0, records=bytes(20_000))
        return [
            Reply(call=event.call, body=FetchResponse(partitions=(item,)))
            for event in events
            if isinstance(event, Request)
        ]


def test_c6_answers_to_a_client_that_does_not_read_hold_their_places(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rooms, "MOST_CALLS", 8)
    asks: list[Send] = [ask(2, call, call, LONG_MS) for call in range(40)]
    asker, server = Asker(asks, ORIGIN_MS + 20), Generous()
    site = site_of(asker, server)
    site.start()
    site.world.run_to(25_000)
    site.network.link(2, 1).extra_us = 3 * SECOND
    site.world.run_to(2 * SECOND)
    # Four answers fill the window, eight have no place to be written.
    assert len(server.asked()) <= 8 + 4 + 5
    (room,) = [room for _, room in site.nodes[2]._listener.rooms.items()]
    assert room.own.calls == 8 and room.own.held_bytes == 8 * 20_000
    site.world.run_to(LONG_MS * 1_000)
    assert sorted(asker.answers()) == list(range(40)) and asker.errors() == []
    assert room.own.calls == 0


def test_c6_places_that_are_freed_too_early_let_answers_pile_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rooms, "MOST_CALLS", 8)
    asker, server = Asker([ask(2, call, call, LONG_MS) for call in range(40)], ORIGIN_MS + 20), Generous()
    with install("connection-frees-places-early"):
        site = site_of(asker, server)
        site.start()
        site.world.run_to(25_000)
        site.network.link(2, 1).extra_us = 3 * SECOND
        site.world.run_to(2 * SECOND)
        assert len(server.asked()) == 40


def test_a_request_that_came_twice_is_answered_twice_and_delivered_once() -> None:
    sends = [ask(2, call, call) if call % 2 else ask_alone(2, call, call) for call in range(40)]
    asker, server = Asker(sends, ORIGIN_MS + 20), Echo()
    site = Site(
        lambda number: asker if number == 1 else server, transport=Transport.DATAGRAM, duplicate_percent=50
    )
    site.start()
    site.world.run_to(3 * SECOND)
    assert len(server.asked()) > 50
    assert sorted(asker.answers()) == list(range(40)) and asker.errors() == []


@pytest.mark.parametrize("transport", [Transport.STREAM, Transport.DATAGRAM])
def test_a_frame_that_cannot_be_read_once_there_is_room_for_it_ends_its_stream(
    monkeypatch: pytest.MonkeyPatch, transport: Transport
) -> None:
    """The answer that makes the room is not written to a stream that has ended."""
    monkeypatch.setattr(rooms, "MOST_CALLS", 1)
    asker, server = Asker([ask(2, call, call, LONG_MS) for call in range(3)], ORIGIN_MS + 20), Silent()
    site = Site(lambda number: asker if number == 1 else server, transport=transport)
    site.start()
    site.world.run_to(100_000)
    listener = site.nodes[2]._listener
    (served,) = listener._streams.values()
    (waiting,) = served.unread
    waiting.data = b"\xff" * 9
    event = server.log[0][1]
    assert isinstance(event, Request)
    site.nodes[2].perform([Reply(call=event.call, body=FetchResponse())])
    assert not listener._streams
    site.world.run_to(SECOND)
    assert [reason.partition(":")[0] for reason in asker.errors()][-1:] == ["INVALID_ARGUMENT"]
