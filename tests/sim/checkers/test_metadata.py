"""The checker's own replay of the metadata log: it agrees with the product's, and says where something differs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.core.messages import NO_LEADER
from cluster.core.metadata.batches import build_change
from cluster.core.metadata.delta import MetadataDelta
from cluster.core.metadata.image import MetadataImage
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
from sim.checkers.metadata import ChangeGatherer, Replay, Role, config_difference, role_difference
from storage.batch import iterate_batches, stamp
from storage.config import LogConfig
from storage.errors import InvalidRecord

TOPIC = TopicRecord(name="t", topic_id="ab", configs=(("retention.ms", "5"),))
PARTITION = PartitionRecord(topic="t", partition=0, replicas=(1, 2), isr=(1, 2), leader=1)
REGISTRATION = RegisterBrokerRecord(broker_id=1, incarnation="i", host="h", port=9)
KINDS: tuple[MetadataRecord, ...] = (
    ClusterRecord(cluster_id="c"),
    REGISTRATION,
    replace(REGISTRATION, broker_id=2),
    TOPIC,
    replace(TOPIC, name="u-1"),
    PARTITION,
    replace(PARTITION, topic="u-1"),
    replace(PARTITION, partition=1),
    PartitionChangeRecord(topic="t", partition=0, isr=(1,)),
    PartitionChangeRecord(topic="t", partition=0, leader=2),
    PartitionChangeRecord(topic="u-1", partition=0, isr=(2,), leader=NO_LEADER),
    TopicConfigRecord(topic="t", configs=()),
    RemoveTopicRecord(name="t", topic_id="ab"),
    ProducerIdsRecord(broker_id=1, broker_epoch=0, next_producer_id=1_000),
    AbortTransactionRecord(reason="cut"),
)


def logged(*changes: list[MetadataRecord], max_bytes: int = 1 << 20) -> ChangeGatherer:
    """Return the changes as the checker reads them from a log."""
    log, base_offset = ChangeGatherer(), 0
    for records in changes:
        for batch in build_change(records, timestamp_ms=1, max_bytes=max_bytes):
            numbered = bytearray(batch)
            stamp(numbered, 0, base_offset=base_offset, partition_leader_epoch=0)
            (view,) = iterate_batches(numbered)
            log.add(view)
            base_offset = view.next_offset
    return log


def images(*changes: list[MetadataRecord]) -> list[MetadataImage]:
    """Return the product's image after each change."""
    found, image = [], MetadataImage()
    for records in changes:
        delta = MetadataDelta(image)
        for offset, record in enumerate(records, image.next_offset):
            delta.apply(record, offset)
        image = delta.after()
        found.append(image)
    return found


@settings(max_examples=80, deadline=None)
@given(st.lists(st.sampled_from(KINDS), max_size=40))
def test_both_replays_agree_after_every_change(drawn: list[MetadataRecord]) -> None:
    records: list[MetadataRecord] = []
    for record in drawn:
        try:
            images(*[[each] for each in [*records, record]])
        except InvalidRecord:
            continue
        records.append(record)
    changes = [[record] for record in records]
    log, replay = logged(*changes), Replay()
    for image in images(*changes):
        assert replay.advance(log.changes, image.next_offset) == ""
        assert replay.difference(image) == ""


def test_an_image_within_a_change_is_found() -> None:
    change: list[MetadataRecord] = [TOPIC, *(replace(PARTITION, partition=number) for number in range(9))]
    log = logged([REGISTRATION], change, max_bytes=500)
    assert len(log.changes) == 2
    assert "within the change from 1 to 11" in Replay().advance(log.changes, 4)
    assert "beyond the log" in Replay().advance(log.changes, 12)


def test_an_aborted_change_is_no_change() -> None:
    log = ChangeGatherer()
    torn = build_change([TOPIC, PARTITION, TOPIC, PARTITION], timestamp_ms=1, max_bytes=300)[0]
    log.add(next(iter(iterate_batches(torn))))
    (abort,) = build_change([AbortTransactionRecord(reason="cut")], timestamp_ms=1, max_bytes=300)
    numbered = bytearray(abort)
    end = next(iter(iterate_batches(torn))).next_offset
    stamp(numbered, 0, base_offset=end, partition_leader_epoch=1)
    log.add(next(iter(iterate_batches(numbered))))
    replay = Replay()
    assert replay.advance(log.changes, end + 1) == "" and not replay.topics


WRONG: dict[str, tuple[MetadataRecord, ...]] = {
    "brokers": (BrokerChangeRecord(broker_id=1, broker_epoch=0, fenced=False),),
    "t-0": (PartitionChangeRecord(topic="t", partition=0, isr=(1,)),),
    "topic t": (TopicConfigRecord(topic="t", configs=()),),
    "topics": (replace(TOPIC, name="u"),),
    "producer id": (ProducerIdsRecord(broker_id=1, broker_epoch=0, next_producer_id=7),),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_differs_is_named(what: str) -> None:
    sound: list[MetadataRecord] = [REGISTRATION, TOPIC, PARTITION]
    (image,) = images([*sound, *WRONG[what]])
    log, replay = logged(sound), Replay()
    assert replay.advance(log.changes, 3) == ""
    assert what in replay.difference(replace(image, next_offset=3))


def role(**changes: Any) -> dict[str, Role]:
    known = Role(topic_id="ab", leads=True, leader_epoch=0, partition_epoch=0)
    return {"t-0": known._replace(**changes)}


@pytest.mark.parametrize(
    ("roles", "expected"),
    [
        (role(), ""),
        (role(partition_epoch=1), ""),
        (role(leads=False), "t-0 has"),
        (role(leader_epoch=1), "t-0 has"),
        (role(topic_id="cd"), "of topic cd"),
        ({}, "t-0 is not here"),
        ({**role(), "x-0": role()["t-0"]}, "x-0 is here"),
    ],
)
def test_a_role_that_the_log_does_not_assign_is_named(roles: dict[str, Role], expected: str) -> None:
    replay = Replay()
    replay.advance(logged([TOPIC, PARTITION]).changes, 2)
    assert replay.partition("t-0") is not None
    found = role_difference(replay, 1, roles, offline={})
    assert expected in found
    assert bool(found) == bool(expected)


def test_a_partition_whose_disk_failed_may_be_missing() -> None:
    replay = Replay()
    replay.advance(logged([TOPIC, PARTITION]).changes, 2)
    assert role_difference(replay, 1, {}, offline={"t-0": "ab"}) == ""
    # That of a topic of the name that was deleted says nothing of this one.
    assert role_difference(replay, 1, {}, offline={"t-0": "cd"}) != ""


@pytest.mark.parametrize(
    ("used", "is_wrong"),
    [
        (LogConfig(segment_ms=7, retention_ms=5), False),
        (LogConfig(segment_ms=7), True),
        (LogConfig(retention_ms=5), True),
    ],
)
def test_a_log_with_other_properties_than_its_topic_is_named(used: LogConfig, is_wrong: bool) -> None:
    replay, log = Replay(), logged([TOPIC, PARTITION])
    assert replay.advance(log.changes, 2) == ""
    assert bool(config_difference(replay, LogConfig(segment_ms=7), {"t-0": used})) is is_wrong


def test_a_broker_at_another_address_is_found() -> None:
    (image,) = images([REGISTRATION])
    (elsewhere,) = images([replace(REGISTRATION, port=10)])
    replay, log = Replay(), logged([REGISTRATION])
    assert replay.advance(log.changes, 1) == ""
    assert replay.difference(image) == ""
    assert replay.difference(elsewhere).startswith("brokers ")
