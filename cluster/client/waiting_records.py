"""Records whose topic's metadata is not known yet, in order of arrival.

Kafka: KafkaProducer.waitOnMetadata.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import final

from storage.record import Header

RECORD_OVERHEAD_BYTES = 96  # batch header, and lengths and deltas of one record, at most


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingRecord:
    ticket: int
    topic: str
    partition: int | None
    key: bytes | None = field(repr=False)
    value: bytes | None = field(repr=False)
    headers: tuple[Header, ...] = field(repr=False)
    timestamp_ms: int
    arrived_ms: int
    generation: int  # of the flushes

    @property
    def size_bytes(self) -> int:
        """An upper bound of what it takes in a batch of its own, without compression."""
        size = RECORD_OVERHEAD_BYTES + len(self.key or b"") + len(self.value or b"")
        for name, value in self.headers:
            size += 10 + 4 * len(name) + len(value or b"")
        return size


@final
class WaitingRecords:
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
        """Removes and returns those that have waited for max_block_ms."""
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
