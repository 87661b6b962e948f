"""Every request gets its answer in time. Rules PRO-5, PRO-8."""

from __future__ import annotations

import pytest

from cluster.core.messages import (
    AlterPartitionRequest,
    FetchMetadataRequest,
    FetchRequest,
    MetadataRequest,
    ProduceRequest,
    RequestBody,
    TopicPartition,
)
from sim.checkers.base import Jury
from sim.checkers.ghost import Ghost
from sim.checkers.unanswered import SLACK_US, UnansweredCalls

PRODUCE = ProduceRequest(acks=-1, timeout_ms=750, partitions=())
FETCH = FetchRequest(replica_id=-1, max_wait_ms=200, partitions=())
CHANGES = FetchMetadataRequest(broker_id=1, offset=0, max_wait_ms=100, max_bytes=1)
METADATA = MetadataRequest(topics=("t",))
PROPOSAL = AlterPartitionRequest(
    topic_partition=TopicPartition("t", 0), topic_id="1f" * 16, broker_id=1, broker_epoch=1, leader_epoch=0,
    partition_epoch=0, new_isr=(),
)  # fmt: skip


def broken(body: RequestBody, waited_us: int) -> list[str]:
    jury = Jury(Ghost(), [], now_us=lambda: 0, on_violation=lambda violation: None)
    UnansweredCalls(jury).on_left("broker-1", body, waited_us)
    return [violation.what for violation in jury.violations]


@pytest.mark.parametrize(
    ("body", "allowed_us"), [(PRODUCE, 750_000), (FETCH, 200_000), (CHANGES, 100_000), (METADATA, 0)]
)
def test_whoever_gives_up_before_an_answer_is_due_is_not_kept_waiting(
    body: RequestBody, allowed_us: int
) -> None:
    assert broken(body, allowed_us + SLACK_US) == []


@pytest.mark.parametrize(("body", "allowed_ms"), [(PRODUCE, 750), (FETCH, 200), (METADATA, 0)])
def test_a_request_that_is_kept_longer_than_it_allows_is_noticed(body: RequestBody, allowed_ms: int) -> None:
    waited_us = allowed_ms * 1_000 + SLACK_US + 1
    what = (
        f"broker-1 has not answered {type(body).__name__} in {waited_us // 1_000} ms; it had {allowed_ms} ms"
    )
    assert broken(body, waited_us) == [what]


def test_what_waits_for_another_node_is_not_judged() -> None:
    assert broken(PROPOSAL, 60_000_000) == []


@pytest.mark.parametrize(("body", "is_judged"), [(PRODUCE, False), (FETCH, True)])
def test_records_that_wait_for_the_checks_of_those_before_them_are_not_judged(
    body: RequestBody, *, is_judged: bool
) -> None:
    jury = Jury(Ghost(), [], now_us=lambda: 0, on_violation=lambda violation: None)
    UnansweredCalls(jury).on_left("broker-1", body, 60_000_000, is_held_up=True)
    assert bool(jury.violations) is is_judged


def without_id(*, is_told: bool, waited_us: int) -> int:
    """Return how many violations there are when a client leaves that wanted an id."""
    jury = Jury(Ghost(), [], now_us=lambda: 0, on_violation=lambda violation: None)
    unanswered = UnansweredCalls(jury)
    unanswered.on_asking("broker-1", 7)
    unanswered.on_answered("broker-1", 6, 0)
    if is_told:
        unanswered.on_answered("broker-1", 7, 1_000_000)
    unanswered.on_id_left("broker-1", 1_000_000 + waited_us, 1_000_000 + waited_us)
    return len(jury.violations)


def test_who_wants_an_id_waits_no_longer_than_its_broker_for_the_controller() -> None:
    assert without_id(is_told=True, waited_us=SLACK_US) == 0
    assert without_id(is_told=True, waited_us=SLACK_US + 1) == 1
    assert without_id(is_told=False, waited_us=SLACK_US + 1) == 0
