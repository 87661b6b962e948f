"""Fetches of followers that a leader may answer: those of the lives that it does not know to be over."""

from __future__ import annotations

import pytest

from cluster.core.errors import ErrorCode
from cluster.core.messages import (
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
    Header,
    TopicPartition,
)
from cluster.core.metadata.image import BrokerRegistration
from sim.checkers.base import Jury
from sim.checkers.ghost import Ghost
from sim.checkers.present_lives import PresentLives

LEADER, FOLLOWER = 1, 2


def registration(epoch: int, incarnation: str) -> BrokerRegistration:
    return BrokerRegistration(
        broker_id=FOLLOWER, broker_epoch=epoch, incarnation=incarnation, host="h", port=1, fenced=False,
        in_controlled_shutdown=False,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("epoch", "incarnation", "leader_life", "error", "count"),
    [
        (7, "b", 1, ErrorCode.NONE, 0),
        (6, "a", 1, ErrorCode.NONE, 1),
        (7, "a", 1, ErrorCode.NONE, 1),
        (6, "a", 1, ErrorCode.NOT_LEADER_OR_FOLLOWER, 0),
        # The leader lags, or knows nothing in its own next life.
        (8, "c", 1, ErrorCode.NONE, 0),
        (6, "a", 2, ErrorCode.NONE, 0),
    ],
)
def test_led7_a_leader_answers_no_fetch_of_a_life_that_it_knows_to_be_over(
    epoch: int, incarnation: str, leader_life: int, error: ErrorCode, count: int
) -> None:
    ghost = Ghost()
    jury = Jury(ghost, [], now_us=lambda: 0, on_violation=lambda found: None)
    lives = PresentLives(jury)
    lives.on_metadata(LEADER, 1, {FOLLOWER: registration(7, "b")})
    header = Header(broker_id=FOLLOWER, broker_epoch=epoch, incarnation=incarnation)
    request = FetchRequest(header=header, replica_id=FOLLOWER, broker_epoch=epoch, partitions=())
    answer = FetchPartitionResponse(topic_partition=TopicPartition("t", 0), error=error)
    lives.on_answer(LEADER, leader_life, request, FetchResponse(partitions=(answer,)))
    assert [found.checker for found in jury.violations] == ["present-lives"] * count


@pytest.mark.parametrize(("epoch", "asked_us", "count"), [(7, 500, 0), (7, 501, 1), (6, 500, 1)])
def test_a_fetch_that_came_before_its_life_was_known_is_compared_with_the_epoch_only(
    epoch: int, asked_us: int, count: int
) -> None:
    jury = Jury(Ghost(), [], now_us=lambda: 500, on_violation=lambda found: None)
    lives = PresentLives(jury)
    lives.on_metadata(LEADER, 1, {FOLLOWER: registration(7, "b")})
    header = Header(broker_id=FOLLOWER, broker_epoch=epoch, incarnation="a")
    request = FetchRequest(header=header, replica_id=FOLLOWER, broker_epoch=epoch, partitions=())
    answer = FetchPartitionResponse(topic_partition=TopicPartition("t", 0))
    lives.on_answer(LEADER, 1, request, FetchResponse(partitions=(answer,)), asked_us)
    assert len(jury.violations) == count
