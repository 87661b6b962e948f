"""Snapshots of the metadata: an image written as records, in a file beside the segments of the metadata log.

| part of the file | what it has |
| --- | --- |
| name | `OFFSET-EPOCH.checkpoint`: end offset (exclusive) in 20 digits, epoch of the last record below it in 10 |
| first batch | a control record SNAPSHOT_HEADER |
| batches after it | the image as records, which are one change; a broker's has its epoch |
| last batch | a control record SNAPSHOT_FOOTER: without it the file is not whole |

A snapshot is the whole of an image: what it does not have does not exist (KR-SNP-5). Kafka: Snapshots,
RecordsSnapshotWriter, ImageWriter.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from cluster.core.metadata.batches import build_change
from cluster.core.metadata.changes import ChangeReader
from cluster.core.metadata.delta import MetadataDelta
from cluster.core.metadata.image import MetadataImage
from cluster.core.metadata.records import (
    BrokerSnapshotRecord,
    ClusterRecord,
    MetadataRecord,
    PartitionRecord,
    ProducerIdsRecord,
    TopicRecord,
)
from storage.batch import RecordBatch, iterate_batches, stamp
from storage.batch.control_batches import build_control_batch, encode_snapshot_footer, encode_snapshot_header
from storage.batch.control_records import ControlType, read_control_record
from storage.errors import InvalidRecord

SNAPSHOT_SUFFIX = ".checkpoint"
_NAME = re.compile(r"(\d{20})-(\d{10})\.checkpoint")
_NO_BROKER = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """All metadata below `end_offset` as records; `epoch` is that of the last record below it (KR-SNP-1)."""

    end_offset: int
    epoch: int
    records: tuple[MetadataRecord, ...]


def snapshot_file_name(end_offset: int, epoch: int) -> str:
    """Returns the name of a snapshot's file, as Kafka spells it."""
    assert end_offset >= 0 and epoch >= 0, (end_offset, epoch)
    return f"{end_offset:020d}-{epoch:010d}{SNAPSHOT_SUFFIX}"


def parse_snapshot_name(name: str) -> tuple[int, int] | None:
    """Returns (end offset, epoch) of a snapshot's file name, None for another name."""
    match = _NAME.fullmatch(name)
    return None if match is None else (int(match[1]), int(match[2]))


def records_of_image(image: MetadataImage) -> Iterator[MetadataRecord]:
    """Yields records that make an equal image again."""
    if image.cluster_id:
        yield ClusterRecord(cluster_id=image.cluster_id)
    for number in sorted(image.brokers):
        broker = image.brokers[number]
        yield BrokerSnapshotRecord(
            broker_id=broker.broker_id,
            broker_epoch=broker.broker_epoch,
            incarnation=broker.incarnation,
            host=broker.host,
            port=broker.port,
            fenced=broker.fenced,
            in_controlled_shutdown=broker.in_controlled_shutdown,
        )
    for topic in image.topics.values():
        yield TopicRecord(name=topic.name, topic_id=topic.topic_id, configs=topic.configs)
        for number, partition in topic.partitions.items():
            yield PartitionRecord(
                topic=topic.name,
                partition=number,
                replicas=partition.replicas,
                isr=partition.isr,
                leader=partition.leader,
                leader_epoch=partition.leader_epoch,
                partition_epoch=partition.partition_epoch,
            )
    if image.next_producer_id:
        yield ProducerIdsRecord(
            broker_id=_NO_BROKER, broker_epoch=_NO_BROKER, next_producer_id=image.next_producer_id
        )


def image_of_snapshot(snapshot: Snapshot) -> MetadataImage:
    """Returns the image that was written. Raises InvalidRecord for records that contradict each other."""
    delta = MetadataDelta(MetadataImage())
    for number, record in enumerate(snapshot.records):
        delta.apply(record, number)
    return replace(delta.after(), next_offset=snapshot.end_offset)


def encode_snapshot(
    records: Iterable[MetadataRecord], *, epoch: int, timestamp_ms: int, max_bytes: int
) -> bytes:
    """Returns the content of a snapshot's file, in batches of at most `max_bytes`."""
    header = encode_snapshot_header(timestamp_ms)
    parts = [_control(ControlType.SNAPSHOT_HEADER, header, timestamp_ms, 0, epoch)]
    end_offset = 1
    kept = tuple(records)
    for batch in build_change(kept, timestamp_ms=timestamp_ms, max_bytes=max_bytes) if kept else ():
        numbered = bytearray(batch)
        stamp(numbered, 0, base_offset=end_offset, partition_leader_epoch=epoch)
        parts.append(bytes(numbered))
        end_offset = next(iter(iterate_batches(numbered))).next_offset
    assert end_offset == 1 + len(kept), (end_offset, len(kept))
    footer = _control(ControlType.SNAPSHOT_FOOTER, encode_snapshot_footer(), timestamp_ms, end_offset, epoch)
    return b"".join([*parts, footer])


def _control(kind: ControlType, value: bytes, timestamp_ms: int, base_offset: int, epoch: int) -> bytes:
    return build_control_batch(
        kind, value, timestamp=timestamp_ms, base_offset=base_offset, leader_epoch=epoch
    )


def decode_snapshot(data: bytes, *, end_offset: int, epoch: int) -> Snapshot:
    """Returns the snapshot in the content of its file. Raises CorruptBatch, InvalidRecord."""
    batches = list(iterate_batches(data))
    size_bytes = sum(batch.size_bytes for batch in batches)
    if len(batches) < 2 or size_bytes != len(data):
        raise InvalidRecord(f"the snapshot is cut: {len(data)} bytes, {size_bytes} of them in whole batches")
    _check_control(batches[0], ControlType.SNAPSHOT_HEADER)
    _check_control(batches[-1], ControlType.SNAPSHOT_FOOTER)
    reader = ChangeReader(batches[0].next_offset)
    content = data[batches[0].size_bytes : len(data) - batches[-1].size_bytes]
    changes = list(reader.read(content))
    if reader.is_within_a_change or reader.next_offset != batches[-1].base_offset or len(changes) > 1:
        raise InvalidRecord(f"the snapshot's records end at {reader.next_offset}, before its footer")
    records = tuple(record for change in changes for _, record in change.records)
    return Snapshot(end_offset=end_offset, epoch=epoch, records=records)


def _check_control(batch: RecordBatch, expected: ControlType) -> None:
    batch.check_valid()
    record = next(iter(batch.records()), None)
    if not batch.is_control or record is None or read_control_record(record).control_type is not expected:
        raise InvalidRecord(f"the snapshot has no {expected.name} where it must be")
