"""A broker reads the metadata log: it applies whole changes, one delta at a time, and says what it rests on."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from cluster.core.effects import Effect, Observe, SetTimer, Stop
from cluster.core.messages import FetchMetadataRequest, FetchMetadataResponse, TopicPartition
from cluster.core.metadata.batches import build_change
from cluster.core.metadata.records import (
    AbortTransactionRecord,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    TopicRecord,
    encode_record,
)
from cluster.core.replica.replica import Role
from storage.batch import build_batch, iterate_batches, stamp
from storage.batch.record import Record
from tests.cluster.broker.setup import BrokerSetup
from tests.cluster.replica.setup import of, only, only_sent

T0, U0 = TopicPartition("t", 0), TopicPartition("u", 0)


def topic(name: str, partitions: int = 1) -> list[MetadataRecord]:
    parts = [
        PartitionRecord(topic=name, partition=number, replicas=(1,), isr=(1,), leader=1)
        for number in range(partitions)
    ]
    return [TopicRecord(name=name, topic_id="1f" * 16), *parts]


def parts_of(setup: BrokerSetup, records: Sequence[MetadataRecord], max_bytes: int = 500) -> list[bytes]:
    """Return the batches of one change at the end of the log, with the broker's offsets."""
    found = []
    for batch in build_change(records, timestamp_ms=1, max_bytes=max_bytes):
        numbered = bytearray(batch)
        stamp(numbered, 0, base_offset=setup.metadata_end, partition_leader_epoch=0)
        setup.metadata_end = next(iter(iterate_batches(numbered))).next_offset
        found.append(bytes(numbered))
    return found


def answer(setup: BrokerSetup, data: bytes) -> list[Effect]:
    body = FetchMetadataResponse(high_watermark=setup.metadata_end, records=data)
    return setup.answer(setup.metadata_fetch, body)


def offsets(effects: list[Effect], kind: str) -> list[int]:
    return [effect.metadata_offset for effect in of(effects, Observe) if effect.kind == kind]


def booted() -> BrokerSetup:
    setup = BrokerSetup()
    setup.boot()
    return setup


def test_krlog8_an_answer_that_ends_within_a_change_publishes_nothing_of_it() -> None:
    setup = booted()
    before = setup.broker.image
    *parts, last = parts_of(setup, topic("t", 9))
    assert len(parts) > 1
    for part in parts:
        effects = answer(setup, part)
        # It goes on reading behind the part, and its image stays where the change begins.
        assert only_sent(effects, FetchMetadataRequest).body.offset > before.next_offset  # type: ignore[union-attr]
        assert setup.broker.image == before and not setup.broker.replicas()
    effects = answer(setup, last)
    assert len(setup.broker.replicas()) == 9
    assert offsets(effects, "replica.became_leader") == [setup.metadata_end] * 9


def test_krlog8_a_change_that_was_aborted_publishes_nothing() -> None:
    setup = booted()
    first, *_ = parts_of(setup, topic("t", 9))
    answer(setup, first)
    setup.metadata_end = next(iter(iterate_batches(first))).next_offset
    answer(setup, b"".join(parts_of(setup, [AbortTransactionRecord(reason="cut")])))
    assert not setup.broker.image.topics and not setup.broker.replicas()
    assert setup.broker.image.next_offset == setup.metadata_end
    setup.metadata(*topic("u"))
    assert list(setup.broker.replicas()) == [U0]


def test_krbrk3_each_answer_is_one_delta_and_the_roles_say_which_offset_they_rest_on() -> None:
    setup = booted()
    first = setup.broker.applied_offset
    assert first == setup.metadata_end
    effects = setup.metadata(*topic("t"))
    assert offsets(effects, "replica.became_leader") == [setup.metadata_end]
    effects = setup.metadata(
        PartitionChangeRecord(topic="t", partition=0, leader=1),
        PartitionChangeRecord(topic="t", partition=0, leader=-1),
    )
    assert offsets(effects, "replica.became_leader") == []
    assert offsets(effects, "replica.became_follower") == [setup.metadata_end]
    assert setup.broker.applied_offset == setup.broker.image.next_offset == setup.metadata_end
    assert setup.broker.replicas()[T0].role is Role.OFFLINE


def test_an_answer_with_a_wrong_checksum_is_fetched_again_and_ends_nothing() -> None:
    setup = booted()
    before = setup.broker.image
    (sound,) = parts_of(setup, topic("t"), 1 << 20)
    damaged = bytearray(sound)
    damaged[-3] ^= 4
    effects = answer(setup, bytes(damaged))
    assert not of(effects, Stop) and setup.broker.image == before
    (told,) = [each for each in of(effects, Observe) if each.kind == "metadata.damaged"]
    assert "checksum" in str(dict(told.fields)["reason"]) or "CRC" in str(dict(told.fields)["reason"])
    retry = only(effects, SetTimer)
    again = only_sent(setup.fire(retry.key, 1_000), FetchMetadataRequest)
    assert isinstance(again.body, FetchMetadataRequest) and again.body.offset == before.next_offset
    answer(setup, sound)
    assert list(setup.broker.replicas()) == [T0]


DAMAGED = {
    "no JSON": b"\x00\x01",
    "no such type": b'{"type":"ColourRecord"}',
    "a number as text": b'{"type":"TopicRecord","name":7,"topic_id":"ab"}',
    "a text as number": b'{"type":"PartitionChangeRecord","topic":"t","partition":"0"}',
    "a number as flag": b'{"type":"BrokerChangeRecord","broker_id":1,"broker_epoch":1,"fenced":1}',
    "a name that is no directory": b'{"type":"TopicRecord","name":"../x","topic_id":"ab"}',
    "an id that is none": b'{"type":"TopicRecord","name":"x","topic_id":"no hex"}',
    "a topic that exists": encode_record(TopicRecord(name="t", topic_id="ab")),
    "an unknown topic": encode_record(PartitionChangeRecord(topic="x", partition=0, leader=1)),
    "a leader that is no replica": encode_record(PartitionChangeRecord(topic="t", partition=0, leader=5)),
    "no replica": encode_record(PartitionRecord(topic="t", partition=1, replicas=(), isr=(), leader=-1)),
    "a negative partition": encode_record(
        PartitionRecord(topic="t", partition=-1, replicas=(1,), isr=(1,), leader=1)
    ),
}


@pytest.mark.parametrize("value", DAMAGED.values(), ids=DAMAGED)
def test_a_record_that_cannot_be_replayed_ends_the_broker_with_its_offset_and_applies_nothing(
    value: bytes,
) -> None:
    setup = booted()
    setup.metadata(*topic("t"))
    before = setup.broker.image
    sound = encode_record(TopicRecord(name="v", topic_id="1f" * 16))
    records = [Record(0, 1, None, sound), Record(1, 1, None, value)]
    data = bytearray(build_batch(records))
    stamp(data, 0, base_offset=setup.metadata_end, partition_leader_epoch=0)
    stop = only(answer(setup, bytes(data)), Stop)
    assert stop.reason.startswith("the metadata cannot be replayed: ")
    assert f"offset {setup.metadata_end + 1}" in stop.reason
    assert setup.broker.image == before
