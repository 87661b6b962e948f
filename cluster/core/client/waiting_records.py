"""Records that wait for the metadata of their topic, in order of arrival.

Kafka: KafkaProducer.waitOnMetadata.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple, final

from cluster.core.errors import ErrorCode
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


@final
class WaitingRecords:
    """Records whose topic's metadata is not known yet, by topic and in the order of sending."""

    def __init__(self, max_block_ms: int) -> None:
        self._max_block_ms = max_block_ms
        self._records: dict[str, deque[PendingRecord]] = {}

    def has(self, topic: str) -> bool:
        return topic in self._records

    def topics(self) -> list[str]:
        return list(self._records)

    def add(self, record: PendingRecord) -> None:
        self._records.setdefault(record.topic, deque()).append(record)

    def take(self, topic: str) -> list[PendingRecord]:
        return list(self._records.pop(topic, ()))

    def take_all(self) -> list[PendingRecord]:
        return [record for topic in self.topics() for record in self.take(topic)]

    def expired(self, topic: str, now_ms: int) -> list[PendingRecord]:
        """Removes and returns the records of `topic` that have waited for max_block_ms."""
        records = self._records.get(topic)
        expired = []
        while records and records[0].arrived_ms + self._max_block_ms <= now_ms:
            expired.append(records.popleft())
        if records is not None and not records:
            del self._records[topic]
        return expired

    def next_expiry_ms(self) -> int | None:
        return min(
            (records[0].arrived_ms + self._max_block_ms for records in self._records.values()), default=None
        )
