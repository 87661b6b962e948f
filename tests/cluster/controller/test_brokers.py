"""The life of brokers at the controller: rules BRK and the elections that they cause."""

from __future__ import annotations

import pytest

from cluster.core.controller import brokers
from cluster.core.controller.config import ControllerConfig
from cluster.core.errors import ErrorCode
from cluster.core.messages import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
    RegisterBrokerRequest,
    RegisterBrokerResponse,
    TopicPartition,
)
from tests.cluster.controller.setup import T0, ControllerBench

SESSION = "controller.session"


def three(*, replicas: tuple[int, ...] = (1, 2, 3), unclean: bool = False) -> ControllerBench:
    bench = ControllerBench().unfenced(1, 2, 3)
    configs = (("unclean.leader.election.enable", "true"),) if unclean else ()
    bench.create(assignment=(replicas,), configs=configs)
    return bench


def test_brk1_broker_epoch_is_the_offset_of_its_registration() -> None:
    bench = ControllerBench()
    first, second = bench.register(1), bench.register(2)
    # Epoch 0 is the cluster's record.
    assert (first.broker_epoch, second.broker_epoch) == (1, 2)
    assert bench.observed("controller.broker_registered")[0] == {"broker": 1, "broker_epoch": 1}
    assert first.cluster_id == bench.controller.image.cluster_id != ""


def test_brk1_registered_broker_is_fenced() -> None:
    bench = ControllerBench()
    bench.register(1)
    assert bench.controller.image.brokers[1].fenced


def test_brk1_same_incarnation_is_answered_with_the_same_epoch() -> None:
    bench = ControllerBench().unfenced(1)
    again = bench.register(1)
    assert again.broker_epoch == 1
    assert not bench.controller.image.brokers[1].fenced


def test_brk1_live_session_of_another_incarnation_is_refused() -> None:
    bench = ControllerBench().unfenced(1)
    assert bench.register(1, "second").error is ErrorCode.DUPLICATE_BROKER_REGISTRATION


def test_brk1_new_incarnation_after_the_session_is_fenced_with_a_new_epoch() -> None:
    bench = ControllerBench().unfenced(1)
    bench.fire(SESSION)
    again = bench.register(1, "second")
    assert again.broker_epoch > 1
    assert bench.controller.image.brokers[1].fenced


def test_brk1_new_incarnation_leaves_the_isrs_of_the_old_one_in_the_same_batch() -> None:
    """The new life leaves the in-sync replicas (ELE-9). The old session is over, but its timer has not fired yet."""
    bench = three()
    bench.now_ms = 9_001
    again = bench.register(1, "second")
    partition = bench.partition()
    assert again.error is ErrorCode.NONE
    assert (partition.leader, partition.isr, partition.leader_epoch) == (2, (2, 3), 1)
    assert bench.controller.image.broker_epoch(1) == bench.controller.image.next_offset - 1


def test_registration_for_another_cluster_is_refused() -> None:
    bench = ControllerBench(ControllerConfig(cluster_id="ours"))
    answer = bench.ask(
        RegisterBrokerRequest(broker_id=1, incarnation="i", host="h", port=1, cluster_id="theirs")
    )
    assert isinstance(answer, RegisterBrokerResponse)
    assert answer.error is ErrorCode.INCONSISTENT_CLUSTER_ID


def test_a_broker_above_the_most_of_a_cluster_is_refused_and_known_ones_register_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(brokers, "MOST_BROKERS", 2)
    bench = ControllerBench().unfenced(1, 2)
    assert bench.register(3).error is ErrorCode.INVALID_REQUEST
    assert sorted(bench.controller.image.brokers) == [1, 2]
    bench.fire(SESSION)
    assert bench.register(2, "second").error is ErrorCode.NONE


def test_brk2_broker_unfences_when_it_has_read_its_registration() -> None:
    bench = ControllerBench()
    epoch = bench.register(1).broker_epoch
    assert bench.heartbeat(1, metadata_offset=epoch).is_fenced
    answer = bench.heartbeat(1, metadata_offset=epoch + 1)
    assert not answer.is_fenced and answer.is_caught_up
    assert bench.observed("controller.broker_unfenced") == [{"broker": 1}]


def test_brk2_broker_that_wants_to_be_fenced_stays_so() -> None:
    bench = ControllerBench()
    bench.register(1)
    assert bench.heartbeat(1, want_fence=True).is_fenced


def test_brk3_stale_broker_epoch_is_refused() -> None:
    bench = ControllerBench().unfenced(1)
    assert bench.heartbeat(1, broker_epoch=0).error is ErrorCode.STALE_BROKER_EPOCH
    assert bench.heartbeat(9, broker_epoch=-1).error is ErrorCode.STALE_BROKER_EPOCH


def test_brk3_sessions_begin_afresh_after_a_restart() -> None:
    bench = ControllerBench().unfenced(1)
    bench.now_ms = 8_000
    bench.crash_and_restart()
    assert bench.timers[SESSION] == 8_000 + 9_000 + 1


def test_brk4_silent_broker_is_fenced_after_the_session_timeout() -> None:
    bench = ControllerBench().unfenced(1)
    bench.fire(SESSION)
    assert bench.now_ms == 9_001
    assert bench.controller.image.brokers[1].fenced
    assert bench.observed("controller.broker_fenced") == [{"broker": 1}]


def test_brk4_heartbeat_keeps_the_session() -> None:
    bench = ControllerBench().unfenced(1)
    bench.now_ms = 5_000
    bench.heartbeat(1)
    # The timer fires too early and finds no expired session.
    bench.fire(SESSION)
    assert bench.timers[SESSION] == 14_001
    assert not bench.controller.image.brokers[1].fenced


def test_brk4_two_expirations_are_two_events_that_build_on_each_other() -> None:
    """Each builds on the state that the one before left (KAFKA-13173)."""
    bench = three()
    bench.now_ms = 5_000
    bench.heartbeat(1)
    bench.fire(SESSION)
    assert bench.partition().isr == (1, 3)
    bench.fire(SESSION)
    assert bench.partition().isr == (1,)


def test_brk5_fencing_the_leader_elects_and_shrinks_in_one_batch() -> None:
    bench = three()
    before = bench.controller.image.next_offset
    bench.fence(1)
    partition = bench.partition()
    assert (partition.leader, partition.isr) == (2, (2, 3))
    assert (partition.leader_epoch, partition.partition_epoch) == (1, 1)
    # The first record is the change, the second the fence.
    assert bench.controller.image.next_offset == before + 2
    assert bench.observed("controller.leader_elected")[-1] == {
        "topic_partition": "t-0",
        "leader": 2,
        "leader_epoch": 1,
        "isr": "2,3",
        "clean": 1,
    }


def test_brk5_fencing_a_follower_leaves_the_leader_epoch() -> None:
    """A change of the in-sync replicas alone does not raise the leader epoch (CTL-4)."""
    bench = three()
    bench.fence(3)
    partition = bench.partition()
    assert (partition.isr, partition.leader_epoch, partition.partition_epoch) == ((1, 2), 0, 1)


def test_brk5_unfencing_elects_where_there_is_no_leader() -> None:
    bench = three(replicas=(1,))
    bench.fence(1)
    assert bench.partition().leader == -1
    bench.heartbeat(1)
    partition = bench.partition()
    assert (partition.leader, partition.isr, partition.leader_epoch) == (1, (1,), 2)


def test_ele3_first_valid_replica_in_assignment_order_leads() -> None:
    bench = three(replicas=(1, 3, 2))
    bench.fence(1)
    assert bench.partition().leader == 3


def test_ele3_present_leader_stays_when_another_broker_unfences() -> None:
    bench = three()
    bench.fence(1)
    bench.heartbeat(1)
    assert bench.partition().leader == 2


def test_ele3_without_a_valid_candidate_the_leader_is_none_and_the_isr_is_kept() -> None:
    bench = three(replicas=(1, 2))
    bench.alter(1)
    bench.fence(1)
    partition = bench.partition()
    assert (partition.leader, partition.isr, partition.leader_epoch) == (-1, (1,), 1)
    assert bench.observed("controller.leader_lost")[-1]["topic_partition"] == "t-0"


def test_ele5_last_isr_member_is_never_removed() -> None:
    bench = three()
    for broker in (1, 2, 3):
        bench.fence(broker)
    partition = bench.partition()
    assert (partition.leader, partition.isr) == (-1, (3,))


def test_ele4_unclean_election_where_the_topic_allows_it() -> None:
    bench = three(replicas=(1, 2), unclean=True)
    bench.alter(1)
    bench.fence(1)
    partition = bench.partition()
    assert (partition.leader, partition.isr) == (2, (2,))
    assert bench.observed("controller.leader_elected")[-1]["clean"] == 0


def test_ele4_no_unclean_election_where_the_topic_does_not_allow_it() -> None:
    bench = three(replicas=(1, 2))
    bench.alter(1)
    bench.fence(1)
    bench.fence(2)
    bench.heartbeat(2)
    assert bench.partition().leader == -1


def test_brk7_shutdown_leaves_isrs_then_waits_until_all_have_learned_it() -> None:
    bench = three()
    answer = bench.heartbeat(1, want_shutdown=True)
    assert not answer.should_shut_down
    assert (bench.partition().leader, bench.partition().isr) == (2, (2, 3))
    target = bench.controller.image.next_offset
    bench.heartbeat(2, metadata_offset=target)
    bench.heartbeat(3, metadata_offset=target - 1)
    assert not bench.heartbeat(1, want_shutdown=True).should_shut_down
    bench.heartbeat(3, metadata_offset=target)
    assert bench.heartbeat(1, want_shutdown=True).should_shut_down
    assert bench.controller.image.brokers[1].fenced


def test_brk7_offset_to_learn_is_remembered_once() -> None:
    """KAFKA-14292: metadata that grows meanwhile does not hold the broker back."""
    bench = three()
    bench.heartbeat(1, want_shutdown=True)
    target = bench.controller.image.next_offset
    bench.heartbeat(2, metadata_offset=target)
    bench.heartbeat(3, metadata_offset=target)
    bench.create("later", assignment=((2,),))
    assert bench.heartbeat(1, want_shutdown=True).should_shut_down


def test_brk6_broker_that_leads_nothing_may_leave_at_once() -> None:
    bench = three()
    answer = bench.heartbeat(3, want_shutdown=True)
    assert answer.should_shut_down and answer.is_fenced
    assert bench.partition().isr == (1, 2)


def test_brk6_fenced_broker_may_leave_at_once() -> None:
    bench = ControllerBench()
    bench.register(1)
    assert bench.heartbeat(1, want_shutdown=True).should_shut_down


def test_restart_after_a_clean_shutdown_need_not_wait_for_the_session() -> None:
    bench = three()
    bench.heartbeat(3, want_shutdown=True)
    assert bench.register(3, "second").error is ErrorCode.NONE


def test_producer_id_blocks_never_overlap_across_a_restart() -> None:
    bench = ControllerBench().unfenced(1)
    blocks = []
    for _ in range(2):
        epoch = bench.controller.image.broker_epoch(1)
        answer = bench.ask(AllocateProducerIdsRequest(broker_id=1, broker_epoch=epoch))
        assert isinstance(answer, AllocateProducerIdsResponse)
        blocks.append((answer.first_producer_id, answer.count))
        bench.lose_power_and_restart()
    assert blocks == [(0, 1000), (1000, 1000)]


def test_producer_ids_are_not_allocated_to_a_stale_broker() -> None:
    bench = ControllerBench().unfenced(1)
    answer = bench.ask(AllocateProducerIdsRequest(broker_id=1, broker_epoch=0))
    assert isinstance(answer, AllocateProducerIdsResponse)
    assert answer.error is ErrorCode.STALE_BROKER_EPOCH


def test_only_partitions_of_the_fenced_broker_change() -> None:
    bench = three()
    bench.create("u", assignment=((2, 3),))
    bench.fence(1)
    assert bench.partition(TopicPartition("u", 0)).partition_epoch == 0
    assert bench.partition(T0).partition_epoch == 1
