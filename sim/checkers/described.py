"""What a broker describes to clients: the metadata at the offset that it names, which it also acts on itself."""

from __future__ import annotations

from cluster.core.errors import ErrorCode
from cluster.core.messages import MetadataRequest, MetadataResponse, TopicMetadata
from sim.checkers.metadata import Partition, Replay

NAME = "described-metadata"


def description_difference(
    replay: Replay, asked: MetadataRequest, answer: MetadataResponse, applied_offset: int
) -> str:
    """Returns the first thing in which an answer is not what the log says; empty if there is none.

    `replay` is the log below `applied_offset`, on which the roles of the broker rest; -1 while it has none. Half an
    image would show topics that do not exist any more, and hide others.
    """
    if answer.metadata_offset != applied_offset:
        return (
            f"describes the metadata below {answer.metadata_offset}, and acts on that below {applied_offset}"
        )
    named = tuple([topic.name for topic in answer.topics])
    if named != (tuple(sorted(replay.topics)) if asked.topics is None else asked.topics):
        return f"was asked about {asked.topics}, and describes {named}"
    running = [number for number, broker in sorted(replay.brokers.items()) if not broker.fenced]
    if (brokers := [each.broker_id for each in answer.brokers]) != running:
        return f"describes brokers {brokers}, the log says {running}"
    return next(filter(None, (_topic_difference(replay, topic) for topic in answer.topics)), "")


def _topic_difference(replay: Replay, topic: TopicMetadata) -> str:
    known = replay.topics.get(topic.name)
    if known is None or topic.error is not ErrorCode.NONE:
        is_true = known is None and topic.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return "" if is_true else f"answers {topic.error.name} about {topic.name}, the log says {known}"
    if (topic.topic_id, topic.configs) != (known.topic_id, known.configs):
        return f"describes {topic.name} as {topic.topic_id}, {topic.configs}; the log says {known}"
    found = {
        each.partition: (each.replicas, each.isr, each.leader, each.leader_epoch) for each in topic.partitions
    }
    expected = {number: _described(partition) for number, partition in known.partitions.items()}
    return "" if found == expected else f"describes {topic.name} as {found}, the log says {expected}"


def _described(partition: Partition) -> tuple[tuple[int, ...], tuple[int, ...], int, int]:
    return partition.replicas, partition.isr, partition.leader, partition.leader_epoch
