"""What an answer proves, what it leaves open, and which partitions share a request.

Each rule here was broken once: records were written twice, or were reported as refused and were in the log.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from cluster.core.client.config import ProducerConfig
from cluster.core.client.effects import ProducerEffect
from cluster.core.client.producer import WAKE_TIMER, ProducerCore
from cluster.core.effects import Send
from cluster.core.errors import ErrorCode
from cluster.core.events import Response, TimerFired, TransportError
from cluster.core.messages import (
    InitProducerIdRequest,
    InitProducerIdResponse,
    MetadataRequest,
    ProducePartitionResponse,
    ProduceRequest,
    ProduceResponse,
    TopicPartition,
)
from tests.cluster.client.fake_cluster import FakeCluster
from tests.cluster.client.producer_by_hand import (
    T0,
    accepted,
    batch_of,
    delivered,
    failed,
    produced,
    proven,
    ready_producer,
    sends,
)

T1, T2, T4 = TopicPartition("t", 1), TopicPartition("t", 2), TopicPartition("t", 4)


def in_flight(producer: ProducerCore, count: int) -> list[Send]:
    """Return the requests of `count` new batches of one record, each sent alone."""
    return [produced(producer.send(0, "t", None, b"x", ticket=n))[0] for n in range(count)]


def unanswered(send: Send) -> Response:
    return Response(call=send.call, body=TransportError(reason="cut"))


def answer(send: Send, errors: dict[TopicPartition, ErrorCode]) -> Response:
    partitions = tuple(ProducePartitionResponse(topic_partition=key, error=errors[key]) for key in errors)
    return Response(call=send.call, body=ProduceResponse(partitions=partitions))


def partitions_of(send: Send) -> list[TopicPartition]:
    assert isinstance(send.body, ProduceRequest)
    return [each.topic_partition for each in send.body.partitions]


def ready_with_audit() -> tuple[ProducerCore, Send]:
    """Return a producer with partitions 0 (busy) and 2 (audit) at one leader, and a request of both, unanswered."""
    producer, _ = ready_producer(config=ProducerConfig(linger_ms=10), partitions=3)
    for key in (T0, T2):
        producer.send(0, "t", None, b"first", partition=key.partition, ticket=100 + key.partition)
    (first,) = produced(producer.flush(0, 1))
    producer.step(0, answer(first, {T0: ErrorCode.NONE, T2: ErrorCode.NONE}))
    for key in (T0, T2):
        producer.send(0, "t", None, b"both", partition=key.partition, ticket=200 + key.partition)
    (both,) = produced(producer.flush(0, 2))
    assert set(partitions_of(both)) == {T0, T2}
    return producer, both


@pytest.mark.parametrize("refused_comes", ["before", "after"])
def test_d1_an_acknowledgement_proves_nothing_of_the_batch_before_it(refused_comes: str) -> None:
    """A leader may refuse a batch, forget its producer (producer.id.expiration.ms), and accept the next one."""
    producer, _ = ready_producer()
    proven(producer)
    first, second = in_flight(producer, 2)
    answers = [failed(first, ErrorCode.NOT_ENOUGH_REPLICAS), accepted(second, 9)]
    if refused_comes == "after":
        answers.reverse()
    effects = [each for answer in answers for each in producer.step(0, answer)]
    assert [told.ticket for told in delivered(effects)] == [1]
    (again,) = produced(producer.flush(1000, 1))
    assert (batch_of(again).producer_epoch, batch_of(again).base_sequence) == (0, 1)
    # The leader knows a later sequence only. The network may have doubled the first request, so nobody knows.
    (told,) = delivered(producer.step(1000, failed(again, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)))
    assert (told.ticket, told.is_unknown) == (0, True)


def test_txn1_a_batch_without_an_answer_is_repeated_although_a_later_one_was_acknowledged() -> None:
    producer, _ = ready_producer()
    proven(producer)
    first, second = in_flight(producer, 2)
    producer.step(0, unanswered(first))
    producer.step(0, accepted(second, 2))
    (again,) = produced(producer.flush(1000, 1))
    assert (batch_of(again).producer_epoch, batch_of(again).base_sequence) == (0, 1)
    told = delivered(producer.step(1000, failed(again, ErrorCode.DUPLICATE_SEQUENCE_NUMBER, base_offset=1)))
    assert [(each.ticket, each.error, each.offset) for each in told] == [(0, ErrorCode.NONE, 1)]


def test_txn1_a_withheld_answer_stops_its_partition_before_the_broker_forgets_the_batch() -> None:
    """A broker knows the last five batches of a producer. Then the first one's request fails."""
    producer, both = ready_with_audit()
    for ticket in range(4):
        (send,) = produced(producer.send(0, "t", None, b"later", partition=0, ticket=ticket))
        told = delivered(producer.step(0, answer(send, {T0: ErrorCode.NONE})))
        assert [each.ticket for each in told] == [ticket]
    assert not produced(producer.send(0, "t", None, b"later", partition=0, ticket=4))
    producer.step(0, unanswered(both))
    (again,) = produced(producer.flush(1000, 99))
    assert set(partitions_of(again)) == {T0, T2}


def moved(producer: ProducerCore, cluster: FakeCluster) -> list[Send]:
    """Let the producer learn of the next leader of its partition; return the produce requests of that step."""
    cluster.move_leader(T0)
    producer.metadata.request()
    (asked,) = sends(producer.flush(1000, 1000))
    assert isinstance(asked.body, MetadataRequest)
    return produced(producer.step(1000, Response(call=asked.call, body=cluster.metadata(("t",)))))


def test_d1_the_first_batch_in_a_leader_epoch_is_sent_alone() -> None:
    """The new leader may have copied the log from beyond the producer's records: it accepts any sequence."""
    producer, cluster = ready_producer()
    proven(producer)
    assert not moved(producer, cluster)
    (first,) = in_flight(producer, 1)
    assert not produced(producer.send(0, "t", None, b"y", ticket=1))
    (second,) = produced(producer.step(0, accepted(first, 1)))
    (third,) = produced(producer.send(0, "t", None, b"z", ticket=2))
    assert [batch_of(each).base_sequence for each in (first, second, third)] == [1, 2, 3]


def test_d1_the_leader_that_is_elected_again_gets_the_first_batch_of_its_epoch_alone() -> None:
    producer, cluster = ready_producer()
    proven(producer)
    (before,) = in_flight(producer, 1)
    cluster.move_leader(T0)
    assert not moved(producer, cluster)
    assert not produced(producer.send(1000, "t", None, b"y", ticket=1))
    (first,) = produced(producer.step(1000, accepted(before, 1)))
    assert (first.to, batch_of(first).base_sequence) == (before.to, 2)
    assert not produced(producer.send(1000, "t", None, b"z", ticket=2))


def test_d1_repetitions_to_a_new_leader_begin_with_one_that_is_alone() -> None:
    producer, _ = ready_producer()
    proven(producer)
    refused = [
        failed(send, ErrorCode.NOT_LEADER_OR_FOLLOWER, leader_id=2, leader_epoch=1)
        for send in in_flight(producer, 2)
    ]
    effects = [each for answer in refused for each in producer.step(0, answer)]
    (again,) = produced([*effects, *producer.flush(1000, 1)])
    assert (again.to, batch_of(again).base_sequence) == (2, 1)
    (then,) = produced(producer.step(1000, accepted(again, 1)))
    assert (then.to, batch_of(then).base_sequence) == (2, 2)


def test_c2_at_most_five_batches_are_under_way_counted_from_the_oldest_without_an_outcome() -> None:
    producer, _ = ready_producer()
    proven(producer)
    requests = in_flight(producer, 5)
    for place, send in enumerate(requests[1:]):
        producer.step(0, accepted(send, 2 + place))
        assert not produced(producer.send(0, "t", None, b"x", ticket=10 + place))
    (then,) = produced(producer.step(0, accepted(requests[0], 1)))
    assert batch_of(then).base_sequence == 6


def test_c3_a_batch_that_may_be_in_the_log_is_never_reported_as_refused() -> None:
    """Its first attempt has no answer, and a predecessor was given up; the leader then misses that predecessor."""
    config = ProducerConfig(linger_ms=0, request_timeout_ms=100, delivery_timeout_ms=200)
    producer, _ = ready_producer(config=config)
    proven(producer)
    (first,) = produced(producer.send(0, "t", None, b"x", ticket=1))
    (second,) = produced(producer.send(150, "t", None, b"y", ticket=2))
    producer.step(160, unanswered(second))
    producer.step(200, unanswered(first))
    (again,) = produced(producer.flush(300, 1))
    (told,) = delivered(producer.step(301, failed(again, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)))
    assert (told.ticket, told.is_unknown) == (2, True)
    (then,) = produced(producer.send(302, "t", None, b"z", ticket=3))
    assert (batch_of(then).producer_epoch, batch_of(then).base_sequence) == (1, 0)


def test_c3_doubt_about_a_batch_outlasts_a_new_epoch() -> None:
    producer, _ = ready_producer()
    proven(producer)
    first, second = in_flight(producer, 2)
    producer.step(0, unanswered(second))
    (again,) = produced(producer.step(1000, failed(first, ErrorCode.INVALID_RECORD)))
    assert batch_of(again).producer_epoch == 1
    (told,) = delivered(producer.step(1000, failed(again, ErrorCode.INVALID_RECORD)))
    assert told.is_unknown


def test_c4_an_out_of_order_answer_from_before_the_predecessor_arrived_keeps_the_sequence() -> None:
    """The network overtook the first batch, and may deliver the second once more after it."""
    producer, _ = ready_producer()
    proven(producer)
    first, second = in_flight(producer, 2)
    producer.step(0, accepted(first, 1))
    producer.step(0, failed(second, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER))
    (again,) = produced(producer.flush(100, 1))
    assert (batch_of(again).producer_epoch, batch_of(again).base_sequence) == (0, 2)


def test_batch_whose_acknowledged_predecessor_the_leader_lost_gets_a_new_epoch() -> None:
    producer, _ = ready_producer()
    proven(producer)
    (send,) = in_flight(producer, 1)
    (again,) = produced(producer.step(0, failed(send, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)))
    assert (batch_of(again).producer_epoch, batch_of(again).base_sequence) == (1, 0)


@pytest.mark.parametrize("refused_comes", ["before", "after"])
def test_batches_after_one_that_a_leader_without_state_has_accepted_keep_their_sequences(
    refused_comes: str,
) -> None:
    """A leader that lost its log takes any sequence: what follows that one may be appended, whatever came before."""
    producer, _ = ready_producer()
    proven(producer)
    first, second, third = in_flight(producer, 3)
    refusal = failed(first, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    answers = [refusal, accepted(second, 0)] if refused_comes == "before" else [accepted(second, 0), refusal]
    overtaken = failed(third, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    effects = [each for answer in (*answers, overtaken) for each in producer.step(0, answer)]
    (again,) = produced([*effects, *producer.flush(1000, 1)])
    assert (batch_of(again).producer_epoch, batch_of(again).base_sequence) == (0, 3)
    # Only then the one that was refused for certain, in a new epoch.
    (again,) = produced(producer.step(1000, accepted(again, 1)))
    assert (batch_of(again).producer_epoch, batch_of(again).base_sequence) == (1, 0)
    told = delivered(producer.step(1000, accepted(again, 2)))
    assert [(each.ticket, each.error) for each in told] == [(0, ErrorCode.NONE)]


def test_a_batch_between_one_that_was_refused_and_one_that_was_accepted_keeps_its_sequence() -> None:
    """The leader took the second as the first it knows; its answer is lost, and the third's is not."""
    producer, _ = ready_producer()
    proven(producer)
    first, second, third = in_flight(producer, 3)
    for answer in (unanswered(second), failed(first, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)):
        producer.step(0, answer)
    effects = producer.step(0, accepted(third, 1))
    (again,) = produced([*effects, *producer.flush(1000, 1)])
    assert (batch_of(again).producer_epoch, batch_of(again).base_sequence) == (0, 2)


def test_a_batch_keeps_its_sequence_as_long_as_one_before_it_may_be_accepted() -> None:
    producer, _ = ready_producer()
    proven(producer)
    first, second, third = in_flight(producer, 3)
    producer.step(0, failed(first, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER))
    producer.step(0, unanswered(third))
    effects = producer.step(0, accepted(second, 0))
    (again,) = produced([*effects, *producer.flush(1000, 1)])
    assert (batch_of(again).producer_epoch, batch_of(again).base_sequence) == (0, 3)


def test_a_batch_behind_younger_ones_is_given_up_in_time() -> None:
    producer, _ = ready_producer(
        config=ProducerConfig(linger_ms=0, delivery_timeout_ms=1_000, request_timeout_ms=900)
    )
    proven(producer)
    (first,) = produced(producer.send(0, "t", None, b"x", ticket=0))
    (second,) = produced(producer.send(100, "t", None, b"x", ticket=1))
    (third,) = produced(producer.send(900, "t", None, b"x", ticket=2))
    producer.step(900, failed(first, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER))
    producer.step(900, accepted(second, 0))
    producer.step(900, unanswered(third))
    assert producer.armed_ms is not None and producer.armed_ms <= 1_000
    told = delivered(producer.step(1_000, TimerFired(key=WAKE_TIMER)))
    assert [(each.ticket, each.error) for each in told] == [(0, ErrorCode.REQUEST_TIMED_OUT)]


def test_a_later_refusal_cuts_off_what_follows_it_where_an_earlier_one_does_not() -> None:
    producer, _ = ready_producer()
    proven(producer)
    first, second, third, fourth = in_flight(producer, 4)
    producer.step(0, failed(first, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER))
    producer.step(0, accepted(second, 0))
    producer.step(0, failed(third, ErrorCode.INVALID_RECORD))
    effects = producer.step(0, failed(fourth, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER))
    (again,) = produced([*effects, *producer.flush(1000, 1)])
    assert (batch_of(again).producer_epoch, batch_of(again).base_sequence) == (1, 0)
    # The order of sending, after what was lost.
    (last,) = produced(producer.step(1000, accepted(again, 1)))
    assert (batch_of(last).producer_epoch, batch_of(last).base_sequence) == (1, 1)
    told = delivered(producer.step(1000, accepted(last, 2)))
    assert [each.ticket for each in told] == [3]


def test_refused_batch_leaves_the_ones_before_it_their_sequences() -> None:
    producer, _ = ready_producer()
    proven(producer)
    first, second = in_flight(producer, 2)
    producer.step(0, failed(second, ErrorCode.INVALID_RECORD))
    producer.step(0, unanswered(first))
    (again,) = produced(producer.flush(1000, 1))
    assert (batch_of(again).producer_epoch, batch_of(again).base_sequence) == (0, 1)


@pytest.mark.parametrize(("is_idempotent", "wait_ms"), [(True, 15_000), (False, 27_000)])
def test_leader_answers_before_the_request_times_out(is_idempotent: bool, wait_ms: int) -> None:
    config = ProducerConfig(linger_ms=0, enable_idempotence=is_idempotent)
    producer, _ = ready_producer(config=config)
    (send,) = produced(producer.send(0, "t", None, b"x", ticket=1))
    assert isinstance(send.body, ProduceRequest)
    assert (send.body.timeout_ms, send.timeout_ms) == (wait_ms, 30_000)


def test_partition_whose_replication_timed_out_travels_apart_until_it_is_acknowledged() -> None:
    producer, both = ready_with_audit()
    producer.step(0, answer(both, {T0: ErrorCode.NONE, T2: ErrorCode.REQUEST_TIMED_OUT}))
    apart = produced(producer.send(1000, "t", None, b"x", partition=0, ticket=1))
    assert sorted(map(partitions_of, apart)) == [[T0], [T2]]
    for send in apart:
        producer.step(1000, answer(send, {partitions_of(send)[0]: ErrorCode.NONE}))
    for key in (T0, T2):
        producer.send(1000, "t", None, b"x", partition=key.partition, ticket=300 + key.partition)
    (again,) = produced(producer.flush(1000, 3))
    assert set(partitions_of(again)) == {T0, T2}


def test_slow_partitions_leave_one_request_to_the_others() -> None:
    config = ProducerConfig(linger_ms=0, max_in_flight_requests_per_connection=2)
    producer, _ = ready_producer(config=config, partitions=5)
    slow = [produced(producer.send(0, "t", None, b"x", partition=n, ticket=n))[0] for n in (2, 4)]
    for send in slow:
        producer.step(0, answer(send, {partitions_of(send)[0]: ErrorCode.REQUEST_TIMED_OUT}))
    (one,) = produced(producer.flush(1000, 1))
    assert set(partitions_of(one)) == {T2, T4}
    (other,) = produced(producer.send(1000, "t", None, b"x", partition=0, ticket=9))
    assert partitions_of(other) == [T0]


@pytest.mark.parametrize("error", [ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER])
def test_batch_refused_for_the_moment_is_not_reported_as_refused(error: ErrorCode) -> None:
    """The network may have doubled its request, and the second copy arrives when the reason is over."""
    config = ProducerConfig(linger_ms=0, request_timeout_ms=100, delivery_timeout_ms=200)
    producer, _ = ready_producer(config=config)
    proven(producer)
    in_flight(producer, 1)
    (second,) = produced(producer.send(1, "t", None, b"y", ticket=1))
    producer.step(2, failed(second, error))
    told = delivered(producer.flush(500, 1))
    assert [(each.ticket, each.is_unknown) for each in told] == [(0, True), (1, True)]


def create_again(producer: ProducerCore, cluster: FakeCluster, now_ms: int) -> list[Send]:
    """Let the producer learn at `now_ms` that its topic was created again; return the produce requests of that step."""
    cluster.create_again("t")
    producer.metadata.request()
    (asked,) = sends(producer.flush(now_ms, now_ms))
    assert isinstance(asked.body, MetadataRequest)
    return produced(producer.step(now_ms, Response(call=asked.call, body=cluster.metadata(("t",)))))


def test_first_batch_to_a_topic_that_was_created_again_is_sent_alone() -> None:
    """Its brokers accept any sequence: they would append the second batch although the first one is refused."""
    producer, cluster = ready_producer()
    proven(producer)
    create_again(producer, cluster, 1000)
    (first,) = produced(producer.send(1000, "t", None, b"x", ticket=1))
    assert not produced(producer.send(1000, "t", None, b"y", ticket=2))
    (second,) = produced(producer.step(1000, accepted(first, 0)))
    assert batch_of(second).base_sequence == 2
    assert produced(producer.send(1000, "t", None, b"z", ticket=3))


def test_batch_in_doubt_in_a_topic_that_was_created_again_is_written_once() -> None:
    """Its predecessor is refused, and it has no answer: where both are in flight it is sent under two sequences."""
    producer, cluster = ready_producer()
    proven(producer)
    create_again(producer, cluster, 1000)
    asked = [
        send
        for ticket in (1, 2)
        for send in produced(producer.send(1000, "t", None, b"%d" % ticket, ticket=ticket))
    ]
    for send in asked[1:]:
        cluster.answer(send.to, send.body)
        producer.step(1000, unanswered(send))
    (again,) = produced(
        [*producer.step(1000, failed(asked[0], ErrorCode.INVALID_RECORD)), *producer.flush(2000, 1)]
    )
    cluster.answer(again.to, again.body)
    assert cluster.partitions[T0].values == [b"2"]


def test_answers_of_the_deleted_topic_come_before_the_first_batch_to_the_new_one() -> None:
    """A late acknowledgement would prove nothing of the new topic's log."""
    producer, cluster = ready_producer()
    proven(producer)
    (old,) = in_flight(producer, 1)
    assert not create_again(producer, cluster, 1000)
    assert not produced(producer.send(1000, "t", None, b"y", ticket=2))
    (new,) = produced(producer.step(1000, accepted(old, 1)))
    assert not produced(producer.send(1000, "t", None, b"z", ticket=3))
    assert produced(producer.step(1000, accepted(new, 0)))


def moved_to_another_cluster(producer: ProducerCore, cluster: FakeCluster) -> list[ProducerEffect]:
    """Let the producer learn that another cluster has taken the addresses; returns what it does then."""
    producer.metadata.request()
    (ask,) = [
        each
        for each in sends(producer.step(1_000, TimerFired(key=WAKE_TIMER)))
        if isinstance(each.body, MetadataRequest)
    ]
    body = replace(cluster.metadata(("t",)), cluster_id="another")
    return producer.step(1_000, Response(call=ask.call, body=body))


def test_a_cluster_that_takes_the_addresses_gives_a_producer_another_id() -> None:
    """It hands out the same ids as the one before: under its old one, a batch would pass for another producer's."""
    producer, cluster = ready_producer()
    proven(producer)
    effects = moved_to_another_cluster(producer, cluster)
    (asked,) = [each for each in sends(effects) if isinstance(each.body, InitProducerIdRequest)]
    assert produced(producer.send(1_000, "t", None, b"waits", ticket=1)) == []
    answer = InitProducerIdResponse(producer_id=7, producer_epoch=0)
    (sent,) = produced(producer.step(1_000, Response(call=asked.call, body=answer)))
    batch = batch_of(sent)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (7, 0, 0)


def test_the_same_id_of_another_cluster_is_used_with_another_epoch() -> None:
    producer, cluster = ready_producer()
    proven(producer)
    before = producer.identity.current
    assert before is not None
    effects = moved_to_another_cluster(producer, cluster)
    (asked,) = [each for each in sends(effects) if isinstance(each.body, InitProducerIdRequest)]
    answer = InitProducerIdResponse(producer_id=before.producer_id, producer_epoch=before.producer_epoch)
    producer.step(1_000, Response(call=asked.call, body=answer))
    (sent,) = produced(producer.send(1_000, "t", None, b"next", ticket=1))
    batch = batch_of(sent)
    assert (batch.producer_id, batch.producer_epoch) == (before.producer_id, before.producer_epoch + 1)
    assert batch.base_sequence == 0


def test_what_was_sent_to_the_cluster_before_has_an_unknown_outcome() -> None:
    producer, cluster = ready_producer()
    proven(producer)
    (in_flight,) = produced(producer.send(0, "t", None, b"sent", ticket=1))
    effects = moved_to_another_cluster(producer, cluster)
    (told,) = delivered(effects)
    assert (told.ticket, told.error, told.is_unknown) == (1, ErrorCode.INCONSISTENT_CLUSTER_ID, True)
    # Its answer, whenever it comes, changes nothing.
    assert delivered(producer.step(1_000, failed(in_flight, ErrorCode.NOT_LEADER_OR_FOLLOWER))) == []
    (asked,) = [each for each in sends(effects) if isinstance(each.body, InitProducerIdRequest)]
    answer = InitProducerIdResponse(producer_id=7, producer_epoch=0)
    assert produced(producer.step(2_000, Response(call=asked.call, body=answer))) == []
    (sent,) = produced(producer.send(2_000, "t", None, b"next", ticket=2))
    assert (batch_of(sent).producer_id, batch_of(sent).base_sequence) == (7, 0)
