"""The write of a frame may take its time: what happens to its stream, its process and its connection meanwhile."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from cluster.core.effects import Stop
from cluster.core.events import Event, Request
from sim.world.network import Network
from sim.world.packets import Channel, Connection
from tests.sim.hosts.fake_cores import Echo, Silent, Site, ask, ask_alone

SECOND = 1_000_000
WRITE_US = 30_000
OPEN = Network.open


@pytest.fixture(autouse=True)
def slow_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets the write of each frame of a stream take 30 ms."""

    def open_slow(network: Network, connection: Connection, path: str) -> Channel:
        channel = OPEN(network, connection, path)
        channel.write_us = WRITE_US
        return channel

    monkeypatch.setattr(Network, "open", open_slow)


def site_of(asker: Echo, server: Echo) -> Site:
    site = Site(lambda number: asker if number == 1 else server)
    site.start()
    return site


def calls_of_node(site: Site) -> int:
    """The places that the second node counts on its streams."""
    return sum(limit.calls for _, limit, _ in site.nodes[2]._listener.places())


def test_a_frame_leaves_once_it_is_written_and_those_behind_it_wait() -> None:
    asker, server = Echo([ask(2, 1, 1)]), Echo()
    site = site_of(asker, server)
    site.world.run_to(20_000)
    site.nodes[1].perform([ask(2, 2, 2)])
    assert server.asked() == [] and asker.answers() == []
    site.world.run_to(WRITE_US + 20_000)
    assert server.asked() == [1]
    site.world.run_to(SECOND)
    assert server.asked() == [1, 2] and asker.answers() == [1, 2] and calls_of_node(site) == 0
    times = [at_ms for at_ms, event in server.log if isinstance(event, Request)]
    assert times[1] - times[0] >= WRITE_US // 1000


def test_a_call_has_its_place_until_its_answer_is_written() -> None:
    asker, server = Echo([ask(2, 1)]), Echo()
    site = site_of(asker, server)
    while not server.log:
        site.world.run_to(site.world.now_us + 1_000)
    site.world.run_to(site.world.now_us + WRITE_US // 2)
    assert calls_of_node(site) == 1 and asker.answers() == []
    site.world.run_to(SECOND)
    assert calls_of_node(site) == 0 and asker.answers() == [1]


def test_a_stream_that_ends_while_an_answer_is_written_frees_its_place() -> None:
    asker, server = Echo([ask(2, 1, timeout_ms=50)]), Echo()
    site = site_of(asker, server)
    site.world.run_to(SECOND)
    assert asker.errors() == ["no answer in 50 ms"]
    assert server.asked() == [0] and calls_of_node(site) == 0
    assert site.nodes[2]._listener.rooms.items() == []


def test_a_frame_that_is_being_written_as_its_stream_ends_never_leaves() -> None:
    asker, server = Echo([ask(2, 1, timeout_ms=20)]), Echo()
    site = site_of(asker, server)
    site.world.run_to(SECOND)
    assert asker.errors() == ["no answer in 20 ms"] and server.asked() == []
    site.nodes[1].perform([ask(2, 2, 2)])
    site.world.run_to(2 * SECOND)
    assert asker.answers() == [1, 2] and server.asked() == [2]


def test_a_paused_process_goes_on_with_its_writes_later() -> None:
    asker, server = Echo([ask(2, 1, 1)]), Echo()
    site = site_of(asker, server)
    site.world.run_to(20_000)
    site.nodes[1].pause()
    site.world.run_to(SECOND // 2)
    assert server.asked() == []
    site.nodes[1].resume()
    site.world.run_to(SECOND)
    assert asker.answers() == [1]


def test_a_process_that_is_killed_within_a_write_sends_nothing_of_it() -> None:
    asker, server = Echo([ask(2, 1, 1)]), Silent()
    site = site_of(asker, server)
    site.world.run_to(20_000)
    site.nodes[1].crash()
    site.world.run_to(SECOND)
    assert server.asked() == []


def test_unary_calls_that_wait_for_a_place_begin_on_the_next_connection() -> None:
    asker, server = Echo(), Silent()
    site = site_of(asker, server)
    site.nodes[1]._dialer.limit_calls(1)
    site.nodes[1].perform([ask_alone(2, call, call) for call in (1, 2, 3)])
    site.world.run_to(100_000)
    assert server.asked() == [1]
    site.nodes[1].hang_up(2)
    site.world.run_to(200_000)
    # Only the call that had begun is lost with its connection.
    assert asker.errors() == ["connection broken"] and server.asked() == [1, 2]


def test_where_nobody_can_be_reached_no_unary_call_waits_for_a_place() -> None:
    asker, server = Echo(), Silent()
    site = site_of(asker, server)
    site.nodes[2].crash()
    site.nodes[1]._dialer.limit_calls(1)
    site.nodes[1].perform([ask_alone(2, call, call) for call in (1, 2, 3)])
    site.world.run_to(100_000)
    assert asker.answers() == [1, 2, 3] and asker.errors() == ["connection refused"] * 3


def test_a_paused_process_dials_for_what_waits_when_it_goes_on() -> None:
    asker, server = Echo(), Silent()
    site = site_of(asker, server)
    site.nodes[1]._dialer.limit_calls(1)
    site.nodes[1].perform([ask_alone(2, call, call) for call in (1, 2)])
    site.world.run_to(100_000)
    site.nodes[1].pause()
    connection = site.nodes[1]._dialer.connection_to(2)
    assert connection is not None
    site.nodes[1].on_broken(connection)
    site.world.run_to(SECOND // 2)
    assert server.asked() == [1] and asker.answers() == []
    site.nodes[1].resume()
    site.world.run_to(SECOND)
    assert server.asked() == [1, 2] and asker.errors()[0] == "connection broken"


def test_a_node_that_stops_in_order_writes_the_answers_of_its_last_step() -> None:
    class Leaving(Echo):
        """A core that stops with its first answer."""

        def step(self, now_ms: int, event: Event) -> Sequence[object]:
            return [*super().step(now_ms, event), Stop(reason="shutdown")]

    asker = Echo([ask(2, 1, 1)])
    site = site_of(asker, Leaving())
    site.world.run_to(SECOND)
    assert asker.answers() == [1] and asker.errors() == []
