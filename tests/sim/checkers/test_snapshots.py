"""A snapshot of the metadata is held against the log below its end, as soon as it is written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from cluster.core.metadata.image import MetadataImage
from cluster.core.metadata.records import (
    BrokerChangeRecord,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    TopicRecord,
)
from cluster.core.metadata.snapshots import encode_snapshot, records_of_image
from sim.bugs.planting import Replacement, replaced
from sim.checkers.metadata import Replay
from sim.checkers.snapshots import NAME, snapshot_difference
from sim.run import run_scenario
from sim.scenario.loading import parse_scenario
from tests.sim.checkers.test_metadata import PARTITION, REGISTRATION, TOPIC, images, logged

RECORDS: list[MetadataRecord] = [
    REGISTRATION,
    replace(REGISTRATION, broker_id=2),
    BrokerChangeRecord(broker_id=2, broker_epoch=1, fenced=False),
    TOPIC,
    PARTITION,
    PartitionChangeRecord(topic="t", partition=0, isr=(1,)),
    ProducerIdsRecord(broker_id=1, broker_epoch=0, next_producer_id=1_000),
]
# Returns the record that is written instead, None for none.
Alter = Callable[[MetadataRecord], MetadataRecord | None]


def finding(alter: Alter) -> str:
    """Return what is wrong with a snapshot whose records `alter` has changed."""
    (image,) = images(RECORDS)
    log, replay = logged(RECORDS), Replay()
    assert replay.advance(log.changes, len(RECORDS)) == ""
    records = [altered for each in records_of_image(image) if (altered := alter(each)) is not None]
    return snapshot_difference(encode_snapshot(records, epoch=0, timestamp_ms=1, max_bytes=300), replay)


def test_a_snapshot_that_has_all_is_sound() -> None:
    assert finding(lambda record: record) == ""


@pytest.mark.parametrize(
    ("left_out", "what"), [(ProducerIdsRecord, "next producer id"), (TopicRecord, "cannot be read")]
)
def test_krsnp5_a_snapshot_that_lacks_a_record_is_found(left_out: type, what: str) -> None:
    assert what in finding(lambda record: None if isinstance(record, left_out) else record)


def test_krsnp5_a_snapshot_with_another_partition_epoch_is_found() -> None:
    def without_epoch(record: MetadataRecord) -> MetadataRecord:
        return replace(record, partition_epoch=0) if isinstance(record, PartitionRecord) else record

    assert "has t as" in finding(without_epoch)


def test_a_snapshot_that_is_cut_is_found() -> None:
    assert "cannot be read" in snapshot_difference(bytes(70), Replay())


SCENARIO = """
scenario: snapshots
duration: 3s
cluster:
  brokers: 3
  settings: {metadata.log.max.record.bytes.between.snapshots: 300}
topics:
  t: {partitions: 2, replicas: 3}
producers:
  - {topic: t, rate: 5/s}
steps:
  - {at: 1s, kill: broker 1, down: 5s}
"""


@pytest.mark.slow
def test_krsnp5_a_run_that_writes_snapshots_without_partition_epochs_fails() -> None:
    def make(original: Callable[..., object]) -> Callable[..., object]:
        def records(image: MetadataImage) -> list[MetadataRecord]:
            return [
                replace(each, partition_epoch=0) if isinstance(each, PartitionRecord) else each
                for each in records_of_image(image)
            ]

        return records

    planted = Replacement(target="cluster.core.controller.controller:records_of_image", make=make)
    with replaced(planted):
        result = run_scenario(parse_scenario(SCENARIO), 1, stops_early=True)
    assert result.violations[0].checker == NAME, result.violations[0]
