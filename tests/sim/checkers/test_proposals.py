"""The leader of an epoch has one proposal at a time (I5), and waits for all whom it may admit (ISR-6)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import count

import pytest

from cluster.core.errors import ErrorCode
from cluster.core.events import Response, TransportError
from cluster.core.messages import AlterPartitionRequest, AlterPartitionResponse, IsrMember, TopicPartition
from sim.checkers.base import Jury, Life
from sim.checkers.ghost import Ghost
from sim.checkers.proposals import Proposals

FIRST_LIFE: Life = (1, 1)
NUMBERS = count()


def proposal(leader_epoch: int, partition: int = 0) -> AlterPartitionRequest:
    """Returns one with a larger number than any before."""
    return AlterPartitionRequest(
        broker_id=1, broker_epoch=1, topic_partition=TopicPartition("t", partition), topic_id="id",
        leader_epoch=leader_epoch, partition_epoch=0, new_isr=(), attempt=next(NUMBERS),
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


def test_isr6_a_proposal_made_again_has_a_number_of_its_own() -> None:
    proposals, jury = watched()
    first = proposal(0)
    for call, each in enumerate((first, replace(first, leader_epoch=1), replace(first, topic_id="another"))):
        proposals.on_sent(FIRST_LIFE, call, each)
        proposals.on_answered(FIRST_LIFE, call)
    assert not jury.violations
    proposals.on_sent(FIRST_LIFE, 9, replace(first, topic_id="another"))
    assert [each.checker for each in jury.violations] == ["one-proposal"]
    assert "after proposal" in jury.violations[0].what


@dataclass
class Leading:
    """A replica that leads in epoch 0: brokers 1 and 2 are committed, and it waits for 3 too, which is to join."""

    topic_id: str = "id"
    leader_epoch: int = 0
    partition_epoch: int = 0
    maximal_isr: tuple[int, ...] = (1, 2, 3)
    committed_isr: tuple[int, ...] = (1, 2)


def after(
    replica: Leading, answer: object = None, *, calm_since_us: int = 0, backoff_us: int = 1_000_000
) -> list[str]:
    """Returns what is wrong two seconds after the answer to the proposal that 3 joins; None: it has none yet."""
    times = [0]
    jury = Jury(Ghost(), [], now_us=lambda: times[0], on_violation=lambda violation: None)
    proposals = Proposals(jury)
    proposals.on_sent(FIRST_LIFE, 1, proposal(0), (1, 2, 3))
    if answer is not None:
        proposals.on_answered(FIRST_LIFE, 1, answer)
    times[0] = 2_000_000
    proposals.look(
        FIRST_LIFE,
        {TopicPartition("t", 0): replica},
        calm_since_us=calm_since_us,
        backoff_us=backoff_us,
    )
    return [each.checker for each in jury.violations]


def refused(error: ErrorCode) -> AlterPartitionResponse:
    return AlterPartitionResponse(topic_partition=TopicPartition("t", 0), error=error)


IN_DOUBT = (
    None,
    TransportError(reason="no answer"),
    refused(ErrorCode.INVALID_UPDATE_VERSION),
    refused(ErrorCode.FENCED_LEADER_EPOCH),
    refused(ErrorCode.REQUEST_TIMED_OUT),
)


@pytest.mark.parametrize("answer", IN_DOUBT)
def test_isr6_a_joiner_is_waited_for_until_the_outcome_is_known(answer: object) -> None:
    assert after(Leading(), answer) == []
    assert after(Leading(maximal_isr=(1, 2)), answer) == ["proposal-outcomes"]


@pytest.mark.parametrize("error", [ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED])
def test_isr6_a_joiner_that_was_refused_is_waited_for_no_longer(error: ErrorCode) -> None:
    assert after(Leading(maximal_isr=(1, 2)), refused(error)) == []
    assert after(Leading(), refused(error)) == ["proposal-outcomes"]
    # The answer waits as long as its broker stands still.
    assert after(Leading(), refused(error), calm_since_us=1_500_000) == []


def test_isr6_a_proposal_without_an_answer_is_made_again_after_the_back_off() -> None:
    lost = TransportError(reason="no answer")
    assert after(Leading(), lost, backoff_us=999_999) == ["proposal-outcomes"]
    assert after(Leading(), lost, backoff_us=999_999, calm_since_us=1) == []
    # It waits for its answer, or metadata brings what has become of it.
    assert after(Leading(), backoff_us=0) == []
    assert after(Leading(), refused(ErrorCode.INVALID_UPDATE_VERSION), backoff_us=0) == []


def test_isr6_a_proposal_ends_with_a_newer_state_of_the_partition() -> None:
    newer = Leading(partition_epoch=1)
    assert after(newer) == ["proposal-outcomes"]
    assert after(Leading(partition_epoch=1, maximal_isr=(1,), committed_isr=(1,))) == []


def test_isr6_nothing_binds_a_leader_of_another_epoch_or_one_that_was_granted_what_it_asked_for() -> None:
    assert after(Leading(leader_epoch=1, maximal_isr=(1, 2))) == []
    # The topic was created again.
    assert after(Leading(topic_id="other", maximal_isr=(1, 2))) == []
    assert after(Leading(maximal_isr=())) == []
    assert after(Leading(maximal_isr=(1, 2)), refused(ErrorCode.NONE)) == []


def taken(replica: Leading, error: ErrorCode) -> list[str]:
    """Returns what is wrong in the very step that takes the answer."""
    proposals, jury = watched()
    proposals.on_sent(FIRST_LIFE, 1, proposal(0), (1, 2, 3))
    proposals.on_answered(FIRST_LIFE, 1, refused(error))
    events = [Response(call=1, body=refused(error))]
    proposals.on_step(FIRST_LIFE, events, {TopicPartition("t", 0): replica})
    return [each.checker for each in jury.violations]


@pytest.mark.parametrize("error", [ErrorCode.NONE, ErrorCode.INELIGIBLE_REPLICA])
def test_isr6_a_definite_answer_ends_the_wait_in_the_step_that_takes_it(error: ErrorCode) -> None:
    assert taken(Leading(maximal_isr=(1, 2)), error) == []
    assert taken(Leading(leader_epoch=1), error) == []
    assert taken(Leading(), error) == ["proposal-outcomes"]


def test_isr6_an_answer_that_leaves_the_outcome_open_does_not() -> None:
    assert taken(Leading(), ErrorCode.INVALID_UPDATE_VERSION) == []


def proposes(known: Leading | None, *members: int, before: object = None) -> list[str]:
    """Returns what is wrong with a proposal of these members, after an earlier one with that answer."""
    proposals, jury = watched()
    new_isr = tuple(IsrMember(broker_id=member, broker_epoch=5) for member in members)
    body = replace(proposal(0), new_isr=new_isr)
    if before is not None:
        proposals.on_sent(FIRST_LIFE, 1, body, (1, 2, 3))
        proposals.on_answered(FIRST_LIFE, 1, before)
    proposals.on_sent(FIRST_LIFE, 2, replace(body, attempt=next(NUMBERS)), (1, 2, 3), known)
    assert all(each.checker == "one-proposal" for each in jury.violations)
    return [each.what.partition(" proposes ")[2] for each in jury.violations]


def test_isr5_a_leader_proposes_a_change_of_what_it_knows() -> None:
    assert proposes(Leading(), 1, 2, 3) == proposes(Leading(), 1) == []
    assert proposes(Leading(), 1, 2) == ["the in-sync set that is committed, (1, 2)"]
    assert proposes(Leading(partition_epoch=4), 1) == ["on partition epoch 0; it knows 4"]
    # It leads no more.
    assert proposes(None, 1, 2) == []


def test_isr6_what_is_out_of_date_is_not_proposed_again() -> None:
    again = ["again on partition epoch 0, which the controller calls out of date"]
    for error in (ErrorCode.INVALID_UPDATE_VERSION, ErrorCode.FENCED_LEADER_EPOCH):
        assert proposes(Leading(), 1, before=refused(error)) == again
    for answer in (refused(ErrorCode.REQUEST_TIMED_OUT), TransportError(reason="no answer")):
        assert proposes(Leading(), 1, before=answer) == []
