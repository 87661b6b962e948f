"""The creation, growth, deletion and configuration of topics.

Kafka: ReplicationControlManager.createTopic and createPartitions, StripedReplicaPlacer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from cluster.core.controller.config import ControllerConfig
from cluster.core.controller.decisions import Decision
from cluster.core.controller.partitions import PartitionControl
from cluster.core.errors import ClusterError, ErrorCode
from cluster.core.messages import (
    DEFAULT_COUNT,
    AlterTopicConfigsRequest,
    AlterTopicConfigsResponse,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreateTopicRequest,
    CreateTopicResponse,
    DeleteTopicRequest,
    DeleteTopicResponse,
)
from cluster.core.metadata.image import CurrentImage, MetadataImage, TopicImage
from cluster.core.metadata.records import (
    MetadataRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicConfigRecord,
    TopicRecord,
)
from storage.draws import Draws
from storage.errors import ConfigError, InvalidTopic
from storage.topics import METADATA_TOPIC, check_topic_name

Assignment = tuple[tuple[int, ...], ...]


class TopicControl:
    """Decides about topics on the pending image. The checks raise ClusterError."""

    def __init__(
        self, config: ControllerConfig, pending: CurrentImage, partitions: PartitionControl, draws: Draws
    ) -> None:
        self.config = config
        self._pending = pending
        self.partitions = partitions
        self.draws = draws

    @property
    def image(self) -> MetadataImage:
        """The pending image: what is committed, and what is appended."""
        return self._pending.image

    def create(self, request: CreateTopicRequest) -> Decision:
        """Creates topic and partitions in one batch. Raises ClusterError."""
        self.check_name(request.name)
        self.check_is_new(request.name)
        configs = dict(request.configs)
        self.check_configs(configs)
        assignment = self._checked_assignment(request) if request.assignment else self._place(request)
        topic_id = self._draw_topic_id(request.name)
        records: list[MetadataRecord] = [
            TopicRecord(name=request.name, topic_id=topic_id, configs=tuple(sorted(configs.items())))
        ]
        records += [
            self._first_state(request.name, number, replicas) for number, replicas in enumerate(assignment)
        ]
        return Decision(reply=CreateTopicResponse(topic_id=topic_id), records=tuple(records))

    def create_partitions(self, request: CreatePartitionsRequest) -> Decision:
        """Adds partitions with as many replicas as partition 0, in one batch; no old one moves. Raises ClusterError."""
        topic = self._known(request.name)
        first = len(topic.partitions)
        if request.count <= first:
            raise ClusterError(
                ErrorCode.INVALID_PARTITIONS,
                f"topic {topic.name!r} has {first} partitions: {request.count} is no more than that",
            )
        self.check_partition_count(request.count)
        factor = len(topic.partitions[0].replicas)
        records = [
            self._first_state(topic.name, number, replicas)
            for number, replicas in self._stripes(topic.name, range(first, request.count), factor)
        ]
        assert len(records) == request.count - first, (len(records), request)
        return Decision(reply=CreatePartitionsResponse(), records=tuple(records))

    def delete(self, request: DeleteTopicRequest) -> Decision:
        topic = self._known(request.name)
        self.partitions.forget_proposals(topic)
        record = RemoveTopicRecord(name=topic.name, topic_id=topic.topic_id)
        return Decision(reply=DeleteTopicResponse(), records=(record,))

    def alter_configs(self, request: AlterTopicConfigsRequest) -> Decision:
        """Changes the named properties, all of them or none; an empty value restores the default.

        Raises ClusterError.
        """
        topic = self._known(request.name)
        configs = dict(topic.configs)
        for name, value in request.configs:
            if value:
                configs[name] = value
            else:
                configs.pop(name, None)
        self.check_configs(configs)
        altered = tuple(sorted(configs.items()))
        if altered == topic.configs:
            return Decision(reply=AlterTopicConfigsResponse())
        records: list[MetadataRecord] = [TopicConfigRecord(topic=topic.name, configs=altered)]
        after = replace(topic, configs=altered)
        if self.partitions.allows_unclean_election(after):
            records += self.partitions.records_for_unclean_topic(after)
        return Decision(reply=AlterTopicConfigsResponse(), records=tuple(records))

    def _known(self, name: str) -> TopicImage:
        topic = self.image.topics.get(name)
        if topic is None:
            raise ClusterError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name!r} does not exist")
        return topic

    def check_name(self, name: str) -> None:
        """Refuses an invalid name and that of the controller's own log."""
        try:
            check_topic_name(name)
        except InvalidTopic as error:
            raise ClusterError(ErrorCode.INVALID_TOPIC_EXCEPTION, str(error)) from error
        if name == METADATA_TOPIC:
            raise ClusterError(ErrorCode.INVALID_REQUEST, f"{name!r} is the controller's own log")

    def check_is_new(self, name: str) -> None:
        """Refuses a topic that exists, that collides with another, or that is one too many.

        Names that differ only in `.` and `_` would be one name in metrics; Kafka refuses the second too.
        """
        if name in self.image.topics:
            raise ClusterError(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {name!r} already exists")
        folded = name.replace(".", "_")
        for other in self.image.topics:
            if other.replace(".", "_") == folded:
                raise ClusterError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{name!r} collides with {other!r}")
        if len(self.image.topics) >= self.config.max_topics:
            raise ClusterError(ErrorCode.INVALID_REQUEST, f"{self.config.max_topics} topics are the limit")

    def check_configs(self, configs: Mapping[str, str]) -> None:
        """Refuses properties that are unknown or unusable, or that contradict each other or a broker's defaults."""
        try:
            self.config.log.overridden_by(configs).check_pairs()
        except ConfigError as error:
            raise ClusterError(ErrorCode.INVALID_CONFIG, str(error)) from error

    def check_partition_count(self, count: int) -> None:
        if not 1 <= count <= self.config.max_partitions_per_topic:
            limit = self.config.max_partitions_per_topic
            raise ClusterError(ErrorCode.INVALID_PARTITIONS, f"{count} partitions: must be 1 to {limit}")

    def check_replication_factor(self, factor: int, brokers: Sequence[int]) -> None:
        """Refuses a factor below 1 or above the number of active `brokers`."""
        if factor < 1:
            raise ClusterError(
                ErrorCode.INVALID_REPLICATION_FACTOR, f"replication factor {factor}: at least 1"
            )
        if factor > len(brokers):
            raise ClusterError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"replication factor {factor} is above the {len(brokers)} brokers that are unfenced",
            )

    def _checked_assignment(self, request: CreateTopicRequest) -> Assignment:
        """Returns the replicas that the request assigns; its counts are ignored. Raises ClusterError."""
        self.check_partition_count(len(request.assignment))
        for number, replicas in enumerate(request.assignment):
            self.check_replicas(number, replicas, size=len(request.assignment[0]))
        return request.assignment

    def check_replicas(self, number: int, replicas: tuple[int, ...], *, size: int) -> None:
        """Refuses replicas unless they are registered, each once, `size` in all, and one of them is active."""
        reason = ""
        if not replicas or len(replicas) != size:
            reason = f"{len(replicas)} replicas, partition 0 has {size}"
        elif len(set(replicas)) != len(replicas):
            reason = "a broker is named twice"
        elif unknown := [replica for replica in replicas if replica not in self.image.brokers]:
            reason = f"broker {unknown[0]} is not registered"
        elif not any(self.image.is_active(replica) for replica in replicas):
            reason = "all its brokers are fenced or shutting down"
        if reason:
            raise ClusterError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"partition {number}: {reason}")

    def _place(self, request: CreateTopicRequest) -> Assignment:
        count = self.config.num_partitions if request.partitions == DEFAULT_COUNT else request.partitions
        factor = request.replication_factor
        if factor == DEFAULT_COUNT:
            factor = self.config.default_replication_factor
        self.check_partition_count(count)
        return tuple([replicas for _, replicas in self._stripes(request.name, range(count), factor)])

    def _stripes(self, topic: str, numbers: range, factor: int) -> list[tuple[int, tuple[int, ...]]]:
        """Returns each of the partitions `numbers` with `factor` active brokers for it. Raises ClusterError."""
        brokers = [number for number in sorted(self.image.brokers) if self.image.is_active(number)]
        self.check_replication_factor(factor, brokers)
        start = self.draws.below(len(brokers), "placement", topic, self.image.next_offset)
        return [(number, stripe(brokers, start, number, factor)) for number in numbers]

    def _first_state(self, topic: str, number: int, replicas: tuple[int, ...]) -> PartitionRecord:
        """Returns a partition led by its first active replica; all active replicas are in sync."""
        isr = tuple(replica for replica in replicas if self.image.is_active(replica))
        assert isr, (topic, number, replicas)
        return PartitionRecord(topic=topic, partition=number, replicas=replicas, isr=isr, leader=isr[0])

    def _draw_topic_id(self, name: str) -> str:
        """Draws a topic id, another one each time the name is used: the log offset is part of the draw."""
        halves = [self.draws.bits("topic_id", name, self.image.next_offset, half) for half in range(2)]
        return "".join(f"{half:016x}" for half in halves)


def stripe(brokers: Sequence[int], start: int, partition: int, replication_factor: int) -> tuple[int, ...]:
    """Returns the replicas of one partition; the first leads.

    Leaders are assigned round robin, and the followers move one broker further in each round: so the followers of a
    broker's partitions are spread over all other brokers.
    """
    size = len(brokers)
    assert 1 <= replication_factor <= size, (replication_factor, size)
    first = (start + partition) % size
    if size == 1:
        return (brokers[first],)
    shift = partition // size
    followers = [
        brokers[(first + 1 + (shift + number) % (size - 1)) % size]
        for number in range(replication_factor - 1)
    ]
    return (brokers[first], *followers)
