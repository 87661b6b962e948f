"""A leader's handling of a follower's fetch (LED). The order of the checks is the protection."""

from __future__ import annotations

import pytest

from cluster.core.effects import Reply
from cluster.core.errors import ErrorCode
from cluster.core.messages import FetchPartition, FetchRequest, FetchResponse, TopicPartition
from tests.cluster.replica.setup import T0, Setup, broker_epoch_of, diverging, fetched, first_values, only


@pytest.fixture
def leader() -> Setup:
    """Broker 1 leads epoch 3 with ISR 1, 2, 3; offsets 0 to 4 are of epoch 3."""
    setup = Setup()
    setup.place(leader=1, leader_epoch=3)
    for number in range(5):
        setup.append(b"%d" % number)
    return setup


def test_led1_older_leader_epoch_is_fenced(leader: Setup) -> None:
    assert leader.fetch(2, 0, leader_epoch=2).error is ErrorCode.FENCED_LEADER_EPOCH


def test_led1_newer_leader_epoch_is_unknown(leader: Setup) -> None:
    assert leader.fetch(2, 0, leader_epoch=4).error is ErrorCode.UNKNOWN_LEADER_EPOCH


def test_led1_fetch_without_epoch_is_not_checked(leader: Setup) -> None:
    assert leader.fetch(2, 0, leader_epoch=-1).error is ErrorCode.NONE


def test_led1_the_epoch_is_checked_before_leadership() -> None:
    setup = Setup()
    setup.place(leader=2, leader_epoch=3)
    assert setup.fetch(3, 0, leader_epoch=2).error is ErrorCode.FENCED_LEADER_EPOCH
    assert setup.fetch(3, 0, leader_epoch=3).error is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_led1_the_answer_names_the_leader() -> None:
    setup = Setup()
    setup.place(leader=2, leader_epoch=3)
    answer = setup.fetch(3, 0, leader_epoch=2)
    assert (answer.leader_id, answer.leader_epoch) == (2, 3)


def test_led2_sender_that_is_no_replica_gets_a_retriable_error(leader: Setup) -> None:
    leader.register(9)
    assert leader.fetch(9, 0).error is ErrorCode.UNKNOWN_LEADER_EPOCH


def test_led3_below_the_log_start_is_out_of_range_even_when_diverging(leader: Setup) -> None:
    for follower in (2, 3):
        leader.fetch(follower, 5)
    leader.replica.log.marks.maybe_increment_log_start_offset(2)
    answer = leader.fetch(2, 1, last_fetched_epoch=1)
    assert answer.error is ErrorCode.OFFSET_OUT_OF_RANGE
    # A follower that is out of range needs both ends of the log (FET-11).
    assert (answer.log_start_offset, answer.log_end_offset) == (2, 5)
    assert answer.diverging is None


def test_led3_beyond_the_log_end_is_out_of_range(leader: Setup) -> None:
    assert leader.fetch(2, 6, last_fetched_epoch=-1).error is ErrorCode.OFFSET_OUT_OF_RANGE


def test_led4_beyond_the_end_of_the_last_fetched_epoch_diverges(leader: Setup) -> None:
    answer = leader.fetch(2, 7, last_fetched_epoch=3)
    assert answer.error is ErrorCode.NONE
    assert answer.diverging == diverging(3, 5)
    assert answer.records == b""


def test_led4_an_epoch_that_the_leader_lacks_diverges() -> None:
    setup = Setup()
    setup.place(leader=1, leader_epoch=1)
    setup.append(b"a")
    setup.place(leader=1, leader_epoch=4, partition_epoch=1)
    setup.append(b"b")
    # The answer is the greatest epoch that is not above the one asked for (KIP-279).
    assert setup.fetch(2, 1, last_fetched_epoch=3).diverging == diverging(1, 1)


def test_led4_an_epoch_ahead_of_the_leader_is_out_of_range(leader: Setup) -> None:
    answer = leader.fetch(2, 5, leader_epoch=-1, last_fetched_epoch=8)
    assert answer.error is ErrorCode.OFFSET_OUT_OF_RANGE


def test_led5_the_reported_high_watermark_is_that_from_before_the_read(leader: Setup) -> None:
    leader.fetch(2, 5)
    answer = leader.fetch(3, 5)
    assert answer.high_watermark == 0
    assert leader.high_watermark == 5
    assert leader.fetch(3, 5).high_watermark == 5


def test_led5_an_answer_without_news_has_the_marks_of_now(leader: Setup) -> None:
    before = leader.fetch(2, 5)
    assert leader.fetch(2, 5) is before
    assert (before.high_watermark, before.log_start_offset, before.leader_epoch) == (0, 0, 3)
    # The fetch of the last follower raises the high watermark after its answer is made.
    leader.fetch(3, 5)
    assert leader.fetch(2, 5).high_watermark == 5
    leader.replica.log.marks.maybe_increment_log_start_offset(2)
    assert leader.fetch(2, 5).log_start_offset == 2
    leader.append(b"5")
    assert leader.fetch(2, 6).log_end_offset == 6
    leader.place(leader=1, leader_epoch=4, partition_epoch=1)
    assert leader.fetch(2, 6, last_fetched_epoch=3).leader_epoch == 4


def test_led6_a_refused_fetch_moves_nothing(leader: Setup) -> None:
    before = leader.leader.followers[2].log_end_offset
    # The offset is out of range (KAFKA-8400).
    leader.fetch(2, 6, last_fetched_epoch=-1)
    # The epoch is fenced.
    leader.fetch(2, 5, leader_epoch=2)
    assert leader.leader.followers[2].log_end_offset == before == -1


def test_led6_a_diverging_fetch_moves_nothing(leader: Setup) -> None:
    leader.fetch(3, 5)
    # A diverging fetch is no progress (KAFKA-13141).
    leader.fetch(2, 5, last_fetched_epoch=2)
    assert leader.leader.followers[2].log_end_offset == -1
    assert leader.high_watermark == 0


def test_led6_a_parked_fetch_counts_once(leader: Setup) -> None:
    assert fetched(leader.fetch_effects(2, 5, max_wait_ms=500)) is None
    first_ms = leader.leader.followers[2].last_fetch_ms
    leader.now_ms += 100
    # The append answers the parked fetch.
    leader.append(b"5")
    assert leader.leader.followers[2].last_fetch_ms == first_ms
    assert leader.leader.followers[2].log_end_offset == 5


def test_led7_a_fetch_of_an_earlier_life_is_refused(leader: Setup) -> None:
    leader.register(2, broker_epoch=500)
    assert leader.fetch(2, 5, broker_epoch=102).error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert leader.leader.followers[2].log_end_offset == -1
    assert leader.fetch(2, 5, broker_epoch=500).error is ErrorCode.NONE


def test_led7_an_earlier_life_counts_until_the_metadata_has_its_end(leader: Setup) -> None:
    """The leader cannot know yet: the fetch was sent before the follower died. Kafka counts it too."""
    leader.place(leader=1, isr=(1, 2), leader_epoch=3, partition_epoch=1)
    # Broker 2 has begun another life meanwhile, which is unknown here.
    leader.fetch(2, 4, broker_epoch=102)
    assert leader.high_watermark == 4
    leader.register(2, broker_epoch=500)
    leader.fetch(2, 5, broker_epoch=102)
    assert leader.high_watermark == 4


def test_led7_a_follower_may_go_back_and_the_high_watermark_stays(leader: Setup) -> None:
    leader.fetch(2, 5)
    leader.fetch(3, 5)
    leader.fetch(3, 2)
    assert leader.leader.followers[3].log_end_offset == 2
    assert leader.high_watermark == 5


def test_led8_records_come_as_they_are_stored(leader: Setup) -> None:
    answer = leader.fetch(2, 1)
    assert first_values(answer) == [b"1", b"2", b"3", b"4"]
    assert (answer.log_start_offset, answer.log_end_offset, answer.leader_epoch) == (0, 5, 3)


def test_at_least_one_batch_is_returned_however_small_the_limit(leader: Setup) -> None:
    # The first batch is returned whole, even above `max_bytes` (KIP-74).
    assert first_values(leader.fetch(2, 1, max_bytes=1)) == [b"1"]


@pytest.mark.parametrize("is_follower", [True, False])
def test_kip74_a_follower_gets_nothing_of_a_batch_that_does_not_fit(leader: Setup, is_follower: bool) -> None:
    """It could append nothing. A consumer learns from the part that it must ask for more."""
    other = TopicPartition("t", 1)
    leader.place(leader=1, leader_epoch=3, topic_partition=other)
    leader.produce(b"x" * 100, acks=1, topic_partition=other)
    log = leader.manager.context.replicas[other].log
    log.marks.set_high_watermark(log.local.log_end)
    for follower in (2, 3):
        leader.fetch(follower, 5)
    asked = tuple(
        FetchPartition(
            topic_partition=topic_partition,
            topic_id=leader.replica.topic_id,
            fetch_offset=0,
            current_leader_epoch=3,
            max_bytes=75,
        )
        for topic_partition in (T0, other)
    )
    request = FetchRequest(
        replica_id=2 if is_follower else -1,
        broker_epoch=broker_epoch_of(2) if is_follower else -1,
        max_wait_ms=0,
        partitions=asked,
    )
    body = only(leader.request(request), Reply).body
    assert isinstance(body, FetchResponse)
    assert [each.error for each in body.partitions] == [ErrorCode.NONE] * 2
    assert len(body.partitions[0].records) >= 69
    assert len(body.partitions[1].records) == (0 if is_follower else 75)


def test_an_unknown_partition_and_one_on_other_brokers_get_different_errors(leader: Setup) -> None:
    leader.place(leader=2, replicas=(2, 3), isr=(2, 3), topic_partition=TopicPartition("o", 0))
    others = leader.produce(b"x", topic_partition=TopicPartition("o", 0))
    nobodys = leader.produce(b"x", topic_partition=TopicPartition("nobodys", 0))
    assert others is not None and others.error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (others.leader_id, others.leader_epoch) == (2, 0)
    assert nobodys is not None and nobodys.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
