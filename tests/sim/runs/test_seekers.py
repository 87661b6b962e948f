"""Clients that look up offsets: a run with them holds, and shows brokers that name wrong places."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from cluster.core.client.config import OffsetReset
from cluster.core.errors import ClusterError, ErrorCode
from cluster.core.messages import ListOffsetsRequest, ListOffsetsResponse
from sim.bugs import Replacement, replaced
from sim.run import RunResult, run_scenario
from sim.scenario.loading import ScenarioError, parse_scenario

HEAD = """\
scenario: seekers
duration: 5s
topics:
  t: {partitions: 2, replicas: 1, config: {segment.bytes: 2000}}
producers:
  - {topic: t, rate: 60/s}
consumers:
  - {topic: t}
"""
SEEKERS = "seekers:\n  - {topic: t, every: 50ms}\n"


def run(answer: Callable[[ListOffsetsRequest, ListOffsetsResponse], int]) -> RunResult:
    """Return a run in which brokers name the offset that `answer` makes of the request and the right answer."""

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def look_up(handler: object, request: ListOffsetsRequest, *searched: object) -> ListOffsetsResponse:
            found: ListOffsetsResponse = original(handler, request, *searched)
            return ListOffsetsResponse(
                topic_partition=found.topic_partition,
                error=found.error,
                offset=answer(request, found),
                timestamp=found.timestamp,
                leader_epoch=found.leader_epoch,
            )

        return look_up

    target = "cluster.core.replica.list_offsets:ListOffsetsHandler._look_up"
    with replaced(Replacement(target=target, make=make)):
        return run_scenario(parse_scenario(HEAD + SEEKERS), 1, stops_early=True)


@pytest.mark.slow
def test_a_run_with_seekers_holds() -> None:
    result = run(lambda request, found: found.offset)
    assert not result.violations, result.violations


@pytest.mark.slow
@pytest.mark.parametrize("asked", [-1, None])
def test_a_run_shows_a_broker_that_names_a_wrong_place(asked: int | None) -> None:
    def wrong(request: ListOffsetsRequest, found: ListOffsetsResponse) -> int:
        is_meant = request.timestamp == asked if asked is not None else request.timestamp >= 0
        return found.offset + 1 if is_meant and found.offset >= 0 else found.offset

    assert run(wrong).violations[0].checker == "offset-answers"


@pytest.mark.slow
def test_a_run_shows_a_broker_that_finds_nothing_as_late_as_the_latest_record() -> None:
    """The latest time of a segment is asked for often enough, because clients ask for times of records."""

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def search(reads: Any, timestamp: int, *most: object) -> Any:
            latest = [segment.largest_timestamp_ms for segment in reads._local.segments]
            return None if timestamp in latest else original(reads, timestamp, *most)

        return search

    target = "storage.log.reads:Reads.search_for_timestamp"
    with replaced(Replacement(target=target, make=make)):
        result = run_scenario(parse_scenario(HEAD + SEEKERS), 1, stops_early=True)
    assert {each.checker for each in result.violations} == {"offset-answers"}


@pytest.mark.slow
def test_con5_a_run_shows_a_leader_that_puts_look_ups_off_although_it_knows_its_committed_end() -> None:
    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def check(handler: object, leader: Any) -> None:
            # Its own start is the end of what is committed until something of its epoch is.
            if leader.log.marks.high_watermark <= leader.epoch_start_offset:
                raise ClusterError(ErrorCode.OFFSET_NOT_AVAILABLE, "planted")
            original(handler, leader)

        return check

    target = "cluster.core.replica.list_offsets:ListOffsetsHandler.check_knows_committed_end"
    with replaced(Replacement(target=target, make=make)):
        result = run_scenario(parse_scenario(HEAD + SEEKERS), 1, stops_early=True)
    assert {each.checker for each in result.violations} == {"offset-answers"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("seekers:\n  - {topic: u}\n", "unknown topic 'u'"),
        ("seekers:\n  - {topic: t, every: 10us}\n", "at least 1ms"),
        ("  - {topic: t, max_wait: 2s}\n", "gives a request up"),
    ],
)
def test_clients_that_cannot_work_are_refused(text: str, words: str) -> None:
    with pytest.raises(ScenarioError, match=words):
        parse_scenario(HEAD + text)


def test_a_seeker_without_a_reset_stays_where_the_log_has_nothing() -> None:
    """It shows a consumer that goes on at the end instead."""
    scenario = parse_scenario(HEAD + SEEKERS.replace("50ms", "50ms, out_of_range: none"))
    assert not run_scenario(scenario, 1, stops_early=True).violations

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def on_out_of_range(consumer: Any, position: Any) -> Any:
            position.offset, position.last_fetched_epoch, position.reported_end_offset = None, -1, -1
            position.reset, position.reason = OffsetReset.LATEST, "out_of_range"
            return []

        return on_out_of_range

    with replaced(
        Replacement(target="cluster.core.client.consumer:ConsumerCore._on_out_of_range", make=make)
    ):
        result = run_scenario(scenario, 1, stops_early=True)
    assert {each.checker for each in result.violations} == {"consumer-positions"}
