"""A broker that owes the controller or a leader something does it, or has set a timer for it.

Each mistake is one effect that is lost between a real broker and the checker.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, final

import pytest

from cluster.core.broker.broker import Broker
from cluster.core.effects import CancelTimer, Effect, RunJob, Send, SetTimer
from cluster.core.errors import ErrorCode
from cluster.core.events import Event, Response, Shutdown, TimerFired, TransportError
from cluster.core.messages import (
    AllocateProducerIdsRequest,
    AlterPartitionRequest,
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    FetchMetadataRequest,
    FetchMetadataResponse,
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
    InitProducerIdRequest,
    ProducePartition,
    ProduceRequest,
    RegisterBrokerRequest,
    RegisterBrokerResponse,
    TopicPartition,
)
from cluster.core.metadata.records import (
    BrokerChangeRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicConfigRecord,
    TopicRecord,
)
from cluster.core.replica.flushes import Flushes
from cluster.core.replica.follower import FetchState
from sim.checkers.base import Jury
from sim.checkers.ghost import Ghost
from sim.checkers.idle_brokers import IdleBrokers
from storage.errors import OutOfHandles
from tests.cluster.broker.setup import BROKER_EPOCH, CLUSTER_ID, BrokerSetup
from tests.cluster.broker.two_directories import IN_ONE, PARTITIONS, TWO, fail_two, produce, topic
from tests.cluster.replica.setup import of, only_sent, sent
from tests.cluster.replica.test_sliced_appends import large

LIFE = (1, 1)
T0 = TopicPartition("t", 0)
LOST = TransportError(reason="cut")
TOPIC = TopicRecord(name="t", topic_id="1f" * 16)
BROKER_2 = RegisterBrokerRecord(broker_id=2, incarnation="2", host="127.0.0.1", port=9002)
UNFENCED_2 = BrokerChangeRecord(broker_id=2, broker_epoch=3, fenced=False)
FOLLOWED = PartitionRecord(topic="t", partition=0, replicas=(1, 2), isr=(1, 2), leader=2)
TO_FOLLOW = (TOPIC, BROKER_2, UNFENCED_2, FOLLOWED)

Lost = Callable[[Effect], bool]


@final
class Watched:
    """A broker whose steps are judged, without the effects that are `lost`."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.jury = Jury(Ghost(), [], now_us=lambda: 0, on_violation=lambda violation: None)
        self.idle = IdleBrokers(self.jury)
        self.lost: Lost = lambda effect: False

    def start(self, now_ms: int) -> list[Effect]:
        effects = self._broker.start(now_ms)
        for effect in effects:
            if type(effect) is Send:
                self.idle.on_sent(LIFE, effect.to, effect.call, effect.body)
        return effects

    def step(self, now_ms: int, event: Event) -> list[Effect]:
        effects = self._broker.step(now_ms, event)
        seen = [effect for effect in effects if not self.lost(effect)]
        self.idle.on_step(LIFE, self._broker, now_ms, (event,), seen)
        return effects

    @property
    def found(self) -> list[str]:
        return [each.what for each in self.jury.violations]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._broker, name)


def watched(setup: BrokerSetup | None = None) -> tuple[BrokerSetup, Watched]:
    setup = setup or BrokerSetup()
    broker = Watched(setup.broker)
    setup.broker = broker  # type: ignore[assignment]  # it passes all on
    return setup, broker


def a_send_of(kind: type[object]) -> Lost:
    return lambda effect: type(effect) is Send and type(effect.body) is kind


def a_timer(key: str) -> Lost:
    return lambda effect: type(effect) is SetTimer and effect.key == key


def of_heartbeats(effect: Effect) -> bool:
    """Whether an effect sends a heartbeat, or ends the wait for the next one: without both, it is sent later."""
    return a_send_of(BrokerHeartbeatRequest)(effect) or effect == CancelTimer(key="broker.heartbeat")


def shut_down(setup: BrokerSetup) -> list[Effect]:
    return setup.broker.step(setup.now_ms, Shutdown())


def test_brk1_a_broker_whose_registration_has_failed_registers_again() -> None:
    for lost, found in [(None, []), (a_timer("broker.register"), ["broker 1 does not register"])]:
        setup, broker = watched()
        call = only_sent(setup.start(), RegisterBrokerRequest).call
        broker.lost = lost or broker.lost
        setup.answer(call, LOST)
        assert broker.found == found


@pytest.mark.parametrize("answer", [BrokerHeartbeatResponse(), LOST], ids=["answered", "lost"])
def test_brk4_a_heartbeat_is_followed_by_another_one(
    answer: BrokerHeartbeatResponse | TransportError,
) -> None:
    for lost in (None, a_timer("broker.heartbeat")):
        setup, broker = watched()
        setup.boot()
        (call,) = [each.call for each in sent(setup.fire("broker.heartbeat", 500), BrokerHeartbeatRequest)]
        broker.lost = lost or broker.lost
        setup.answer(call, answer)
        assert broker.found == ([] if lost is None else [
            "broker 1 neither sends a heartbeat nor has set a timer for it"
        ])  # fmt: skip


def test_brk3_a_broker_that_is_not_known_any_more_registers_again() -> None:
    for lost in (None, a_send_of(RegisterBrokerRequest)):
        setup, broker = watched()
        setup.boot()
        (beat,) = sent(setup.fire("broker.heartbeat", 500), BrokerHeartbeatRequest)
        broker.lost = lost or broker.lost
        setup.answer(beat.call, BrokerHeartbeatResponse(error=ErrorCode.STALE_BROKER_EPOCH))
        assert len(broker.found) == (lost is not None)
        assert all("does not register again" in what for what in broker.found)


def test_brk2_a_broker_that_has_caught_up_tells_it_at_once() -> None:
    for lost in (None, of_heartbeats):
        setup, broker = watched()
        call = only_sent(setup.start(), RegisterBrokerRequest).call
        effects = setup.answer(call, RegisterBrokerResponse(broker_epoch=BROKER_EPOCH, cluster_id=CLUSTER_ID))
        setup.answer(only_sent(effects, BrokerHeartbeatRequest).call, BrokerHeartbeatResponse(is_fenced=True))
        setup.metadata(TOPIC)
        broker.lost = lost or broker.lost
        setup.metadata(setup.own_registration())
        assert len(broker.found) == (lost is not None), broker.found


@pytest.mark.parametrize("is_on_its_way", [False, True])
def test_brk7_a_broker_that_leaves_tells_it_as_soon_as_it_can(is_on_its_way: bool) -> None:
    """A heartbeat on its way is awaited, and the next one leaves 50 ms after its answer at most."""
    for lost in (None, a_send_of(BrokerHeartbeatRequest), a_timer("broker.heartbeat")):
        setup, broker = watched()
        setup.boot()
        calls = []
        if is_on_its_way:
            calls = [each.call for each in sent(setup.fire("broker.heartbeat", 500), BrokerHeartbeatRequest)]
        if not is_on_its_way:
            broker.lost = lost or broker.lost
        calls += [each.call for each in sent(shut_down(setup), BrokerHeartbeatRequest)]
        broker.lost = lost or broker.lost
        setup.answer(calls[-1], BrokerHeartbeatResponse())
        assert bool(broker.found) == (lost is not None and (
            lost(SetTimer(key="broker.heartbeat", at_ms=0)) or not is_on_its_way
        )), broker.found  # fmt: skip


@pytest.mark.parametrize("is_on_its_way", [False, True])
def test_ap16_a_directory_that_fails_is_told_as_soon_as_it_can_be(is_on_its_way: bool) -> None:
    for lost in (None, of_heartbeats):
        setup, broker = watched(BrokerSetup(directories=TWO))
        setup.boot()
        setup.metadata(*topic())
        calls = []
        if is_on_its_way:
            calls = [each.call for each in sent(setup.fire("broker.heartbeat", 500), BrokerHeartbeatRequest)]
        broker.lost = lost or broker.lost
        fail_two(setup)
        for call in calls:
            setup.answer(call, BrokerHeartbeatResponse(is_fenced=False, is_caught_up=True))
        assert len(broker.found) == (lost is not None), broker.found


def test_ctl5_a_broker_asks_for_metadata_without_end() -> None:
    for lost in (None, a_send_of(FetchMetadataRequest)):
        setup, broker = watched()
        setup.boot()
        broker.lost = lost or broker.lost
        setup.metadata()
        assert broker.found == ([] if lost is None else [
            "broker 1 has taken metadata, and does not ask for more"
        ])  # fmt: skip


@pytest.mark.parametrize(
    "answer", [LOST, FetchMetadataResponse(error=ErrorCode.NOT_CONTROLLER)], ids=["lost", "refused"]
)
def test_ctl5_a_fetch_of_metadata_that_failed_is_repeated(
    answer: FetchMetadataResponse | TransportError,
) -> None:
    for lost in (None, a_timer("metadata.retry")):
        setup, broker = watched()
        setup.boot()
        broker.lost = lost or broker.lost
        setup.answer(setup.metadata_fetch, answer)
        assert len(broker.found) == (lost is not None)
        assert all("neither asks for metadata" in what for what in broker.found)


def test_fet3_a_partition_that_is_followed_is_fetched_at_once() -> None:
    for lost in (None, a_send_of(FetchRequest)):
        setup, broker = watched()
        setup.boot()
        broker.lost = lost or broker.lost
        setup.metadata(*TO_FOLLOW)
        assert len(broker.found) == (lost is not None)
        assert all("does not fetch from broker 2" in what for what in broker.found)


def test_fet10_a_fetch_that_failed_is_repeated_after_the_back_off() -> None:
    for lost, ahead_ms in [(None, 0), (a_timer("replica.fetch:2"), 0), (None, 1)]:
        setup, broker = watched()
        setup.boot()
        (fetch,) = sent(setup.metadata(*TO_FOLLOW), FetchRequest)
        broker.lost = lost or broker.lost
        # A back-off that ends later than it should.
        setup.now_ms += ahead_ms
        event = Response(call=fetch.call, body=LOST)
        effects = setup.broker._broker.step(setup.now_ms, event)  # type: ignore[attr-defined]
        seen = [effect for effect in effects if not broker.lost(effect)]
        broker.idle.on_step(LIFE, setup.broker, setup.now_ms - ahead_ms, (event,), seen)
        assert len(broker.found) == (lost is not None or ahead_ms > 0), broker.found


@pytest.mark.parametrize("error", [ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER])
def test_fet10_only_who_is_told_that_its_epoch_is_over_waits_for_the_next_one(error: ErrorCode) -> None:
    setup, broker = watched()
    setup.boot()
    (fetch,) = sent(setup.metadata(*TO_FOLLOW), FetchRequest)
    refused = FetchPartitionResponse(topic_partition=T0, error=error)
    answer = Response(call=fetch.call, body=FetchResponse(partitions=(refused,)))
    effects = setup.broker._broker.step(setup.now_ms, answer)  # type: ignore[attr-defined]
    follower = broker.replicas()[T0].follower
    follower.state = FetchState.FENCED
    broker.idle.on_step(LIFE, setup.broker, setup.now_ms, (answer,), effects)
    told = "broker 1 waits for a newer epoch of t-0, and nobody has said that this one is over"
    assert (told in broker.found) is (error is not ErrorCode.FENCED_LEADER_EPOCH)


def test_fet3_who_is_followed_again_is_not_waited_for() -> None:
    """The fetch to a leader from which nothing was followed for a while says nothing of the next one."""
    for lost in (None, a_send_of(FetchRequest)):
        setup, broker = watched()
        setup.boot()
        setup.metadata(*TO_FOLLOW)
        setup.metadata(PartitionChangeRecord(topic="t", partition=0, leader=-1))
        broker.lost = lost or broker.lost
        setup.metadata(PartitionChangeRecord(topic="t", partition=0, leader=2))
        assert len(broker.found) == (lost is not None), broker.found


def test_brk7_a_broker_that_leaves_need_not_begin_to_follow() -> None:
    """Out of the in-sync set it follows nobody any more."""
    setup, broker = watched()
    setup.boot()
    shut_down(setup)
    out = replace(FOLLOWED, isr=(2,))
    assert not sent(setup.metadata(TOPIC, BROKER_2, UNFENCED_2, out), FetchRequest)
    assert not broker.found


@pytest.mark.parametrize("isr", [(1, 2), (2,)])
def test_rol6_a_broker_that_stops_fetches_nothing_that_it_has_left(isr: tuple[int, ...]) -> None:
    setup, broker = watched()
    setup.boot()
    (fetch,) = sent(setup.metadata(*TO_FOLLOW), FetchRequest)
    shut_down(setup)
    setup.metadata(PartitionChangeRecord(topic="t", partition=0, isr=isr))
    again = TimerFired(key="any")
    broker.idle.on_step(LIFE, setup.broker, setup.now_ms, (again,), (replace(fetch, call=99),))
    told = "broker 1 stops, has left the ISR of t-0, and fetches it"
    assert (told in broker.found) is (isr == (2,))


def test_pro9_a_log_that_comes_to_be_flushed_with_each_append_is_flushed_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for is_planted in (False, True):
        setup, broker = watched(BrokerSetup(directories=TWO))
        setup.boot()
        setup.metadata(*topic())
        produce(setup, IN_ONE[0])
        if is_planted:
            monkeypatch.setattr(Flushes, "on_new_role", lambda self, replica: None)
        effects = setup.metadata(TopicConfigRecord(topic="t", configs=(("flush.messages", "1"),)))
        assert len(of(effects, RunJob)) == (not is_planted)
        due = "broker 1 flushes no more of t-0 than up to 0; 2 is promised"
        assert broker.found == ([due] if is_planted else [])


def test_a_flush_that_found_no_descriptor_is_awaited() -> None:
    for lost in (None, a_timer("replica.flush:t-0")):
        setup, broker = watched(BrokerSetup(directories=TWO))
        setup.boot()
        setup.metadata(*topic(flush_messages="1"))
        (job,) = [each for each in of(produce(setup, IN_ONE[0]), RunJob) if each.kind == "flush"]
        broker.lost = lost or broker.lost
        setup.finish(job, OutOfHandles("none is left"))
        assert len(broker.found) == (lost is not None), broker.found


def test_isr6_a_proposal_without_an_answer_has_its_own_timer() -> None:
    first, *others = topic()
    in_sync = [replace(each, isr=(1, 2)) for each in others if isinstance(each, PartitionRecord)]
    for lost in (None, a_timer("isr.retry:t-1")):
        setup, broker = watched(BrokerSetup(directories=TWO))
        setup.boot()
        setup.metadata(first, BROKER_2, UNFENCED_2, *in_sync)
        produce(setup, *PARTITIONS)
        proposed = sent(setup.fire("isr.lag", 100_000), AlterPartitionRequest)
        assert len(proposed) == len(PARTITIONS)
        broker.lost = lost or broker.lost
        for each in proposed:
            setup.answer(each.call, LOST)
        assert all("proposal for t-1" in what for what in broker.found), broker.found
        assert bool(broker.found) == (lost is not None)
        # The news that it has lost the partition settles it.
        known = len(broker.found)
        setup.metadata(PartitionChangeRecord(topic="t", partition=1, leader=2))
        assert len(broker.found) == known


def test_pro6_as_long_as_appends_wait_for_their_checks_some_are_checked() -> None:
    for is_planted in (False, True):
        setup, broker = watched(BrokerSetup(directories=TWO))
        setup.boot()
        setup.metadata(*topic())
        asked = ProducePartition(topic_partition=IN_ONE[0], records=large())
        (job,) = of(setup.ask(ProduceRequest(acks=1, timeout_ms=1_000, partitions=(asked,))), RunJob)
        # The first slice ends, and nobody takes up the next one.
        if is_planted:
            broker.lost = lambda effect: type(effect) is RunJob
        setup.finish(job)
        assert broker.found == (
            ["broker 1 has appends that wait for their checks, and checks none"] if is_planted else []
        )


def test_as_long_as_producers_wait_for_ids_the_controller_is_asked_for_some() -> None:
    told = "broker 1 has producers that wait for ids, and asks for none"
    for lost in (None, a_send_of(AllocateProducerIdsRequest)):
        setup, broker = watched()
        setup.boot()
        (asked,) = sent(setup.ask(InitProducerIdRequest()), AllocateProducerIdsRequest)
        setup.answer(asked.call, LOST)
        assert not broker.found
        broker.lost = lost or broker.lost
        setup.ask(InitProducerIdRequest())
        assert broker.found == ([] if lost is None else [told])


def test_a_new_life_owes_nothing_of_the_last_one() -> None:
    setup, broker = watched()
    setup.boot()
    broker.idle.on_sent((1, 2), 0, 1, RegisterBrokerRequest(
        broker_id=1, incarnation="2", host="127.0.0.1", port=9001
    ))  # fmt: skip
    broker.idle.on_step((1, 2), setup.broker, setup.now_ms, (TimerFired(key="x"),), [])
    assert not broker.found
