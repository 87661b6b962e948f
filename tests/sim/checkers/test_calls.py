"""The checker of calls, over simulated links between two small cores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import final
from unittest.mock import patch

import pytest

from cluster.core.connection.outgoing import NEVER_MS, Answer, Deadlines
from cluster.core.effects import Effect, Reply, Send
from cluster.core.events import Event, Request, TimerFired, TransportError
from cluster.core.messages import FetchMetadataRequest, FetchMetadataResponse, ResponseBody
from sim.bugs import install
from sim.checkers.base import Jury
from sim.checkers.calls import Calls
from sim.checkers.ghost import Ghost
from sim.hosts.shell import Shell
from sim.world.network import Transport
from sim.world.packets import Exchange
from sim.world.time import ORIGIN_MS
from tests.sim.hosts.fake_cores import Asker, Echo, Onlooker, Silent, Site, ask, ask_alone, echo_of, timer

SECOND = 1_000_000


@final
class CallOnlooker(Onlooker):
    """An observer that shows all calls to the checker."""

    def __init__(self, transport: Transport) -> None:
        super().__init__()
        self.jury = Jury(Ghost(), (), now_us=lambda: 0, on_violation=lambda found: None)
        self.calls = Calls(self.jury, transport)

    def on_reply(self, shell: Shell, exchange: Exchange, body: ResponseBody) -> None:
        self.calls.on_reply(shell, exchange, body)

    def on_sent(self, shell: Shell, effect: Send, target: int) -> None:
        self.calls.on_sent(shell, effect, target)

    def on_accepted(self, shell: Shell, exchange: Exchange) -> None:
        self.calls.on_accepted(shell, exchange)

    def on_accepted_silently(self, shell: Shell, exchange: Exchange) -> None:
        self.calls.on_accepted_silently(shell, exchange)

    def on_answered(self, shell: Shell, call: int, body: Answer) -> None:
        self.calls.on_answered(shell, call, body)

    def on_late_alarm(self, shell: Shell, call: int, late_ms: int) -> None:
        self.calls.on_late_alarm(shell.name, call, late_ms)

    def found(self) -> list[str]:
        return [each.what for each in self.jury.violations]


@final
class Together(Silent):
    """A core that answers all requests of a step in one turn."""

    def steps(self, now_ms: int, events: tuple[Event, ...]) -> list[Effect]:  # type: ignore[override]
        super().steps(now_ms, events)
        asked = [event for event in events if isinstance(event, Request)]
        return [Reply(call=event.call, body=echo_of(event.body)) for event in asked]


@final
class Deliberate(Silent):
    """A core that answers each request 300 ms after it came."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting: list[Request] = []

    def steps(self, now_ms: int, events: Sequence[Event]) -> Sequence[object]:
        super().steps(now_ms, events)
        self.waiting += [event for event in events if isinstance(event, Request)]
        if isinstance(events[0], TimerFired):
            return [Reply(call=event.call, body=echo_of(event.body)) for event in self.waiting]
        return [timer("answer", now_ms + 300)]


@final
class Metadata(Echo):
    """A core that answers every request with metadata."""

    def step(self, now_ms: int, event: Event) -> list[Effect]:
        if isinstance(event, Request):
            return [Reply(call=event.call, body=FetchMetadataResponse())]
        return []


def site_of(
    asker: Echo, server: Echo, transport: Transport = Transport.STREAM, duplicate_percent: int = 0
) -> Site:
    return Site(
        lambda number: asker if number == 1 else server,
        transport=transport,
        onlooker=CallOnlooker(transport),
        duplicate_percent=duplicate_percent,
    )


def found_at(site: Site) -> list[str]:
    assert isinstance(site.onlooker, CallOnlooker)
    return site.onlooker.found()


def many_calls_of_one_turn() -> list[str]:
    """Two turns of calls, which are all answered."""
    site = site_of(Echo([ask(2, call, call) for call in range(5)]), Together())
    site.start()
    site.world.run_to(SECOND // 10)
    site.nodes[1].perform([ask(2, call, call) for call in range(5, 9)])
    site.world.run_to(SECOND // 2)
    return found_at(site)


def datagrams_that_come_twice() -> list[str]:
    """Twenty calls one after the other."""
    asker = Asker([ask(2, call, call) for call in range(20)], ORIGIN_MS + 20)
    site = site_of(asker, Echo(), Transport.DATAGRAM, duplicate_percent=60)
    site.start()
    site.world.run_to(SECOND)
    return found_at(site)


def an_answer_after_a_time_out() -> list[str]:
    """Answers that take 600 ms to a call with a time-out of 300 ms, and to one that could wait."""
    site = site_of(Echo([ask(2, 1)]), Echo())
    site.start()
    site.world.run_to(SECOND // 10)
    site.network.link(2, 1).extra_us = 600_000
    site.nodes[1].perform([ask(2, 2, timeout_ms=300), ask(2, 3, timeout_ms=9_000)])
    site.world.run_to(2 * SECOND)
    return found_at(site)


def a_peer_that_is_down_twice() -> list[str]:
    """Calls every 20 ms to a node that is down for half a second, then up, then down again."""
    site = site_of(Echo(), Echo())
    site.start()
    for call in range(200):
        if call in (20, 100):
            site.nodes[2].crash()
        if call == 60:
            site.nodes[2].start()
        site.world.run_to(100_000 + 20_000 * call)
        site.nodes[1].perform([ask(2, call, call)])
    site.world.run_to(6 * SECOND)
    return found_at(site)


def calls_in_flight_at_a_half_close() -> list[str]:
    """A client that has sent all while the node has its call, and answers it 300 ms later."""
    asker = Echo([ask(2, 1)])
    site = site_of(asker, Deliberate())
    site.start()
    site.world.run_to(SECOND // 10)
    site.nodes[1]._dialer.finish(every=True)
    site.world.run_to(SECOND)
    return found_at(site)


WORKLOADS = (
    ("connection-breaks-at-half-close", calls_in_flight_at_a_half_close, "ended its stream in order"),
    ("connection-answers-again", datagrams_that_come_twice, "was answered again"),
    ("connection-fails-late-call-alone", an_answer_after_a_time_out, "after another call on its stream"),
    ("connection-takes-answers-of-its-past", an_answer_after_a_time_out, "was answered again"),
    ("connection-mixes-up-calls", many_calls_of_one_turn, "got the answer to another call"),
    ("connection-loses-last-call", many_calls_of_one_turn, "never reached node-2"),
    ("connection-loses-last-answer", many_calls_of_one_turn, "the answer is lost"),
    ("connection-never-forgets-failures", a_peer_that_is_down_twice, "50 ms are the longest wait"),
)


@pytest.mark.parametrize(("bug", "work", "what"), WORKLOADS, ids=[bug for bug, _, _ in WORKLOADS])
def test_a_broken_promise_of_a_connection_is_found(
    bug: str, work: Callable[[], list[str]], what: str
) -> None:
    assert work() == []
    with install(bug):
        found = work()
    assert found and what in found[0], found[:3]


@pytest.mark.parametrize("asked", [ask, ask_alone])
def test_a_connection_wakes_up_for_the_call_whose_time_out_is_the_first(asked: Callable[..., Send]) -> None:
    def found() -> list[str]:
        calls = [asked(2, 1, timeout_ms=9_000), asked(2, 2, timeout_ms=300), asked(2, 3, timeout_ms=300)]
        site = site_of(Echo(calls), Echo())
        site.start()
        return found_at(site)

    def add(self: Deadlines, now_ms: int, call: int, timeout_ms: int) -> None:
        """Sets the alarm if none is set."""
        self._calls[call] = (now_ms + timeout_ms, timeout_ms)
        self.alarm_ms = now_ms + timeout_ms if self.alarm_ms == NEVER_MS else self.alarm_ms

    assert found() == []
    with patch.object(Deadlines, "add", add):
        assert found()[0] == (
            "call 2 of node-1 would end 8700 ms after its time-out: its connection wakes no earlier"
        )


def test_calls_of_a_node_that_dies_are_not_lost() -> None:
    site = site_of(Echo([ask(2, call, call, 900) for call in range(5)]), Silent())
    site.start()
    site.world.run_to(SECOND // 10)
    site.nodes[2].crash()
    site.world.run_to(SECOND // 2)
    site.nodes[2].start()
    site.nodes[1].perform([ask(2, call, call) for call in range(5, 9)])
    site.world.run_to(2 * SECOND)
    assert found_at(site) == []


def test_a_call_ends_within_its_time_out_as_far_as_its_process_goes_on() -> None:
    site = site_of(Echo(), Silent())
    site.start()
    assert isinstance(site.onlooker, CallOnlooker)
    calls, node = site.onlooker.calls, site.nodes[1]
    for call in (1, 2, 3):
        calls.on_sent(node, ask(2, call, timeout_ms=1_000), 2)
    site.world.run_to(site.world.now_us + 2 * SECOND)
    node.paused = True
    calls.on_answered(node, 3, TransportError(reason="no packet for 3000 ms"))
    node.paused = False
    node.resumed_us = site.world.now_us - SECOND
    calls.on_answered(node, 1, TransportError(reason="no answer in 1000 ms"))
    assert found_at(site) == []
    node.resumed_us = 0
    calls.on_answered(node, 2, TransportError(reason="no answer in 1000 ms"))
    assert found_at(site) == ["call 2 of node-1 has ended after 2000 ms; it had 1000 ms"]


def test_a_call_fails_at_once_for_a_short_time_after_an_attempt_unless_an_earlier_one_is_under_way() -> None:
    site = site_of(Echo(), Silent())
    site.start()
    assert isinstance(site.onlooker, CallOnlooker)
    calls, node, refused = site.onlooker.calls, site.nodes[1], TransportError(reason="connection refused")
    calls.on_sent(node, ask(2, 1), 2)
    site.world.run_to(site.world.now_us + 1_000)
    calls.on_answered(node, 1, refused)
    site.world.run_to(site.world.now_us + SECOND)
    calls.on_sent(node, ask(2, 2), 2)
    site.world.run_to(site.world.now_us + 1_000)
    calls.on_sent(node, ask(2, 3), 2)
    calls.on_answered(node, 3, refused)
    assert found_at(site) == []
    # The attempt of the second call has not failed, so nothing explains this one.
    calls.on_answered(node, 2, TransportError(reason="cancelled"))
    calls.on_sent(node, ask(2, 4), 2)
    calls.on_answered(node, 4, refused)
    assert found_at(site) == [
        "call 4 of node-1 failed at once, 1001 ms after 1 attempts in a row; 50 ms are the longest wait"
    ]


@pytest.mark.parametrize(
    ("reason", "count"),
    [("connection refused", 1), ("connection reset", 0), ("INVALID_ARGUMENT: a frame is cut", 0)],
)
def test_only_a_call_without_a_connection_has_failed_without_an_attempt(reason: str, count: int) -> None:
    """A process that goes on after a pause may send, and read in that moment that a connection or stream has ended."""
    site = site_of(Echo(), Silent())
    site.start()
    assert isinstance(site.onlooker, CallOnlooker)
    calls, node = site.onlooker.calls, site.nodes[1]
    calls.on_sent(node, ask(2, 1), 2)
    site.world.run_to(site.world.now_us + 1_000)
    calls.on_answered(node, 1, TransportError(reason="connection refused"))
    site.world.run_to(site.world.now_us + SECOND)
    calls.on_sent(node, ask(2, 2), 2)
    calls.on_answered(node, 2, TransportError(reason=reason))
    assert len(found_at(site)) == count


def test_a_call_that_expects_no_reply_may_fail_once_and_is_never_answered() -> None:
    silent = replace(ask(2, 1), expects_reply=False)
    site = site_of(Echo(), Echo())
    site.start()
    site.world.run_to(SECOND // 10)
    site.nodes[2].crash()
    site.nodes[1].perform([silent])
    site.world.run_to(SECOND)
    assert found_at(site) == []
    assert isinstance(site.onlooker, CallOnlooker)
    calls, node = site.onlooker.calls, site.nodes[1]
    calls.on_answered(node, 1, TransportError(reason="connection refused"))
    assert found_at(site) == ["call 1 of node-1 was answered again"]
    calls.on_sent(node, replace(silent, call=2), 2)
    calls.on_answered(node, 2, echo_of(silent.body))
    assert found_at(site)[1:] == ["call 2 of node-1 expects no reply, and was answered"]


def test_a_call_that_expects_no_reply_cannot_fail_once_its_node_has_it() -> None:
    silent = replace(ask(2, 1), expects_reply=False)
    site = site_of(Echo(), Echo())
    site.start()
    assert isinstance(site.onlooker, CallOnlooker)
    calls, node = site.onlooker.calls, site.nodes[1]
    calls.on_sent(node, silent, 2)
    calls.on_sent(node, replace(silent, call=2), 2)
    arrived = Exchange(source=node, body=silent.body, path="/Fetch", sent_us=0)
    calls.on_accepted_silently(site.nodes[2], arrived)
    calls.on_answered(node, 2, TransportError(reason="no answer in 9 ms"))
    assert found_at(site) == []
    calls.on_answered(node, 1, TransportError(reason="no answer in 9 ms"))
    assert ["has reached its node" in each for each in found_at(site)] == [True]


@pytest.mark.parametrize("is_known_to_be_down", [True, False])
def test_an_attempt_may_fail_after_all_calls_that_waited_for_it_have_timed_out(
    is_known_to_be_down: bool,
) -> None:
    site = site_of(Echo(), Echo())
    site.start()
    site.world.run_to(SECOND // 10)
    site.nodes[2].crash()
    if is_known_to_be_down:
        site.nodes[1].perform([ask(2, 1)])
        site.world.run_to(SECOND)
    site.nodes[2].has_power = False
    site.nodes[1].perform([ask(2, 2, timeout_ms=500)])
    # The attempt fails after 3 seconds, and calls fail at once for 50 ms, or 80 ms if it was the second one.
    site.world.run_to(site.world.now_us + 3 * SECOND + 10_000)
    site.nodes[1].perform([ask(2, 3)])
    site.world.run_to(5 * SECOND)
    assert found_at(site) == []


def test_an_answer_that_waits_inside_the_process_is_no_sign_that_the_node_was_reached() -> None:
    site = site_of(Echo(), Metadata())
    site.start()
    asker = site.nodes[1]
    asker.hold_metadata()
    body = FetchMetadataRequest(broker_id=1, offset=0)
    asker.perform([Send(to=2, call=0, body=body, timeout_ms=1_000)])
    site.world.run_to(SECOND // 10)
    site.nodes[2].crash()
    # Calls fail at once after 50 ms first, and for a second each time after many attempts.
    for call in range(1, 100):
        site.world.run_to(site.world.now_us + 50_000)
        if call == 80:
            asker.release_metadata()
        asker.perform([ask(2, call)])
    assert isinstance(asker.core, Echo) and asker.core.answers().count(0) == 1
    assert found_at(site) == []


@pytest.mark.parametrize("is_hung_up", [True, False])
def test_a_connection_that_is_forgotten_as_it_begins_is_an_attempt(*, is_hung_up: bool) -> None:
    """Nobody sees it fail but its first call, in the same moment; the next calls fail at once for 80 ms, not 50."""
    site = site_of(Echo(), Echo())
    site.start()
    site.world.run_to(SECOND // 10)
    asker = site.nodes[1]
    site.nodes[2].crash()
    asker.perform([ask(2, 1)])
    site.world.run_to(SECOND)
    asker.perform([ask(2, 2)])
    if is_hung_up:
        asker.hang_up(2)
    site.world.run_to(SECOND + 75_000)
    asker.perform([ask(2, 3)])
    site.world.run_to(2 * SECOND)
    assert isinstance(asker.core, Echo) and len(asker.core.answers()) == 3
    assert found_at(site) == []


def test_a_process_that_goes_on_may_send_before_it_reads_that_its_connection_was_reset() -> None:
    site = site_of(Echo(), Silent())
    site.start()
    site.world.run_to(SECOND // 10)
    asker = site.nodes[1]
    asker.perform([ask(2, 1)])
    # It counts as an attempt that has failed until there is an answer.
    asker.hang_up(2)
    site.world.run_to(SECOND // 2)
    asker.perform([ask(2, 2)])
    site.world.run_to(SECOND // 2 + 10_000)
    asker.pause()
    site.nodes[2].crash()
    site.world.run_to(SECOND)
    asker.perform([ask(2, 3)])
    asker.resume()
    site.world.run_to(2 * SECOND)
    assert found_at(site) == []
