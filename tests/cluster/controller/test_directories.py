"""A broker that cannot read some of its partitions, and the controller's answer. Kafka: KIP-858; ELE-2, ELE-5."""

from __future__ import annotations

from cluster.core.errors import ErrorCode
from cluster.core.messages import NO_LEADER, TopicPartition
from tests.cluster.controller.setup import T0, ControllerBench

T1 = TopicPartition("t", 1)


def two_partitions(*, unclean: bool = False) -> ControllerBench:
    bench = ControllerBench().unfenced(1, 2, 3)
    configs = (("unclean.leader.election.enable", "true"),) if unclean else ()
    bench.create(assignment=((1, 2, 3), (1, 2, 3)), configs=configs)
    return bench


def test_a_broker_loses_leadership_and_isr_of_its_offline_partition_only() -> None:
    bench = two_partitions()
    assert not bench.heartbeat(1, offline=(T0,)).is_fenced
    offline, online = bench.partition(T0), bench.partition(T1)
    assert (offline.leader, offline.isr, offline.leader_epoch) == (2, (2, 3), 1)
    assert (online.leader, online.isr, online.leader_epoch) == (1, (1, 2, 3), 0)


def test_a_follower_leaves_the_isr_and_the_leader_stays() -> None:
    bench = two_partitions()
    bench.heartbeat(3, offline=(T0,))
    partition = bench.partition(T0)
    assert (partition.leader, partition.isr, partition.leader_epoch) == (1, (1, 2), 0)


def test_the_same_said_again_changes_nothing() -> None:
    bench = two_partitions()
    bench.heartbeat(1, offline=(T0,))
    before = bench.controller.image.next_offset
    bench.heartbeat(1, offline=(T0,))
    assert bench.controller.image.next_offset == before


def test_what_it_cannot_read_it_is_never_elected_for() -> None:
    bench = two_partitions()
    bench.heartbeat(2, offline=(T0,))
    bench.fence(3)
    bench.fence(1)
    assert bench.partition(T0).leader == NO_LEADER
    assert bench.partition(T0).isr == (1,)
    assert bench.partition(T1).leader == 2


def test_not_even_uncleanly() -> None:
    bench = two_partitions(unclean=True)
    bench.heartbeat(2, offline=(T0,))
    bench.fence(1)
    assert bench.partition(T0).leader == 3
    bench.fence(3)
    assert bench.partition(T0).leader == NO_LEADER


def test_ele5_the_last_in_sync_stays_so_and_leads_again_when_its_disk_is_back() -> None:
    bench = two_partitions()
    bench.fence(2)
    bench.fence(3)
    bench.heartbeat(1, offline=(T0,))
    partition = bench.partition(T0)
    assert (partition.leader, partition.isr) == (NO_LEADER, (1,))
    bench.fire("controller.session")
    bench.register(1, "second")
    bench.heartbeat(1)
    assert bench.partition(T0).leader == 1


def test_a_late_fetch_does_not_bring_a_removed_member_back_into_the_isr() -> None:
    bench = two_partitions()
    bench.heartbeat(3, offline=(T0,))
    assert bench.alter(1, 2, 3).error is ErrorCode.INELIGIBLE_REPLICA
    assert bench.alter(1, 2, 3, topic_partition=T1).error is ErrorCode.NONE


def test_a_broker_that_starts_without_a_directory_leads_no_partition_in_it() -> None:
    bench = two_partitions()
    bench.fence(2)
    bench.fence(3)
    bench.fence(1)
    bench.heartbeat(1, offline=(T0,))
    assert bench.partition(T0).leader == NO_LEADER
    assert bench.partition(T1).leader == 1


def test_a_restarted_controller_learns_of_offline_partitions_again_and_corrects_its_decisions() -> None:
    bench = two_partitions()
    bench.heartbeat(2, offline=(T0,))
    bench.crash_and_restart()
    bench.fence(3)
    # The controller cannot know that the partition is offline.
    bench.alter(1, 2)
    bench.fence(1)
    assert bench.partition(T0).leader == 2
    bench.heartbeat(2, offline=(T0,))
    assert bench.partition(T0).leader == NO_LEADER


def test_a_partition_of_a_deleted_topic_does_not_matter() -> None:
    bench = two_partitions()
    assert not bench.heartbeat(1, offline=(TopicPartition("gone", 0),)).is_fenced
