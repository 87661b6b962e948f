"""A follower takes over the marks of its leader with each answer that it uses (FET-5, FET-13)."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from cluster.core.effects import Stop
from cluster.core.errors import ErrorCode
from cluster.core.events import Response
from cluster.core.messages import (
    EpochEnd,
    FetchPartition,
    FetchPartitionResponse,
    FetchResponse,
    TopicPartition,
)
from cluster.core.replica.follower import FetchState, Follower
from sim.bugs import Replacement, replaced
from sim.checkers.adopted_marks import AdoptedMarks, Marks, findings, kept_epoch
from sim.checkers.base import Jury
from sim.checkers.ghost import Ghost
from sim.run import run_scenario
from sim.scenario.model import Scenario
from storage.batch import Record, build_batch


@pytest.mark.parametrize(
    ("marks", "is_wrong"),
    [
        (Marks(0, 9, 9), False),
        (Marks(0, 8, 9), True),
        # It has less than its leader has committed.
        (Marks(0, 7, 7), False),
        # A look for its place has moved it to the start of a batch.
        (Marks(0, 8, 12), False),
        (Marks(0, 10, 12), True),
        # It began where its leader's log begins, above the leader's high watermark.
        (Marks(10, 10, 10), False),
    ],
)
def test_fet_13_a_follower_has_the_high_watermark_of_the_last_answer(marks: Marks, is_wrong: bool) -> None:
    assert bool(findings(9, 0, marks)) is is_wrong


@pytest.mark.parametrize(
    ("marks", "is_wrong"),
    [(Marks(5, 9, 9), False), (Marks(6, 9, 9), False), (Marks(4, 9, 9), True), (Marks(3, 3, 3), False)],
)
def test_fet_5_a_log_begins_where_that_of_its_leader_begins_as_far_as_it_is_committed(
    marks: Marks, is_wrong: bool
) -> None:
    assert bool(findings(9, 5, marks)) is is_wrong


@pytest.mark.parametrize(
    ("told", "starts", "is_wrong"),
    [
        # Its leader has nothing of epoch 5, in which it led without a record.
        ((4, 9), [(3, 0), (4, 6), (5, 9)], True),
        ((4, 9), [(3, 0), (4, 6)], False),
        # The leader's epoch 4 ends earlier: records go first.
        ((4, 8), [(3, 0), (4, 6), (5, 9)], False),
        # So do those of an epoch that the leader does not have.
        ((3, 9), [(3, 0), (4, 6), (5, 9)], False),
    ],
)
def test_ep8_a_follower_gives_up_an_epoch_without_records(
    told: tuple[int, int], starts: list[tuple[int, int]], is_wrong: bool
) -> None:
    assert bool(kept_epoch(told, starts, 9)) is is_wrong


class OneSegment(SimpleNamespace):
    """The segments of a log that has one."""

    def __len__(self) -> int:
        return 1


def told_to_cut(
    *, epoch: int, log_end: int = 9, is_preparing: bool = False, size_bytes: int = 70, most: int = 9
) -> list[str]:
    """Returns what is found where a follower asked from 9 on after epoch 5, and is told that its leader's epoch 4 ends
    at 12; `epoch` and `log_end` are those that the step has left.
    """
    jury = Jury(Ghost(), [], now_us=lambda: 0, on_violation=lambda violation: None)
    adopted, partition = AdoptedMarks(jury), TopicPartition("t", 0)
    asked = FetchPartition(
        topic_partition=partition, topic_id="0a", fetch_offset=9, current_leader_epoch=6, max_bytes=1,
        last_fetched_epoch=5,
    )  # fmt: skip
    log = SimpleNamespace(
        log_start_offset=0, high_watermark=4, log_end_offset=log_end,
        epochs=SimpleNamespace(entries=[(4, 0), (5, 6)] if epoch == 5 else [(4, 0)]),
        truncation=SimpleNamespace(is_preparing=is_preparing, batches_a_slice=most),
        local=SimpleNamespace(
            segments=OneSegment(active=SimpleNamespace(size_bytes=size_bytes), first_base_offset=0)
        ),
    )  # fmt: skip
    replica: Any = SimpleNamespace(follower=Follower(leader_id=1, leader_epoch=6), view=("0a", 6), log=log)
    adopted.on_sent((2, 1), 7, [asked], {partition: replica})
    answer = FetchPartitionResponse(
        topic_partition=partition,
        high_watermark=9,
        log_start_offset=0,
        diverging=EpochEnd(epoch=4, end_offset=12),
    )
    response = Response(call=7, body=FetchResponse(partitions=(answer,)))
    adopted.on_step((2, 1), [response], [], {partition: replica}, 0)
    return [each.what for each in jury.violations]


def test_epc_2_a_follower_whose_log_has_parted_from_its_leaders_cuts_it() -> None:
    kept = "t-0: follower 2 cuts nothing off its log, which has parted from its leader's: it ends at 9, in epoch 5"
    assert told_to_cut(epoch=5) == [kept]
    assert not told_to_cut(epoch=5, log_end=6) and not told_to_cut(epoch=4)
    # It cuts too little: at its leader's end of epoch 4, which is above its own.
    (kept,) = told_to_cut(epoch=5, log_end=8)
    assert kept == "t-0: follower 2 keeps records of epoch 5 from 6 on; its leader has none after 4 there"
    # It reads what is to stay first, or has deleted some of many segments, of which the last ones were empty.
    assert not told_to_cut(epoch=5, is_preparing=True) and not told_to_cut(epoch=5, size_bytes=0)
    # It searches the place of the cut among many batches.
    assert not told_to_cut(epoch=5, most=8)


def judged(
    *effects: object,
    follows_again: bool = False,
    error: ErrorCode = ErrorCode.NONE,
    delayed_until_ms: int = 0,
    state: FetchState = FetchState.FETCHING,
    records: bytes = b"",
) -> list[str]:
    """Returns what is found in a step that leaves a follower at the high watermark 8, after an answer that says 9.

    With `follows_again` the broker was registered again meanwhile, and follows in the same leader epoch. The follower
    is left in `state`, and may not ask again before `delayed_until_ms`.
    """
    jury = Jury(Ghost(), [], now_us=lambda: 0, on_violation=lambda violation: None)
    adopted, partition = AdoptedMarks(jury), TopicPartition("t", 0)
    asked = FetchPartition(
        topic_partition=partition, topic_id="0a", fetch_offset=9, current_leader_epoch=1, max_bytes=1
    )
    log = SimpleNamespace(log_start_offset=0, high_watermark=8, log_end_offset=9)
    replica: Any = SimpleNamespace(follower=Follower(leader_id=1, leader_epoch=1), view=("0a", 1), log=log)
    adopted.on_sent((2, 1), 7, [asked], {partition: replica})
    if follows_again:
        replica.follower = Follower(leader_id=1, leader_epoch=1)
    replica.follower.state, replica.follower.delayed_until_ms = state, delayed_until_ms
    answer = FetchPartitionResponse(
        topic_partition=partition, high_watermark=9, log_start_offset=0, error=error, records=records
    )
    response = Response(call=7, body=FetchResponse(partitions=(answer,)))
    adopted.on_step((2, 1), [response], effects, {partition: replica}, 0)
    return [each.checker for each in jury.violations]


def test_the_step_in_which_the_last_disk_fails_is_left_unfinished() -> None:
    assert judged() == ["adopted-marks"]
    assert judged(Stop(reason="append failed")) == []


def test_an_answer_to_a_fetch_from_before_the_broker_was_registered_again_is_not_used() -> None:
    assert judged(follows_again=True) == []


def test_fet10_a_follower_that_was_refused_asks_again_after_its_back_off() -> None:
    refused = ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert judged(error=refused) == ["hasty-followers"]
    assert judged(error=refused, delayed_until_ms=1) == []
    assert judged(error=ErrorCode.FENCED_LEADER_EPOCH, state=FetchState.FENCED) == []
    # Only a newer epoch helps.
    assert judged(error=ErrorCode.FENCED_LEADER_EPOCH, delayed_until_ms=1) == ["hasty-followers"]
    assert judged(error=ErrorCode.FENCED_LEADER_EPOCH, follows_again=True) == []
    # Its log is cut, or begins again; another role knows nothing of the refusal.
    assert judged(error=ErrorCode.OFFSET_OUT_OF_RANGE) == []
    assert judged(error=refused, follows_again=True) == []


@pytest.mark.parametrize(
    ("epoch", "size_bytes", "is_wrong"),
    [(0, None, True), (1, None, True), (2, None, False), (1, -1, False), (1, 60, False)],
)
def test_fet10_records_that_were_damaged_on_the_way_are_asked_for_after_the_back_off(
    epoch: int, size_bytes: int | None, *, is_wrong: bool
) -> None:
    batch = build_batch([Record(9, 0, None, b"v")], partition_leader_epoch=epoch)
    # A limit may have cut the last batch, and of later epochs the follower takes none.
    records = batch[:size_bytes]
    assert judged(records=records, delayed_until_ms=1) == []
    assert judged(records=records) == (["hasty-followers"] if is_wrong else [])


# Old segments go, also after the last record for a while; a broker whose clock is behind deletes them later.
AGED_OUT: dict[str, object] = {
    "scenario": "aged-out",
    "duration": "7s",
    "cluster": {
        "clocks": {"offset": "3s"},
        "settings": {"log.initial.task.delay.ms": 200, "log.retention.check.interval.ms": 200},
    },
    "topics": {
        "t": {"partitions": 1, "replicas": 2, "config": {"segment.bytes": 1_000, "retention.ms": 1_500}},
    },
    "producers": [{"topic": "t", "rate": "50/s", "size": "200 B"}],
    "steps": [{"at": "2s", "pause": "producer 1", "for": "4s"}],
}


@pytest.mark.slow
def test_a_run_shows_a_follower_that_takes_a_log_start_over_with_records_only() -> None:
    def with_records(original: Any) -> Any:
        def on_records(
            fetchers: Any, now_ms: int, fetcher: Any, replica: Any, asked: Any, answer: Any
        ) -> None:
            told = answer if answer.records else replace(answer, log_start_offset=-1)
            original(fetchers, now_ms, fetcher, replica, asked, told)

        return on_records

    target = "cluster.core.replica.fetcher:Fetchers.on_records"
    with replaced(Replacement(target=target, make=with_records)):
        result = run_scenario(Scenario.model_validate(AGED_OUT), 1, stops_early=True)
    assert {each.checker for each in result.violations} == {"adopted-marks"}
