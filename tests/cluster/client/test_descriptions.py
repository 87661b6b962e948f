"""Facts about a topic, from what brokers reported of their replicas."""

from __future__ import annotations

from cluster.core.client.descriptions import is_led
from cluster.core.client.effects import Described
from cluster.core.messages import (
    DescribeReplicasResponse,
    MetadataResponse,
    PartitionMetadata,
    ReplicaDescription,
    TopicMetadata,
    TopicPartition,
)


def described(partitions: int) -> Described:
    """Return a topic `t` whose partitions broker 1 leads alone."""
    of_topic = [
        PartitionMetadata(partition=number, leader=1, leader_epoch=0, replicas=(1,), isr=(1,))
        for number in range(partitions)
    ]
    replicas = [
        ReplicaDescription(
            topic_partition=TopicPartition("t", number),
            role="leader",
            leader=1,
            leader_epoch=0,
            isr=(1,),
            log_start_offset=0,
            high_watermark=0,
            log_end_offset=0,
        )
        for number in range(partitions)
    ]
    return Described(
        ticket=1,
        metadata=MetadataResponse(topics=(TopicMetadata(name="t", partitions=tuple(of_topic)),)),
        replicas=(DescribeReplicasResponse(broker_id=1, state="running", replicas=tuple(replicas)),),
    )


def test_a_topic_of_which_a_broker_knows_too_few_partitions_is_not_led_yet() -> None:
    assert is_led(described(2), "t", partitions=2)
    assert not is_led(described(2), "t", partitions=3)
