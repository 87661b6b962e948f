"""A broker calls a partition offline as long as its metadata places it there and it cannot read it."""

from __future__ import annotations

from cluster.core.messages import BrokerHeartbeatRequest, OfflinePartition, TopicPartition
from cluster.core.metadata.delta import MetadataDelta
from cluster.core.metadata.image import MetadataImage
from cluster.core.metadata.records import MetadataRecord, PartitionRecord, RemoveTopicRecord, TopicRecord
from sim.checkers.base import Jury
from sim.checkers.ghost import Ghost
from sim.checkers.offline_names import OfflineNames, offline_findings

CREATED = (
    TopicRecord(name="t", topic_id="ab", configs=()),
    PartitionRecord(topic="t", partition=0, replicas=(1, 2), isr=(1, 2), leader=1),
)
DELETED = (*CREATED, RemoveTopicRecord(name="t", topic_id="ab"))
AGAIN = (*DELETED, TopicRecord(name="t", topic_id="cd", configs=()), CREATED[1])


def found(*records: MetadataRecord, broker: int = 1, topic_id: str = "ab", lags_by: int = 0) -> int:
    """Returns how many names are wrong in a heartbeat of the broker, that calls t-0 of that topic offline."""
    delta = MetadataDelta(MetadataImage())
    for offset, record in enumerate(records):
        delta.apply(record, offset)
    image = delta.after()
    named = OfflinePartition(topic_partition=TopicPartition("t", 0), topic_id=topic_id)
    request = BrokerHeartbeatRequest(
        broker_id=broker,
        broker_epoch=1,
        metadata_offset=image.next_offset - lags_by,
        offline_partitions=(named,),
    )
    return len(list(offline_findings(request, image, image.next_offset)))


def test_a_partition_that_is_placed_here_may_be_offline() -> None:
    assert found(*CREATED) == 0
    assert found(*AGAIN, topic_id="cd") == 0


def test_a_partition_of_a_deleted_topic_is_not_offline_any_more() -> None:
    assert found(*DELETED) == 1
    assert found(*AGAIN) == 1


def test_a_partition_of_other_brokers_is_not_offline_here() -> None:
    assert found(*CREATED, broker=3) == 1


def test_a_heartbeat_from_before_the_deletion_may_name_the_partition() -> None:
    assert found(*DELETED, lags_by=1) == 0


T0 = TopicPartition("t", 0)


def unnamed(*records: MetadataRecord, at_us: int = 5, opened: tuple[TopicPartition, ...] = ()) -> list[str]:
    """Returns what is wrong with a heartbeat without names of a broker that has lost t-0 of the first topic at 0."""
    delta, times = MetadataDelta(MetadataImage()), [0]
    for offset, record in enumerate(records[: len(CREATED)]):
        delta.apply(record, offset)
    jury = Jury(Ghost(), [], now_us=lambda: times[0], on_violation=lambda violation: None)
    names = OfflineNames(jury)
    names.on_offline((1, 1), T0, delta.after())
    for offset, record in enumerate(records[len(CREATED) :], len(CREATED)):
        delta.apply(record, offset)
    image, times[0] = delta.after(), at_us
    request = BrokerHeartbeatRequest(broker_id=1, broker_epoch=1, metadata_offset=image.next_offset)
    names.on_sent((1, 1), request, image, image.next_offset, opened)
    return [each.checker for each in jury.violations]


def test_a_partition_is_named_as_long_as_it_cannot_be_read() -> None:
    assert unnamed(*CREATED) == ["offline-names"]
    assert unnamed(*CREATED, opened=(T0,)) == []
    # It was lost after the heartbeat was made, or its topic is over.
    assert unnamed(*CREATED, at_us=0) == []
    assert unnamed(*DELETED) == [] and unnamed(*AGAIN) == []
