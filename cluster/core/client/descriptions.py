"""Facts about a topic, computed from what each broker reported of its own replicas."""

from __future__ import annotations

from cluster.core.client.effects import Described
from cluster.core.errors import ErrorCode
from cluster.core.messages import ReplicaDescription, TopicPartition

Replicas = dict[tuple[TopicPartition, int], ReplicaDescription]


def replicas_of(described: Described) -> Replicas:
    """Returns the replicas by partition and broker id, as the brokers that answered reported them."""
    return {
        (replica.topic_partition, answer.broker_id): replica
        for answer in described.replicas
        for replica in answer.replicas
    }


def is_led(described: Described, topic: str, *, partitions: int = 1) -> bool:
    """Whether each partition's leader has taken over, and each replica's broker that answered has the partition.

    With fewer than `partitions` of them known, the answer is no.
    """
    metadata = described.metadata
    if metadata is None or not metadata.topics or metadata.topics[0].error is not ErrorCode.NONE:
        return False
    if len(metadata.topics[0].partitions) < partitions:
        return False
    replicas = replicas_of(described)
    reachable = {answer.broker_id for answer in described.replicas}
    for partition in metadata.topics[0].partitions:
        place = TopicPartition(topic, partition.partition)
        leader = replicas.get((place, partition.leader))
        if leader is None or leader.role != "leader":
            return False
        if any((place, broker) not in replicas for broker in partition.replicas if broker in reachable):
            return False
    return True
