"""A broker that stops in order waits for what was decided when it left, and for nothing later (KAFKA-14292)."""

from __future__ import annotations

import pytest

from cluster.core.broker.lifecycle import SHUTDOWN_TIMER
from cluster.core.effects import Reply, RunJob, SetTimer, Stop
from cluster.core.errors import ErrorCode
from cluster.core.events import Event, JobDone, Request, Response, Shutdown, TimerFired
from cluster.core.messages import BrokerHeartbeatRequest, BrokerHeartbeatResponse, Header
from cluster.core.metadata.image import BrokerRegistration, MetadataImage
from sim.checkers.base import Jury
from sim.checkers.ghost import Ghost
from sim.checkers.shutdowns import OrderlyStops


def registration(broker: int, *, fenced: bool = False, stops: bool = False) -> BrokerRegistration:
    return BrokerRegistration(
        broker_id=broker, broker_epoch=broker, incarnation=f"i{broker}", host="", port=0, fenced=fenced,
        in_controlled_shutdown=stops,
    )  # fmt: skip


def image(next_offset: int, *, stops: bool = True, fenced: bool = False) -> MetadataImage:
    """Broker 1 stops, broker 2 is active, and broker 3 is fenced."""
    brokers = {
        1: registration(1, stops=stops, fenced=fenced),
        2: registration(2),
        3: registration(3, fenced=True),
    }
    return MetadataImage(cluster_id="c", brokers=brokers, next_offset=next_offset)


class Story:
    def __init__(self) -> None:
        self.jury = Jury(Ghost(), [], now_us=lambda: 0, on_violation=lambda violation: None)
        self.stops = OrderlyStops(self.jury)

    def beat(
        self, broker: int, offset: int, after: MetadataImage, error: ErrorCode | None = ErrorCode.NONE,
        cluster_id: str = "c",
    ) -> bool:  # fmt: skip
        """Returns whether a rule is broken after this heartbeat, whose answer waits where there is no `error`."""
        request = BrokerHeartbeatRequest(
            header=Header(
                cluster_id=cluster_id, broker_id=broker, broker_epoch=broker, incarnation=f"i{broker}"
            ),
            broker_id=broker,
            broker_epoch=broker,
            metadata_offset=offset,
        )
        replies = [] if error is None else [Reply(call=1, body=BrokerHeartbeatResponse(error=error))]
        self.stops.on_step([Request(call=1, body=request)], replies, after)
        return bool(self.jury.violations)


def test_kafka14292_what_is_decided_later_does_not_hold_up_a_broker_that_stops() -> None:
    story = Story()
    assert not story.beat(1, 20, image(20))
    assert not story.beat(2, 20, image(25))
    assert story.beat(1, 20, image(25))


@pytest.mark.parametrize("read", [10, 19])
def test_it_waits_for_all_that_are_active(read: int) -> None:
    story = Story()
    story.beat(1, 20, image(20))
    story.beat(2, read, image(20))
    assert not story.beat(1, 20, image(20))


def test_one_that_may_stop_is_fenced() -> None:
    story = Story()
    story.beat(1, 20, image(20))
    story.beat(2, 20, image(20))
    assert not story.beat(1, 20, image(21, fenced=True))


def test_one_that_was_fenced_meanwhile_waits_anew() -> None:
    """A late heartbeat, from before it was asked to stop, unfences a broker whose session had expired."""
    story = Story()
    story.beat(1, 20, image(20))
    story.stops.on_step([TimerFired(key="session")], [], image(22, fenced=True))
    assert not story.beat(1, 20, image(23, stops=False))
    assert not story.beat(1, 20, image(25))
    assert not story.beat(2, 22, image(25))
    assert not story.beat(1, 25, image(25))
    story.beat(2, 25, image(25))
    assert story.beat(1, 25, image(25))


def test_or_is_let_go_at_once_where_it_leads_nothing() -> None:
    story = Story()
    story.beat(1, 20, image(20))
    story.stops.on_step([TimerFired(key="session")], [], image(22, fenced=True))
    story.beat(1, 20, image(23, stops=False))
    assert not story.beat(1, 20, image(24, fenced=True))


def test_another_controller_does_not_know_what_was_read() -> None:
    story = Story()
    story.beat(1, 20, image(20))
    story.beat(2, 20, image(20))
    story.stops.on_died()
    assert not story.beat(1, 20, image(20))
    assert not story.beat(1, 20, image(20))


def test_a_controller_that_is_closing_refuses_all() -> None:
    story = Story()
    story.beat(1, 20, image(20))
    story.beat(2, 20, image(20))
    assert not story.beat(1, 20, image(20), ErrorCode.NOT_CONTROLLER)


def test_a_heartbeat_of_another_cluster_ends_no_wait_though_its_refusal_is_not_seen_yet() -> None:
    story = Story()
    story.beat(1, 20, image(20))
    story.beat(2, 20, image(20))
    assert not story.beat(1, 20, image(20), None, cluster_id="elsewhere")
    assert story.beat(1, 20, image(20), None)


def test_brk7_it_may_not_stop_before_all_have_read() -> None:
    for read, is_wrong in ((19, True), (20, False)):
        story = Story()
        story.beat(1, 20, image(20))
        story.beat(2, read, image(20))
        assert story.beat(1, 20, image(20, fenced=True)) is is_wrong


@pytest.mark.parametrize(
    ("event", "is_registered", "is_wrong"),
    [
        (Response(call=1, body=BrokerHeartbeatResponse(should_shut_down=True)), True, False),
        (Response(call=1, body=BrokerHeartbeatResponse()), True, True),
        (TimerFired(key="broker.shutdown"), True, False),
        (TimerFired(key="broker.heartbeat"), True, True),
        (Shutdown(), True, True),
        (Shutdown(), False, False),
    ],
)
def test_brk8_a_broker_ends_when_it_is_let_go_or_at_its_deadline(
    event: Event, is_registered: bool, is_wrong: bool
) -> None:
    story = Story()
    if is_registered:
        story.stops.on_registered(1, 1)
    deadline = SetTimer(key=SHUTDOWN_TIMER, at_ms=9)
    story.stops.on_broker_step(1, 1, [event], [deadline])
    assert not story.jury.violations
    story.stops.on_broker_step(1, 1, [event], [RunJob(job=1, kind="shutdown", work=lambda: None)])
    assert bool(story.jury.violations) is is_wrong


def test_brk8_a_broker_that_is_to_stop_sets_a_deadline_or_ends() -> None:
    ends: list[object] = [
        SetTimer(key=SHUTDOWN_TIMER, at_ms=9),
        RunJob(job=1, kind="shutdown", work=lambda: None),
        Stop(reason="shutdown"),
    ]
    other = SetTimer(key="broker.heartbeat", at_ms=9)
    for life, effect in enumerate([*ends, other]):
        story = Story()
        story.stops.on_broker_step(1, life, [Shutdown()], [effect])
        assert bool(story.jury.violations) is (effect is other), effect


def test_a_broker_that_is_asked_again_has_its_deadline() -> None:
    story = Story()
    story.stops.on_broker_step(1, 1, [Shutdown()], [SetTimer(key=SHUTDOWN_TIMER, at_ms=9)])
    story.stops.on_broker_step(1, 1, [Shutdown()], [])
    assert not story.jury.violations


ENDED, WORK = Stop(reason="shutdown"), RunJob(job=1, kind="snapshot", work=lambda: None)


@pytest.mark.parametrize(
    ("effect", "has_job", "what"),
    [
        (None, True, []),
        (WORK, False, []),
        (ENDED, False, []),
        (ENDED, True, ["the controller ends, although a job of it goes on"]),
        (None, False, ["the controller is to stop, waits for no job, and does not end"]),
    ],
)
def test_a_controller_that_is_to_stop_ends_with_the_last_job_that_it_waits_for(
    effect: object, *, has_job: bool, what: list[str]
) -> None:
    story = Story()
    story.stops.on_controller_step([TimerFired(key="sessions")], [], has_job=False)
    story.stops.on_controller_step([Shutdown()], [], has_job=True)
    assert not story.jury.violations
    story.stops.on_controller_step([JobDone(job=7)], [] if effect is None else [effect], has_job=has_job)
    assert [each.what for each in story.jury.violations] == what
    # The next process was not asked.
    story.stops.on_died()
    story.stops.on_controller_step([JobDone(job=7)], [], has_job=False)
    assert len(story.jury.violations) == len(what)
