"""A follower asks last for the partitions that got records (KIP-74)."""

from __future__ import annotations

import pytest

from cluster.core.events import Response, TransportError
from cluster.core.messages import FetchPartition, FetchPartitionResponse, FetchResponse, TopicPartition
from sim.checkers.base import Jury
from sim.checkers.fetch_order import FetchOrder
from sim.checkers.ghost import Ghost

LIFE, LEADER = (2, 1), 1


def ask(number: int, offset: int, epoch: int = 3) -> FetchPartition:
    return FetchPartition(
        topic_partition=TopicPartition("t", number),
        fetch_offset=offset,
        last_fetched_epoch=epoch,
        max_bytes=1,
        current_leader_epoch=epoch,
    )


def got(number: int, records: bytes) -> FetchPartitionResponse:
    return FetchPartitionResponse(topic_partition=TopicPartition("t", number), records=records)


class Follower:
    """Has asked for partitions 0, 1 and 2 at offset 5 each, and got records of partition 0."""

    def __init__(self, *brought: int) -> None:
        self.jury = Jury(Ghost(), [], now_us=lambda: 0, on_violation=lambda violation: None)
        self.order = FetchOrder(self.jury)
        self.order.on_sent(LIFE, LEADER, 7, (ask(0, 5), ask(1, 5), ask(2, 5)))
        answers = tuple(got(number, b"r" if number in brought else b"") for number in range(3))
        self.order.on_step(LIFE, (Response(call=7, body=FetchResponse(partitions=answers)),))

    def asks(self, *asked: FetchPartition) -> bool:
        """Returns whether the next fetch breaks the rule."""
        self.order.on_sent(LIFE, LEADER, 8, asked)
        return bool(self.jury.violations)


def test_kip74_a_partition_that_got_records_is_asked_for_last() -> None:
    assert not Follower(0).asks(ask(1, 5), ask(2, 5), ask(0, 6))
    assert Follower(0).asks(ask(0, 6), ask(1, 5), ask(2, 5))
    assert Follower(0).asks(ask(1, 5), ask(0, 6), ask(2, 5))
    assert Follower(0, 1).asks(ask(0, 6), ask(1, 6), ask(2, 5))
    assert not Follower(0, 1).asks(ask(2, 5), ask(0, 6), ask(1, 6))


def test_kip74_a_partition_whose_next_batch_did_not_fit_keeps_its_place() -> None:
    assert not Follower(0, 1).asks(ask(1, 5), ask(2, 5), ask(0, 6))
    assert Follower(0, 1).asks(ask(2, 5), ask(0, 6), ask(1, 5))


@pytest.mark.parametrize(
    "asked",
    [
        pytest.param((ask(0, 5), ask(1, 5)), id="its records were not used"),
        pytest.param((ask(0, 6, 4), ask(1, 5)), id="it is followed again, in another epoch"),
        pytest.param((ask(0, 6), ask(1, 5, 4)), id="the other one is followed again"),
        pytest.param((ask(0, 6), ask(3, 5)), id="the other one is new"),
    ],
)
def test_what_says_nothing_of_the_order(asked: tuple[FetchPartition, ...]) -> None:
    assert not Follower(0).asks(*asked)


def test_a_fetch_without_an_answer_says_nothing() -> None:
    follower = Follower(0)
    assert not follower.asks(ask(1, 5), ask(2, 5), ask(0, 6))
    follower.order.on_step(LIFE, (Response(call=8, body=TransportError(reason="timed out")),))
    assert not follower.asks(ask(0, 7), ask(1, 5))


def test_a_broker_that_is_registered_again_begins_a_new_order() -> None:
    follower = Follower(0)
    follower.order.forget(LIFE)
    assert not follower.asks(ask(0, 6), ask(1, 5))
    follower.order.on_end(LIFE[0])
    assert not follower.asks(ask(0, 6), ask(1, 5))
