"""Sessions of brokers: who is silent for the time-out may be fenced or replaced, and nobody before."""

from __future__ import annotations

import pytest

from cluster.core.effects import Effect, Reply
from cluster.core.events import Event, Request, TimerFired
from cluster.core.messages import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    Header,
    RegisterBrokerRequest,
)
from cluster.core.metadata.image import BrokerRegistration, MetadataImage
from sim.checkers.base import Jury
from sim.checkers.ghost import Ghost
from sim.checkers.sessions import BrokerSessions

TIMEOUT_MS = 1_000
SESSION = TimerFired(key="controller.session")
REGISTRATION = RegisterBrokerRequest(broker_id=1, incarnation="i8", host="h", port=1)


def image(offset: int, *, epoch: int = 7, fenced: bool = False, stops: bool = False) -> MetadataImage:
    broker = BrokerRegistration(
        broker_id=1, broker_epoch=epoch, incarnation=f"i{epoch}", host="", port=0, fenced=fenced,
        in_controlled_shutdown=stops,
    )  # fmt: skip
    return MetadataImage(cluster_id="c", brokers={1: broker}, next_offset=offset)


def beat(*, cluster_id: str = "c", want_fence: bool = False, want_shutdown: bool = False) -> Request:
    header = Header(cluster_id=cluster_id, broker_id=1, broker_epoch=7, incarnation="i7")
    body = BrokerHeartbeatRequest(
        header=header, broker_id=1, broker_epoch=7, metadata_offset=9, want_fence=want_fence,
        want_shutdown=want_shutdown,
    )  # fmt: skip
    return Request(call=1, body=body)


class Story:
    def __init__(self) -> None:
        self.jury = Jury(Ghost(), [], now_us=lambda: 0, on_violation=lambda violation: None)
        self.sessions = BrokerSessions(self.jury, TIMEOUT_MS)

    def step(self, now_ms: int, event: Event, after: MetadataImage, *effects: Effect) -> bool:
        """Returns whether a rule is broken after this step."""
        self.sessions.on_step(now_ms, [event], effects, after)
        return bool(self.jury.violations)


@pytest.mark.parametrize(("at_ms", "is_wrong"), [(1_000, True), (1_001, False)])
def test_brk4_who_sent_a_heartbeat_keeps_its_session_for_the_time_out(at_ms: int, is_wrong: bool) -> None:
    story = Story()
    story.step(0, beat(), image(10))
    assert story.step(at_ms, SESSION, image(12, fenced=True)) is is_wrong


@pytest.mark.parametrize(("at_ms", "is_wrong"), [(1_000, True), (1_001, False)])
def test_brk1_another_process_does_not_take_the_place_of_one_that_lives(at_ms: int, is_wrong: bool) -> None:
    story = Story()
    story.step(0, beat(), image(10))
    request = Request(call=2, body=REGISTRATION)
    assert story.step(at_ms, request, image(12, epoch=11, fenced=True)) is is_wrong


@pytest.mark.parametrize("wish", [beat(want_fence=True), beat(want_shutdown=True)])
def test_brk5_who_asks_for_it_is_fenced_at_once(wish: Request) -> None:
    story = Story()
    story.step(0, beat(), image(10))
    assert not story.step(5, wish, image(12, fenced=True))


def test_brk2_who_wants_to_stay_fenced_is_not_unfenced() -> None:
    story = Story()
    story.step(0, SESSION, image(10, fenced=True))
    assert not story.step(1, beat(want_fence=True), image(10, fenced=True))
    assert story.step(2, beat(want_fence=True), image(12))


def test_brk7_who_is_fenced_and_wants_to_stop_is_not_unfenced() -> None:
    for after, is_wrong in ((image(10, fenced=True), False), (image(12), True)):
        story = Story()
        story.step(0, SESSION, image(10, fenced=True))
        assert story.step(1, beat(want_shutdown=True), after) is is_wrong


def test_brk7_who_stops_is_let_go_by_a_heartbeat_from_before() -> None:
    story = Story()
    story.step(0, beat(), image(10, stops=True))
    released = BrokerHeartbeatResponse(is_fenced=True, is_caught_up=True, should_shut_down=True)
    assert not story.step(5, beat(), image(12, stops=True, fenced=True), Reply(call=1, body=released))


def test_brk9_a_heartbeat_of_another_cluster_is_no_sign_of_life() -> None:
    story = Story()
    story.step(0, beat(), image(10))
    story.step(900, beat(cluster_id="d"), image(10))
    assert not story.step(1_001, SESSION, image(12, fenced=True))


def test_what_an_ended_controller_knew_judges_nothing() -> None:
    story = Story()
    story.step(0, beat(), image(10))
    story.sessions.on_died()
    assert not story.step(5, SESSION, image(12, fenced=True))
    story.step(6, beat(), image(13))
    # A disk that failed took back what was appended and not durable.
    assert not story.step(7, SESSION, image(12, fenced=True))


@pytest.mark.parametrize(
    ("said", "is_wrong"),
    [
        (BrokerHeartbeatResponse(is_fenced=False, is_caught_up=True), False),
        (BrokerHeartbeatResponse(is_fenced=True, is_caught_up=True), True),
        (BrokerHeartbeatResponse(is_fenced=False, is_caught_up=False), True),
        (BrokerHeartbeatResponse(is_fenced=False, is_caught_up=True, should_shut_down=True), True),
    ],
)
def test_brk7_the_answer_to_a_heartbeat_says_what_was_decided(
    said: BrokerHeartbeatResponse, is_wrong: bool
) -> None:
    story = Story()
    story.step(0, SESSION, image(10))
    story.step(1, beat(), image(10))
    assert story.step(5, SESSION, image(10), Reply(call=1, body=said)) is is_wrong
