"""The leader of an epoch has one proposal to the controller at a time (I5)."""

from __future__ import annotations

from cluster.core.messages import AlterPartitionRequest, TopicPartition
from sim.checkers.base import Jury
from sim.checkers.ghost import Ghost
from sim.checkers.proposals import Life, Proposals

FIRST_LIFE: Life = (1, 1)


def proposal(leader_epoch: int, partition: int = 0) -> AlterPartitionRequest:
    return AlterPartitionRequest(
        broker_id=1, broker_epoch=1, topic_partition=TopicPartition("t", partition), topic_id="id",
        leader_epoch=leader_epoch, partition_epoch=0, new_isr=(),
    )  # fmt: skip


def watched() -> tuple[Proposals, Jury]:
    jury = Jury(Ghost(), [], now_us=lambda: 0, on_violation=lambda violation: None)
    return Proposals(jury), jury


def test_i5_a_leader_has_one_proposal_at_a_time() -> None:
    proposals, jury = watched()
    proposals.on_sent(FIRST_LIFE, 1, proposal(0))
    proposals.on_answered(FIRST_LIFE, 1)
    proposals.on_sent(FIRST_LIFE, 2, proposal(0))
    assert not jury.violations
    proposals.on_sent(FIRST_LIFE, 3, proposal(0))
    assert [each.checker for each in jury.violations] == ["one-proposal"]
    assert jury.violations[0].what.startswith("t-0: broker 1 proposes an ISR in epoch 0 beside")


def test_i5_other_partitions_epochs_and_lives_do_not_count() -> None:
    proposals, jury = watched()
    proposals.on_sent(FIRST_LIFE, 1, proposal(0))
    proposals.on_sent(FIRST_LIFE, 2, proposal(0, partition=1))
    proposals.on_sent(FIRST_LIFE, 3, proposal(1))
    proposals.on_answered(FIRST_LIFE, 4)
    proposals.on_sent((2, 1), 1, proposal(0))
    proposals.on_end(1)
    proposals.on_sent((1, 3), 1, proposal(0))
    assert not jury.violations
    proposals.on_sent((2, 1), 2, proposal(0))
    assert len(jury.violations) == 1
