"""Logs that differ where no leader epoch shows it, because compaction has taken where an epoch began."""

from __future__ import annotations

from sim.checkers.chain import Chain
from sim.checkers.ghost import PartitionGhost
from sim.checkers.hidden_epochs import hidden_divergence
from tests.sim.checkers.test_checkers import marks


def partition_with(tail_epoch: int) -> PartitionGhost:
    """Broker 1 led epoch 3 from offset 5 on; broker 2 has offsets 5 to 7 of another epoch."""
    partition = PartitionGhost("t-0")
    partition.image(1).chain = Chain((*marks(0, 5, 1), *marks(5, 20, 3)))
    partition.image(2).chain = Chain((*marks(0, 5, 1), *marks(5, 8, tail_epoch)))
    return partition


def test_an_epoch_that_is_believed_to_begin_late_hides_the_older_records_of_a_replica() -> None:
    assert hidden_divergence(partition_with(1), 1, {1: 0, 3: 15}) == 5
    assert hidden_divergence(partition_with(1), 1, {1: 0, 3: 6}) == 5


def test_an_epoch_that_is_known_from_its_beginning_hides_nothing() -> None:
    assert hidden_divergence(partition_with(1), 1, {1: 0, 3: 5}) is None


def test_records_of_the_same_epoch_do_not_differ() -> None:
    assert hidden_divergence(partition_with(3), 1, {1: 0, 3: 15}) is None


def test_the_oldest_epoch_of_a_log_may_begin_late() -> None:
    partition = PartitionGhost("t-0")
    partition.image(1).chain = Chain(marks(0, 20, 3))
    partition.image(2).chain = Chain(marks(0, 8, 3))
    assert hidden_divergence(partition, 1, {3: 15}) is None
