"""Fetches that wait, and what ends the wait (PRO-8)."""

from __future__ import annotations

from cluster.core.effects import Reply
from cluster.core.errors import ErrorCode
from cluster.core.messages import NO_EPOCH, FetchResponse, TopicPartition
from tests.cluster.replica.setup import Setup, fetched, first_values, of


def leading(**settings: int) -> Setup:
    setup = Setup(**settings)
    setup.place(leader=1, isr=(1, 2))
    return setup


def test_pro8_an_append_answers_a_waiting_follower_at_once() -> None:
    setup = leading()
    assert fetched(setup.fetch_effects(2, 0, max_wait_ms=500)) is None
    answer = fetched(setup.request_append(b"a"))
    assert answer is not None and first_values(answer) == [b"a"]


def test_pro8_an_append_alone_answers_no_waiting_consumer() -> None:
    setup = leading()
    setup.fetch_effects(-1, 0, max_wait_ms=500, last_fetched_epoch=NO_EPOCH)
    assert fetched(setup.request_append(b"a")) is None
    # The high watermark rises, and that answers it (HWM-7).
    effects = setup.fetch_effects(2, 1, max_wait_ms=500)
    answer = fetched(effects)
    assert answer is not None and first_values(answer) == [b"a"]
    assert answer.high_watermark == 1


def test_pro8_the_wait_ends_empty_after_max_wait() -> None:
    setup = leading()
    setup.fetch_effects(2, 0, max_wait_ms=500)
    answer = fetched(setup.wait(500, "fetch.expiry"))
    assert answer is not None and answer.error is ErrorCode.NONE and answer.records == b""


def test_pro8_a_fetch_waits_until_min_bytes_are_there() -> None:
    setup = leading()
    setup.fetch_effects(2, 0, max_wait_ms=500, min_bytes=150)
    assert fetched(setup.request_append(b"a")) is None
    answer = fetched(setup.request_append(b"b" * 80))
    assert answer is not None and len(answer.records) >= 150


def test_pro8_a_fetch_does_not_wait_for_more_bytes_than_its_answer_may_hold() -> None:
    asks_less = leading()
    asks_less.append(b"a" * 80, b"b" * 80)
    by_request = fetched(asks_less.fetch_effects(2, 0, max_wait_ms=500, min_bytes=4_096, max_bytes=1))
    assert by_request is not None and by_request.records
    answers_less = leading(fetch_max_bytes=1)
    answers_less.append(b"a" * 80, b"b" * 80)
    by_broker = fetched(answers_less.fetch_effects(2, 0, max_wait_ms=500, min_bytes=4_096))
    assert by_broker is not None and by_broker.records


def test_pro8_a_fetch_of_what_ends_an_older_segment_does_not_wait_for_more() -> None:
    setup = leading()
    setup.append(b"a")
    setup.replica.log.local.roll(None, setup.now_ms)
    setup.append(b"b")
    answer = fetched(setup.fetch_effects(2, 0, max_wait_ms=500, min_bytes=1_000))
    assert answer is not None and first_values(answer) == [b"a"]
    assert fetched(setup.fetch_effects(2, 1, max_wait_ms=500, min_bytes=1_000)) is None


def test_pro8_a_roll_ends_the_wait_for_more_of_the_older_segment() -> None:
    setup = leading()
    setup.append(b"a")
    assert fetched(setup.fetch_effects(2, 0, max_wait_ms=500, min_bytes=1_000)) is None
    setup.replica.log.local.roll(None, setup.now_ms)
    answer = fetched(setup.request_append(b"b"))
    assert answer is not None and first_values(answer) == [b"a"]


def test_pro8_a_consumer_waits_until_the_high_watermark_is_in_a_newer_segment() -> None:
    setup = leading()
    setup.append(b"a")
    setup.append(b"b")
    setup.replica.log.local.roll(None, setup.now_ms)
    setup.append(b"c")
    setup.fetch_effects(2, 1, max_wait_ms=0)
    parked = setup.fetch_effects(-1, 0, last_fetched_epoch=NO_EPOCH, max_wait_ms=500, min_bytes=1_000)
    assert setup.replica.log.marks.high_watermark == 1 and fetched(parked) is None
    bodies = [reply.body for reply in of(setup.fetch_effects(2, 2, max_wait_ms=0), Reply)]
    answers = [body.partitions[0] for body in bodies if isinstance(body, FetchResponse)]
    assert [first_values(answer) for answer in answers] == [[b"c"], [b"a", b"b"]]


def test_pro8_no_wait_is_answered_at_once() -> None:
    setup = leading()
    assert fetched(setup.fetch_effects(2, 0, max_wait_ms=0)) is not None


def test_pro8_an_error_or_a_divergence_does_not_wait() -> None:
    setup = leading()
    setup.append(b"a")
    fenced = fetched(setup.fetch_effects(2, 1, leader_epoch=5, max_wait_ms=500))
    diverging = fetched(setup.fetch_effects(2, 3, last_fetched_epoch=0, max_wait_ms=500))
    assert fenced is not None and fenced.error is ErrorCode.UNKNOWN_LEADER_EPOCH
    assert diverging is not None and diverging.diverging is not None


def test_pro8_a_new_leader_epoch_ends_the_wait_with_the_fence() -> None:
    setup = leading()
    setup.fetch_effects(2, 0, max_wait_ms=500)
    answer = fetched(setup.place(leader=1, leader_epoch=1, partition_epoch=1))
    assert answer is not None and answer.error is ErrorCode.FENCED_LEADER_EPOCH


def test_pro8_losing_leadership_ends_the_wait() -> None:
    setup = leading()
    setup.fetch_effects(2, 0, leader_epoch=NO_EPOCH, max_wait_ms=500)
    answer = fetched(setup.place(leader=3, leader_epoch=1, partition_epoch=1))
    assert answer is not None and answer.error is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_pro8_deletion_ends_the_wait() -> None:
    setup = leading()
    setup.fetch_effects(2, 0, max_wait_ms=500)
    setup.clear_topics()
    setup.manager.roles.remove(setup.replica)
    answer = fetched(setup.settle())
    assert answer is not None and answer.error is ErrorCode.UNKNOWN_TOPIC_ID


def test_a_full_purgatory_answers_at_once() -> None:
    setup = Setup(max_parked_requests=1)
    setup.place(leader=1, isr=(1, 2))
    setup.fetch_effects(2, 0, max_wait_ms=500)
    assert fetched(setup.fetch_effects(3, 0, max_wait_ms=500)) is not None
    refused = None if setup.produce(b"a") is None else 0
    # One fetch may wait.
    assert refused is None
    answer = setup.produce(b"b")
    assert answer is not None and answer.error is ErrorCode.REQUEST_TIMED_OUT
    assert setup.values() == [b"a"]


def test_both_followers_that_wait_for_the_same_append_are_answered() -> None:
    setup = leading()
    setup.fetch_effects(2, 0, max_wait_ms=500)
    setup.fetch_effects(3, 0, max_wait_ms=500)
    # The producer is answered too.
    assert len(of(setup.request_append(b"a"), Reply)) == 3


def test_c8_a_fetch_waits_no_longer_than_the_broker_allows() -> None:
    setup = leading(max_fetch_wait_ms=700)
    setup.fetch_effects(-1, 0, max_wait_ms=(1 << 31) - 1, last_fetched_epoch=NO_EPOCH)
    assert fetched(setup.wait(699, "nothing")) is None
    answer = fetched(setup.wait(1, "fetch.expiry"))
    assert answer is not None and answer.error is ErrorCode.NONE and answer.records == b""


def test_c8_consumers_that_fill_their_room_take_none_from_followers() -> None:
    setup = leading(max_parked_requests=3)
    for _ in range(5):
        setup.fetch_effects(-1, 0, max_wait_ms=500, last_fetched_epoch=NO_EPOCH)
    assert len(setup.manager.fetches.purgatory) == 3
    assert fetched(setup.fetch_effects(2, 0, max_wait_ms=500)) is None
    assert fetched(setup.request_append(b"a")) is not None


def test_c8_what_a_client_left_behind_makes_room() -> None:
    setup = leading(max_parked_requests=1)
    setup.fetch_effects(-1, 0, max_wait_ms=500, last_fetched_epoch=NO_EPOCH)
    setup.manager.fetches.forget(1)
    setup.manager.fetches.forget(2)
    assert len(setup.manager.fetches.purgatory) == 0
    assert fetched(setup.fetch_effects(-1, 0, max_wait_ms=500, last_fetched_epoch=NO_EPOCH)) is None
    setup.append(b"a")
    replies = of(setup.fetch_effects(2, 1, max_wait_ms=500), Reply)
    assert [reply.call for reply in replies] == [2]


def test_fetches_that_wait_are_told_with_the_epoch_in_which_they_were_parked() -> None:
    setup = leading()
    setup.fetch_effects(2, 0, max_wait_ms=500)
    waiting = setup.manager.fetches.waiting(setup.replica.topic_partition)
    assert [epoch for _, epoch in waiting] == [setup.replica.leader_epoch]
    assert setup.manager.fetches.waiting(TopicPartition("other", 0)) == []
