"""Metadata records, their bytes, and the image."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.core.errors import ErrorCode
from cluster.core.messages import NO_LEADER, TopicPartition
from cluster.core.metadata.batches import build_change, whole_batches_size
from cluster.core.metadata.changes import ChangeReader
from cluster.core.metadata.delta import MetadataDelta
from cluster.core.metadata.image import MetadataImage
from cluster.core.metadata.records import (
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
    decode_record,
    encode_record,
)
from storage.errors import CorruptBatch, InvalidRecord

T0 = TopicPartition("t", 0)
TOPIC = TopicRecord(name="t", topic_id="ab", configs=(("flush.messages", "1"),))
PARTITION = PartitionRecord(topic="t", partition=0, replicas=(1, 2, 3), isr=(1, 2, 3), leader=1)
REGISTRATION = RegisterBrokerRecord(broker_id=1, incarnation="i", host="h", port=9)

RECORDS = st.one_of(
    st.builds(ClusterRecord, cluster_id=st.text()),
    st.builds(
        RegisterBrokerRecord,
        broker_id=st.integers(),
        incarnation=st.text(),
        host=st.text(),
        port=st.integers(),
    ),
    st.builds(
        BrokerChangeRecord,
        broker_id=st.integers(),
        broker_epoch=st.integers(),
        fenced=st.none() | st.booleans(),
        in_controlled_shutdown=st.none() | st.booleans(),
    ),
    st.builds(
        TopicRecord,
        name=st.text(),
        topic_id=st.text(),
        configs=st.lists(st.tuples(st.text(), st.text())).map(tuple),
    ),
    st.builds(
        PartitionChangeRecord,
        topic=st.text(),
        partition=st.integers(),
        isr=st.none() | st.lists(st.integers()).map(tuple),
        leader=st.integers(),
    ),
    st.just(PARTITION),
    st.builds(RemoveTopicRecord, name=st.text(), topic_id=st.text()),
    st.builds(
        TopicConfigRecord, topic=st.text(), configs=st.lists(st.tuples(st.text(), st.text())).map(tuple)
    ),
    st.builds(
        ProducerIdsRecord,
        broker_id=st.integers(),
        broker_epoch=st.integers(),
        next_producer_id=st.integers(),
    ),
)


def image_of(*records: MetadataRecord) -> MetadataImage:
    return delta_of(MetadataImage(), *records).after()


def delta_of(image: MetadataImage, *records: MetadataRecord) -> MetadataDelta:
    delta = MetadataDelta(image)
    for offset, record in enumerate(records, image.next_offset):
        delta.apply(record, offset)
    return delta


@settings(max_examples=40, deadline=None)
@given(RECORDS)
def test_record_survives_its_bytes(record: MetadataRecord) -> None:
    assert decode_record(encode_record(record)) == record


def test_encoding_is_canonical() -> None:
    record = BrokerChangeRecord(broker_id=1, broker_epoch=2, fenced=True)
    assert encode_record(record) == (
        b'{"broker_epoch":2,"broker_id":1,"fenced":true,"in_controlled_shutdown":null,"type":"BrokerChangeRecord"}'
    )


def test_missing_member_takes_its_default() -> None:
    record = decode_record(b'{"type":"TopicRecord","name":"t","topic_id":"x"}')
    assert record == TopicRecord(name="t", topic_id="x")


@pytest.mark.parametrize(
    "value", [None, b"", b"[]", b"{}", b"\xff", b'{"type":"NoRecord"}', b'{"type":"TopicRecord","colour":1}']
)
def test_what_is_no_record_is_refused(value: bytes | None) -> None:
    with pytest.raises(InvalidRecord):
        decode_record(value)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 70), 1 << 70) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=6,
)
SOUND: tuple[MetadataRecord, ...] = (
    REGISTRATION,
    TOPIC,
    PARTITION,
    PartitionChangeRecord(topic="t", partition=0, isr=(1,), leader=1),
    BrokerChangeRecord(broker_id=1, broker_epoch=0, fenced=False),
    TopicConfigRecord(topic="t", configs=()),
    RemoveTopicRecord(name="t", topic_id="ab"),
    ProducerIdsRecord(broker_id=1, broker_epoch=0, next_producer_id=9),
)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(SOUND), st.data())
def test_a_record_with_any_other_member_is_refused_or_applied(
    record: MetadataRecord, data: st.DataObject
) -> None:
    members = json.loads(encode_record(record))
    name = data.draw(st.sampled_from(sorted(members)))
    members[name] = data.draw(JSON)
    image = image_of(REGISTRATION, TOPIC, PARTITION)
    try:
        changed = decode_record(json.dumps(members).encode())
        after = delta_of(image, changed).after()
    except InvalidRecord:
        return
    assert after.next_offset == 4 and image == image_of(REGISTRATION, TOPIC, PARTITION)


def test_decision_is_one_batch() -> None:
    (data,) = build_change([TOPIC, PARTITION], timestamp_ms=5, max_bytes=1 << 20)
    (change,) = ChangeReader().read(data)
    assert (change.records, change.end_offset) == (((0, TOPIC), (1, PARTITION)), 2)
    assert whole_batches_size(data + data[:-1]) == len(data)


def test_damaged_batch_is_never_replayed() -> None:
    data = bytearray(*build_change([TOPIC], timestamp_ms=5, max_bytes=1 << 20))
    data[-3] ^= 4
    with pytest.raises(CorruptBatch):
        list(ChangeReader().read(bytes(data)))


def test_sta3_broker_epoch_is_the_offset_of_the_registration() -> None:
    image = image_of(ClusterRecord(cluster_id="c"), REGISTRATION)
    assert image.broker_epoch(1) == 1
    assert image.broker_epoch(2) == -1


def test_registered_broker_is_fenced() -> None:
    image = image_of(REGISTRATION)
    assert image.brokers[1].fenced and not image.is_active(1)


def test_broker_in_controlled_shutdown_is_not_active_but_unfenced() -> None:
    image = image_of(
        REGISTRATION,
        BrokerChangeRecord(broker_id=1, broker_epoch=0, fenced=False),
        BrokerChangeRecord(broker_id=1, broker_epoch=0, in_controlled_shutdown=True),
    )
    assert not image.is_active(1)
    assert [broker.broker_id for broker in image.unfenced_brokers()] == [1]


MISFITS: dict[str, tuple[MetadataRecord, ...]] = {
    "a change of another life of the broker": (
        REGISTRATION,
        BrokerChangeRecord(broker_id=1, broker_epoch=7, fenced=False),
    ),
    "a change of an unknown broker": (BrokerChangeRecord(broker_id=1, broker_epoch=0, fenced=False),),
    "a topic twice": (TOPIC, TOPIC),
    "a partition of no topic": (PARTITION,),
    "a partition twice": (TOPIC, PARTITION, PARTITION),
    "a change of no partition": (TOPIC, PartitionChangeRecord(topic="t", partition=0, isr=(1,))),
    "a removal of no topic": (RemoveTopicRecord(name="t", topic_id="ab"),),
    "a removal of another topic": (TOPIC, RemoveTopicRecord(name="t", topic_id="cd")),
    "configs of no topic": (TopicConfigRecord(topic="t", configs=()),),
}


@pytest.mark.parametrize("records", MISFITS.values(), ids=MISFITS)
def test_a_record_that_does_not_fit_the_image_is_refused_with_its_offset(
    records: tuple[MetadataRecord, ...],
) -> None:
    with pytest.raises(InvalidRecord, match=f"metadata offset {len(records) - 1}: "):
        image_of(*records)


def test_a_record_is_never_applied_twice() -> None:
    image = image_of(TOPIC, PARTITION)
    with pytest.raises(InvalidRecord, match="offset 1 is applied already"):
        MetadataDelta(image).apply(PartitionChangeRecord(topic="t", partition=0, isr=(1,)), 1)


def test_sta2_isr_change_adds_one_to_the_partition_epoch_only() -> None:
    image = image_of(TOPIC, PARTITION, PartitionChangeRecord(topic="t", partition=0, isr=(1, 2)))
    partition = image.partition(T0)
    assert partition is not None
    assert (partition.isr, partition.leader_epoch, partition.partition_epoch) == ((1, 2), 0, 1)


@pytest.mark.parametrize("leader", [1, 2, NO_LEADER])
def test_sta2_leader_field_adds_one_to_the_leader_epoch_even_if_it_names_the_same(leader: int) -> None:
    image = image_of(TOPIC, PARTITION, PartitionChangeRecord(topic="t", partition=0, leader=leader))
    partition = image.partition(T0)
    assert partition is not None
    assert (partition.leader, partition.leader_epoch, partition.partition_epoch) == (leader, 1, 1)


def test_removed_topic_leaves_nothing() -> None:
    image = image_of(TOPIC, PARTITION, RemoveTopicRecord(name="t", topic_id="ab"))
    assert image.partition(T0) is None and not image.topics


def test_description_names_unknown_topics_with_their_error() -> None:
    described = image_of(TOPIC, PARTITION).describe(("t", "u"))
    assert [topic.error for topic in described.topics] == [
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert described.topics[0].partitions[0].leader == 1


def test_ctl5_delta_merges_steps_and_names_each_partition_once() -> None:
    image = image_of(TOPIC, PARTITION)
    changes = [PartitionChangeRecord(topic="t", partition=0, leader=leader) for leader in (2, 3)]
    delta = delta_of(image, *changes)
    partition = delta.after().partition(T0)
    assert partition is not None
    assert (delta.changed_partitions, partition.leader_epoch) == ([T0], 2)


def test_delta_of_a_recreated_topic_holds_removal_and_creation() -> None:
    image = image_of(TOPIC, PARTITION)
    gone = (TopicConfigRecord(topic="t", configs=()), RemoveTopicRecord(name="t", topic_id="ab"))
    delta = delta_of(image, *gone)
    assert (delta.changed_partitions, delta.changed_configs, delta.created_topics) == ([], [], [])
    assert delta.partition(T0) is None and not delta.after().topics
    delta = delta_of(image, *gone, TopicRecord(name="t", topic_id="cd"), PARTITION)
    assert delta.removed_topics == [("t", "ab")]
    assert (delta.created_topics, delta.changed_partitions) == (["t"], [T0])
    assert delta.after().topics["t"].topic_id == "cd"


def test_an_image_is_a_value_that_later_changes_leave_alone() -> None:
    records: list[MetadataRecord] = [REGISTRATION, TOPIC, PARTITION]
    image = image_of(*records)
    delta_of(
        image,
        BrokerChangeRecord(broker_id=1, broker_epoch=0, fenced=False),
        PartitionChangeRecord(topic="t", partition=0, isr=(1,)),
        TopicConfigRecord(topic="t", configs=()),
        RemoveTopicRecord(name="t", topic_id="ab"),
        ProducerIdsRecord(broker_id=1, broker_epoch=0, next_producer_id=9),
    ).after()
    assert image == image_of(*records)


def test_an_image_shares_all_topics_that_did_not_change() -> None:
    image = image_of(TOPIC, PARTITION, replace(TOPIC, name="u"), replace(PARTITION, topic="u"))
    after = delta_of(image, PartitionChangeRecord(topic="t", partition=0, isr=(1,))).after()
    assert after.topics["u"] is image.topics["u"] and after.brokers is image.brokers
    assert after.topics["t"] is not image.topics["t"]


def test_kafka_14894_an_image_depends_on_the_records_and_not_on_their_deltas() -> None:
    records: list[MetadataRecord] = [TOPIC]
    records += [replace(PARTITION, partition=number) for number in range(70)]
    records += [PartitionChangeRecord(topic="t", partition=number % 70, isr=(1,)) for number in range(99)]
    records += [RemoveTopicRecord(name="t", topic_id="ab"), TOPIC, PARTITION]
    at_once, one_by_one = image_of(*records), MetadataImage()
    for record in records:
        one_by_one = delta_of(one_by_one, record).after()
    assert at_once == one_by_one
    assert at_once.describe(None) == one_by_one.describe(None)


def test_a_change_of_a_large_topic_copies_little() -> None:
    parts = [replace(PARTITION, partition=number) for number in range(2_500)]
    image = image_of(TOPIC, *parts)
    changes = 0
    for number in range(50):
        change = PartitionChangeRecord(topic="t", partition=number, isr=(1,))
        before, image = image, delta_of(image, change).after()
        changes += image.topics["t"].partitions._state[0] is not before.topics["t"].partitions._state[0]
    assert changes == 0
