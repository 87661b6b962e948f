"""Records that wait for the metadata of their topic, or of their partition, in order of arrival.

Kafka: KafkaProducer.waitOnMetadata.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple, final

from cluster.core.errors import ErrorCode
from cluster.core.messages import TopicPartition
from storage.batch.record import Header
from storage.codec.utf8 import is_encodable

# The most that the header of a batch and the lengths and deltas of one record take together.
RECORD_OVERHEAD_BYTES = 96


class PendingRecord(NamedTuple):
    """The arguments of one `send`; a tuple, because a producer makes many. `size_bytes` is from `size_bound`."""

    ticket: int
    topic: str
    partition: int | None
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]
    timestamp_ms: int
    arrived_ms: int
    # The number of flushes before this record.
    generation: int
    size_bytes: int


def size_bound(key: bytes | None, value: bytes | None, headers: tuple[Header, ...]) -> int:
    """Returns an upper bound of the record's size in bytes, alone in a batch without compression."""
    size = RECORD_OVERHEAD_BYTES + len(key or b"") + len(value or b"")
    for name, header_value in headers:
        size += 10 + 4 * len(name) + len(header_value or b"")
    return size


def flaw_of(record: PendingRecord, max_request_size: int) -> tuple[ErrorCode, str] | None:
    """Returns why a record cannot be sent whatever the brokers say, as an error and a message; None if it can."""
    if record.size_bytes > max_request_size:
        text = f"{record.size_bytes} bytes are above max.request.size {max_request_size}"
        return ErrorCode.MESSAGE_TOO_LARGE, text
    if record.timestamp_ms < 0:
        return ErrorCode.INVALID_TIMESTAMP, f"the timestamp {record.timestamp_ms} is negative"
    if record.headers and not all(is_encodable(name) for name, _ in record.headers):
        return ErrorCode.INVALID_RECORD, "the name of a header cannot be written as UTF-8"
    return None


def _ticket(record: PendingRecord) -> int:
    return record.ticket


@final
class WaitingRecords:
    """Records whose topic or partition is not known yet, by the place that they wait for and in the order of sending.

    The place of a topic has the number NO_PARTITION.
    """

    def __init__(self, max_block_ms: int) -> None:
        self._max_block_ms = max_block_ms
        self._records: dict[TopicPartition, deque[PendingRecord]] = {}

    def has(self, place: TopicPartition) -> bool:
        return place in self._records

    def places(self) -> list[TopicPartition]:
        return list(self._records)

    def add(self, place: TopicPartition, record: PendingRecord) -> None:
        assert place.topic == record.topic, (place, record.topic)
        self._records.setdefault(place, deque()).append(record)

    def take(self, place: TopicPartition) -> list[PendingRecord]:
        return list(self._records.pop(place, ()))

    def take_topic(self, topic: str) -> list[PendingRecord]:
        """Removes and returns the records of a topic, whatever place they wait for, in the order of sending."""
        taken = [self.take(place) for place in self.places() if place.topic == topic]
        return sorted([record for records in taken for record in records], key=_ticket)

    def take_all(self) -> list[PendingRecord]:
        return [record for place in self.places() for record in self.take(place)]

    def expired(self, place: TopicPartition, now_ms: int) -> list[PendingRecord]:
        """Removes and returns the records that have waited for that place for max_block_ms."""
        records = self._records.get(place)
        expired = []
        while records and records[0].arrived_ms + self._max_block_ms <= now_ms:
            expired.append(records.popleft())
        if records is not None and not records:
            del self._records[place]
        return expired

    def next_expiry_ms(self) -> int | None:
        return min(
            (records[0].arrived_ms + self._max_block_ms for records in self._records.values()), default=None
        )
