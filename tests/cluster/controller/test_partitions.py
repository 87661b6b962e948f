"""The request AlterPartition: the checks of CTL-1 in their order, and what an accepted change does."""

from __future__ import annotations

import pytest

from cluster.core.errors import ErrorCode
from cluster.core.messages import TopicPartition
from tests.cluster.controller.setup import ControllerBench


@pytest.fixture
def bench() -> ControllerBench:
    """Partition t-0 on 1, 2, 3, led by 1, at leader epoch 0 and partition epoch 1 with the ISR 1, 2."""
    bench = ControllerBench().unfenced(1, 2, 3, 4)
    bench.create(assignment=((1, 2, 3),))
    bench.alter(1, 2)
    return bench


def test_ctl1_stale_broker_epoch_is_refused_before_anything_else(bench: ControllerBench) -> None:
    answer = bench.alter(1, broker_epoch=0, topic_partition=TopicPartition("none", 0))
    assert answer.error is ErrorCode.STALE_BROKER_EPOCH


def test_ctl1_unknown_partition(bench: ControllerBench) -> None:
    answer = bench.alter(1, topic_partition=TopicPartition("t", 9))
    assert answer.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_ctl1_request_ahead_of_the_controller_is_not_for_it(bench: ControllerBench) -> None:
    """The answer is "not the controller" (KAFKA-14154), also when the sender does not lead."""
    assert bench.alter(1, leader_epoch=1).error is ErrorCode.NOT_CONTROLLER
    assert bench.alter(1, partition_epoch=2).error is ErrorCode.NOT_CONTROLLER
    assert bench.alter(1, sender=2, leader_epoch=1).error is ErrorCode.NOT_CONTROLLER


def test_ctl1_old_leader_epoch_is_fenced(bench: ControllerBench) -> None:
    bench.fence(1)
    answer = bench.alter(2, sender=1, leader_epoch=0)
    assert answer.error is ErrorCode.FENCED_LEADER_EPOCH


def test_ctl1_sender_must_lead(bench: ControllerBench) -> None:
    assert bench.alter(1, 2, sender=2, partition_epoch=0).error is ErrorCode.INVALID_REQUEST


def test_ctl1_old_partition_epoch_is_an_invalid_version(bench: ControllerBench) -> None:
    assert bench.alter(4, partition_epoch=0).error is ErrorCode.INVALID_UPDATE_VERSION


@pytest.mark.parametrize("isr", [(1, 4), (2, 3), (), (1, 2, 2)])
def test_ctl1_isr_is_of_replicas_and_holds_the_leader(bench: ControllerBench, isr: tuple[int, ...]) -> None:
    """Each list names a stranger, leaves out the leader, is empty or repeats a member (KAFKA-9672)."""
    assert bench.alter(*isr).error is ErrorCode.INVALID_REQUEST


def test_ctl1_fenced_broker_may_not_join(bench: ControllerBench) -> None:
    """A fenced broker cannot be in sync (KIP-841)."""
    bench.fence(3)
    assert bench.alter(1, 2, 3).error is ErrorCode.INELIGIBLE_REPLICA


def test_ctl1_broker_in_controlled_shutdown_may_not_join(bench: ControllerBench) -> None:
    bench.create("u", assignment=((3,),))
    bench.heartbeat(3, want_shutdown=True)
    assert not bench.controller.image.brokers[3].fenced
    assert bench.alter(1, 2, 3).error is ErrorCode.INELIGIBLE_REPLICA


def test_ctl1_member_of_another_incarnation_may_not_join(bench: ControllerBench) -> None:
    """The request names the life of each member; an earlier life may have lost its log (KIP-903)."""
    answer = bench.alter(1, 2, 3, member_epochs={3: 0})
    assert answer.error is ErrorCode.INELIGIBLE_REPLICA


def test_isr6_a_late_copy_of_a_refused_proposal_is_refused_again(bench: ControllerBench) -> None:
    """The leader has taken it back; the next proposal of the same members is another one."""
    bench.fence(3)
    assert bench.alter(1, 2, 3, attempt=4).error is ErrorCode.INELIGIBLE_REPLICA
    bench.heartbeat(3)
    for attempt in (3, 4):
        assert bench.alter(1, 2, 3, attempt=attempt).error is ErrorCode.DUPLICATE_SEQUENCE_NUMBER
    assert bench.alter(1, 2, 3, attempt=5).error is ErrorCode.NONE


def test_isr6_the_proposals_of_a_new_leader_epoch_and_of_another_topic_are_counted_anew(
    bench: ControllerBench,
) -> None:
    assert bench.alter(1, 2, attempt=9).error is ErrorCode.NONE
    bench.create("u", assignment=((1, 2, 3),))
    assert bench.alter(1, 2, topic_partition=TopicPartition("u", 0), attempt=0).error is ErrorCode.NONE
    bench.fence(1)
    assert bench.partition().leader == 2
    assert bench.alter(2, sender=2, attempt=0).error is ErrorCode.NONE


def test_refused_change_leaves_the_partition(bench: ControllerBench) -> None:
    before = bench.partition()
    bench.alter(1, 2, 3, member_epochs={3: 0})
    assert bench.partition() == before


def test_sta2_accepted_change_adds_one_to_the_partition_epoch_only(bench: ControllerBench) -> None:
    answer = bench.alter(3, 2, 1)
    assert (answer.error, answer.leader, answer.isr) == (ErrorCode.NONE, 1, (1, 2, 3))
    assert (answer.leader_epoch, answer.partition_epoch) == (0, 2)
    assert bench.observed("controller.isr_changed")[-1] == {
        "topic_partition": "t-0",
        "isr": "1,2,3",
        "partition_epoch": 2,
    }


def test_the_same_isr_again_changes_nothing(bench: ControllerBench) -> None:
    """An answer with the sender's own partition epoch ends its request (ISR-6)."""
    before = bench.controller.log.end_offset
    answer = bench.alter(1, 2)
    assert (answer.error, answer.partition_epoch) == (ErrorCode.NONE, 1)
    assert bench.controller.log.end_offset == before
