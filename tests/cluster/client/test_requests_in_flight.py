"""The requests of a producer that wait for an answer: how many a leader may have, and which batches they hold."""

from __future__ import annotations

import pytest

from cluster.core.client.accumulator import ProducerBatch
from cluster.core.client.requests_in_flight import RequestsInFlight
from cluster.core.messages import TopicPartition
from storage.codec.compression import Compression


def batches(number: int) -> tuple[ProducerBatch, ...]:
    return (
        ProducerBatch(
            TopicPartition("t", 0),
            number=number,
            created_ms=0,
            generation=0,
            compression=Compression.NONE,
            limit_bytes=100,
        ),
    )


def with_requests(most_a_leader: int, *leaders: int, is_slow: bool = False) -> RequestsInFlight:
    """Return requests to `leaders`, with the calls 1, 2, …"""
    requests = RequestsInFlight(most_a_leader)
    for call, leader in enumerate(leaders, 1):
        requests.sent(call, leader, (), is_slow=is_slow)
    return requests


def test_each_leader_may_have_so_many_requests_and_no_more() -> None:
    requests = with_requests(2, 1, 1, 2)
    assert not requests.may_ask(1, is_slow=False)
    assert requests.may_ask(2, is_slow=False)
    assert requests.may_ask(3, is_slow=False)


def test_an_answer_makes_room_for_one_request() -> None:
    requests = with_requests(2, 1, 1)
    requests.answered(1)
    assert requests.may_ask(1, is_slow=False)
    requests.sent(3, 1, (), is_slow=False)
    assert not requests.may_ask(1, is_slow=False)


def test_slow_partitions_leave_one_request_to_the_others() -> None:
    requests = with_requests(3, 1, 1, is_slow=True)
    assert not requests.may_ask(1, is_slow=True)
    assert requests.may_ask(1, is_slow=False)
    # Another leader has none of them.
    assert requests.may_ask(2, is_slow=True)
    requests.answered(2)
    assert requests.may_ask(1, is_slow=True)


def test_slow_partitions_get_the_only_request_that_a_leader_may_have() -> None:
    requests = RequestsInFlight(1)
    assert requests.may_ask(1, is_slow=True)
    requests.sent(1, 1, (), is_slow=True)
    assert not requests.may_ask(1, is_slow=False)


def test_a_request_of_partitions_that_are_not_slow_takes_none_from_the_slow_ones() -> None:
    requests = with_requests(3, 1)
    requests.sent(2, 1, (), is_slow=True)
    assert requests.may_ask(1, is_slow=True)


def test_an_answer_returns_the_batches_of_its_own_call_once() -> None:
    requests, first, second = RequestsInFlight(5), batches(1), batches(2)
    requests.sent(1, 1, first, is_slow=False)
    requests.sent(2, 1, second, is_slow=False)
    assert requests.answered(2) is second
    assert requests.answered(1) is first
    assert requests.answered(1) is None


def test_a_call_without_an_answer_to_expect_changes_nothing() -> None:
    requests = with_requests(1, 1)
    assert requests.answered(9) is None
    assert not requests.may_ask(1, is_slow=False)


def test_a_leader_cannot_get_more_requests_than_it_may_have_nor_a_call_twice() -> None:
    with pytest.raises(AssertionError):
        with_requests(1, 1).sent(2, 1, (), is_slow=False)
    with pytest.raises(AssertionError):
        with_requests(5, 1).sent(1, 2, (), is_slow=False)
