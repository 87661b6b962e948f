"""The step from one image to the next: what the records of some changes touched, and the image after them.

Kafka: MetadataDelta, TopicsDelta, ClusterDelta, ConfigurationsDelta.
"""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import assert_never, final

from cluster.core import fencing
from cluster.core.messages import NO_LEADER, TopicPartition
from cluster.core.metadata.changes import Change
from cluster.core.metadata.image import (
    BrokerRegistration,
    MetadataImage,
    PartitionRegistration,
    TopicImage,
)
from cluster.core.metadata.records import (
    AbortTransactionRecord,
    BrokerChangeRecord,
    BrokerSnapshotRecord,
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
from storage.errors import InvalidRecord, InvalidTopic
from storage.topics import check_topic_name

# The bounds of an int32, which most numbers have in messages and files.
_MOST = (1 << 31) - 1
_MOST_PORT = (1 << 16) - 1
# The most characters of what does not fit that an error shows.
_MOST_SHOWN = 500


class _Misfit(Exception):
    """A record says something that cannot follow what the image has."""


def _checked(partition: PartitionRegistration) -> PartitionRegistration:
    """Returns the partition as it is. Raises _Misfit for one that no broker could act on."""
    replicas, isr = partition.replicas, partition.isr
    if not replicas or len(dict.fromkeys(replicas)) != len(replicas):
        raise _Misfit(f"the replicas are {replicas}")
    if not isr or any(member not in replicas for member in isr):
        raise _Misfit(f"the in-sync replicas are {isr} of {replicas}")
    if partition.leader != NO_LEADER and partition.leader not in replicas:
        raise _Misfit(f"the leader is {partition.leader}, no replica of {replicas}")
    _check_numbers(
        partition.topic_partition.partition, partition.leader_epoch, partition.partition_epoch, *replicas
    )
    return partition


def _check_numbers(*numbers: int) -> None:
    """Raises _Misfit for a number that messages and files cannot carry."""
    for number in numbers:
        if not 0 <= number <= _MOST:
            raise _Misfit(f"a number is {number}: must be 0 to {_MOST}")


@final
class _TopicDelta:
    """A topic that is created or changed: what the image before has of it, and what is different."""

    __slots__ = ("changed", "topic")

    def __init__(self, topic: TopicImage) -> None:
        self.topic = topic
        self.changed: dict[int, PartitionRegistration] = {}

    def partition(self, number: int) -> PartitionRegistration | None:
        return self.changed.get(number) or self.topic.partitions.get(number)

    def after(self) -> TopicImage:
        if not self.changed:
            return self.topic
        return replace(self.topic, partitions=self.topic.partitions.changed_by(self.changed))


@final
class MetadataDelta:
    """What is different after some changes: everything that they touched, in order of first touch, without repeats.

    A partition may have passed several epochs within one delta (CTL-5); the image after it has the outcome. A topic
    that was removed and created again is in both `removed_topics` (its old id) and `changed_partitions`. The image
    `before` stays as it is; what raises leaves a delta that must be thrown away.
    """

    def __init__(self, before: MetadataImage) -> None:
        self.before = before
        self._cluster_id, self._next_producer_id = before.cluster_id, before.next_producer_id
        self._next_offset = before.next_offset
        self._brokers: dict[int, BrokerRegistration] = {}
        # By name; None if the topic of that name was removed.
        self._topics: dict[str, _TopicDelta | None] = {}
        self._partitions: dict[TopicPartition, None] = {}
        self._configs: dict[str, None] = {}
        self._created: dict[str, None] = {}
        # (name, topic id) of each.
        self.removed_topics: list[tuple[str, str]] = []

    def apply_change(self, change: Change) -> None:
        """Applies all records of the change. Raises InvalidRecord for one that does not fit the image."""
        for offset, record in change.records:
            self.apply(record, offset)
        assert self._next_offset == change.end_offset, (self._next_offset, change.end_offset)

    def apply(self, record: MetadataRecord, offset: int) -> None:
        """Applies the record at `offset`; offsets only grow. Raises InvalidRecord if it does not fit the image."""
        if offset < self._next_offset:
            raise InvalidRecord(
                f"metadata offset {offset} is applied already, the next is {self._next_offset}"
            )
        try:
            self._apply(record, offset)
        except _Misfit as misfit:
            shown = f"{misfit}: {record}"[:_MOST_SHOWN]
            raise InvalidRecord(f"metadata offset {offset}: {shown}") from misfit
        self._next_offset = offset + 1

    def _apply(self, record: MetadataRecord, offset: int) -> None:
        match record:
            case ClusterRecord():
                self._cluster_id = record.cluster_id
            case RegisterBrokerRecord():
                self._register(record, broker_epoch=offset)
            case BrokerSnapshotRecord():
                self._register(record, broker_epoch=record.broker_epoch)
            case BrokerChangeRecord():
                self._change_broker(record)
            case TopicRecord():
                self._add_topic(record)
            case PartitionRecord():
                self._add_partition(record)
            case PartitionChangeRecord():
                self._change_partition(record)
            case RemoveTopicRecord():
                self._remove_topic(record)
            case TopicConfigRecord():
                known = self._known(record.topic)
                known.topic = replace(known.topic, configs=record.configs)
                self._configs[record.topic] = None
            case ProducerIdsRecord():
                if not 0 <= record.next_producer_id < 1 << 63:
                    raise _Misfit("there is no such producer id")
                self._next_producer_id = record.next_producer_id
            case AbortTransactionRecord():
                pass
            case _:
                assert_never(record)

    def _register(self, record: RegisterBrokerRecord | BrokerSnapshotRecord, *, broker_epoch: int) -> None:
        _check_numbers(record.broker_id)
        if not 0 <= record.port <= _MOST_PORT:
            raise _Misfit(f"the port is {record.port}")
        self._brokers[record.broker_id] = BrokerRegistration(
            broker_id=record.broker_id,
            broker_epoch=broker_epoch,
            incarnation=record.incarnation,
            host=record.host,
            port=record.port,
            fenced=record.fenced,
            in_controlled_shutdown=record.in_controlled_shutdown,
        )

    def _change_broker(self, record: BrokerChangeRecord) -> None:
        broker = self._brokers.get(record.broker_id) or self.before.brokers.get(record.broker_id)
        if broker is None or not fencing.is_change_of_life(record.broker_epoch, broker.broker_epoch):
            raise _Misfit(f"the registered broker is {broker}")
        shutdown = record.in_controlled_shutdown
        self._brokers[record.broker_id] = replace(
            broker,
            fenced=broker.fenced if record.fenced is None else record.fenced,
            in_controlled_shutdown=broker.in_controlled_shutdown if shutdown is None else shutdown,
        )

    def _topic(self, name: str) -> _TopicDelta | None:
        """Returns the topic of that name as it is now, for a change of it; None if there is none."""
        if name not in self._topics:
            topic = self.before.topics.get(name)
            if topic is None:
                return None
            self._topics[name] = _TopicDelta(topic)
        return self._topics[name]

    def _known(self, name: str) -> _TopicDelta:
        topic = self._topic(name)
        if topic is None:
            raise _Misfit("there is no such topic")
        return topic

    def _add_topic(self, record: TopicRecord) -> None:
        if self._topic(record.name) is not None:
            raise _Misfit("the topic exists")
        try:
            check_topic_name(record.name)
            bytes.fromhex(record.topic_id)
        except (InvalidTopic, ValueError) as error:
            raise _Misfit(str(error)) from error
        self._topics[record.name] = _TopicDelta(
            TopicImage(name=record.name, topic_id=record.topic_id, configs=record.configs)
        )
        self._created[record.name] = None

    def _add_partition(self, record: PartitionRecord) -> None:
        topic, topic_partition = self._known(record.topic), TopicPartition(record.topic, record.partition)
        if topic.partition(record.partition) is not None:
            raise _Misfit("the partition exists")
        topic.changed[record.partition] = _checked(
            PartitionRegistration(
                topic_partition=topic_partition,
                replicas=record.replicas,
                isr=record.isr,
                leader=record.leader,
                leader_epoch=record.leader_epoch,
                partition_epoch=record.partition_epoch,
            )
        )
        self._partitions[topic_partition] = None

    def _change_partition(self, record: PartitionChangeRecord) -> None:
        topic = self._known(record.topic)
        partition = topic.partition(record.partition)
        if partition is None:
            raise _Misfit("there is no such partition")
        topic.changed[record.partition] = _checked(partition.changed_by(record))
        self._partitions[partition.topic_partition] = None

    def _remove_topic(self, record: RemoveTopicRecord) -> None:
        topic = self._known(record.name)
        if not fencing.is_removal_of(record.topic_id, topic.topic.topic_id):
            raise _Misfit(f"the topic's id is {topic.topic.topic_id}")
        self.removed_topics.append((record.name, record.topic_id))
        self._topics[record.name] = None
        self._configs.pop(record.name, None)
        self._created.pop(record.name, None)
        for each in [each for each in self._partitions if each.topic == record.name]:
            del self._partitions[each]

    def partition(self, topic_partition: TopicPartition) -> PartitionRegistration | None:
        """Returns the partition after the records applied so far."""
        topic = self._topics.get(topic_partition.topic)
        if topic is not None:
            return topic.partition(topic_partition.partition)
        return None if topic_partition.topic in self._topics else self.before.partition(topic_partition)

    def after(self) -> MetadataImage:
        """Returns the image after the records applied so far; it shares all that did not change with `before`."""
        before = self.before
        removed = {name: None for name, topic in self._topics.items() if topic is None}
        changed = {name: topic.after() for name, topic in self._topics.items() if topic is not None}
        brokers = before.brokers
        if self._brokers:
            brokers = MappingProxyType({**brokers, **self._brokers})
        return MetadataImage(
            cluster_id=self._cluster_id,
            brokers=brokers,
            topics=before.topics.changed_by(changed, removed),
            next_producer_id=self._next_producer_id,
            next_offset=self._next_offset,
        )

    @property
    def changed_brokers(self) -> list[int]:
        return list(self._brokers)

    @property
    def created_topics(self) -> list[str]:
        """The topics that were created and still exist, by name."""
        return list(self._created)

    @property
    def changed_partitions(self) -> list[TopicPartition]:
        """The partitions that were created or changed and still exist."""
        return list(self._partitions)

    @property
    def changed_configs(self) -> list[str]:
        """The topics whose configs were altered; a new topic is in `created_topics` only, unless it was altered."""
        return list(self._configs)
