"""The image of the metadata at one offset, which the controller and each broker build by replaying the metadata log.

An image is a value: it depends on nothing but the log's prefix, so equal prefixes make equal images (KAFKA-14894 broke
that), and it never changes. `MetadataDelta` makes the next one, which shares all that did not change.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import final

from cluster.core.errors import ErrorCode
from cluster.core.messages import (
    NO_LEADER,
    BrokerEndpoint,
    MetadataResponse,
    PartitionMetadata,
    TopicMetadata,
    TopicPartition,
)
from cluster.core.metadata.records import PartitionChangeRecord
from cluster.core.metadata.shared_map import SharedMap


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
    partitions: SharedMap[int, PartitionRegistration] = field(default_factory=SharedMap)

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


def _no_brokers() -> Mapping[int, BrokerRegistration]:
    return MappingProxyType({})


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataImage:
    """Brokers, topics, partitions and producer ids after the records below `next_offset`. It never changes."""

    cluster_id: str = ""
    brokers: Mapping[int, BrokerRegistration] = field(default_factory=_no_brokers)
    topics: SharedMap[str, TopicImage] = field(default_factory=SharedMap)
    next_producer_id: int = 0
    next_offset: int = 0

    def partition(self, topic_partition: TopicPartition) -> PartitionRegistration | None:
        topic = self.topics.get(topic_partition.topic)
        return None if topic is None else topic.partitions.get(topic_partition.partition)

    def partitions(self) -> Iterator[PartitionRegistration]:
        """Yields all partitions, by topic name and number."""
        for topic in self.topics.values():
            yield from topic.partitions.values()

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
        names = self.topics if topics is None else topics
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
class CurrentImage:
    """The image that somebody acts on now; its owner replaces it as a whole."""

    __slots__ = ("image",)

    def __init__(self) -> None:
        self.image = MetadataImage()
