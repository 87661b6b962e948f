"""A fetch waits at a broker while there is nothing for it, and no longer (PRO-8)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from cluster.core.errors import ErrorCode
from cluster.core.messages import (
    EpochEnd,
    FetchPartition,
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
    TopicPartition,
)
from sim.checkers.base import Jury
from sim.checkers.fetch_waits import FetchWaits
from sim.checkers.ghost import Ghost

T0 = TopicPartition("t", 0)
ASKED = FetchPartition(topic_partition=T0, fetch_offset=5, max_bytes=1_000)
FETCH = FetchRequest(replica_id=2, max_wait_ms=500, min_bytes=1, max_bytes=1_000, partitions=(ASKED,))
NOTHING = FetchPartitionResponse(topic_partition=T0, high_watermark=5)


def broken(show: Callable[[FetchWaits], None]) -> bool:
    jury = Jury(Ghost(), [], now_us=lambda: 0, on_violation=lambda violation: None)
    show(FetchWaits(jury))
    return [each.checker for each in jury.violations] == ["fetch-waits"]


@pytest.mark.parametrize(("min_bytes", "end", "is_wrong"), [(1, 5, False), (1, 6, True), (100, 6, False)])
def test_pro8_who_is_content_with_a_byte_does_not_wait_beside_a_record(
    min_bytes: int, end: int, *, is_wrong: bool
) -> None:
    fetch = replace(FETCH, min_bytes=min_bytes)
    assert (
        broken(lambda waits: waits.on_waiting("broker-1", fetch, ASKED, end, 1_000, rolled=False)) is is_wrong
    )


@pytest.mark.parametrize(
    ("fetch", "most_bytes", "is_wrong"),
    [
        (FETCH, 1_000, False),
        (FETCH, 1, True),
        (replace(FETCH, max_bytes=1), 1_000, True),
        (replace(FETCH, partitions=(replace(ASKED, max_bytes=1),)), 1_000, True),
        (replace(FETCH, partitions=(replace(ASKED, max_bytes=1), replace(ASKED, max_bytes=1))), 1_000, False),
    ],
)
def test_pro8_who_can_never_have_as_much_as_it_asks_for_does_not_wait_for_it(
    fetch: FetchRequest, most_bytes: int, *, is_wrong: bool
) -> None:
    fetch = replace(fetch, min_bytes=500)
    assert (
        broken(lambda waits: waits.on_waiting("broker-1", fetch, ASKED, 6, most_bytes, rolled=False))
        is is_wrong
    )


@pytest.mark.parametrize(
    ("end", "max_bytes", "is_wrong"), [(6, 1_000, True), (5, 1_000, False), (6, 0, False)]
)
def test_pro8_who_reads_up_to_where_the_log_has_rolled_does_not_wait_for_more(
    end: int, max_bytes: int, *, is_wrong: bool
) -> None:
    asked = replace(ASKED, max_bytes=max_bytes)
    fetch = replace(FETCH, min_bytes=500, partitions=(asked, ASKED))
    assert broken(lambda waits: waits.on_waiting("b", fetch, asked, end, 1_000, rolled=True)) is is_wrong


def test_pro8_there_may_be_no_room_for_a_batch_of_another_partition_than_the_first() -> None:
    other = replace(ASKED, topic_partition=TopicPartition("t", 1))
    fetch = replace(FETCH, min_bytes=500, partitions=(other, ASKED))
    assert not broken(lambda waits: waits.on_waiting("b", fetch, ASKED, 6, 1_000, rolled=True))


@pytest.mark.parametrize("replica_id", [2, -1])
def test_pro8_who_may_wait_is_not_answered_with_nothing_at_once(replica_id: int) -> None:
    fetch = replace(FETCH, replica_id=replica_id)
    answer = FetchResponse(partitions=(NOTHING,))
    assert broken(lambda waits: waits.on_answered_at_once("broker-1", fetch, answer))


@pytest.mark.parametrize(
    ("fetch", "answer"),
    [
        (replace(FETCH, max_wait_ms=0), NOTHING),
        (replace(FETCH, min_bytes=0), NOTHING),
        (replace(FETCH, partitions=(replace(ASKED, max_bytes=0),)), NOTHING),
        (FETCH, replace(NOTHING, records=b"records")),
        (FETCH, replace(NOTHING, error=ErrorCode.FENCED_LEADER_EPOCH)),
        (FETCH, replace(NOTHING, diverging=EpochEnd(epoch=1, end_offset=3))),
    ],
)
def test_pro8_what_cannot_wait_or_has_something_to_learn_is_answered_at_once(
    fetch: FetchRequest, answer: FetchPartitionResponse
) -> None:
    body = FetchResponse(partitions=(answer,))
    assert not broken(lambda waits: waits.on_answered_at_once("broker-1", fetch, body))
