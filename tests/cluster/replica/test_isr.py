"""The in-sync replicas, and how the leader changes them through the controller (ISR)."""

from __future__ import annotations

from dataclasses import replace

from cluster.core.effects import Send
from cluster.core.errors import ErrorCode
from cluster.core.events import TransportError
from cluster.core.messages import AlterPartitionRequest, IsrMember
from cluster.core.replica.isr import (
    CommittedIsr,
    PendingExpandIsr,
    PendingShrinkIsr,
    committed_isr,
    maximal_isr,
)
from tests.cluster.replica.setup import Setup, broker_epoch_of, observed, only_sent, sent

COMMITTED = CommittedIsr(isr=frozenset({1, 2}), partition_epoch=7)


def leading(*, isr: tuple[int, ...] = (1, 2), records: int = 2, leader_epoch: int = 0) -> Setup:
    setup = Setup()
    setup.place(leader=1, isr=isr, leader_epoch=leader_epoch)
    for number in range(records):
        setup.append(b"%d" % number)
    return setup


def joining(setup: Setup) -> Send:
    """Broker 3 reaches the end and is proposed."""
    return only_sent(setup.fetch_effects(3, setup.end), AlterPartitionRequest)


def request_of(send: Send) -> AlterPartitionRequest:
    assert isinstance(send.body, AlterPartitionRequest)
    return send.body


# The types


def test_maximal_isr_of_a_committed_one_is_itself() -> None:
    assert maximal_isr(COMMITTED) == {1, 2}


def test_maximal_isr_has_a_joiner_at_once() -> None:
    pending = PendingExpandIsr(committed=COMMITTED, joiner=3, followers=())
    assert maximal_isr(pending) == pending.proposed == {1, 2, 3}
    assert committed_isr(pending) is COMMITTED


def test_maximal_isr_keeps_a_leaver_until_it_is_committed() -> None:
    pending = PendingShrinkIsr(committed=COMMITTED, leavers=frozenset({2}), followers=())
    assert maximal_isr(pending) == {1, 2}
    assert pending.proposed == {1}


# Joining


def test_isr3_a_follower_at_the_end_is_proposed() -> None:
    setup = leading()
    effects = setup.fetch_effects(3, 2)
    request = request_of(only_sent(effects, AlterPartitionRequest))
    assert (request.leader_epoch, request.partition_epoch, request.broker_epoch) == (0, 0, 101)
    assert request.new_isr == tuple(
        IsrMember(broker_id=member, broker_epoch=broker_epoch_of(member)) for member in (1, 2, 3)
    )
    assert observed(effects, "isr.proposed") == [
        {"topic_partition": "t-0", "leader_epoch": 0, "isr": "1,2,3", "partition_epoch": 0}
    ]
    assert setup.replica.committed_isr == (1, 2)
    assert setup.replica.maximal_isr == (1, 2, 3)


def test_isr3_below_the_high_watermark_no_replica_joins() -> None:
    setup = leading()
    setup.fetch(2, 2)
    assert sent(setup.fetch_effects(3, 1), AlterPartitionRequest) == []


def test_follower_joins_isr_only_after_reaching_the_leader_epoch() -> None:
    # The high watermark is 0: by that alone a follower at 0 would do (KAFKA-7128).
    setup = leading()
    setup.place(leader=1, isr=(1, 2), leader_epoch=1, partition_epoch=1)
    assert sent(setup.fetch_effects(3, 1), AlterPartitionRequest) == []
    assert len(sent(setup.fetch_effects(3, 2), AlterPartitionRequest)) == 1


def test_isr3_a_fenced_follower_does_not_join() -> None:
    setup = leading()
    # A fenced broker may not join (KIP-841).
    setup.register(3, fenced=True)
    assert sent(setup.fetch_effects(3, 2), AlterPartitionRequest) == []


def test_isr3_an_incarnation_that_the_metadata_does_not_know_yet_does_not_join() -> None:
    setup = leading()
    # The fetch comes from another life than the registered one (KIP-903).
    assert sent(setup.fetch_effects(3, 2, broker_epoch=900), AlterPartitionRequest) == []
    setup.register(3, broker_epoch=900)
    assert len(sent(setup.fetch_effects(3, 2, broker_epoch=900), AlterPartitionRequest)) == 1


def test_isr4_the_epoch_proposed_is_that_of_the_fetch_that_was_counted() -> None:
    setup = leading(isr=(1, 2, 3))
    setup.fetch(3, 2)
    # Broker 3 has begun a new life and has not fetched in it.
    setup.register(3, broker_epoch=900)
    setup.now_ms += 31_000
    setup.fetch(3, 2, broker_epoch=900)
    proposal = request_of(only_sent(setup.wait(0, "isr.lag"), AlterPartitionRequest))
    assert [(member.broker_id, member.broker_epoch) for member in proposal.new_isr] == [(1, 101), (3, 900)]


def test_isr4_a_proposal_made_again_names_the_life_in_which_the_joiner_had_come_so_far() -> None:
    setup = leading()
    send = joining(setup)
    setup.answer(send.call, TransportError(reason="cut"))
    # It has lost what it had not synced, and is below the high watermark in its next life (KIP-903).
    setup.register(3, broker_epoch=900)
    setup.fetch(3, 0, broker_epoch=900)
    again = only_sent(setup.wait(100, "isr.retry:t-0"), AlterPartitionRequest)
    assert request_of(again).new_isr == request_of(send).new_isr
    setup.answer_alter(again, error=ErrorCode.INELIGIBLE_REPLICA)
    assert setup.replica.maximal_isr == (1, 2)
    # It may join again once it has come as far in that life.
    proposal = request_of(only_sent(setup.fetch_effects(3, 2, broker_epoch=900), AlterPartitionRequest))
    assert IsrMember(broker_id=3, broker_epoch=900) in proposal.new_isr


# Leaving


def test_isr1_reaching_the_end_of_the_previous_fetch_counts_as_caught_up_then() -> None:
    setup = leading(isr=(1, 2, 3), records=2)
    follower = setup.leader.followers[2]
    setup.now_ms += 1_000
    setup.fetch(2, 1)
    first_ms = setup.now_ms
    setup.append(b"2")
    setup.now_ms += 1_000
    # This is not the end now, but the end at the time of the first fetch.
    setup.fetch(2, 2)
    assert follower.last_caught_up_ms == first_ms
    setup.now_ms += 1_000
    setup.fetch(2, 3)
    assert follower.last_caught_up_ms == setup.now_ms


def test_isr2_a_member_that_lags_too_long_is_proposed_to_leave() -> None:
    setup = leading(isr=(1, 2, 3))
    setup.now_ms += 20_000
    setup.fetch(2, 2)
    # A lag of 30 s is not above 30 s.
    assert sent(setup.wait(10_000, "isr.lag"), AlterPartitionRequest) == []
    request = request_of(only_sent(setup.wait(1, "isr.lag"), AlterPartitionRequest))
    assert [member.broker_id for member in request.new_isr] == [1, 2]
    assert setup.replica.committed_isr == (1, 2, 3)


def test_isr2_a_member_at_the_end_stays_however_long_it_is_silent() -> None:
    setup = leading(isr=(1, 2))
    setup.fetch(2, 2)
    assert sent(setup.wait(90_000, "isr.lag"), AlterPartitionRequest) == []


# The answer


def test_isr5_one_proposal_at_a_time() -> None:
    setup = leading()
    joining(setup)
    assert sent(setup.fetch_effects(3, 2), AlterPartitionRequest) == []
    setup.now_ms += 60_000
    assert sent(setup.wait(0, "isr.lag"), AlterPartitionRequest) == []


def test_isr6_an_accepted_proposal_is_adopted() -> None:
    setup = leading()
    effects = setup.answer_alter(joining(setup))
    assert setup.replica.committed_isr == setup.replica.maximal_isr == (1, 2, 3)
    assert setup.replica.partition_epoch == 1
    assert observed(effects, "isr.committed") == [
        {"topic_partition": "t-0", "leader_epoch": 0, "isr": "1,2,3", "partition_epoch": 1}
    ]


def test_isr6_an_answer_of_another_leader_epoch_is_not_adopted() -> None:
    setup = leading()
    setup.answer_alter(joining(setup), leader_epoch=1)
    assert setup.replica.committed_isr == (1, 2)
    assert setup.replica.maximal_isr == (1, 2, 3)


def test_isr6_an_answer_after_its_metadata_changes_nothing() -> None:
    setup = leading()
    send = joining(setup)
    setup.place(leader=1, isr=(1, 2, 3), partition_epoch=1)
    assert setup.replica.maximal_isr == setup.replica.committed_isr == (1, 2, 3)
    assert observed(setup.answer_alter(send), "isr.committed") == []
    # The metadata has ended the proposal (KAFKA-12751).
    assert setup.leader.proposal_call is None


def test_isr6_a_definite_rejection_restores_the_committed_isr() -> None:
    for error in (ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED):
        setup = leading()
        setup.answer_alter(joining(setup), error=error)
        assert setup.replica.maximal_isr == (1, 2)


def test_isr6_a_superseded_proposal_keeps_the_larger_isr_until_metadata_arrives() -> None:
    for error in (ErrorCode.INVALID_UPDATE_VERSION, ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.INVALID_REQUEST):
        setup = leading()
        effects = setup.answer_alter(joining(setup), error=error)
        assert sent(effects, AlterPartitionRequest) == []
        assert setup.replica.maximal_isr == (1, 2, 3)
        setup.place(leader=1, isr=(1,), partition_epoch=2)
        assert list(setup.replica.maximal_isr) == [1]


def test_isr6_a_lost_answer_is_asked_for_again_and_again() -> None:
    setup = leading()
    send = joining(setup)
    for _ in range(3):
        assert sent(setup.answer(send.call, TransportError(reason="cut")), AlterPartitionRequest) == []
        assert setup.replica.maximal_isr == (1, 2, 3)
        again = only_sent(setup.wait(100, "isr.retry:t-0"), AlterPartitionRequest)
        # The controller tells a late copy of the one before from it.
        assert request_of(again) == replace(request_of(send), attempt=request_of(send).attempt + 1)
        send = again


def test_isr6_a_stale_broker_epoch_is_retried_with_the_new_one() -> None:
    setup = leading()
    setup.answer_alter(joining(setup), error=ErrorCode.STALE_BROKER_EPOCH)
    setup.manager.context.broker_epoch = 700
    again = only_sent(setup.wait(100, "isr.retry:t-0"), AlterPartitionRequest)
    assert request_of(again).broker_epoch == 700


def test_isr7_metadata_replaces_a_pending_proposal() -> None:
    setup = leading()
    joining(setup)
    setup.place(leader=1, isr=(1,), partition_epoch=3)
    assert list(setup.replica.committed_isr) == [1]
    assert list(setup.replica.maximal_isr) == [1]


def test_isr7_older_metadata_is_ignored() -> None:
    setup = leading()
    setup.place(leader=1, isr=(1,), partition_epoch=3)
    setup.place(leader=1, isr=(1, 2, 3), partition_epoch=2)
    assert setup.replica.committed_isr == (1,)
    assert setup.replica.partition_epoch == 3


def test_isr7_the_same_metadata_again_does_not_drop_a_proposal() -> None:
    setup = leading()
    # The controller may commit the proposal next.
    joining(setup)
    setup.place(leader=1, isr=(1, 2), partition_epoch=0)
    assert setup.replica.maximal_isr == (1, 2, 3)


def test_isr8_on_election_members_are_caught_up_and_others_never_were() -> None:
    setup = leading(isr=(1, 2))
    followers = setup.leader.followers
    assert followers[2].last_caught_up_ms == setup.now_ms
    assert followers[3].last_caught_up_ms < 0


def test_an_answer_to_a_proposal_of_an_older_epoch_changes_nothing() -> None:
    setup = leading()
    send = joining(setup)
    setup.place(leader=1, isr=(1, 2), leader_epoch=1, partition_epoch=1)
    setup.answer_alter(send, partition_epoch=9)
    assert setup.replica.committed_isr == (1, 2)
    assert setup.replica.partition_epoch == 1
