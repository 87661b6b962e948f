"""The two outcomes of a sent record: its place in the log, or the error that it ended with."""

from __future__ import annotations

from dataclasses import dataclass

from cluster.core.client.effects import Delivered
from cluster.core.errors import ClusterError, ErrorCode
from cluster.core.messages import TopicPartition
from storage.values import maker, quickly_made


@quickly_made
@dataclass(frozen=True, slots=True, kw_only=True)
class RecordMetadata:
    """The place of an acknowledged record. Kafka: RecordMetadata.

    `offset` is -1 with acks=0, and where the leader acknowledged a duplicate whose offset it no longer knows.
    `timestamp_ms` is in milliseconds since the Unix epoch, -1 where `offset` is -1.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition as a key."""
        return TopicPartition(self.topic, self.partition)


class DeliveryError(ClusterError):
    """The failure of one sent record. It is not in the log, unless `is_unknown`: then it may be, now or later.

    `topic_partition` has partition -1 where none was chosen yet.
    """

    def __init__(
        self, code: ErrorCode, detail: str, topic_partition: TopicPartition, *, is_unknown: bool
    ) -> None:
        super().__init__(code, detail)
        self.topic_partition, self.is_unknown = topic_partition, is_unknown


_record_metadata = maker(RecordMetadata)
Outcome = RecordMetadata | DeliveryError


def outcome_of(delivered: Delivered) -> Outcome:
    """Returns what the core reported of one record as its sender sees it."""
    place = delivered.topic_partition
    if delivered.error is ErrorCode.NONE:
        return _record_metadata(
            topic=place.topic,
            partition=place.partition,
            offset=delivered.offset,
            timestamp_ms=delivered.timestamp_ms,
        )
    detail = delivered.message or f"a record for {place.topic} was not stored"
    return DeliveryError(delivered.error, detail, place, is_unknown=delivered.is_unknown)
