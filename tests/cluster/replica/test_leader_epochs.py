"""Leader epochs through elections, and a leader's answers about the end of an epoch.

A follower asks within its fetch (KIP-595): `last_fetched_epoch` is the epoch asked for, `diverging` the answer.
Kafka: LeaderEpochIntegrationTest, OffsetsForLeaderEpochTest.
"""

from __future__ import annotations

import pytest

from cluster.core.errors import ErrorCode
from cluster.core.messages import (
    NO_LEADER,
    EpochEnd,
    FetchPartition,
    FetchPartitionResponse,
    FetchRequest,
    TopicPartition,
)
from tests.cluster.broker.cluster_by_hand import Cluster
from tests.cluster.replica.setup import T0, Setup, broker_epoch_of, diverging, fetched

# No log is so long, so an epoch that ends below it differs.
FAR = 1_000


def asked(setup: Setup, epoch: int, *, topic_partition: TopicPartition = T0) -> FetchPartitionResponse:
    """Return broker 1's answer to broker 2, whose log ends at FAR in `epoch`."""
    replica = setup.manager.context.replicas.get(topic_partition)
    partition = FetchPartition(
        topic_partition=topic_partition,
        topic_id="1f" * 16,
        fetch_offset=FAR,
        current_leader_epoch=0 if replica is None else replica.leader_epoch,
        last_fetched_epoch=epoch,
    )
    request = FetchRequest(replica_id=2, broker_epoch=broker_epoch_of(2), partitions=(partition,))
    answer = fetched(setup.request(request))
    assert answer is not None
    return answer


def end_of_epoch(setup: Setup, epoch: int) -> EpochEnd | None:
    return asked(setup, epoch).diverging


def epochs_on(cluster: Cluster, number: int, topic_partition: TopicPartition) -> list[int]:
    segments = cluster.replica(number, topic_partition).log.local.segments
    return [batch.partition_leader_epoch for segment in segments for batch in segment.records.batches()]


@pytest.mark.covers(
    "LeaderEpochIntegrationTest.shouldAddCurrentLeaderEpochToMessagesAsTheyAreWrittenToLeader"
)
def test_the_leaders_epoch_is_in_each_batch_on_every_replica() -> None:
    cluster = Cluster(brokers=2)
    cluster.start()
    orders = cluster.create_topic("orders", replicas=(1, 2))
    for value in (b"a", b"b"):
        cluster.produce(1, orders, value)
    first = cluster.replica(1, orders).leader_epoch
    cluster.run(1_000)
    assert epochs_on(cluster, 1, orders) == epochs_on(cluster, 2, orders) == [first] * 2
    leader = cluster.leader_of(orders)
    cluster.node(leader).kill()
    other = 3 - leader
    cluster.run_until(lambda: cluster.replica(other, orders).leader is not None)
    second = cluster.replica(other, orders).leader_epoch
    assert second > first
    cluster.produce(other, orders, b"c", acks=1)
    cluster.node(leader).start()
    cluster.run_until(lambda: orders in cluster.core(leader).replicas())
    cluster.run_until(lambda: epochs_on(cluster, other, orders) == epochs_on(cluster, leader, orders))
    assert epochs_on(cluster, leader, orders) == [first, first, second]


@pytest.mark.covers("LeaderEpochIntegrationTest.shouldSendLeaderEpochRequestAndGetAResponse")
def test_a_leader_returns_the_end_of_an_epoch_and_others_refuse() -> None:
    setup = Setup()
    led, followed = TopicPartition("t", 0), TopicPartition("u", 0)
    setup.place(leader=1, topic_partition=led)
    setup.place(leader=2, topic_partition=followed)
    for _ in range(10):
        setup.append(b"value")
    assert end_of_epoch(setup, 0) == diverging(0, 10)
    other = asked(setup, 0, topic_partition=followed)
    assert (other.error, other.diverging) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, None)


@pytest.mark.covers("LeaderEpochIntegrationTest.shouldIncreaseLeaderEpochBetweenLeaderRestarts")
def test_ep5_ends_of_epochs_after_elections_also_of_those_that_wrote_nothing() -> None:
    setup = Setup()
    # Each restart of the leader costs two epochs.
    for number, epoch in enumerate((0, 2, 4)):
        setup.place(leader=1, leader_epoch=epoch, partition_epoch=number)
        setup.append(b"value")
    assert end_of_epoch(setup, 0) == diverging(0, 1)
    assert end_of_epoch(setup, 1) == diverging(0, 1)
    assert end_of_epoch(setup, 2) == diverging(2, 2)
    assert end_of_epoch(setup, 3) == diverging(2, 2)
    assert end_of_epoch(setup, 4) == diverging(4, 3) and setup.end == 3
    assert setup.replica.log.reads.end_offset_for_epoch(5) == (-1, -1)
    assert asked(setup, 5).error is ErrorCode.OFFSET_OUT_OF_RANGE


@pytest.mark.covers("OffsetsForLeaderEpochTest.shouldGetEpochsFromReplica")
def test_ep5_a_leader_answers_with_the_end_of_the_epoch_in_its_log() -> None:
    setup = Setup()
    setup.place(leader=1, leader_epoch=5)
    for _ in range(42):
        setup.append(b"value")
    assert setup.replica.log.reads.end_offset_for_epoch(5) == (5, 42)
    assert end_of_epoch(setup, 5) == diverging(5, 42)


@pytest.mark.covers("OffsetsForLeaderEpochTest.shouldReturnNoLeaderForPartitionIfThrown")
@pytest.mark.parametrize("leader", [2, NO_LEADER])
def test_a_replica_that_does_not_lead_reports_no_epochs(leader: int) -> None:
    setup = Setup()
    setup.place(leader=leader)
    answer = asked(setup, 5)
    assert (answer.error, answer.diverging) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, None)


@pytest.mark.covers("OffsetsForLeaderEpochTest.shouldReturnUnknownTopicOrPartitionIfThrown")
def test_no_epochs_are_reported_for_an_unknown_partition() -> None:
    setup = Setup()
    answer = asked(setup, 5)
    assert (answer.error, answer.diverging) == (ErrorCode.UNKNOWN_TOPIC_ID, None)
