"""A consumer asks for what follows what it has read, and starts again where it is set to (FET-4, KIP-320)."""

from __future__ import annotations

import pytest

from cluster.core.client.config import OffsetReset
from cluster.core.client.effects import (
    EndOfPartition,
    Fetched,
    FetchedBatch,
    PositionReset,
    TopicMissing,
    Truncated,
)
from cluster.core.client.starts import AtTime, BeforeEnd, asked_timestamp
from cluster.core.errors import ErrorCode
from cluster.core.messages import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    FetchPartition,
    FetchRequest,
    ListOffsetsRequest,
    ListOffsetsResponse,
    MetadataResponse,
    TopicMetadata,
    TopicPartition,
)
from sim.checkers.base import Jury
from sim.checkers.consumer_positions import ConsumerPositions
from sim.checkers.ghost import Ghost
from storage.batch.format import TimestampType

T0 = TopicPartition("t", 0)


class Consumer:
    """Has read up to offset 7 (exclusive), records of epoch 2 last; where it is out of range it goes to the start."""

    def __init__(self, high_watermark: int = 9) -> None:
        self.jury = Jury(Ghost(), [], now_us=lambda: 0, on_violation=lambda violation: None)
        self.positions = ConsumerPositions(self.jury)
        self.positions.on_begun("c", OffsetReset.EARLIEST)
        self.positions.on_sought("c", T0, 0)
        self.positions.on_told("c", self.read(high_watermark))

    def read(self, high_watermark: int) -> Fetched:
        """Returns the records up to offset 7 (exclusive), as they are read."""
        return Fetched(
            topic_partition=T0, records=(), high_watermark=high_watermark, next_offset=7, leader_epoch=3,
            batches=(FetchedBatch(0, 2, TimestampType.CREATE),),
        )  # fmt: skip

    def fetch(self, offset: int, epoch: int) -> bool:
        """Returns whether a fetch of this offset, after this epoch, breaks a rule."""
        asked = FetchPartition(
            topic_partition=T0, fetch_offset=offset, last_fetched_epoch=epoch, max_bytes=1,
            current_leader_epoch=3,
        )  # fmt: skip
        request = FetchRequest(replica_id=-1, max_wait_ms=0, min_bytes=1, max_bytes=1, partitions=(asked,))
        self.positions.on_sent("c", 5, request)
        return bool(self.jury.violations)

    def ends_at(self, offset: int) -> bool:
        """Returns whether it breaks a rule that the user is told of an end there."""
        self.positions.on_told("c", EndOfPartition(topic_partition=T0, offset=offset))
        return bool(self.jury.violations)

    def ends_twice(self) -> bool:
        """Returns whether it breaks a rule that the user is told of one end again."""
        assert not self.ends_at(7)
        return self.ends_at(7)

    def look_up(self, call: int, timestamp: int, offset: int) -> None:
        request = ListOffsetsRequest(topic_partition=T0, timestamp=timestamp, current_leader_epoch=3)
        self.positions.on_sent("c", call, request)
        self.positions.on_answered("c", call, ListOffsetsResponse(topic_partition=T0, offset=offset))

    def reset_to(self, offset: int, reason: str = "out_of_range") -> bool:
        """Returns whether a new position for this reason breaks a rule."""
        self.positions.on_told("c", PositionReset(topic_partition=T0, offset=offset, reason=reason))
        return bool(self.jury.violations)


def test_kip320_a_fetch_names_the_position_and_the_epoch_of_what_was_read_last() -> None:
    assert not Consumer().fetch(7, 2)
    for offset, epoch in ((6, 2), (8, 2), (7, 3), (7, -1)):
        assert Consumer().fetch(offset, epoch), (offset, epoch)


def test_who_fetches_a_damaged_batch_again_is_not_at_the_end() -> None:
    for is_damaged in (False, True):
        consumer = Consumer(high_watermark=7)
        if is_damaged:
            consumer.positions.on_damaged("c", str(T0))
        assert consumer.fetch(7, 2) is not is_damaged
        if is_damaged:
            # The next answer is sound.
            consumer.positions.on_told("c", consumer.read(7))
            assert consumer.fetch(7, 2)


def test_kip320_after_a_cut_a_fetch_names_the_epoch_that_is_left() -> None:
    for epoch, is_broken in ((1, False), (2, True)):
        consumer = Consumer()
        cut = Truncated(topic_partition=T0, from_offset=7, to_offset=4, epoch=1)
        consumer.positions.on_told("c", cut)
        assert consumer.fetch(4, epoch) is is_broken


def test_a_position_that_was_looked_up_or_sought_has_no_epoch() -> None:
    looked_up, sought = Consumer(), Consumer()
    looked_up.reset_to(3, "earliest")
    assert not looked_up.fetch(3, -1)
    sought.positions.on_sought("c", T0, 5)
    assert not sought.fetch(5, -1) and sought.fetch(5, 2)


@pytest.mark.parametrize("asked", [OffsetReset.EARLIEST, OffsetReset.LATEST])
def test_a_consumer_that_is_out_of_range_goes_where_it_is_set_to(asked: OffsetReset) -> None:
    consumer = Consumer()
    consumer.look_up(6, asked_timestamp(asked), 30)
    assert consumer.reset_to(30) is (asked is OffsetReset.LATEST)


def test_a_consumer_without_a_reset_goes_nowhere_when_it_is_out_of_range() -> None:
    consumer = Consumer()
    consumer.positions.on_begun("c", OffsetReset.NONE)
    consumer.look_up(6, asked_timestamp(OffsetReset.LATEST), 30)
    assert not consumer.reset_to(30, "latest")
    assert consumer.reset_to(30)


def test_a_consumer_that_is_out_of_range_goes_where_the_broker_says() -> None:
    consumer = Consumer()
    consumer.look_up(6, asked_timestamp(OffsetReset.EARLIEST), 30)
    # A late answer to an earlier look-up.
    consumer.positions.on_answered("c", 4, ListOffsetsResponse(topic_partition=T0, offset=12))
    assert not consumer.reset_to(30)
    consumer.look_up(7, asked_timestamp(OffsetReset.EARLIEST), 31)
    assert consumer.reset_to(12)


def test_a_place_before_the_end_is_not_before_the_log_start() -> None:
    for start, count, expected in ((0, 5, 25), (28, 5, 28), (0, 40, 0), (3, 0, 30)):
        for offset in (expected, 30 - count - 1):
            consumer = Consumer()
            consumer.positions.on_sought("c", T0, BeforeEnd(count))
            consumer.look_up(6, LATEST_TIMESTAMP, 30)
            if count > 0:
                consumer.look_up(7, EARLIEST_TIMESTAMP, start)
            assert consumer.reset_to(offset, "before_end") is (offset != expected), (start, count, offset)


def test_a_time_is_where_the_broker_says_or_the_end_where_no_record_is_as_late() -> None:
    for found, expected in ((12, 12), (-1, 30)):
        consumer = Consumer()
        consumer.positions.on_sought("c", T0, AtTime(1_000))
        consumer.look_up(6, LATEST_TIMESTAMP, 30)
        consumer.look_up(7, 1_000, found)
        assert not consumer.reset_to(expected, "timestamp") and not consumer.fetch(expected, -1)
    assert consumer.reset_to(29, "earliest") is False


def test_an_end_that_is_told_after_the_time_may_be_behind_a_record_as_late() -> None:
    consumer = Consumer()
    consumer.positions.on_sought("c", T0, AtTime(1_000))
    consumer.look_up(6, 1_000, -1)
    consumer.look_up(7, LATEST_TIMESTAMP, 30)
    assert consumer.reset_to(30, "timestamp")


def test_what_was_answered_is_not_looked_up_again() -> None:
    consumer = Consumer()
    consumer.positions.on_sought("c", T0, BeforeEnd(5))
    # An answer that says nothing, and one to a look-up of before.
    consumer.look_up(5, LATEST_TIMESTAMP, -1)
    consumer.look_up(6, LATEST_TIMESTAMP, 30)
    consumer.look_up(7, EARLIEST_TIMESTAMP, 0)
    assert not consumer.jury.violations
    # Its user sends it somewhere else meanwhile.
    consumer.positions.on_sought("c", T0, OffsetReset.LATEST)
    consumer.look_up(8, LATEST_TIMESTAMP, 31)
    assert not consumer.jury.violations
    consumer.look_up(9, LATEST_TIMESTAMP, 31)
    assert [each.checker for each in consumer.jury.violations] == ["consumer-positions"]


def test_a_new_life_and_other_clients_are_judged_by_nothing_that_was_before() -> None:
    consumer = Consumer()
    consumer.positions.on_begun("c", OffsetReset.LATEST)
    assert not consumer.fetch(0, -1)
    consumer.positions.on_sent("admin", 1, ListOffsetsRequest(topic_partition=T0, timestamp=-1))
    assert not consumer.jury.violations


def test_who_has_read_up_to_the_high_watermark_tells_of_the_end_before_it_asks_for_more() -> None:
    told, silent, goes_on = Consumer(7), Consumer(7), Consumer(8)
    assert not told.ends_at(7)
    assert not told.fetch(7, 2)
    assert silent.fetch(7, 2)
    assert not goes_on.fetch(7, 2)


def test_an_end_is_where_the_consumer_is_and_not_below_the_high_watermark() -> None:
    assert Consumer(7).ends_at(6)
    assert Consumer(8).ends_at(7)


def test_one_end_is_told_once_until_the_user_goes_elsewhere() -> None:
    consumer = Consumer(7)
    consumer.ends_at(7)
    again = Consumer(7)
    again.positions._ends["c", "t-0"] = 7
    assert not again.fetch(7, 2)
    consumer.positions.on_sought("c", T0, 7)
    assert not consumer.ends_at(7)


def test_the_user_is_told_of_an_end_once_unless_the_consumer_was_moved() -> None:
    assert Consumer(high_watermark=7).ends_twice()
    moved = Consumer(high_watermark=7)
    assert not moved.ends_at(7)
    moved.positions.on_sought("c", T0, 7)
    assert not moved.ends_at(7)


def test_a_consumer_says_once_that_a_topic_is_missing() -> None:
    gone, lacking = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LEADER_NOT_AVAILABLE
    there = MetadataResponse(brokers=(), topics=(TopicMetadata(name="t"),), cluster_id="", metadata_offset=1)
    for first, found, second, is_broken in (
        (gone, None, gone, True),
        (gone, None, lacking, False),
        (gone, there, gone, False),
    ):
        consumer = Consumer()
        consumer.positions.on_told("c", TopicMissing(topic="t", error=first))
        consumer.positions.on_answered("c", 9, found)
        consumer.positions.on_told("c", TopicMissing(topic="t", error=second))
        assert bool(consumer.jury.violations) == is_broken, (first, found, second)


def test_an_answer_with_an_error_names_no_place() -> None:
    consumer = Consumer()
    consumer.positions.on_sought("c", T0, OffsetReset.LATEST)
    request = ListOffsetsRequest(topic_partition=T0, timestamp=LATEST_TIMESTAMP, current_leader_epoch=3)
    for call in (6, 7):
        consumer.positions.on_sent("c", call, request)
        refused = ListOffsetsResponse(topic_partition=T0, error=ErrorCode.NOT_LEADER_OR_FOLLOWER, offset=0)
        consumer.positions.on_answered("c", call, refused)
    assert not consumer.jury.violations


def test_what_was_asked_before_a_consumer_was_sent_elsewhere_is_no_place_of_it() -> None:
    consumer = Consumer()
    consumer.positions.on_sought("c", T0, OffsetReset.LATEST)
    request = ListOffsetsRequest(topic_partition=T0, timestamp=LATEST_TIMESTAMP, current_leader_epoch=3)
    consumer.positions.on_sent("c", 6, request)
    consumer.positions.on_sought("c", T0, OffsetReset.LATEST)
    consumer.positions.on_answered("c", 6, ListOffsetsResponse(topic_partition=T0, offset=30))
    consumer.look_up(7, LATEST_TIMESTAMP, 31)
    assert not consumer.reset_to(31, "latest")


def test_a_consumer_may_be_out_of_range_twice() -> None:
    consumer = Consumer()
    for offset in (30, 40):
        consumer.look_up(offset, asked_timestamp(OffsetReset.EARLIEST), offset)
        assert not consumer.reset_to(offset)
