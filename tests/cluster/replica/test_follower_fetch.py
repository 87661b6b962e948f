"""A follower's fetch loop (FET)."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from cluster.core.effects import RunJob, Send
from cluster.core.errors import ErrorCode
from cluster.core.events import TransportError
from cluster.core.messages import (
    NO_EPOCH,
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
    TopicPartition,
)
from cluster.core.replica.follower import FetchState
from tests.cluster.replica.setup import (
    NO_CONFIGS,
    T0,
    Setup,
    asked_of,
    diverging,
    observed,
    of,
    only_sent,
    sent,
    stamped,
)


def following(*, leader_epoch: int = 0, configs: Mapping[str, str] = NO_CONFIGS) -> tuple[Setup, Send]:
    """Broker 1 follows broker 2; its first fetch is in flight."""
    setup = Setup()
    effects = setup.place(leader=2, leader_epoch=leader_epoch, configs=configs)
    return setup, only_sent(effects, FetchRequest)


def test_fet1_a_fetch_names_the_follower_and_the_ends_of_its_log() -> None:
    setup, send = following(leader_epoch=4)
    assert send.to == 2
    assert isinstance(send.body, FetchRequest)
    assert (send.body.replica_id, send.body.broker_epoch) == (1, 101)
    asked = asked_of(send)
    assert (asked.fetch_offset, asked.log_start_offset) == (0, 0)
    assert (asked.current_leader_epoch, asked.last_fetched_epoch) == (4, NO_EPOCH)
    effects = setup.answer_fetch(send, records=stamped(0, 3, b"a", b"b"), log_end_offset=2)
    asked = asked_of(only_sent(effects, FetchRequest))
    # The epoch asked with is that of the last batch appended (FET-8).
    assert (asked.fetch_offset, asked.last_fetched_epoch) == (2, 3)


def test_fet2_a_log_without_epochs_begins_at_its_high_watermark() -> None:
    setup, send = following()
    setup.answer_fetch(send, records=stamped(0, 0, b"a", b"b"), high_watermark=1)
    setup.replica.log.epochs.clear_and_flush()
    effects = setup.place(leader=3, leader_epoch=1, partition_epoch=1)
    assert asked_of(only_sent(effects, FetchRequest)).fetch_offset == setup.high_watermark
    assert observed(effects, "replica.truncated") == [
        {"topic_partition": "t-0", "to_offset": 1, "from_log_end_offset": 2, "leader_epoch": 1}
    ]


def test_fet2_a_log_with_epochs_begins_at_its_end() -> None:
    setup, send = following()
    setup.answer_fetch(send, records=stamped(0, 0, b"a", b"b"), high_watermark=0)
    effects = setup.place(leader=3, leader_epoch=1, partition_epoch=1)
    # The fetch begins at the log end, not at the high watermark (B-01).
    assert asked_of(only_sent(effects, FetchRequest)).fetch_offset == 2


def test_fet3_one_request_in_flight_for_all_partitions_of_a_leader() -> None:
    setup = Setup()
    setup.place(leader=2)
    others = [TopicPartition("t", number) for number in (1, 2)]
    for other in others:
        assert sent(setup.place(leader=2, topic_partition=other), FetchRequest) == []
    first = only_sent(setup.place(leader=3, topic_partition=TopicPartition("u", 0)), FetchRequest)
    # Another broker gets a request of its own.
    assert first.to == 3
    call = 1
    effects = setup.answer(call, TransportError(reason="reset"))
    assert sent(effects, FetchRequest) == []
    send = only_sent(setup.wait(1_000, "replica.fetch:2"), FetchRequest)
    assert isinstance(send.body, FetchRequest)
    assert [each.topic_partition.partition for each in send.body.partitions] == [0, 1, 2]


def following_two() -> tuple[Setup, Send]:
    """Follow another partition of the same leader: a new epoch then does not end the fetcher and its request."""
    setup, send = following()
    setup.place(leader=2, topic_partition=TopicPartition("t", 1))
    return setup, send


def test_fet4_an_answer_of_an_older_leader_epoch_is_dropped() -> None:
    setup, send = following_two()
    setup.place(leader=2, leader_epoch=1, partition_epoch=1)
    # The answer is to a fetch of the old epoch (KAFKA-7786).
    effects = setup.answer_fetch(send, records=stamped(0, 0, b"a"), high_watermark=1)
    assert setup.end == 0
    assert len(sent(effects, FetchRequest)) == 1


def test_fet4_a_late_diverging_answer_truncates_nothing() -> None:
    setup, send = following_two()
    records = stamped(0, 0, b"a") + stamped(1, 0, b"b")
    again = only_sent(setup.answer_fetch(send, records=records, high_watermark=2), FetchRequest)
    setup.place(leader=2, leader_epoch=1, partition_epoch=1)
    body = again.body
    assert isinstance(body, FetchRequest) and body.partitions[-1].topic_partition == T0
    setup.answer(
        again.call,
        FetchResponse(partitions=(FetchPartitionResponse(topic_partition=T0, diverging=diverging(0, 1)),)),
    )
    assert setup.end == 2


def test_fet4_an_answer_to_another_offset_is_dropped() -> None:
    setup, send = following()
    setup.replica.log.append_as_follower(stamped(0, 0, b"x"), leader_epoch=0, now_ms=setup.now_ms)
    effects = setup.answer_fetch(send, records=stamped(0, 0, b"a", b"b"))
    assert setup.values() == [b"x"]
    assert asked_of(only_sent(effects, FetchRequest)).fetch_offset == 1


def test_fet4_an_answer_while_the_partition_is_delayed_is_dropped() -> None:
    setup, send = following()
    follower = setup.replica.follower
    assert follower is not None
    follower.delayed_until_ms = setup.now_ms + 1
    setup.answer_fetch(send, records=stamped(0, 0, b"a"))
    assert setup.end == 0


def test_fet4_an_answer_about_a_partition_that_is_led_now_is_dropped() -> None:
    setup, send = following()
    setup.place(leader=1, leader_epoch=1, partition_epoch=1)
    setup.answer_fetch(send, records=stamped(0, 0, b"a"))
    assert setup.end == 0


def test_fet5_a_diverging_answer_truncates_and_does_nothing_else() -> None:
    setup, send = following()
    records = stamped(0, 0, b"a") + stamped(1, 0, b"b")
    again = only_sent(setup.answer_fetch(send, records=records), FetchRequest)
    effects = setup.answer_fetch(
        again, diverging=diverging(0, 1), high_watermark=9, log_start_offset=1, records=stamped(2, 0, b"c")
    )
    assert setup.values() == [b"a"]
    # A diverging answer changes no mark, whatever it says of them (KAFKA-14704).
    assert (setup.high_watermark, setup.replica.log.log_start_offset) == (0, 0)
    assert len(sent(effects, FetchRequest)) == 1


def test_fet5_append_then_high_watermark_then_log_start() -> None:
    setup, send = following()
    effects = setup.answer_fetch(
        send, records=stamped(0, 0, b"a") + stamped(1, 0, b"b"), high_watermark=9, log_start_offset=1
    )
    assert setup.end == 2
    # It is the leader's, bounded by the own log end.
    assert setup.high_watermark == 2
    assert setup.replica.log.log_start_offset == 1
    assert [effect["role"] for effect in observed(effects, "replica.high_watermark")] == ["follower"]
    assert observed(effects, "replica.appended") == [
        {
            "topic_partition": "t-0",
            "leader_epoch": 0,
            "first_offset": 0,
            "last_offset": 1,
            "origin": "follower",
        }
    ]


def test_fet6_a_followers_high_watermark_may_go_back() -> None:
    setup, send = following()
    again = only_sent(
        setup.answer_fetch(send, records=stamped(0, 0, b"a") + stamped(1, 0, b"b"), high_watermark=2),
        FetchRequest,
    )
    setup.answer_fetch(again, high_watermark=1)
    assert setup.high_watermark == 1


def test_fet8_an_empty_answer_keeps_the_last_fetched_epoch() -> None:
    setup, send = following(leader_epoch=2)
    again = only_sent(setup.answer_fetch(send, records=stamped(0, 1, b"a")), FetchRequest)
    # An empty answer leaves the epoch as it was (KAFKA-15510).
    third = only_sent(setup.answer_fetch(again), FetchRequest)
    assert asked_of(third).last_fetched_epoch == 1


def test_fet9_batches_of_a_later_epoch_than_was_asked_in_are_skipped() -> None:
    setup, send = following(leader_epoch=1)
    # The second batch has an epoch above that of the fetch (KAFKA-18723).
    setup.answer_fetch(send, records=stamped(0, 1, b"a") + stamped(1, 2, b"b"))
    assert setup.values() == [b"a"]


def test_fet10_fenced_it_stops_until_newer_metadata() -> None:
    setup, send = following()
    effects = setup.answer_fetch(send, error=ErrorCode.FENCED_LEADER_EPOCH)
    assert sent(effects, FetchRequest) == []
    follower = setup.replica.follower
    assert follower is not None and follower.state is FetchState.FENCED
    setup.now_ms += 100_000
    assert sent(setup.settle(), FetchRequest) == []
    assert len(sent(setup.place(leader=2, leader_epoch=1, partition_epoch=1), FetchRequest)) == 1


def test_fet10_a_follower_fenced_in_an_epoch_that_it_has_left_continues() -> None:
    setup, send = following()
    setup.place(leader=2, leader_epoch=1, partition_epoch=1)
    setup.answer_fetch(send, error=ErrorCode.FENCED_LEADER_EPOCH)
    follower = setup.replica.follower
    assert follower is not None and follower.state is FetchState.FETCHING


def test_fet10_other_errors_back_off_and_retry() -> None:
    for error in (
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ):
        setup, send = following()
        assert sent(setup.answer_fetch(send, error=error), FetchRequest) == []
        assert len(sent(setup.wait(1_000, "replica.fetch:2"), FetchRequest)) == 1


def test_fet10_a_batch_damaged_on_the_way_is_asked_for_again() -> None:
    setup, send = following()
    damaged = bytearray(stamped(0, 0, b"abcdef"))
    damaged[-1] ^= 1
    assert sent(setup.answer_fetch(send, records=bytes(damaged)), FetchRequest) == []
    assert setup.end == 0
    assert len(sent(setup.wait(1_000, "replica.fetch:2"), FetchRequest)) == 1


def test_fet10_records_that_the_log_refuses_fail_the_partition() -> None:
    setup, send = following()
    again = only_sent(setup.answer_fetch(send, records=stamped(0, 0, b"a")), FetchRequest)
    # These records are below the log end.
    effects = setup.answer_fetch(again, records=stamped(0, 0, b"a"))
    assert len(observed(effects, "replica.failed")) == 1
    follower = setup.replica.follower
    assert follower is not None and follower.state is FetchState.FAILED


def test_fet11_a_leader_that_ends_below_cuts_the_follower_to_its_end() -> None:
    setup, send = following()
    records = stamped(0, 0, b"a") + stamped(1, 0, b"b")
    again = only_sent(setup.answer_fetch(send, records=records), FetchRequest)
    effects = setup.answer_fetch(again, error=ErrorCode.OFFSET_OUT_OF_RANGE, log_end_offset=1)
    assert setup.values() == [b"a"]
    assert asked_of(only_sent(effects, FetchRequest)).fetch_offset == 1


def test_fet11_a_leader_that_starts_above_makes_the_follower_start_again_there() -> None:
    setup, send = following()
    effects = setup.answer_fetch(
        send, error=ErrorCode.OFFSET_OUT_OF_RANGE, log_start_offset=7, log_end_offset=9
    )
    log = setup.replica.log
    # The log starts again, empty, at the leader's start (EPC-9, KAFKA-9491).
    assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (7, 7, 7)
    assert asked_of(only_sent(effects, FetchRequest)).fetch_offset == 7


def test_fet11_a_follower_that_starts_again_flushes_where_it_is_promised() -> None:
    setup, send = following(configs={"flush.messages": "1"})
    effects = setup.answer_fetch(
        send, error=ErrorCode.OFFSET_OUT_OF_RANGE, log_start_offset=7, log_end_offset=9
    )
    assert sent(effects, FetchRequest) == []
    # The next fetch waits for the flush, and for nothing else.
    assert asked_of(only_sent(setup.run_jobs(effects), FetchRequest)).fetch_offset == 7


def test_fet11_otherwise_a_follower_continues_from_its_own_end() -> None:
    setup, send = following()
    again = only_sent(setup.answer_fetch(send, records=stamped(0, 0, b"a")), FetchRequest)
    setup.answer_fetch(again, error=ErrorCode.OFFSET_OUT_OF_RANGE, log_start_offset=0, log_end_offset=5)
    assert setup.values() == [b"a"]
    send = only_sent(setup.wait(1_000, "replica.fetch:2"), FetchRequest)
    # The fetch never begins again at zero (KAFKA-2143).
    assert asked_of(send).fetch_offset == 1


def test_fet12_an_unflushed_record_is_acknowledged_where_no_flush_is_promised() -> None:
    setup, send = following()
    effects = setup.answer_fetch(send, records=stamped(0, 0, b"a"))
    assert of(effects, RunJob) == []
    assert asked_of(only_sent(effects, FetchRequest)).fetch_offset == 1


def test_with_flush_messages_1_the_next_fetch_waits_for_the_own_flush() -> None:
    setup, send = following(configs={"flush.messages": "1"})
    effects = setup.answer_fetch(send, records=stamped(0, 0, b"a"))
    assert sent(effects, FetchRequest) == []
    after = setup.run_jobs(effects)
    assert setup.replica.log.local.recovery_point == 1
    assert asked_of(only_sent(after, FetchRequest)).fetch_offset == 1


def test_a_partition_that_got_data_is_asked_for_last() -> None:
    setup = Setup()
    setup.place(leader=2)
    setup.place(leader=2, topic_partition=TopicPartition("t", 1))
    send = only_sent(
        setup.wait(0, "none")
        + setup.answer(1, TransportError(reason="reset"))
        + setup.wait(1_000, "replica.fetch:2"),
        FetchRequest,
    )
    effects = setup.answer_fetch(send, records=stamped(0, 0, b"a"))
    body = only_sent(effects, FetchRequest).body
    assert isinstance(body, FetchRequest)
    assert [each.topic_partition.partition for each in body.partitions] == [1, 0]


def test_kip74_a_partition_whose_next_batch_did_not_fit_keeps_its_place() -> None:
    """Only where it is the first its batch comes whole. Behind one that always gets records it would never be."""
    setup = Setup()
    setup.place(leader=2)
    other = TopicPartition("t", 1)
    setup.place(leader=2, topic_partition=other)
    refetched = setup.answer(1, TransportError(reason="reset")) + setup.wait(1_000, "replica.fetch:2")
    send = only_sent(refetched, FetchRequest)
    records = stamped(0, 0, b"a")
    answers = (
        FetchPartitionResponse(topic_partition=T0, records=records, high_watermark=0, log_start_offset=0),
        FetchPartitionResponse(
            topic_partition=other, records=records[:-1], high_watermark=0, log_start_offset=0
        ),
    )
    body = only_sent(setup.answer(send.call, FetchResponse(partitions=answers)), FetchRequest).body
    assert isinstance(body, FetchRequest)
    assert [each.topic_partition for each in body.partitions] == [other, T0]


def test_a_swallowed_fetch_does_not_hold_a_partition_that_left_and_came_back() -> None:
    setup, _ = following()
    setup.place(leader=3, leader_epoch=1, partition_epoch=1)
    effects = setup.place(leader=2, leader_epoch=2, partition_epoch=2)
    assert only_sent(effects, FetchRequest).to == 2


def test_c7_a_set_above_a_lowered_segment_bytes_does_not_fail_the_replica() -> None:
    setup, send = following(configs={"segment.bytes": "200"})
    large = stamped(0, 0, b"a" * 300)
    effects = setup.answer_fetch(send, records=large, log_end_offset=1)
    assert observed(effects, "replica.failed") == []
    assert asked_of(only_sent(effects, FetchRequest)).fetch_offset == 1
    assert setup.values() == [b"a" * 300]


@pytest.mark.parametrize("end_offset", [-1, -(1 << 63)])
def test_c10_a_negative_diverging_end_is_refused_and_asked_for_again(end_offset: int) -> None:
    setup, send = following()
    send = only_sent(setup.answer_fetch(send, records=stamped(0, 0, b"a"), log_end_offset=1), FetchRequest)
    effects = setup.answer_fetch(send, diverging=diverging(0, end_offset))
    follower = setup.replica.follower
    assert follower is not None and follower.state is FetchState.FETCHING
    assert setup.end == 1 and observed(effects, "replica.truncated") == []
