"""The observations that report a committed record to traces, tables and checkers."""

from __future__ import annotations

from cluster.core.effects import Observe
from cluster.core.messages import NO_LEADER, TopicPartition
from cluster.core.metadata.delta import MetadataDelta
from cluster.core.metadata.records import (
    BrokerChangeRecord,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicConfigRecord,
    TopicRecord,
)


def observe(kind: str, **fields: int | str) -> Observe:
    return Observe(kind=kind, fields=tuple(fields.items()))


def members(isr: tuple[int, ...]) -> str:
    return ",".join(str(member) for member in isr)


def observations(record: MetadataRecord, offset: int, before: MetadataDelta) -> list[Observe]:
    """Returns what `record` means; `before` has the records before it."""
    match record:
        case RegisterBrokerRecord(broker_id=broker):
            return [observe("controller.broker_registered", broker=broker, broker_epoch=offset)]
        case BrokerChangeRecord():
            return _of_broker(record)
        case TopicRecord(name=topic, topic_id=topic_id):
            return [observe("controller.topic_created", topic=topic, topic_id=topic_id)]
        case RemoveTopicRecord(name=topic, topic_id=topic_id):
            return [observe("controller.topic_deleted", topic=topic, topic_id=topic_id)]
        case TopicConfigRecord(topic=topic):
            return [observe("controller.topic_configured", topic=topic)]
        case PartitionRecord():
            return [
                _elected(
                    TopicPartition(record.topic, record.partition),
                    leader=record.leader,
                    leader_epoch=record.leader_epoch,
                    isr=record.isr,
                    clean=True,
                )
            ]
        case PartitionChangeRecord():
            return _of_partition(record, before)
        case _:
            return []


def _of_broker(record: BrokerChangeRecord) -> list[Observe]:
    observed = []
    if record.fenced is not None:
        kind = "controller.broker_fenced" if record.fenced else "controller.broker_unfenced"
        observed.append(observe(kind, broker=record.broker_id))
    if record.in_controlled_shutdown:
        observed.append(observe("controller.broker_shutting_down", broker=record.broker_id))
    return observed


def _of_partition(record: PartitionChangeRecord, before: MetadataDelta) -> list[Observe]:
    topic_partition = TopicPartition(record.topic, record.partition)
    old = before.partition(topic_partition)
    assert old is not None, record
    new = old.changed_by(record)
    observed = []
    if record.isr is not None:
        observed.append(
            observe(
                "controller.isr_changed",
                topic_partition=str(topic_partition),
                isr=members(new.isr),
                partition_epoch=new.partition_epoch,
            )
        )
    if record.leader == NO_LEADER:
        observed.append(
            observe(
                "controller.leader_lost",
                topic_partition=str(topic_partition),
                leader_epoch=new.leader_epoch,
                isr=members(new.isr),
            )
        )
    elif record.has_leader:
        observed.append(
            _elected(
                topic_partition,
                leader=new.leader,
                leader_epoch=new.leader_epoch,
                isr=new.isr,
                clean=new.leader in old.isr,
            )
        )
    return observed


def _elected(
    topic_partition: TopicPartition, *, leader: int, leader_epoch: int, isr: tuple[int, ...], clean: bool
) -> Observe:
    return observe(
        "controller.leader_elected",
        topic_partition=str(topic_partition),
        leader=leader,
        leader_epoch=leader_epoch,
        isr=members(isr),
        clean=int(clean),
    )
