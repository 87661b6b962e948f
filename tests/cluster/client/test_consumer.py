"""The consumer core: one rule a test."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from cluster.core.client.config import ConsumerConfig, OffsetReset
from cluster.core.client.consumer import DAMAGED_MS, ConsumerCore, Start
from cluster.core.client.effects import (
    ConsumerEffect,
    EndOfPartition,
    Fetched,
    FetchedBatch,
    PartitionDeleted,
    PositionLost,
    PositionReset,
    TopicMissing,
    Truncated,
)
from cluster.core.client.starts import AtTime, BeforeEnd
from cluster.core.effects import Observe, Send
from cluster.core.errors import ErrorCode
from cluster.core.events import Response, TimerFired, TransportError
from cluster.core.messages import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    EpochEnd,
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    MetadataRequest,
    TopicPartition,
)
from storage.batch import TimestampType, build_batch
from storage.batch.record import Record
from tests.cluster.client.fake_cluster import FakeCluster

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
WAKE = TimerFired(key="consumer.wake")
USUAL = ConsumerConfig()


def batch(base_offset: int, count: int, *, epoch: int = 0, is_control: bool = False) -> bytes:
    records = [Record(base_offset + n, 7, None, b"v%d" % (base_offset + n)) for n in range(count)]
    fields = {"producer_id": 1, "producer_epoch": 0, "base_sequence": 0} if is_control else {}
    return build_batch(
        records,
        base_offset=base_offset,
        partition_leader_epoch=epoch,
        is_control=is_control,
        is_transactional=is_control,
        **fields,  # type: ignore[arg-type]
    )


def reading(
    start: Start = 0,
    *,
    reset: OffsetReset = OffsetReset.EARLIEST,
    partitions: int = 1,
    config: ConsumerConfig = USUAL,
) -> tuple[ConsumerCore, FakeCluster, list[Send]]:
    """Answer the metadata request. Returns what the consumer sends then."""
    consumer = ConsumerCore(replace(config, auto_offset_reset=reset))
    cluster = FakeCluster({"t": partitions}, broker_count=1)
    keys = [TopicPartition("t", number) for number in range(partitions)]
    (ask,) = sends(consumer.assign(0, [(key, start) for key in keys]))
    assert isinstance(ask.body, MetadataRequest)
    answer = Response(call=ask.call, body=cluster.metadata(("t",)))
    return consumer, cluster, sends(consumer.step(0, answer))


def sends(effects: Sequence[ConsumerEffect]) -> list[Send]:
    return [effect for effect in effects if isinstance(effect, Send)]


def fetches(effects: Sequence[ConsumerEffect]) -> list[Send]:
    return [send for send in sends(effects) if isinstance(send.body, FetchRequest)]


def asked_offset(send: Send) -> int:
    assert isinstance(send.body, FetchRequest)
    return send.body.partitions[0].fetch_offset


def fetched(
    send: Send,
    records: bytes = b"",
    *,
    high_watermark: int = 100,
    error: ErrorCode = ErrorCode.NONE,
    diverging: EpochEnd | None = None,
    leader_id: int = -1,
    leader_epoch: int = 0,
) -> Response:
    answer = FetchPartitionResponse(
        topic_partition=T0,
        error=error,
        high_watermark=high_watermark,
        diverging=diverging,
        leader_id=leader_id,
        leader_epoch=leader_epoch,
        records=records,
    )
    return Response(call=send.call, body=FetchResponse(partitions=(answer,)))


def offsets(effects: Sequence[ConsumerEffect]) -> list[int]:
    return [record.offset for effect in effects if isinstance(effect, Fetched) for record in effect.records]


@pytest.mark.parametrize(
    ("start", "timestamp"),
    [(OffsetReset.EARLIEST, EARLIEST_TIMESTAMP), (OffsetReset.LATEST, LATEST_TIMESTAMP)],
)
def test_start_at_an_end_is_looked_up_at_the_leader(start: OffsetReset, timestamp: int) -> None:
    consumer, _, (ask,) = reading(start)
    assert isinstance(ask.body, ListOffsetsRequest)
    assert ask.body.timestamp == timestamp
    answer = ListOffsetsResponse(topic_partition=T0, offset=42)
    effects = consumer.step(0, Response(call=ask.call, body=answer))
    assert effects[0] == PositionReset(topic_partition=T0, offset=42, reason=start.value)
    assert [asked_offset(send) for send in fetches(effects)] == [42]


def test_an_answer_without_an_offset_is_asked_for_again() -> None:
    consumer, _, (ask,) = reading(OffsetReset.EARLIEST)
    answer = ListOffsetsResponse(topic_partition=T0, offset=-1)
    effects = consumer.step(0, Response(call=ask.call, body=answer))
    assert not [effect for effect in effects if isinstance(effect, PositionReset)]
    again = [send for send in sends(consumer.step(100, WAKE)) if isinstance(send.body, ListOffsetsRequest)]
    assert len(again) == 1


def looked_up(consumer: ConsumerCore, ask: Send, offset: int) -> tuple[Send, Sequence[ConsumerEffect]]:
    """Answer one look-up. Returns the next request and all effects."""
    answer = ListOffsetsResponse(topic_partition=T0, offset=offset)
    effects = consumer.step(0, Response(call=ask.call, body=answer))
    (then,) = sends(effects)
    return then, effects


def asked_time(send: Send) -> int:
    assert isinstance(send.body, ListOffsetsRequest)
    return send.body.timestamp


def test_a_start_at_a_time_is_the_first_record_that_is_as_late() -> None:
    consumer, _, (ask,) = reading(AtTime(1234))
    assert asked_time(ask) == LATEST_TIMESTAMP
    then, _ = looked_up(consumer, ask, 50)
    assert asked_time(then) == 1234
    fetch, effects = looked_up(consumer, then, 42)
    assert effects[0] == PositionReset(topic_partition=T0, offset=42, reason="timestamp")
    assert asked_offset(fetch) == 42


def test_a_start_at_a_time_after_all_records_is_the_end_before_they_were_searched() -> None:
    """What comes afterwards may be as late as that, and is not skipped."""
    consumer, _, (ask,) = reading(AtTime(1234))
    then, effects = looked_up(consumer, ask, 50)
    assert not [effect for effect in effects if isinstance(effect, PositionReset)]
    fetch, effects = looked_up(consumer, then, -1)
    assert effects[0] == PositionReset(topic_partition=T0, offset=50, reason="timestamp")
    assert asked_offset(fetch) == 50


@pytest.mark.parametrize(("log_start_offset", "first"), [(0, 47), (48, 48), (50, 50)])
def test_a_start_before_the_end_is_never_below_the_log_start(log_start_offset: int, first: int) -> None:
    consumer, _, (ask,) = reading(BeforeEnd(3))
    assert asked_time(ask) == LATEST_TIMESTAMP
    then, _ = looked_up(consumer, ask, 50)
    assert asked_time(then) == EARLIEST_TIMESTAMP
    fetch, effects = looked_up(consumer, then, log_start_offset)
    assert effects[0] == PositionReset(topic_partition=T0, offset=first, reason="before_end")
    assert asked_offset(fetch) == first


def test_a_start_before_the_end_of_a_short_log_is_its_start() -> None:
    consumer, _, (ask,) = reading(BeforeEnd(10))
    then, _ = looked_up(consumer, ask, 4)
    fetch, _ = looked_up(consumer, then, 0)
    assert asked_offset(fetch) == 0


def test_a_start_zero_offsets_before_the_end_is_the_end() -> None:
    consumer, _, (ask,) = reading(BeforeEnd(0))
    fetch, _ = looked_up(consumer, ask, 50)
    assert asked_offset(fetch) == 50


def test_a_look_up_that_failed_is_sent_again_as_it_was() -> None:
    consumer, _, (ask,) = reading(BeforeEnd(3))
    then, _ = looked_up(consumer, ask, 50)
    refused = ListOffsetsResponse(topic_partition=T0, error=ErrorCode.OFFSET_NOT_AVAILABLE)
    consumer.step(0, Response(call=then.call, body=refused))
    again = [send for send in sends(consumer.step(100, WAKE)) if isinstance(send.body, ListOffsetsRequest)]
    assert [asked_time(send) for send in again] == [EARLIEST_TIMESTAMP]


@pytest.mark.parametrize("start", [AtTime, BeforeEnd])
def test_a_negative_time_or_count_is_no_start(start: type[AtTime | BeforeEnd]) -> None:
    with pytest.raises(ValueError, match="expected 0 to 9223372036854775807, got -1"):
        start(-1)
    with pytest.raises(ValueError, match="got 9223372036854775808"):
        start(1 << 63)
    wrong: tuple[Any, ...] = (1.5, True, "1")
    for number in wrong:
        with pytest.raises(TypeError, match="expected an int"):
            start(number)


def test_explicit_offset_is_fetched_without_a_look_up() -> None:
    _, _, (fetch,) = reading(17)
    assert asked_offset(fetch) == 17


def test_one_fetch_per_leader_contains_all_its_partitions() -> None:
    _, _, (fetch,) = reading(0, partitions=3)
    assert isinstance(fetch.body, FetchRequest)
    assert [part.topic_partition.partition for part in fetch.body.partitions] == [0, 1, 2]


def test_no_second_fetch_to_a_leader_while_one_is_in_flight() -> None:
    consumer, _, _ = reading(0)
    assert not fetches(consumer.step(50, WAKE))


def test_position_follows_what_was_read() -> None:
    consumer, _, (fetch,) = reading(0)
    effects = consumer.step(0, fetched(fetch, batch(0, 3) + batch(3, 2)))
    assert offsets(effects) == [0, 1, 2, 3, 4]
    assert [asked_offset(send) for send in fetches(effects)] == [5]
    assert consumer.positions() == {T0: 5}


def test_records_below_the_position_are_skipped() -> None:
    consumer, _, (fetch,) = reading(2)
    assert offsets(consumer.step(0, fetched(fetch, batch(0, 4)))) == [2, 3]


def test_fet4_a_consumer_that_reads_few_records_of_an_answer_asks_for_the_next_ones() -> None:
    consumer, _, (fetch,) = reading(0, config=ConsumerConfig(most_read_records=2))
    effects = consumer.step(0, fetched(fetch, batch(0, 3)))
    assert (offsets(effects), consumer.positions()) == ([0, 1], {T0: 2})
    (again,) = fetches(effects)
    assert asked_offset(again) == 2


def test_incomplete_last_batch_is_ignored() -> None:
    consumer, _, (fetch,) = reading(0)
    assert offsets(consumer.step(0, fetched(fetch, batch(0, 2) + batch(2, 2)[:-1]))) == [0, 1]


def test_nothing_at_or_above_the_high_watermark_is_returned() -> None:
    consumer, _, (fetch,) = reading(0)
    effects = consumer.step(0, fetched(fetch, batch(0, 2) + batch(2, 4) + batch(6, 1), high_watermark=3))
    assert offsets(effects) == [0, 1, 2]
    assert consumer.positions() == {T0: 3}


def test_the_batches_of_fetched_records_are_told() -> None:
    consumer, _, (fetch,) = reading(1)
    appended = build_batch(
        [Record(4, 7, None, b"v")],
        base_offset=4,
        partition_leader_epoch=2,
        timestamp_type=TimestampType.LOG_APPEND,
    )
    control = batch(3, 1, epoch=1, is_control=True)
    effects = consumer.step(0, fetched(fetch, batch(0, 3, epoch=1) + control + appended))
    (told,) = [effect for effect in effects if isinstance(effect, Fetched)]
    assert [record.offset for record in told.records] == [1, 2, 4]
    assert told.batches == (
        FetchedBatch(2, 1, TimestampType.CREATE),
        FetchedBatch(0, 1, TimestampType.CREATE),
        FetchedBatch(1, 2, TimestampType.LOG_APPEND),
    )


def test_control_batches_move_the_position_only() -> None:
    consumer, _, (fetch,) = reading(0)
    effects = consumer.step(0, fetched(fetch, batch(0, 1) + batch(1, 1, is_control=True)))
    assert offsets(effects) == [0]
    assert consumer.positions() == {T0: 2}


def test_a_damaged_batch_is_not_delivered_and_is_fetched_again_after_the_back_off() -> None:
    consumer, _, (fetch,) = reading(0)
    damaged = bytearray(batch(1, 1))
    damaged[-1] ^= 1
    effects = consumer.step(0, fetched(fetch, batch(0, 1) + bytes(damaged)))
    assert offsets(effects) == [0]
    assert [each.kind for each in effects if isinstance(each, Observe)] == ["consumer.damaged_batch"]
    assert not fetches(effects)
    (again,) = fetches(consumer.step(100, WAKE))
    assert asked_offset(again) == 1


def test_fetch_names_the_leader_epoch_and_the_epoch_of_the_last_record() -> None:
    """The first lets the leader fence the fetch, the second lets it find a divergence (KIP-320)."""
    consumer, _, (fetch,) = reading(0)
    (then,) = fetches(consumer.step(0, fetched(fetch, batch(0, 1, epoch=0) + batch(1, 1, epoch=3))))
    assert isinstance(then.body, FetchRequest)
    part = then.body.partitions[0]
    assert (part.current_leader_epoch, part.last_fetched_epoch) == (0, 3)


def test_diverging_answer_truncates_and_reading_continues_there() -> None:
    """The answer names where the logs divide (KIP-320)."""
    consumer, _, (fetch,) = reading(0)
    (then,) = fetches(consumer.step(0, fetched(fetch, batch(0, 10, epoch=2))))
    effects = consumer.step(0, fetched(then, diverging=EpochEnd(epoch=1, end_offset=4)))
    assert effects[0] == Truncated(topic_partition=T0, from_offset=10, to_offset=4, epoch=1)
    (again,) = fetches(effects)
    assert isinstance(again.body, FetchRequest)
    part = again.body.partitions[0]
    assert (part.fetch_offset, part.last_fetched_epoch) == (4, 1)


def test_diverging_answer_carries_no_records() -> None:
    consumer, _, (fetch,) = reading(5)
    effects = consumer.step(0, fetched(fetch, batch(5, 2), diverging=EpochEnd(epoch=0, end_offset=3)))
    assert offsets(effects) == []


def test_out_of_range_resets_by_policy() -> None:
    consumer, _, (fetch,) = reading(500, reset=OffsetReset.EARLIEST)
    (ask,) = sends(consumer.step(0, fetched(fetch, error=ErrorCode.OFFSET_OUT_OF_RANGE)))
    assert isinstance(ask.body, ListOffsetsRequest)
    assert ask.body.timestamp == EARLIEST_TIMESTAMP
    answer = ListOffsetsResponse(topic_partition=T0, offset=9)
    effects = consumer.step(0, Response(call=ask.call, body=answer))
    assert effects[0] == PositionReset(topic_partition=T0, offset=9, reason="out_of_range")


def test_out_of_range_without_a_policy_ends_reading() -> None:
    consumer, _, (fetch,) = reading(500, reset=OffsetReset.NONE)
    effects = consumer.step(0, fetched(fetch, error=ErrorCode.OFFSET_OUT_OF_RANGE))
    assert PositionLost(topic_partition=T0, offset=500, error=ErrorCode.OFFSET_OUT_OF_RANGE) in effects
    assert not sends(consumer.step(1000, WAKE))


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
    ],
)
def test_errors_of_leadership_back_off_and_ask_for_metadata(error: ErrorCode) -> None:
    consumer, _, (fetch,) = reading(0)
    effects = consumer.step(200, fetched(fetch, error=error))
    assert [type(send.body) for send in sends(effects)] == [MetadataRequest]
    assert [asked_offset(send) for send in fetches(consumer.step(300, WAKE))] == [0]


def test_leader_hint_is_followed_at_once() -> None:
    consumer, cluster, (fetch,) = reading(0)
    cluster.broker_count = 2
    consumer.metadata.cache.update(cluster.metadata(("t",)))
    hint = fetched(fetch, error=ErrorCode.NOT_LEADER_OR_FOLLOWER, leader_id=2, leader_epoch=4)
    (again,) = fetches(consumer.step(0, hint))
    assert again.to == 2


def test_kip_516_a_leader_of_the_topic_before_it_was_created_again_is_not_followed() -> None:
    consumer, cluster, (fetch,) = reading(0)
    cluster.broker_count = 2
    (topic,) = cluster.metadata(("t",)).topics
    created_again = replace(topic, topic_id="2e" * 16)
    consumer.metadata.cache.update(
        replace(cluster.metadata(("t",)), topics=(created_again,), metadata_offset=99)
    )
    refusal = fetched(fetch, error=ErrorCode.NOT_LEADER_OR_FOLLOWER, leader_id=2, leader_epoch=4)
    assert not fetches(consumer.step(0, refusal))


def test_unanswered_fetch_is_asked_again_after_the_back_off() -> None:
    consumer, _, (fetch,) = reading(0)
    effects = consumer.step(0, Response(call=fetch.call, body=TransportError(reason="cut")))
    assert not fetches(effects)
    assert fetches(consumer.step(100, WAKE))


def test_answer_to_an_old_position_is_dropped() -> None:
    """An answer counts only for the position that was asked for (FET-4)."""
    consumer, _, (fetch,) = reading(0)
    consumer.seek(0, T0, 50)
    effects = consumer.step(0, fetched(fetch, batch(0, 2)))
    assert offsets(effects) == []
    assert [asked_offset(send) for send in fetches(effects)] == [50]


def test_paused_partition_is_not_fetched_until_it_is_resumed() -> None:
    consumer, _, (fetch,) = reading(0)
    consumer.pause(T0)
    effects = consumer.step(0, fetched(fetch, batch(0, 2)))
    assert offsets(effects) == [] and not fetches(effects)
    assert [asked_offset(send) for send in fetches(consumer.resume(0, T0))] == [0]


def test_fetch_that_held_no_whole_batch_grows() -> None:
    consumer, _, (fetch,) = reading(0)
    (again,) = fetches(consumer.step(0, fetched(fetch, batch(0, 2)[:-1])))
    assert isinstance(again.body, FetchRequest)
    assert again.body.partitions[0].max_bytes == 2 << 20


def test_fetch_that_never_holds_a_whole_batch_grows_up_to_what_a_message_can_say() -> None:
    consumer, _, (fetch,) = reading(0)
    for _ in range(20):
        (fetch,) = fetches(consumer.step(0, fetched(fetch, batch(0, 2)[:-1])))
    assert isinstance(fetch.body, FetchRequest)
    assert fetch.body.partitions[0].max_bytes == 2**31 - 1


def test_end_of_partition_is_reported_once_each_time_it_is_reached() -> None:
    consumer, _, (fetch,) = reading(0)
    effects = consumer.step(0, fetched(fetch, batch(0, 2), high_watermark=2))
    assert EndOfPartition(topic_partition=T0, offset=2) in effects
    (again,) = fetches(effects)
    effects = consumer.step(0, fetched(again, high_watermark=2))
    assert not any(isinstance(effect, EndOfPartition) for effect in effects)


def ends(effects: Sequence[ConsumerEffect]) -> list[int]:
    return [effect.offset for effect in effects if isinstance(effect, EndOfPartition)]


def test_a_new_leader_that_knows_less_than_what_was_read_tells_no_end() -> None:
    consumer, _, (fetch,) = reading(0)
    effects = consumer.step(0, fetched(fetch, batch(0, 7), high_watermark=10))
    (again,) = fetches(effects)
    effects = consumer.step(0, fetched(again, high_watermark=5))
    assert ends(effects) == []
    (again,) = fetches(effects)
    assert ends(consumer.step(0, fetched(again, high_watermark=7))) == [7]


def test_an_end_that_is_reached_with_other_records_after_a_cut_is_told_again() -> None:
    consumer, _, (fetch,) = reading(0)
    effects = consumer.step(0, fetched(fetch, batch(0, 2), high_watermark=2))
    assert ends(effects) == [2]
    (again,) = fetches(effects)
    answer = FetchPartitionResponse(topic_partition=T0, diverging=EpochEnd(epoch=0, end_offset=0))
    effects = consumer.step(0, Response(call=again.call, body=FetchResponse(partitions=(answer,))))
    (again,) = fetches(effects)
    assert ends(consumer.step(0, fetched(again, batch(0, 2), high_watermark=2))) == [2]


def test_several_partitions_are_resumed_with_one_fetch() -> None:
    consumer, _, (fetch,) = reading(0, partitions=2)
    for place in (T0, T1):
        consumer.pause(place)
    consumer.step(0, fetched(fetch))
    (send,) = fetches(consumer.resume(0, T0, T1))
    assert isinstance(send.body, FetchRequest)
    assert [each.topic_partition for each in send.body.partitions] == [T0, T1]


def damaged_again(
    consumer: ConsumerCore, cluster: FakeCluster, fetch: Send, now_ms: int
) -> list[ConsumerEffect]:
    """Answer the fetch with a damaged batch, and the metadata request that follows. Returns the effects."""
    data = bytearray(batch(0, 1))
    data[-1] ^= 1
    effects = list(consumer.step(now_ms, fetched(fetch, bytes(data))))
    for send in sends(effects):
        if isinstance(send.body, MetadataRequest):
            effects += consumer.step(now_ms, Response(call=send.call, body=cluster.metadata(("t",))))
    return effects


def test_a_batch_that_stays_damaged_ends_the_reading_after_half_a_minute() -> None:
    consumer, cluster, (fetch,) = reading(0)
    lost: list[ConsumerEffect] = []
    now_ms = 0
    while not lost and now_ms <= 2 * DAMAGED_MS:
        effects = damaged_again(consumer, cluster, fetch, now_ms)
        lost = [effect for effect in effects if isinstance(effect, PositionLost)]
        while not lost and not (asked := fetches(effects)):
            now_ms += 100
            effects = list(consumer.step(now_ms, WAKE))
            for send in sends(effects):
                if isinstance(send.body, MetadataRequest):
                    effects += consumer.step(now_ms, Response(call=send.call, body=cluster.metadata(("t",))))
        fetch = fetch if lost else asked[0]
    assert lost == [PositionLost(topic_partition=T0, offset=0, error=ErrorCode.CORRUPT_MESSAGE)]
    assert now_ms >= DAMAGED_MS
    # Its user may move it past that.
    assert [asked_offset(send) for send in fetches(consumer.seek(now_ms, T0, 1))] == [1]


def test_a_batch_that_is_sound_at_last_lets_the_next_damage_have_its_own_time() -> None:
    consumer, cluster, (fetch,) = reading(0)
    damaged_again(consumer, cluster, fetch, 0)
    (again,) = fetches(consumer.step(100, WAKE))
    effects = consumer.step(DAMAGED_MS, fetched(again, batch(0, 1)))
    (again,) = fetches(effects)
    effects = damaged_again(consumer, cluster, again, DAMAGED_MS)
    assert not [effect for effect in effects if isinstance(effect, PositionLost)]


@pytest.mark.parametrize("how", ["paused", "cut"])
def test_only_answers_in_a_row_count_as_a_batch_that_stays_damaged(how: str) -> None:
    consumer, cluster, (fetch,) = reading(0)
    effects = consumer.step(0, fetched(fetch, batch(0, 2), high_watermark=5))
    (fetch,) = fetches(effects)
    data = bytearray(batch(2, 1))
    data[-1] ^= 1
    for send in sends(consumer.step(0, fetched(fetch, bytes(data), high_watermark=5))):
        if isinstance(send.body, MetadataRequest):
            consumer.step(0, Response(call=send.call, body=cluster.metadata(("t",))))
    later_ms = DAMAGED_MS + 1_000
    if how == "paused":
        consumer.pause(T0)
        (fetch,) = fetches(consumer.resume(later_ms, T0))
    else:
        (fetch,) = fetches(consumer.step(100, WAKE))
        cut = FetchPartitionResponse(topic_partition=T0, diverging=EpochEnd(epoch=0, end_offset=0))
        answer = Response(call=fetch.call, body=FetchResponse(partitions=(cut,)))
        (fetch,) = fetches(consumer.step(later_ms, answer))
    effects = damaged_again(consumer, cluster, fetch, later_ms)
    assert not [effect for effect in effects if isinstance(effect, PositionLost)]


def test_subscription_reads_all_partitions_and_those_that_appear_later() -> None:
    consumer = ConsumerCore(ConsumerConfig())
    (ask,) = sends(consumer.subscribe(0, ["t"], OffsetReset.EARLIEST))
    small, large = FakeCluster({"t": 1}), FakeCluster({"t": 2})
    consumer.step(0, Response(call=ask.call, body=small.metadata(("t",))))
    assert list(consumer.positions()) == [T0]
    consumer.metadata.request()
    (again,) = [each for each in sends(consumer.step(100, WAKE)) if isinstance(each.body, MetadataRequest)]
    consumer.step(100, Response(call=again.call, body=large.metadata(("t",))))
    assert list(consumer.positions()) == [T0, T1]


def test_a_partition_that_its_topic_has_no_more_is_not_read_on() -> None:
    consumer = ConsumerCore(ConsumerConfig())
    (ask,) = sends(consumer.subscribe(0, ["t"], OffsetReset.EARLIEST))
    large, small = FakeCluster({"t": 2}), FakeCluster({"t": 1})
    consumer.step(0, Response(call=ask.call, body=large.metadata(("t",))))
    assert list(consumer.positions()) == [T0, T1]
    consumer.metadata.request()
    (again,) = [each for each in sends(consumer.step(100, WAKE)) if isinstance(each.body, MetadataRequest)]
    # The topic was deleted and created again meanwhile.
    small.create_again("t")
    answer = replace(small.metadata(("t",)), metadata_offset=9)
    effects = consumer.step(100, Response(call=again.call, body=answer))
    assert [each for each in effects if isinstance(each, PartitionDeleted)] == [
        PartitionDeleted(topic_partition=T1)
    ]
    assert list(consumer.positions()) == [T0]
    assert not any(isinstance(each.body, MetadataRequest) for each in sends(consumer.step(500, WAKE)))


def test_an_assignment_may_follow_new_partitions_from_their_start() -> None:
    small, large = FakeCluster({"t": 1}), FakeCluster({"t": 2})
    for follows in (False, True):
        consumer = ConsumerCore(ConsumerConfig())
        (ask,) = sends(consumer.assign(0, [(T0, 5)], new_partitions=follows))
        consumer.step(0, Response(call=ask.call, body=small.metadata(("t",))))
        consumer.metadata.request()
        asked = [each for each in sends(consumer.step(100, WAKE)) if isinstance(each.body, MetadataRequest)]
        effects = consumer.step(100, Response(call=asked[0].call, body=large.metadata(("t",))))
        assert list(consumer.positions()) == ([T0, T1] if follows else [T0])
        looked_up = [each.body for each in sends(effects) if isinstance(each.body, ListOffsetsRequest)]
        assert [each.timestamp for each in looked_up] == [EARLIEST_TIMESTAMP] * follows


def test_metadata_is_asked_for_the_topics_of_the_last_assignment_or_subscription_alone() -> None:
    consumer, u0 = ConsumerCore(ConsumerConfig()), TopicPartition("u", 0)
    (ask,) = sends(consumer.assign(0, [(T0, 5)]))
    consumer.step(0, Response(call=ask.call, body=FakeCluster({"t": 1}).metadata(("t",))))
    (ask,) = [
        each for each in sends(consumer.assign(100, [(u0, 5)])) if isinstance(each.body, MetadataRequest)
    ]
    assert ask.body == MetadataRequest(topics=("u",))
    consumer.step(100, Response(call=ask.call, body=FakeCluster({"u": 1}).metadata(("u",))))
    (ask,) = sends(consumer.subscribe(200, ["v"], OffsetReset.EARLIEST))
    assert ask.body == MetadataRequest(topics=("v",))


def test_what_was_missing_is_told_again_to_a_new_subscription() -> None:
    consumer = ConsumerCore(ConsumerConfig())
    (ask,) = sends(consumer.subscribe(0, ["nowhere"], OffsetReset.EARLIEST))
    consumer.step(0, Response(call=ask.call, body=FakeCluster({}).metadata(("nowhere",))))
    effects = consumer.subscribe(0, ["nowhere"], OffsetReset.EARLIEST)
    assert TopicMissing(topic="nowhere", error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) in effects


def test_missing_topic_is_reported_once_and_asked_for_again() -> None:
    consumer = ConsumerCore(ConsumerConfig())
    (ask,) = sends(consumer.subscribe(0, ["nowhere"], OffsetReset.EARLIEST))
    effects = consumer.step(0, Response(call=ask.call, body=FakeCluster({}).metadata(("nowhere",))))
    missing = TopicMissing(topic="nowhere", error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert missing in effects
    effects = consumer.step(100, WAKE)
    assert missing not in effects
    assert sends(effects)


def test_a_partition_that_always_fills_an_answer_does_not_starve_the_others() -> None:
    """A leader serves the partitions of a request in order, up to fetch.max.bytes (KIP-74)."""
    consumer, _, (first,) = reading(partitions=2)
    assert isinstance(first.body, FetchRequest)
    assert [each.topic_partition for each in first.body.partitions] == [T0, T1]
    (second,) = fetches(consumer.step(0, fetched(first, batch(0, 2))))
    assert isinstance(second.body, FetchRequest)
    assert [each.topic_partition for each in second.body.partitions] == [T1, T0]
    # What brings no record takes no turn.
    (third,) = fetches(consumer.step(0, fetched(second)))
    assert isinstance(third.body, FetchRequest)
    assert [each.topic_partition for each in third.body.partitions] == [T1, T0]
