"""A proposal is decided about once, however often it comes."""

from __future__ import annotations

from dataclasses import replace

from cluster.core.effects import Reply
from cluster.core.errors import ErrorCode
from cluster.core.events import Request, TimerFired
from cluster.core.messages import AlterPartitionRequest, AlterPartitionResponse, TopicPartition
from sim.checkers.base import Jury
from sim.checkers.ghost import Ghost
from sim.checkers.late_proposals import LateProposals

PROPOSAL = AlterPartitionRequest(
    broker_id=1, broker_epoch=1, topic_partition=TopicPartition("t", 0), topic_id="id", leader_epoch=2,
    partition_epoch=3, new_isr=(), attempt=4,
)  # fmt: skip


class Steps:
    def __init__(self) -> None:
        self.jury = Jury(Ghost(), [], now_us=lambda: 0, on_violation=lambda violation: None)
        self.late = LateProposals(self.jury)
        self.call = 0

    def takes(self, proposal: AlterPartitionRequest = PROPOSAL) -> int:
        """Returns the call of a step that does not answer the proposal yet."""
        self.call += 1
        self.late.on_step([Request(call=self.call, body=proposal)], [])
        return self.call

    def answers(self, call: int, error: ErrorCode) -> bool:
        """Returns whether the step that answers so is found wrong."""
        known = len(self.jury.violations)
        body = AlterPartitionResponse(topic_partition=PROPOSAL.topic_partition, error=error)
        self.late.on_step([TimerFired(key="another")], [Reply(call=call, body=body)])
        return len(self.jury.violations) > known

    def decides(self, error: ErrorCode, proposal: AlterPartitionRequest = PROPOSAL) -> bool:
        return self.answers(self.takes(proposal), error)


def test_isr6_a_copy_of_what_was_refused_is_not_decided_again() -> None:
    for again in (ErrorCode.NONE, ErrorCode.INELIGIBLE_REPLICA):
        steps = Steps()
        assert not steps.decides(ErrorCode.INELIGIBLE_REPLICA)
        assert steps.decides(again)
        assert steps.jury.violations[0].checker == "late-proposals"


def test_isr6_a_copy_may_be_refused_and_the_next_proposal_decided() -> None:
    steps = Steps()
    assert not steps.decides(ErrorCode.INELIGIBLE_REPLICA)
    assert not steps.decides(ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
    assert not steps.decides(ErrorCode.FENCED_LEADER_EPOCH)
    for other in (
        replace(PROPOSAL, attempt=5),
        replace(PROPOSAL, leader_epoch=3),
        replace(PROPOSAL, broker_epoch=9),
        replace(PROPOSAL, topic_id="another"),
        replace(PROPOSAL, topic_partition=TopicPartition("t", 1)),
    ):
        assert not steps.decides(ErrorCode.NONE, other)
    # What was accepted may be answered later, and its copy at once.
    assert not steps.decides(ErrorCode.NONE, replace(PROPOSAL, attempt=5))
    steps.late.on_died()
    assert not steps.decides(ErrorCode.NONE)


def test_a_refusal_may_wait_for_a_flush_as_any_answer() -> None:
    steps = Steps()
    first, copy, late = steps.takes(), steps.takes(), steps.takes()
    assert not steps.answers(first, ErrorCode.INELIGIBLE_REPLICA)
    assert not steps.answers(copy, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
    assert steps.answers(late, ErrorCode.INELIGIBLE_REPLICA)
