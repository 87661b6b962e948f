"""The image of the metadata, which the controller and each broker build by replaying the metadata log.

The image depends on nothing but the log's prefix: equal prefixes make equal images (KAFKA-14894 broke that). A broker
applies all committed batches of one answer through a `MetadataDelta`, which remembers what they touched (CTL-5).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import assert_never, final

from cluster.core.errors import ErrorCode
from cluster.core.messages import (
    NO_LEADER,
    BrokerEndpoint,
    MetadataResponse,
    PartitionMetadata,
    TopicMetadata,
    TopicPartition,
)
from cluster.core.metadata.records import (
    AbortTransactionRecord,
    BrokerChangeRecord,
    ClusterRecord,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicConfigRecord,
    TopicRecord,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerRegistration:
    """One incarnation of a broker, as the controller admitted it."""

    broker_id: int
    # The offset of its registration record (STA-3).
    broker_epoch: int
    incarnation: str
    host: str
    port: int
    fenced: bool
    in_controlled_shutdown: bool

    @property
    def is_active(self) -> bool:
        """Whether the broker may lead and be in an ISR: unfenced and not shutting down (ELE-2, ISR-3)."""
        return not self.fenced and not self.in_controlled_shutdown


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRegistration:
    """A partition as the controller holds it. Kafka: PartitionRegistration."""

    topic_partition: TopicPartition
    # All assigned replicas; the first is the preferred leader.
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int
    partition_epoch: int

    @property
    def has_leader(self) -> bool:
        return self.leader != NO_LEADER

    def changed_by(self, record: PartitionChangeRecord) -> PartitionRegistration:
        """Returns the partition after the record.

        The partition epoch grows by 1, the leader epoch by 1 exactly if the record carries a leader (STA-2).
        """
        return replace(
            self,
            isr=self.isr if record.isr is None else record.isr,
            leader=record.leader if record.has_leader else self.leader,
            leader_epoch=self.leader_epoch + record.has_leader,
            partition_epoch=self.partition_epoch + 1,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicImage:
    """A topic and its partitions as the metadata log has them."""

    name: str
    topic_id: str
    configs: tuple[tuple[str, str], ...]
    # The partitions by number, in ascending order.
    partitions: dict[int, PartitionRegistration] = field(default_factory=dict)

    def describe(self) -> TopicMetadata:
        """Returns the topic as metadata answers carry it."""
        return TopicMetadata(
            name=self.name,
            topic_id=self.topic_id,
            configs=self.configs,
            partitions=tuple(
                PartitionMetadata(
                    partition=number,
                    leader=registration.leader,
                    leader_epoch=registration.leader_epoch,
                    replicas=registration.replicas,
                    isr=registration.isr,
                )
                for number, registration in self.partitions.items()
            ),
        )


@final
class MetadataImage:
    """Brokers, topics, partitions and producer ids after the records below `next_offset`."""

    def __init__(self) -> None:
        self.cluster_id = ""
        self.brokers: dict[int, BrokerRegistration] = {}
        self.topics: dict[str, TopicImage] = {}
        self.next_producer_id = 0
        self.next_offset = 0

    def apply(self, record: MetadataRecord, offset: int) -> None:
        """Replays the record at `offset`; offsets only grow."""
        assert offset >= self.next_offset, (offset, self.next_offset)
        match record:
            case ClusterRecord():
                self.cluster_id = record.cluster_id
            case RegisterBrokerRecord():
                self._register(record, offset)
            case BrokerChangeRecord():
                self._change_broker(record)
            case TopicRecord():
                self._add_topic(record)
            case PartitionRecord():
                self._add_partition(record)
            case PartitionChangeRecord():
                partitions = self.topics[record.topic].partitions
                partitions[record.partition] = partitions[record.partition].changed_by(record)
            case RemoveTopicRecord():
                assert self.topics[record.name].topic_id == record.topic_id, record
                del self.topics[record.name]
            case TopicConfigRecord():
                self.topics[record.topic] = replace(self.topics[record.topic], configs=record.configs)
            case ProducerIdsRecord():
                self.next_producer_id = record.next_producer_id
            case AbortTransactionRecord():
                pass
            case _:
                assert_never(record)
        self.next_offset = offset + 1

    def _register(self, record: RegisterBrokerRecord, offset: int) -> None:
        assert self.broker_epoch(record.broker_id) < offset, (record, offset)
        self.brokers[record.broker_id] = BrokerRegistration(
            broker_id=record.broker_id,
            broker_epoch=offset,
            incarnation=record.incarnation,
            host=record.host,
            port=record.port,
            fenced=record.fenced,
            in_controlled_shutdown=record.in_controlled_shutdown,
        )

    def _change_broker(self, record: BrokerChangeRecord) -> None:
        broker = self.brokers[record.broker_id]
        assert broker.broker_epoch == record.broker_epoch, (broker, record)
        shutdown = record.in_controlled_shutdown
        self.brokers[record.broker_id] = replace(
            broker,
            fenced=broker.fenced if record.fenced is None else record.fenced,
            in_controlled_shutdown=broker.in_controlled_shutdown if shutdown is None else shutdown,
        )

    def _add_topic(self, record: TopicRecord) -> None:
        assert record.name not in self.topics, record
        self.topics[record.name] = TopicImage(
            name=record.name, topic_id=record.topic_id, configs=record.configs
        )

    def _add_partition(self, record: PartitionRecord) -> None:
        partitions = self.topics[record.topic].partitions
        assert record.partition not in partitions, record
        partitions[record.partition] = PartitionRegistration(
            topic_partition=TopicPartition(record.topic, record.partition),
            replicas=record.replicas,
            isr=record.isr,
            leader=record.leader,
            leader_epoch=record.leader_epoch,
            partition_epoch=record.partition_epoch,
        )

    def partition(self, topic_partition: TopicPartition) -> PartitionRegistration | None:
        topic = self.topics.get(topic_partition.topic)
        return None if topic is None else topic.partitions.get(topic_partition.partition)

    def partitions(self) -> Iterator[PartitionRegistration]:
        """Yields all partitions, by topic name and number."""
        for name in sorted(self.topics):
            yield from self.topics[name].partitions.values()

    def is_active(self, broker_id: int) -> bool:
        """Returns whether the broker is registered, unfenced and not shutting down: it may lead and be in an ISR."""
        broker = self.brokers.get(broker_id)
        return broker is not None and broker.is_active

    def broker_epoch(self, broker_id: int) -> int:
        """Returns the epoch of the broker's present life, -1 if it is not registered."""
        broker = self.brokers.get(broker_id)
        return -1 if broker is None else broker.broker_epoch

    def unfenced_brokers(self) -> list[BrokerRegistration]:
        """Returns the unfenced brokers by id, also those in controlled shutdown: they still serve."""
        return [self.brokers[number] for number in sorted(self.brokers) if not self.brokers[number].fenced]

    def describe(
        self, topics: Iterable[str] | None, *, controller: BrokerEndpoint | None = None
    ) -> MetadataResponse:
        """Returns the answer to a MetadataRequest; None asks for all topics, an unknown topic has an error."""
        names = sorted(self.topics) if topics is None else topics
        return MetadataResponse(
            cluster_id=self.cluster_id,
            controller=controller,
            brokers=tuple(
                BrokerEndpoint(broker_id=broker.broker_id, host=broker.host, port=broker.port)
                for broker in self.unfenced_brokers()
            ),
            topics=tuple(self._describe_topic(name) for name in names),
            metadata_offset=self.next_offset,
        )

    def _describe_topic(self, name: str) -> TopicMetadata:
        topic = self.topics.get(name)
        if topic is None:
            return TopicMetadata(name=name, error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return topic.describe()


@final
class MetadataDelta:
    """Everything that the records of one answer touched, in order of first touch, without repeats.

    A partition may have passed several epochs within one delta (CTL-5); the image has the outcome. A topic that was
    removed and created again is in both `removed_topics` (its old id) and `changed_partitions`.
    """

    def __init__(self, image: MetadataImage) -> None:
        self.image = image
        self._brokers: dict[int, None] = {}
        self._partitions: dict[TopicPartition, None] = {}
        self._configs: dict[str, None] = {}
        # (name, topic id) of each.
        self.removed_topics: list[tuple[str, str]] = []

    def apply(self, record: MetadataRecord, offset: int) -> None:
        """Applies the record to the image, and remembers what it is about."""
        match record:
            case RegisterBrokerRecord() | BrokerChangeRecord():
                self._brokers[record.broker_id] = None
            case PartitionRecord() | PartitionChangeRecord():
                self._partitions[TopicPartition(record.topic, record.partition)] = None
            case RemoveTopicRecord():
                self._forget(record)
            case TopicConfigRecord():
                self._configs[record.topic] = None
            case ClusterRecord() | TopicRecord() | ProducerIdsRecord() | AbortTransactionRecord():
                pass
            case _:
                assert_never(record)
        self.image.apply(record, offset)

    def _forget(self, record: RemoveTopicRecord) -> None:
        self.removed_topics.append((record.name, record.topic_id))
        self._configs.pop(record.name, None)
        for number in self.image.topics[record.name].partitions:
            self._partitions.pop(TopicPartition(record.name, number), None)

    @property
    def changed_brokers(self) -> list[int]:
        return list(self._brokers)

    @property
    def changed_partitions(self) -> list[TopicPartition]:
        """The partitions that were created or changed and still exist."""
        return list(self._partitions)

    @property
    def changed_configs(self) -> list[str]:
        """The topics whose configs were altered; a new topic is in `changed_partitions` only."""
        return list(self._configs)
