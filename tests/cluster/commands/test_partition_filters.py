"""The partitions that `replog topics describe` is asked for, by kafka-topics.sh's conditions."""

from __future__ import annotations

import pytest

from cluster.commands.partition_filters import PartitionFilter
from cluster.core.messages import (
    BrokerEndpoint,
    MetadataResponse,
    PartitionMetadata,
    ReplicaDescription,
    TopicMetadata,
    TopicPartition,
)

# By number: healthy, one out of sync, at the minimum, without a leader, led by a broker that is not there.
PARTITIONS = (
    PartitionMetadata(partition=0, leader=1, leader_epoch=0, replicas=(1, 2, 3), isr=(1, 2, 3)),
    PartitionMetadata(partition=1, leader=1, leader_epoch=0, replicas=(1, 2, 3), isr=(1,)),
    PartitionMetadata(partition=2, leader=1, leader_epoch=0, replicas=(1, 2, 3), isr=(1, 2)),
    PartitionMetadata(partition=3, leader=-1, leader_epoch=0, replicas=(1, 2, 3), isr=(1, 2)),
    PartitionMetadata(partition=4, leader=3, leader_epoch=0, replicas=(1, 2, 3), isr=(1, 2, 3)),
)
BROKERS = tuple(BrokerEndpoint(broker_id=number, host="h", port=number) for number in (1, 2))
METADATA = MetadataResponse(brokers=BROKERS)


def chosen(condition: str, *, min_isr: str | None = "2", reported: int | None = None) -> set[int]:
    configs = () if min_isr is None else (("min.insync.replicas", min_isr),)
    replicas = {}
    if reported is not None:
        for partition in PARTITIONS:
            place = TopicPartition("t", partition.partition)
            replicas[place, 2] = ReplicaDescription(
                topic_partition=place, role="follower", leader=1, leader_epoch=0, isr=(), log_start_offset=0,
                high_watermark=0, log_end_offset=0, min_insync_replicas=reported,
            )  # fmt: skip
    topic = TopicMetadata(name="t", configs=configs, partitions=PARTITIONS)
    conditions = {condition: True} if condition else {}
    return PartitionFilter(**conditions).chosen(topic, METADATA, replicas)


@pytest.mark.parametrize(
    "condition, wanted",
    [
        ("", {0, 1, 2, 3, 4}),
        ("under_replicated", {1, 2, 3}),
        ("unavailable", {3, 4}),
        ("under_min_isr", {1, 3, 4}),
        ("at_min_isr", {2, 3}),
    ],
)
def test_each_condition_chooses_its_partitions(condition: str, wanted: set[int]) -> None:
    assert chosen(condition) == wanted


def test_the_minimum_is_the_brokers_where_the_topic_has_none() -> None:
    assert chosen("under_min_isr", min_isr=None) == {3, 4}
    assert chosen("under_min_isr", min_isr=None, reported=3) == {1, 2, 3, 4}


def test_the_minimum_is_never_above_the_number_of_replicas() -> None:
    assert 0 not in chosen("under_min_isr", min_isr="9")


def test_conditions_add_up() -> None:
    topic = TopicMetadata(name="t", partitions=PARTITIONS)
    either = PartitionFilter(under_replicated=True, unavailable=True)
    assert either.chosen(topic, METADATA, {}) == {1, 2, 3, 4}
