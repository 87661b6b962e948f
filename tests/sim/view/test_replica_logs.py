"""The epochs of a replica's log follow from what replicas report."""

from __future__ import annotations

import pytest

from sim.view.replica_logs import UNKNOWN_EPOCH, Op, PartitionLogs, ReplicaLog, Run


def led_log() -> PartitionLogs:
    """Returns a partition whose leader has offsets 0 to 9 of epoch 0 and 10 to 14 of epoch 2."""
    logs = PartitionLogs()
    logs.became_leader(0, "a", 0, 0)
    logs.appended(1, "a", 0, 0, 10, is_leader=True)
    logs.became_leader(2, "a", 2, 10)
    logs.appended(3, "a", 2, 10, 15, is_leader=True)
    return logs


def test_a_followers_records_have_the_epochs_of_the_leaders_log() -> None:
    logs = led_log()
    logs.appended(4, "b", 2, 0, 12, is_leader=False)
    assert logs.replica("b").runs == [Run(10, 0), Run(12, 2)]


def test_records_that_no_leader_is_known_to_have_are_of_the_followers_epoch() -> None:
    logs = PartitionLogs()
    logs.appended(0, "b", 3, 0, 5, is_leader=False)
    assert logs.replica("b").runs == [Run(5, 3)]


def test_a_truncation_cuts_records_and_whole_epochs() -> None:
    logs = led_log()
    logs.truncated(4, "a", 8)
    assert logs.replica("a").runs == [Run(8, 0)]
    assert logs.replica("a").changes[-4:] == [4, Op.CUT, 8, UNKNOWN_EPOCH]


def test_a_truncation_above_the_log_end_starts_the_log_there() -> None:
    logs = led_log()
    logs.truncated(4, "a", 40)
    assert (logs.replica("a").start, logs.replica("a").end, logs.replica("a").runs) == (40, 40, [])


def test_a_role_states_what_a_power_loss_left() -> None:
    logs = led_log()
    logs.became_follower(4, "a", 3, 12)
    assert logs.replica("a").runs == [Run(10, 0), Run(12, 2)]


def test_records_that_were_never_reported_have_no_known_epoch() -> None:
    logs = PartitionLogs()
    logs.became_leader(0, "a", 1, 4)
    assert logs.replica("a").runs == [Run(4, UNKNOWN_EPOCH)]


def test_an_append_below_the_log_end_replaces_what_was_there() -> None:
    logs = led_log()
    logs.appended(4, "a", 5, 9, 11, is_leader=True)
    assert logs.replica("a").runs == [Run(9, 0), Run(11, 5)]


def test_deleted_segments_move_the_start_of_the_log() -> None:
    log = ReplicaLog()
    log.extend(0, 10, 0)
    log.extend(1, 20, 1)
    log.start_at(2, 12)
    assert (log.start, log.runs) == (12, [Run(20, 1)])
    log.start_at(3, 30)
    assert (log.start, log.end, log.runs) == (30, 30, [])


def test_a_removed_replica_begins_again_at_zero() -> None:
    log = ReplicaLog()
    log.start_at(0, 5)
    log.extend(1, 9, 0)
    log.clear(2)
    assert (log.start, log.end) == (0, 0)


@pytest.mark.parametrize(
    ("first", "end", "found"),
    [
        (0, 15, [Run(10, 0), Run(15, 2)]),
        (10, 12, [Run(12, 2)]),
        (3, 5, [Run(5, 0)]),
        (15, 15, []),
        (12, 40, [Run(15, 2)]),
    ],
)
def test_pieces_are_cut_to_the_offsets_that_are_asked_for(first: int, end: int, found: list[Run]) -> None:
    assert led_log().replica("a").pieces(first, end) == found
