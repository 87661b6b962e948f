"""The producer core: one rule a test, then order and uniqueness under random failures."""

from __future__ import annotations

from itertools import chain, repeat

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.core.client.config import ProducerConfig
from cluster.core.client.effects import Flushed
from cluster.core.client.partitioner import partition_for_key
from cluster.core.client.producer import ProducerCore
from cluster.core.effects import BOOTSTRAP, LearnEndpoint, Stop
from cluster.core.errors import ErrorCode
from cluster.core.events import Response, Shutdown, TimerFired, TransportError
from cluster.core.messages import (
    InitProducerIdRequest,
    MetadataRequest,
    ProducePartitionResponse,
    ProduceRequest,
    ProduceResponse,
    TopicPartition,
)
from storage.batch.record import Header
from storage.codec.compression import Compression
from storage.draws import Draws
from storage.errors import ConfigError
from tests.cluster.client.fake_cluster import FATES, OTHER, FakeCluster, FakeShell
from tests.cluster.client.producer_by_hand import (
    accepted,
    batch_of,
    delivered,
    failed,
    produced,
    proven,
    ready_producer,
    sends,
)


def test_start_asks_the_bootstrap_address_for_brokers_and_an_id() -> None:
    effects = ProducerCore(ProducerConfig(), Draws(1)).start(0)
    asked = [(send.to, type(send.body)) for send in sends(effects)]
    assert asked == [(BOOTSTRAP, MetadataRequest), (BOOTSTRAP, InitProducerIdRequest)]


def test_a_metadata_answer_gives_the_shell_the_brokers_addresses() -> None:
    producer, cluster = ProducerCore(ProducerConfig(), Draws(1)), FakeCluster({"t": 1})
    metadata = sends(producer.start(0))[0]
    effects = producer.step(0, Response(call=metadata.call, body=cluster.metadata(())))
    learned = [effect.node_id for effect in effects if isinstance(effect, LearnEndpoint)]
    assert learned == [1, 2]


def test_a_record_is_sent_to_the_leader_as_one_idempotent_batch() -> None:
    producer, _ = ready_producer()
    (send,) = produced(producer.send(5, "t", b"k", b"v", headers=(("h", None),), ticket=1))
    batch = batch_of(send)
    assert send.to == 1
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (8, 0, 0)
    (record,) = batch.records()
    assert (record.timestamp, record.key, record.value, record.headers) == (5, b"k", b"v", (("h", None),))


def test_records_linger_and_share_a_batch() -> None:
    producer, _ = ready_producer(config=ProducerConfig(linger_ms=5))
    assert not produced(producer.send(0, "t", None, b"a", ticket=1))
    assert not produced(producer.send(3, "t", None, b"b", ticket=2))
    (send,) = produced(producer.step(5, TimerFired(key="producer.wake")))
    assert batch_of(send).record_count == 2


def test_full_batch_does_not_linger() -> None:
    producer, _ = ready_producer(config=ProducerConfig(linger_ms=1000, batch_size=200))
    effects = list(chain.from_iterable(producer.send(0, "t", None, bytes(90), ticket=n) for n in range(3)))
    assert [batch_of(send).record_count for send in produced(effects)] == [1]


def test_gzip_batches_are_compressed() -> None:
    producer, _ = ready_producer(config=ProducerConfig(linger_ms=0, compression_type=Compression.GZIP))
    (send,) = produced(producer.send(0, "t", None, bytes(5000), ticket=1))
    assert batch_of(send).compression is Compression.GZIP
    assert batch_of(send).size_bytes < 200


def test_keyed_records_go_to_the_keys_partition() -> None:
    producer, _ = ready_producer(partitions=4)
    (send,) = produced(producer.send(0, "t", b"abc", b"", ticket=1))
    assert isinstance(send.body, ProduceRequest)
    assert send.body.partitions[0].topic_partition.partition == partition_for_key(b"abc", 4)


def test_keyed_records_go_to_partitions_that_were_added_once_the_metadata_names_them() -> None:
    producer, _ = ready_producer()
    key = next(key for key in (b"%d" % number for number in range(9)) if partition_for_key(key, 4) == 3)
    producer.metadata.request()
    (ask,) = sends(producer.step(100, TimerFired(key="producer.wake")))
    grown = FakeCluster({"t": 4}, broker_count=2)
    producer.step(100, Response(call=ask.call, body=grown.metadata(("t",))))
    (send,) = produced(producer.send(100, "t", key, b"", ticket=1))
    assert isinstance(send.body, ProduceRequest)
    assert send.body.partitions[0].topic_partition.partition == 3


def test_delivered_names_offset_and_ticket_of_each_record() -> None:
    producer, _ = ready_producer(config=ProducerConfig(linger_ms=10))
    producer.send(0, "t", None, b"a", ticket=11)
    producer.send(0, "t", None, b"b", ticket=12)
    (send,) = produced(producer.flush(0, 1))
    told = delivered(producer.step(0, accepted(send, 40)))
    assert [(each.ticket, each.offset) for each in told] == [(11, 40), (12, 41)]


def test_duplicate_sequence_is_a_success() -> None:
    producer, _ = ready_producer()
    (send,) = produced(producer.send(0, "t", None, b"a", ticket=1))
    (told,) = delivered(producer.step(0, failed(send, ErrorCode.DUPLICATE_SEQUENCE_NUMBER, base_offset=9)))
    assert (told.error, told.offset) == (ErrorCode.NONE, 9)


def test_retry_keeps_the_sequence_and_the_bytes() -> None:
    producer, _ = ready_producer()
    (send,) = produced(producer.send(0, "t", None, b"a", ticket=1))
    producer.step(0, Response(call=send.call, body=TransportError(reason="cut")))
    (again,) = produced(producer.step(100, accepted(send, 0)))
    assert again.body == send.body


def test_retry_waits_for_the_back_off() -> None:
    producer, _ = ready_producer()
    (send,) = produced(producer.send(0, "t", None, b"a", ticket=1))
    early = producer.step(0, failed(send, ErrorCode.NOT_ENOUGH_REPLICAS))
    assert not produced(early)
    assert not produced(producer.flush(99, 1))
    assert produced(producer.flush(100, 2))


def test_leader_hint_is_followed_at_once() -> None:
    """The refusal names the new leader (KIP-951)."""
    producer, _ = ready_producer()
    (send,) = produced(producer.send(0, "t", None, b"a", ticket=1))
    hint = failed(send, ErrorCode.NOT_LEADER_OR_FOLLOWER, leader_id=2, leader_epoch=1)
    (again,) = produced(producer.step(0, hint))
    assert again.to == 2


def test_not_leader_without_a_hint_asks_for_metadata() -> None:
    producer, _ = ready_producer()
    (send,) = produced(producer.send(0, "t", None, b"a", ticket=1))
    effects = producer.step(200, failed(send, ErrorCode.NOT_LEADER_OR_FOLLOWER))
    assert any(isinstance(each.body, MetadataRequest) for each in sends(effects))


def test_partition_waits_for_the_old_leaders_answers_before_the_new_one_is_asked() -> None:
    producer, _ = ready_producer()
    proven(producer)
    first, second = (produced(producer.send(0, "t", None, b"x", ticket=n))[0] for n in range(2))
    hint = failed(first, ErrorCode.NOT_LEADER_OR_FOLLOWER, leader_id=2, leader_epoch=1)
    assert not produced(producer.step(0, hint))
    late = failed(second, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    (again,) = produced(producer.step(300, late))
    assert (again.to, batch_of(again).base_sequence) == (2, batch_of(first).base_sequence)


def test_the_first_batch_of_an_identity_is_sent_alone() -> None:
    producer, _ = ready_producer()
    assert produced(producer.send(0, "t", None, b"a", ticket=1))
    assert not produced(producer.send(0, "t", None, b"b", ticket=2))


def test_at_most_five_requests_are_in_flight_to_a_leader() -> None:
    producer, _ = ready_producer()
    proven(producer)
    counts = [len(produced(producer.send(0, "t", None, b"x", ticket=n))) for n in range(8)]
    assert counts == [1, 1, 1, 1, 1, 0, 0, 0]


def test_answers_that_arrive_together_make_room_for_as_many_batches_at_once() -> None:
    producer, _ = ready_producer()
    proven(producer)
    effects = [producer.send(0, "t", None, b"x" * 9000, ticket=n) for n in range(10)]
    sent = [each for some in effects for each in produced(some)]
    together = producer.steps(0, [accepted(each, 1 + place) for place, each in enumerate(sent)])
    assert [each.ticket for each in delivered(together)] == [0, 1, 2, 3, 4]
    assert [batch_of(each).base_sequence for each in produced(together)] == [6, 7, 8, 9, 10]


def test_refusals_that_arrive_together_are_resolved_as_one_by_one() -> None:
    producer, _ = ready_producer()
    proven(producer)
    first, second = (produced(producer.send(0, "t", None, b"x", ticket=n))[0] for n in range(2))
    refused = [
        failed(first, ErrorCode.NOT_ENOUGH_REPLICAS),
        failed(second, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
    ]
    assert not produced(producer.steps(0, refused))
    (again,) = produced(producer.flush(100, 1))
    assert batch_of(again).base_sequence == batch_of(first).base_sequence
    (then,) = produced(producer.step(100, accepted(again, 1)))
    assert batch_of(then).base_sequence == batch_of(second).base_sequence


def test_a_failed_batch_is_sent_before_later_ones() -> None:
    producer, _ = ready_producer()
    proven(producer)
    first, second = (produced(producer.send(0, "t", None, b"x", ticket=n))[0] for n in range(2))
    producer.step(0, failed(first, ErrorCode.NOT_ENOUGH_REPLICAS))
    producer.step(0, failed(second, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER))
    (again,) = produced(producer.flush(100, 1))
    assert batch_of(again).base_sequence == batch_of(first).base_sequence
    (then,) = produced(producer.step(100, accepted(again, 1)))
    assert batch_of(then).base_sequence == batch_of(second).base_sequence


def test_later_retry_waits_for_the_earlier_batch_in_flight() -> None:
    producer, _ = ready_producer()
    proven(producer)
    first, second = (produced(producer.send(0, "t", None, b"x", ticket=n))[0] for n in range(2))
    producer.step(0, failed(second, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER))
    assert not produced(producer.flush(200, 1))
    assert produced(producer.step(200, accepted(first, 1)))


def test_definitive_failure_bumps_the_epoch_and_sequences_begin_again() -> None:
    """A batch is certainly missing, so the producer raises its own epoch (KIP-360)."""
    producer, _ = ready_producer()
    proven(producer)
    first, second = (produced(producer.send(0, "t", None, b"x", ticket=n))[0] for n in range(2))
    (told,) = delivered(producer.step(0, failed(first, ErrorCode.INVALID_RECORD)))
    assert (told.error, told.is_unknown) == (ErrorCode.INVALID_RECORD, False)
    (again,) = produced(producer.step(0, failed(second, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)))
    assert (batch_of(again).producer_epoch, batch_of(again).base_sequence) == (1, 0)


def test_batches_after_one_that_is_certainly_missing_do_not_wait_for_an_answer_of_their_own() -> None:
    producer, _ = ready_producer()
    proven(producer)
    first, second, third = (produced(producer.send(0, "t", None, b"x", ticket=n))[0] for n in range(3))
    producer.step(0, failed(first, ErrorCode.INVALID_RECORD))
    producer.step(0, failed(second, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER))
    (again,) = produced(producer.step(0, Response(call=third.call, body=TransportError(reason="cut"))))
    assert (batch_of(again).producer_epoch, batch_of(again).base_sequence) == (1, 0)
    (then,) = produced(producer.step(0, accepted(again, 1)))
    assert (batch_of(then).producer_epoch, batch_of(then).base_sequence) == (1, 1)


def test_other_partitions_keep_their_epoch_after_a_bump() -> None:
    producer, _ = ready_producer(partitions=3)
    (one,) = produced(producer.send(0, "t", None, b"x", partition=0, ticket=1))
    (other,) = produced(producer.send(0, "t", None, b"x", partition=2, ticket=2))
    answer = ProducePartitionResponse(topic_partition=TopicPartition("t", 2), base_offset=0)
    producer.step(0, Response(call=other.call, body=ProduceResponse(partitions=(answer,))))
    producer.step(0, failed(one, ErrorCode.INVALID_RECORD))
    (next_one,) = produced(producer.send(0, "t", None, b"x", partition=0, ticket=3))
    (next_other,) = produced(producer.send(0, "t", None, b"x", partition=2, ticket=4))
    assert (batch_of(next_one).producer_epoch, batch_of(next_one).base_sequence) == (1, 0)
    assert (batch_of(next_other).producer_epoch, batch_of(next_other).base_sequence) == (0, 1)


def test_expired_batch_of_unknown_outcome_holds_new_ones_until_it_is_answered() -> None:
    config = ProducerConfig(linger_ms=0, request_timeout_ms=100, delivery_timeout_ms=200)
    producer, _ = ready_producer(config=config)
    proven(producer)
    (sent,) = produced(producer.send(0, "t", None, b"x", ticket=1))
    effects = producer.send(200, "t", None, b"y", ticket=2)
    (told,) = delivered(effects)
    assert (told.ticket, told.error, told.is_unknown) == (1, ErrorCode.REQUEST_TIMED_OUT, True)
    assert not produced(effects)
    (then,) = produced(producer.step(210, Response(call=sent.call, body=TransportError(reason="late"))))
    assert (batch_of(then).producer_epoch, batch_of(then).base_sequence) == (1, 0)


def test_late_success_of_an_expired_batch_needs_no_new_epoch() -> None:
    config = ProducerConfig(linger_ms=0, request_timeout_ms=100, delivery_timeout_ms=200)
    producer, _ = ready_producer(config=config)
    proven(producer)
    (sent,) = produced(producer.send(0, "t", None, b"x", ticket=1))
    producer.send(200, "t", None, b"y", ticket=2)
    effects = producer.step(210, accepted(sent, 1))
    (then,) = produced(effects)
    assert not delivered(effects)
    assert (batch_of(then).producer_epoch, batch_of(then).base_sequence) == (0, 2)


def test_batch_that_was_never_sent_expires_as_known_and_leaves_no_gap() -> None:
    config = ProducerConfig(linger_ms=0, request_timeout_ms=100, delivery_timeout_ms=200)
    producer, _ = ready_producer(config=config)
    (sent,) = produced(producer.send(0, "t", None, b"x", ticket=1))
    producer.send(1, "t", None, b"y", ticket=2)
    producer.step(150, accepted(sent, 0))
    assert producer.unfinished.count == 1


def test_too_large_batch_is_split_under_its_own_sequences() -> None:
    producer, _ = ready_producer(config=ProducerConfig(linger_ms=10))
    for ticket in range(5):
        producer.send(0, "t", None, b"x", ticket=ticket)
    (send,) = produced(producer.flush(0, 9))
    (half,) = produced(producer.step(0, failed(send, ErrorCode.MESSAGE_TOO_LARGE)))
    (rest,) = produced(producer.step(0, accepted(half, 0)))
    assert (batch_of(half).base_sequence, batch_of(half).record_count) == (0, 2)
    assert (batch_of(rest).base_sequence, batch_of(rest).record_count) == (2, 3)


def test_too_large_record_fails() -> None:
    producer, _ = ready_producer()
    (send,) = produced(producer.send(0, "t", None, b"x", ticket=1))
    (told,) = delivered(producer.step(0, failed(send, ErrorCode.MESSAGE_TOO_LARGE)))
    assert told.error is ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize(
    ("timestamp_ms", "headers", "error"),
    [(-5, (), ErrorCode.INVALID_TIMESTAMP), (5, (("\ud800", b""),), ErrorCode.INVALID_RECORD)],
)
def test_a_record_that_has_no_encoding_is_refused_alone(
    timestamp_ms: int, headers: tuple[Header, ...], error: ErrorCode
) -> None:
    producer, _ = ready_producer()
    refused = producer.send(0, "t", None, b"x", timestamp_ms=timestamp_ms, headers=headers, ticket=1)
    assert [told.error for told in delivered(refused)] == [error]
    assert (producer.unfinished.size_bytes, producer.unfinished.count) == (0, 0)
    (sent,) = produced(producer.send(0, "t", None, b"y", ticket=2))
    assert batch_of(sent).record_count == 1


def test_record_above_max_request_size_is_refused_at_once() -> None:
    producer, _ = ready_producer()
    (told,) = delivered(producer.send(0, "t", None, bytes(2 << 20), ticket=1))
    assert told.error is ErrorCode.MESSAGE_TOO_LARGE


def test_full_buffer_refuses_and_says_so() -> None:
    producer, _ = ready_producer(config=ProducerConfig(linger_ms=10, buffer_memory=1000))
    producer.send(0, "t", None, bytes(800), ticket=1)
    (told,) = delivered(producer.send(0, "t", None, bytes(800), ticket=2))
    assert (told.ticket, told.error, told.message) == (
        2,
        ErrorCode.REQUEST_TIMED_OUT,
        "buffer.memory is exhausted",
    )


def test_batches_do_not_linger_while_a_record_waits_for_room() -> None:
    config = ProducerConfig(linger_ms=8_000, buffer_memory=1000, max_block_ms=2_000)
    producer, _ = ready_producer(config=config)
    assert not produced(producer.send(0, "t", None, bytes(500), ticket=1))
    # There is room for it.
    assert not produced(producer.press(1, 300))
    # Now there is none, whichever comes first: the wait, or the record that takes the room.
    (sent,) = produced(producer.press(1, 600))
    assert batch_of(sent).record_count == 1


def test_a_record_that_takes_the_room_of_one_that_waits_presses_too() -> None:
    producer, _ = ready_producer(config=ProducerConfig(linger_ms=8_000, buffer_memory=1000))
    assert not produced(producer.send(0, "t", None, bytes(100), ticket=1))
    assert not produced(producer.press(1, 600))
    (sent,) = produced(producer.send(1, "t", None, bytes(300), ticket=2))
    assert batch_of(sent).record_count == 2


def test_acks_0_is_delivered_when_sent_without_an_offset() -> None:
    producer, _ = ready_producer(config=ProducerConfig(linger_ms=0, acks=0))
    effects = producer.send(0, "t", None, b"x", ticket=1)
    (send,) = produced(effects)
    assert not send.expects_reply
    assert not batch_of(send).has_producer_id
    assert [(told.ticket, told.offset) for told in delivered(effects)] == [(1, -1)]


def test_idempotence_needs_acks_all() -> None:
    with pytest.raises(ConfigError, match="acks=all"):
        ProducerConfig(acks=1, enable_idempotence=True)


@pytest.mark.parametrize("codec", Compression)
def test_batch_goes_out_in_the_codec_of_the_configuration(codec: Compression) -> None:
    producer, _ = ready_producer(config=ProducerConfig(linger_ms=0, compression_type=codec))
    (send,) = produced(producer.send(0, "t", None, b"x" * 100, ticket=1))
    batch = batch_of(send)
    assert batch.compression is codec
    assert [record.value for record in batch.records()] == [b"x" * 100]


def test_unknown_topic_fails_after_max_block() -> None:
    shell = FakeShell(FakeCluster({"t": 1}))
    producer = ProducerCore(ProducerConfig(max_block_ms=1000), Draws(1))
    shell.carry_out(producer.start(0))
    shell.carry_out(producer.send(0, "nowhere", None, b"x", ticket=1))
    shell.run(producer.step, 1000)
    (told,) = shell.delivered
    assert told.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_partition_that_the_topic_lacks_is_refused_after_max_block() -> None:
    producer, cluster = ready_producer(config=ProducerConfig(max_block_ms=1000))
    (asked,) = sends(producer.send(100, "t", None, b"x", partition=4, ticket=1))
    assert isinstance(asked.body, MetadataRequest)
    assert delivered(producer.step(100, Response(call=asked.call, body=cluster.metadata(("t",))))) == []
    (told,) = delivered(producer.step(1100, TimerFired(key="producer.wake")))
    assert told.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert "has no partition 4" in told.message


def test_a_record_for_a_partition_that_was_just_added_waits_for_it_and_holds_up_no_other() -> None:
    producer, _ = ready_producer()
    (asked,) = sends(producer.send(100, "t", None, b"1", partition=1, ticket=1))
    assert sends(producer.send(100, "t", None, b"2", partition=1, ticket=2)) == []
    (other,) = produced(producer.send(100, "t", None, b"x", partition=0, ticket=3))
    assert [record.value for record in batch_of(other).records()] == [b"x"]
    larger = FakeCluster({"t": 2})
    effects = producer.step(100, Response(call=asked.call, body=larger.metadata(("t",))))
    (send,) = produced(effects)
    assert [record.value for record in batch_of(send).records()] == [b"1", b"2"]


def test_a_record_for_an_unknown_partition_of_an_unknown_topic_waits_on() -> None:
    producer, _ = ready_producer()
    (asked,) = sends(producer.send(100, "u", None, b"1", partition=1, ticket=1))
    small, large = FakeCluster({"u": 1}), FakeCluster({"u": 2})
    effects = producer.step(100, Response(call=asked.call, body=small.metadata(("u",))))
    assert produced(effects) == [] and delivered(effects) == []
    (asked,) = sends(producer.step(200, TimerFired(key="producer.wake")))
    (send,) = produced(producer.step(200, Response(call=asked.call, body=large.metadata(("u",)))))
    assert [record.value for record in batch_of(send).records()] == [b"1"]


@pytest.mark.parametrize("flushes", [False, True])
def test_records_that_wait_for_a_partition_keep_their_order_while_the_topic_is_away(flushes: bool) -> None:
    producer, _ = ready_producer()
    (asked,) = sends(producer.send(100, "t", None, b"1", partition=1, ticket=1))
    away = FakeCluster({}).metadata(("t",))
    producer.step(100, Response(call=asked.call, body=away))
    if flushes:
        producer.flush(150, 99)
    producer.send(150, "t", None, b"2", partition=1, ticket=2)
    (asked,) = sends(producer.step(300, TimerFired(key="producer.wake")))
    effects = producer.step(300, Response(call=asked.call, body=FakeCluster({"t": 2}).metadata(("t",))))
    sent = [record.value for send in produced(effects) for record in batch_of(send).records()]
    assert sent == ([b"1"] if flushes else [b"1", b"2"])
    waiting = [batch.record_count for queue in producer.queues for batch in queue.queue]
    assert waiting == [1] * flushes


def test_a_batch_behind_one_that_was_refused_waits_for_those_in_flight() -> None:
    """Only a new epoch helps it, or what an answer proves: sent again under its sequence, it is refused again."""
    producer, _ = ready_producer()
    proven(producer)
    first, second, third = [
        send
        for number in (2, 3, 4)
        for send in produced(producer.send(0, "t", None, b"%d" % number, ticket=number))
    ]
    producer.step(0, failed(first, ErrorCode.INVALID_RECORD))
    effects = producer.step(0, failed(second, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER))
    assert produced(effects) == []
    for now_ms in (100, 200, 300):
        assert produced(producer.step(now_ms, TimerFired(key="producer.wake"))) == []
    effects = producer.step(400, failed(third, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER))
    again = produced([*effects, *producer.step(500, TimerFired(key="producer.wake"))])
    assert [batch_of(send).base_sequence for send in again[:1]] == [0]


def test_a_flush_ends_when_all_earlier_records_have_their_outcome() -> None:
    producer, _ = ready_producer(config=ProducerConfig(linger_ms=10))
    producer.send(0, "t", None, b"a", ticket=1)
    (send,) = produced(producer.flush(0, 77))
    producer.send(0, "t", None, b"b", ticket=2)
    effects = producer.step(0, accepted(send, 0))
    assert Flushed(ticket=77) in effects
    assert producer.unfinished.count == 1


def test_shutdown_sends_what_lingers_then_stops() -> None:
    producer, _ = ready_producer(config=ProducerConfig(linger_ms=1000))
    producer.send(0, "t", None, b"a", ticket=1)
    (send,) = produced(producer.step(0, Shutdown()))
    effects = producer.step(0, accepted(send, 0))
    assert effects[-1] == Stop(reason="shutdown")


def test_abort_gives_every_record_its_end() -> None:
    producer, _ = ready_producer()
    producer.send(0, "t", None, b"a", ticket=1)
    producer.send(0, "t", None, b"b", ticket=2)
    effects = producer.abort(0)
    assert [(told.ticket, told.is_unknown) for told in delivered(effects)] == [(1, True), (2, False)]
    assert effects[-1] == Stop(reason="shutdown")


# Order and uniqueness


RANDOM_RUN = {
    "fates": st.lists(st.sampled_from(FATES), max_size=60),
    "gaps": st.lists(st.integers(0, 30), min_size=1, max_size=60),
    "delivery_timeout_ms": st.sampled_from([150, 400, 100_000]),
    "batch_size": st.sampled_from([80, 200]),
    "max_message_bytes": st.sampled_from([100, 1 << 20]),
}


@settings(max_examples=20, deadline=None)
@given(**RANDOM_RUN)
def test_log_order_is_send_order_without_repetitions(
    fates: list[str], gaps: list[int], delivery_timeout_ms: int, batch_size: int, max_message_bytes: int
) -> None:
    check_order(fates, gaps, delivery_timeout_ms, batch_size, max_message_bytes)


@pytest.mark.slow
@settings(max_examples=1500, deadline=None)
@given(**RANDOM_RUN)
def test_log_order_is_send_order_without_repetitions_in_many_runs(
    fates: list[str], gaps: list[int], delivery_timeout_ms: int, batch_size: int, max_message_bytes: int
) -> None:
    check_order(fates, gaps, delivery_timeout_ms, batch_size, max_message_bytes)


def check_order(
    fates: list[str], gaps: list[int], delivery_timeout_ms: int, batch_size: int, max_message_bytes: int
) -> None:
    """Check the order of the log, and what each record's sender heard, under drawn fates.

    A failure that is not `unknown` must have left nothing in the log.
    """
    config = ProducerConfig(
        linger_ms=3,
        batch_size=batch_size,
        retry_backoff_ms=10,
        request_timeout_ms=100,
        delivery_timeout_ms=delivery_timeout_ms,
    )
    cluster = FakeCluster({"t": 2})
    for partition in cluster.partitions.values():
        partition.max_message_bytes = max_message_bytes
    drawn = chain(fates, repeat("served"))
    shell = FakeShell(cluster, lambda: next(drawn))
    cluster.is_told = lambda value: any(told.ticket == int(value) for told in shell.delivered)
    producer = ProducerCore(config, Draws(1))
    shell.carry_out(producer.start(0))
    for ticket, gap in enumerate(gaps):
        value = b"%06d" % ticket
        shell.carry_out(producer.send(shell.now_ms, "t", None, value, partition=ticket % 2, ticket=ticket))
        shell.run(producer.step, shell.now_ms + gap)
    shell.carry_out(producer.step(shell.now_ms, Shutdown()))
    shell.run(producer.step, shell.now_ms + 200_000)

    assert shell.told[-1] == Stop(reason="shutdown")
    ends = {told.ticket: told for told in shell.delivered}
    assert sorted(ends) == list(range(len(gaps))) == sorted(told.ticket for told in shell.delivered)
    for key, partition in cluster.partitions.items():
        own = [value for value in partition.values if value != OTHER]
        assert own == sorted(set(own)), key
        in_log = {int(value): at for at, value in enumerate(partition.values) if value != OTHER}
        for ticket in range(key.partition, len(gaps), 2):
            told = ends[ticket]
            if told.error is ErrorCode.NONE:
                assert in_log[ticket] == told.offset
            elif not told.is_unknown:
                assert ticket not in in_log
    # Nothing expires: what failed was refused for good.
    if delivery_timeout_ms == 100_000:
        # A batch may be refused that an earlier request, which was lost, has perhaps written: then the batches after
        # it are in doubt too.
        refused = [told for told in shell.delivered if told.error is ErrorCode.INVALID_RECORD]
        expected = (ErrorCode.NONE, ErrorCode.INVALID_RECORD)
        if not any(told.is_unknown for told in refused):
            assert all(told.error in expected for told in shell.delivered)
    assert producer.unfinished.size_bytes == 0
