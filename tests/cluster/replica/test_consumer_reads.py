"""What consumers see, and what they must not (CON)."""

from __future__ import annotations

from cluster.core.errors import ErrorCode
from cluster.core.messages import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from tests.cluster.broker.cluster_by_hand import START_MS
from tests.cluster.replica.setup import Setup, diverging, first_values


def leading() -> Setup:
    """Broker 1 leads offsets 0 to 4, of which 0 to 2 are committed."""
    setup = Setup()
    setup.place(leader=1, isr=(1, 2))
    for number in range(5):
        setup.append(b"%d" % number)
    setup.fetch(2, 3)
    return setup


def test_con1_nothing_above_the_high_watermark_is_served() -> None:
    answer = leading().consume(0)
    assert first_values(answer) == [b"0", b"1", b"2"]
    assert answer.high_watermark == 3


def test_con1_a_follower_sees_what_a_consumer_does_not() -> None:
    assert first_values(leading().fetch(2, 3)) == [b"3", b"4"]


def test_con2_between_the_high_watermark_and_the_end_there_is_nothing_yet() -> None:
    answer = leading().consume(4)
    assert answer.error is ErrorCode.NONE and answer.records == b""


def test_con2_outside_the_log_is_out_of_range() -> None:
    setup = leading()
    setup.replica.log.marks.maybe_increment_log_start_offset(2)
    assert setup.consume(1).error is ErrorCode.OFFSET_OUT_OF_RANGE
    assert setup.consume(6).error is ErrorCode.OFFSET_OUT_OF_RANGE


def test_con2_epochs_fence_consumers_too() -> None:
    setup = leading()
    setup.place(leader=1, isr=(1, 2), leader_epoch=2, partition_epoch=1)
    assert setup.consume(0, leader_epoch=0).error is ErrorCode.FENCED_LEADER_EPOCH
    assert setup.consume(0, leader_epoch=3).error is ErrorCode.UNKNOWN_LEADER_EPOCH
    # The answer names where the logs divide (KIP-320).
    assert setup.consume(5, last_fetched_epoch=1).diverging == diverging(0, 5)


def test_con4_a_follower_serves_up_to_its_own_high_watermark() -> None:
    setup = leading()
    setup.place(leader=2, isr=(1, 2), leader_epoch=1, partition_epoch=1)
    assert first_values(setup.consume(0)) == [b"0", b"1", b"2"]
    assert setup.consume(4).error is ErrorCode.NONE
    assert setup.consume(6).error is ErrorCode.OFFSET_OUT_OF_RANGE


def test_con5_a_new_leader_does_not_know_the_committed_end_yet() -> None:
    setup = leading()
    assert setup.list_offsets(LATEST_TIMESTAMP).offset == 3
    setup.place(leader=1, isr=(1, 2), leader_epoch=1, partition_epoch=1)
    # A new leader does not know yet what is committed (KIP-207).
    assert setup.list_offsets(LATEST_TIMESTAMP).error is ErrorCode.OFFSET_NOT_AVAILABLE
    assert setup.list_offsets(EARLIEST_TIMESTAMP).offset == 0
    setup.fetch(2, 5)
    assert setup.list_offsets(LATEST_TIMESTAMP).offset == 5


def test_list_offsets_by_time_finds_committed_records_only() -> None:
    setup = leading()
    found = setup.list_offsets(START_MS)
    assert (found.error, found.offset, found.timestamp, found.leader_epoch) == (
        ErrorCode.NONE,
        0,
        START_MS,
        0,
    )
    late = setup.list_offsets(START_MS + 1)
    assert (late.error, late.offset) == (ErrorCode.NONE, -1)


def test_kip320_list_offsets_by_time_names_the_epoch_of_the_batch_where_the_epochs_begin_later() -> None:
    """A crash may lose a log start that the epochs knew."""
    setup = leading()
    setup.replica.log.epochs.truncate_from_start(2)
    assert setup.list_offsets(START_MS).leader_epoch == 0
    assert setup.list_offsets(EARLIEST_TIMESTAMP).leader_epoch == -1


def test_list_offsets_is_fenced_and_is_the_leaders() -> None:
    setup = leading()
    assert setup.list_offsets(LATEST_TIMESTAMP, leader_epoch=4).error is ErrorCode.UNKNOWN_LEADER_EPOCH
    setup.place(leader=2, isr=(1, 2), leader_epoch=1, partition_epoch=1)
    assert setup.list_offsets(LATEST_TIMESTAMP).error is ErrorCode.NOT_LEADER_OR_FOLLOWER
