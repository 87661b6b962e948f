"""Logs that differ where nothing that brokers tell each other shows it."""

from __future__ import annotations

from sim.checkers.chain import Chain
from sim.checkers.ghost import PartitionGhost
from sim.checkers.history import LEADER_ALONE, RETENTION
from sim.checkers.unseen import BEFORE_START, needs_fault, unseen_by_follower, unseen_difference
from tests.sim.checkers.stories import marks


def partition_with(tail_epoch: int) -> PartitionGhost:
    """Broker 1 led epoch 3 from offset 5 on; broker 2 has offsets 5 to 7 of another epoch."""
    partition = PartitionGhost("t-0")
    partition.image(1).chain = Chain((*marks(0, 5, 1), *marks(5, 20, 3)))
    partition.image(2).chain = Chain((*marks(0, 5, 1), *marks(5, 8, tail_epoch)))
    return partition


def since(partition: PartitionGhost, cached: dict[int, int]) -> int | None:
    found = unseen_difference(partition, 1, cached)
    return None if found is None else found.since


def test_an_epoch_that_is_believed_to_begin_late_hides_the_older_records_of_a_replica() -> None:
    assert since(partition_with(1), {1: 0, 3: 15}) == 5
    assert since(partition_with(1), {1: 0, 3: 6}) == 5


def test_an_epoch_that_is_known_from_its_beginning_hides_nothing() -> None:
    assert since(partition_with(1), {1: 0, 3: 5}) is None


def test_a_follower_that_believes_an_epoch_to_begin_late_is_not_cut_where_it_differs() -> None:
    for tail_epoch, cached, expected in ((1, 15, 5), (1, 6, 5), (1, 5, None), (3, 15, None)):
        found = unseen_by_follower(partition_with(tail_epoch), 1, 2, {1: 0, 3: cached})
        assert (None if found is None else found.since) == expected, (tail_epoch, cached)
    # A third replica is none of the two.
    assert unseen_by_follower(partition_with(1), 1, 3, {1: 0, 3: 15}) is None


def test_an_epoch_of_which_compaction_has_left_nothing_hides_older_records_too() -> None:
    """The holder takes its records of epoch 3 for some of epoch 1, and knows where epoch 4 begins."""
    partition = PartitionGhost("t-0")
    partition.image(1).chain = Chain((*marks(0, 5, 1), *marks(5, 10, 3), *marks(10, 20, 4)))
    for other_epoch, expected in ((1, 5), (2, None), (3, None)):
        partition.image(2).chain = Chain((*marks(0, 5, 1), *marks(5, 8, other_epoch)))
        assert since(partition, {1: 0, 4: 12}) == expected, other_epoch


def test_an_epoch_that_the_holder_does_not_know_is_told_of() -> None:
    """It is cut down to an epoch that both have, and then, in the next round, to where that one ends."""
    for other_epoch, expected in ((1, 5), (2, None)):
        found = unseen_by_follower(partition_with(other_epoch), 1, 2, {1: 0, 3: 15})
        assert (None if found is None else found.since) == expected, other_epoch


def test_what_compaction_or_retention_hides_takes_no_fault_that_a_scenario_may_not_have() -> None:
    hidden = unseen_difference(partition_with(1), 1, {1: 0, 3: 15})
    assert hidden is not None and not needs_fault(hidden.why)
    assert not needs_fault(f"broker 3 {BEFORE_START}")
    assert not needs_fault(RETENTION) and not needs_fault(LEADER_ALONE)
    assert needs_fault("unclean election of broker 1")


def test_records_of_the_same_epoch_do_not_differ() -> None:
    assert since(partition_with(3), {1: 0, 3: 15}) is None


def test_the_oldest_epoch_of_a_log_may_begin_late() -> None:
    partition = PartitionGhost("t-0")
    partition.image(1).chain = Chain(marks(0, 20, 3))
    partition.image(2).chain = Chain(marks(0, 8, 3))
    assert since(partition, {3: 15}) is None


def test_the_oldest_epoch_of_a_log_that_began_again_hides_the_older_records_of_a_replica() -> None:
    partition = PartitionGhost("t-0")
    partition.image(1).chain = Chain(marks(5, 20, 3), 5)
    partition.image(2).chain = Chain(marks(0, 8, 1))
    assert since(partition, {3: 15}) == 5
    assert since(partition, {3: 5}) is None


def test_records_before_the_start_of_a_leaders_log_may_differ_from_what_was_committed() -> None:
    for log_start, expected in ((5, None), (6, 5)):
        partition = PartitionGhost("t-0")
        partition.truth = Chain((*marks(0, 5, 1), *marks(5, 20, 3)))
        partition.image(1).chain = Chain((*marks(0, 5, 1), *marks(5, 8, 2)))
        partition.leader_log_start = log_start
        assert since(partition, {1: 0, 2: 5}) == expected


def test_records_before_the_start_of_a_leaders_log_that_nobody_else_has_do_not_differ() -> None:
    partition = PartitionGhost("t-0")
    partition.truth = Chain(marks(6, 20, 1), 6)
    partition.image(1).chain = Chain(marks(0, 20, 1))
    partition.leader_log_start = 6
    assert since(partition, {1: 0}) is None
