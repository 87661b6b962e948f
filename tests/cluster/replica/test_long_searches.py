"""A fetch whose place takes more than a step to find: where the offset index has no entry for long (RD1, PRO-8)."""

from __future__ import annotations

import pytest

from cluster.core.bounds import StepBounds
from cluster.core.effects import Effect, Reply, RunJob
from cluster.core.errors import ErrorCode
from cluster.core.events import JobDone
from cluster.core.messages import FetchPartition, FetchRequest, FetchResponse, TopicPartition
from tests.cluster.replica.setup import T0, Setup, broker_epoch_of, fetched, first_values, of, only


def leading(batches: int = 5) -> Setup:
    """Returns broker 1, which leads offsets without an entry in the index; a step searches two of them."""
    setup = Setup(steps=StepBounds(searched_batches=2))
    setup.place(leader=1, isr=(1, 2))
    for number in range(batches):
        setup.append(b"%d" % number)
    assert setup.replica.log.local.segments.active.offset_index.entries == 0
    return setup


def next_call(setup: Setup) -> int:
    """Returns the number of the next request."""
    return setup.call() + 1


def searches(effects: list[Effect]) -> list[RunJob]:
    return [job for job in of(effects, RunJob) if job.kind == "search"]


def one_step(setup: Setup, effects: list[Effect]) -> list[Effect]:
    """Let the one search of the effects go on for a step; returns what that asks for."""
    job = only(effects, RunJob)
    job.work()
    setup.outbox.on_job_done(setup.now_ms, JobDone(job=job.job))
    return setup.settle()


@pytest.mark.parametrize("reader", [-1, 2])
def test_rd1_a_fetch_whose_place_takes_long_to_find_is_answered_after_more_steps(reader: int) -> None:
    setup = leading(9)
    setup.run_jobs(setup.fetch_effects(2, 9))
    effects, steps = setup.fetch_effects(reader, 8), 0
    while (answer := fetched(effects)) is None:
        effects, steps = one_step(setup, effects), steps + 1
    assert steps > 1
    assert (answer.error, first_values(answer)) == (ErrorCode.NONE, [b"8"])


def test_pro8_a_fetch_that_waits_is_answered_as_soon_as_the_place_of_what_comes_is_found() -> None:
    setup = leading()
    assert of(setup.fetch_effects(2, 5, max_wait_ms=500), RunJob) == []
    effects = setup.request_append(b"new")
    assert fetched(effects) is None and len(searches(effects)) == 1
    answer = fetched(setup.run_jobs(effects))
    assert answer is not None and first_values(answer) == [b"new"]
    assert len(setup.manager.fetches.purgatory) == 0


def test_pro8_one_search_at_a_time_goes_on_for_a_fetch() -> None:
    setup = leading(9)
    call = next_call(setup)
    setup.fetch_effects(2, 9, max_wait_ms=500)
    first = setup.request_append(b"a")
    assert len(searches(first)) == 1 and setup.manager.fetches.is_searching(call)
    assert searches(setup.request_append(b"b")) == []
    answer = fetched(setup.run_jobs(first))
    assert answer is not None and first_values(answer) == [b"a", b"b"]
    assert not setup.manager.fetches.is_searching(call)


def test_pro8_a_wait_that_ends_within_a_search_is_answered_once() -> None:
    setup = leading(9)
    call = next_call(setup)
    setup.fetch_effects(2, 9, max_wait_ms=500)
    search = setup.request_append(b"a")
    ended = setup.wait(500, "fetch.expiry")
    replies = of(ended, Reply) + of(setup.run_jobs([*search, *ended]), Reply)
    assert [reply.call for reply in replies] == [call]


def test_pro8_a_fetch_that_is_answered_before_its_search_goes_on_is_answered_once() -> None:
    setup = leading()
    call = next_call(setup)
    setup.fetch_effects(2, 5, max_wait_ms=500)
    search = setup.request_append(b"a")
    fenced = setup.place(leader=1, leader_epoch=1, partition_epoch=1)
    assert [reply.call for reply in of(fenced, Reply)] == [call]
    assert [reply for reply in of(setup.run_jobs(search), Reply) if reply.call == call] == []
    assert not setup.manager.fetches.is_searching(call)


@pytest.mark.parametrize("waits_first", [False, True])
def test_c8_nobody_searches_for_who_has_left(waits_first: bool) -> None:
    setup = leading()
    call = next_call(setup)
    search = setup.fetch_effects(2, 5 if waits_first else 4, max_wait_ms=500)
    if waits_first:
        search = setup.request_append(b"a")
    assert len(searches(search)) == 1
    setup.manager.fetches.forget(call)
    assert [reply for reply in of(setup.run_jobs(search), Reply) if reply.call == call] == []
    assert len(setup.manager.fetches.purgatory) == 0 and not setup.manager.fetches.is_searching(call)


def test_led6_a_fetch_counts_for_no_partition_before_all_are_read() -> None:
    setup = leading()
    other = TopicPartition("other", 0)
    setup.place(leader=1, isr=(1, 2), topic_partition=other)
    led = setup.manager.context.replicas[other].leader
    assert led is not None
    followers = (led.followers[2], setup.leader.followers[2])
    asked = tuple(
        FetchPartition(topic_partition=each, topic_id="1f" * 16, fetch_offset=offset, max_bytes=1 << 20)
        for each, offset in ((other, 0), (T0, 4))
    )
    effects = setup.request(FetchRequest(replica_id=2, broker_epoch=broker_epoch_of(2), partitions=asked))
    assert [follower.log_end_offset for follower in followers] == [-1, -1]
    while not of(effects, Reply):
        effects = one_step(setup, effects)
    assert [follower.log_end_offset for follower in followers] == [0, 4]


@pytest.mark.parametrize("waits", [True, False])
def test_brk7_an_orderly_stop_answers_a_fetch_whose_search_goes_on(waits: bool) -> None:
    setup = leading(9)
    call = next_call(setup)
    setup.fetch_effects(2, 9 if waits else 8, max_wait_ms=500)
    if waits:
        setup.request_append(b"a")
    assert setup.manager.fetches.is_searching(call)
    setup.manager.stop(setup.now_ms)
    (reply,) = [each for each in of(setup.outbox.take(), Reply) if each.call == call]
    assert isinstance(reply.body, FetchResponse)
    assert reply.body.partitions[0].error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert not setup.manager.fetches.is_searching(call)
