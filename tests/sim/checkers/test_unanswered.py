"""Every request gets its answer in time. Rules PRO-5, PRO-8."""

from __future__ import annotations

import pytest

from cluster.core.messages import (
    AlterPartitionRequest,
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
METADATA = MetadataRequest(topics=("t",))
PROPOSAL = AlterPartitionRequest(
    topic_partition=TopicPartition("t", 0), topic_id="1f" * 16, broker_id=1, broker_epoch=1, leader_epoch=0,
    partition_epoch=0, new_isr=(),
)  # fmt: skip


def broken(body: RequestBody, waited_us: int) -> list[str]:
    jury = Jury(Ghost(), [], now_us=lambda: 0, on_violation=lambda violation: None)
    UnansweredCalls(jury).on_left("broker-1", body, waited_us)
    return [violation.what for violation in jury.violations]


@pytest.mark.parametrize(("body", "allowed_us"), [(PRODUCE, 750_000), (FETCH, 200_000), (METADATA, 0)])
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
