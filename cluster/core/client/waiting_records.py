"""Records that wait for the metadata of their topic, or of their partition, in order of arrival.

Kafka: KafkaProducer.waitOnMetadata.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple, final

from cluster.core.client.config import ProducerConfig
from cluster.core.client.metadata_cache import MetadataCache
from cluster.core.client.request_room import MOST_BATCHES_BYTES
from cluster.core.errors import ErrorCode
from cluster.core.messages import TopicPartition
from storage.batch import build_batch
from storage.batch.record import Header, Record
from storage.codec.compression import Compression
from storage.codec.utf8 import is_encodable

NO_PARTITION = -1
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


def flaw_of(record: PendingRecord, config: ProducerConfig) -> tuple[ErrorCode, str] | None:
    """Returns why a record cannot be sent whatever the brokers say, as an error and a message; None if it can."""
    if record.size_bytes > config.max_request_size:
        text = f"{record.size_bytes} bytes are above max.request.size {config.max_request_size}"
        return ErrorCode.MESSAGE_TOO_LARGE, text
    if record.size_bytes > config.buffer_memory:
        text = f"{record.size_bytes} bytes are above buffer.memory {config.buffer_memory}"
        return ErrorCode.MESSAGE_TOO_LARGE, text
    if record.timestamp_ms < 0:
        return ErrorCode.INVALID_TIMESTAMP, f"the timestamp {record.timestamp_ms} is negative"
    if record.headers and not all(is_encodable(name) for name, _ in record.headers):
        return ErrorCode.INVALID_RECORD, "the name of a header cannot be written as UTF-8"
    if record.size_bytes > MOST_BATCHES_BYTES:
        return _flaw_of_large(record, config.compression_type)
    return None


def _flaw_of_large(record: PendingRecord, compression: Compression) -> tuple[ErrorCode, str] | None:
    """Returns what `flaw_of` does, for a record whose size bound no request has: its codec may make it small enough."""
    whole = Record(0, record.timestamp_ms, record.key, record.value, record.headers)
    size_bytes = len(build_batch([whole], compression=compression))
    if size_bytes <= MOST_BATCHES_BYTES:
        return None
    text = f"{size_bytes} bytes are above the {MOST_BATCHES_BYTES} that a request can carry"
    return ErrorCode.MESSAGE_TOO_LARGE, text


def _ticket(record: PendingRecord) -> int:
    return record.ticket


@final
class WaitingRecords:
    """Records whose topic or partition is not known yet, by the place that they wait for and in the order of sending.

    The place of a topic has the number NO_PARTITION. `cache` says what is known.
    """

    def __init__(self, max_block_ms: int, cache: MetadataCache) -> None:
        self._max_block_ms, self._cache = max_block_ms, cache
        self._records: dict[TopicPartition, deque[PendingRecord]] = {}

    @property
    def is_empty(self) -> bool:
        return not self._records

    def awaited(self, record: PendingRecord) -> TopicPartition | None:
        """Returns the place for whose metadata a record has to wait; None if it is known.

        A partition that the topic lacks may have been added to it since the last answer.
        """
        of_topic = TopicPartition(record.topic, NO_PARTITION)
        partitions = self._cache.partitions(record.topic)
        if not partitions or of_topic in self._records:
            return of_topic
        if record.partition is None or record.partition in partitions:
            return None
        return TopicPartition(record.topic, record.partition)

    def add(self, place: TopicPartition, record: PendingRecord) -> None:
        assert place.topic == record.topic, (place, record.topic)
        self._records.setdefault(place, deque()).append(record)

    def take_known(self) -> list[PendingRecord]:
        """Removes and returns the records whose place is known by now, those of each topic in the order of sending."""
        known: list[PendingRecord] = []
        for topic in dict.fromkeys([place.topic for place in self._records if self._is_known(place)]):
            # A topic that was away meanwhile has parted them: some wait for it, earlier ones for a partition.
            for record in self._take_topic(topic):
                if (awaited := self.awaited(record)) is None:
                    known.append(record)
                else:
                    self.add(awaited, record)
        return known

    def _is_known(self, place: TopicPartition) -> bool:
        partitions = self._cache.partitions(place.topic)
        return bool(partitions) and (place.partition == NO_PARTITION or place.partition in partitions)

    def _take_topic(self, topic: str) -> list[PendingRecord]:
        places = [place for place in self._records if place.topic == topic]
        return sorted([record for place in places for record in self._records.pop(place)], key=_ticket)

    def take_all(self) -> list[PendingRecord]:
        records, self._records = self._records, {}
        return [record for waiting in records.values() for record in waiting]

    def take_failed(self, now_ms: int) -> list[tuple[PendingRecord, ErrorCode, str]]:
        """Removes and returns the records that have waited for max_block_ms or can have no place, and why they fail."""
        failed = []
        for place in list(self._records):
            error, text = self._why_unknown(place)
            is_hopeless = error is ErrorCode.INVALID_TOPIC_EXCEPTION
            records = self._records[place]
            while records and (is_hopeless or records[0].arrived_ms + self._max_block_ms <= now_ms):
                failed.append((records.popleft(), error, text))
            if not records:
                del self._records[place]
        return failed

    def _why_unknown(self, place: TopicPartition) -> tuple[ErrorCode, str]:
        topic, number = place
        if self._cache.partitions(topic):
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {topic} has no partition {number}"
        error = self._cache.errors.get(topic, ErrorCode.REQUEST_TIMED_OUT)
        return error, f"no metadata of topic {topic}"

    def next_expiry_ms(self) -> int | None:
        return min(
            (records[0].arrived_ms + self._max_block_ms for records in self._records.values()), default=None
        )
