"""A leader appends the sets of one sender in the order in which they came."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast
from unittest.mock import patch

import pytest

from cluster.core.errors import ErrorCode
from cluster.core.messages import (
    ProducePartition,
    ProducePartitionResponse,
    ProduceRequest,
    ProduceResponse,
    TopicPartition,
)
from cluster.core.replica.sliced_appends import SlicedAppends
from sim.checkers.append_order import AppendOrder
from sim.checkers.base import Jury
from sim.checkers.ghost import Ghost
from sim.run import run_scenario
from sim.scenario.loading import parse_scenario
from sim.world.packets import Endpoint, Exchange
from storage.batch import Record, build_batch

T0 = TopicPartition("t", 0)


def source(name: str, life: int = 1) -> Endpoint:
    return cast("Endpoint", SimpleNamespace(name=name, life_number=life, node_id=9))


class Broker:
    """A leader: who sends what to it, in order, and where it says that it is."""

    def __init__(self) -> None:
        self.jury = Jury(Ghost(), (), now_us=lambda: 0, on_violation=lambda found: None)
        self.order = AppendOrder(self.jury)

    def got(
        self,
        sender: str = "p",
        *,
        life: int = 1,
        producer_id: int = -1,
        sequence: int = 0,
        epoch: int = 0,
        topic_id: str = "1f",
    ) -> Exchange:
        has_sequence = producer_id >= 0
        records = build_batch(
            [Record(0, 0, None, b"v")],
            producer_id=producer_id,
            producer_epoch=epoch if has_sequence else -1,
            base_sequence=sequence if has_sequence else -1,
        )
        asked = ProducePartition(topic_partition=T0, records=records, topic_id=topic_id)
        body = ProduceRequest(acks=-1, partitions=(asked,))
        exchange = Exchange(source=source(sender, life), body=body, path="p", sent_us=0)
        self.order.on_accepted(1, exchange, body)
        return exchange

    def answers(
        self,
        exchange: Exchange,
        offset: int,
        *,
        epoch: int = 0,
        error: ErrorCode = ErrorCode.NONE,
        life: int = 1,
    ) -> int:
        """Returns how often the rule is broken by now."""
        assert isinstance(exchange.body, ProduceRequest)
        answer = ProducePartitionResponse(
            topic_partition=T0, base_offset=offset, last_offset=offset, leader_epoch=epoch, error=error
        )
        self.order.on_reply(1, life, exchange, exchange.body, ProduceResponse(partitions=(answer,)))
        return len(self.jury.violations)


def test_a_set_that_overtakes_an_earlier_one_of_its_sender_is_found() -> None:
    broker = Broker()
    first, second = broker.got(), broker.got()
    assert broker.answers(second, 0) == 0
    assert broker.answers(first, 1) == 1
    assert broker.jury.violations[0].what == (
        "t-0: broker 1 got a set of p that it appended at 1, and after it one that it appended at 0"
    )


def test_answers_may_come_in_any_order() -> None:
    broker = Broker()
    first, second, third = broker.got(), broker.got(), broker.got()
    assert broker.answers(third, 2) + broker.answers(first, 0) + broker.answers(second, 1) == 0


@pytest.mark.parametrize("other", [{"sender": "q"}, {"life": 2}, {"topic_id": "2e"}, {"producer_id": 7}])
def test_what_is_not_of_one_sender_and_log_or_has_sequences_has_no_order(other: dict[str, object]) -> None:
    broker = Broker()
    first, second = broker.got(), broker.got(**other)  # type: ignore[arg-type]
    assert broker.answers(second, 0) + broker.answers(first, 1) == 0


@pytest.mark.parametrize(("sequence", "epoch", "is_wrong"), [(1, 0, True), (2, 0, False), (1, 1, False)])
def test_a_set_that_is_refused_as_out_of_sequence_follows_none_that_is_appended(
    sequence: int, epoch: int, is_wrong: bool
) -> None:
    broker = Broker()
    first = broker.got(producer_id=7)
    second = broker.got(producer_id=7, sequence=sequence, epoch=epoch)
    assert broker.answers(second, -1, error=ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER) == 0
    assert broker.answers(first, 5) == is_wrong
    # The one that is sent again comes after the refused one.
    assert broker.answers(broker.got(producer_id=7), 5) == is_wrong


def test_what_is_refused_or_of_another_epoch_or_life_has_no_order() -> None:
    broker = Broker()
    first, second, third, fourth = [broker.got() for _ in range(4)]
    assert broker.answers(fourth, 0) == 0
    assert broker.answers(first, -1, error=ErrorCode.REQUEST_TIMED_OUT) == 0
    assert broker.answers(second, 1, epoch=1) + broker.answers(third, 1, life=2) == 0


def test_a_request_whose_sender_has_left_or_whose_broker_has_died_is_forgotten() -> None:
    broker = Broker()
    first, second, third = broker.got(), broker.got(), broker.got()
    broker.order.on_left(1, first)
    assert broker.answers(third, 0) + broker.answers(first, 1) == 0
    broker.order.on_end(1)
    assert broker.answers(second, 1) == 0


# Many small sets, of which the first of a step is checked at once.
BUSY = """
scenario: busy
duration: 2200ms
cluster: {brokers: 1, settings: {max.append.work: 1}}
topics: {t: {partitions: 1, replicas: 1}, u: {partitions: 1, replicas: 1}}
producers:
- {topic: t, rate: 300/s, idempotent: false, linger: 0ms, batch: 200 B}
- {topic: u, rate: 300/s, idempotent: false, linger: 0ms, batch: 200 B}
"""


def test_a_leader_that_lets_a_set_overtake_one_that_is_checked_in_slices_is_found() -> None:
    scenario = parse_scenario(BUSY)
    assert not run_scenario(scenario, 1).violations
    original = SlicedAppends.__init__

    class Unseen(dict):  # type: ignore[type-arg]
        """Queues of which a question whether one of a partition waits is always denied."""

        def __contains__(self, _: object) -> bool:
            return False

    def blind(self: SlicedAppends, *parts: object) -> None:
        original(self, *parts)  # type: ignore[arg-type]
        self.queues = Unseen()

    with patch.object(SlicedAppends, "__init__", blind):
        found = run_scenario(scenario, 1).violations
    assert {each.checker for each in found} >= {"append-order"}
