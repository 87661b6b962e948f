"""Batches of records on their way to one partition, in order. Kafka: ProducerBatch, TxnPartitionEntry.

A partition's batches are in `queue` (never sent, or to be sent again) or in `in_flight`, each in order of
sending. A batch gets its producer id, epoch and sequence when it is first sent and keeps them in retries,
so that the broker recognises a repetition. They change only after the broker has said for certain that it
does not have the batch.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import NamedTuple, final

from cluster.core.messages import TopicPartition
from storage.batch import BatchBuilder, BatchFields, RecordBatch
from storage.batch.record import MAX_INT32, Record, add_to_sequence
from storage.codec.compression import Compression

NO_SEQUENCE = -1
# The distance between the numbers of two batches: the parts of a split batch take the numbers in between.
NUMBER_STEP = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerIdentity:
    """The producer id that the controller allocated, and its epoch."""

    producer_id: int
    producer_epoch: int


class Entry(NamedTuple):
    """The facts about one record that are reported back to its user; a tuple, because a producer makes many."""

    ticket: int
    timestamp_ms: int
    size_bytes: int


@final
class ProducerBatch:
    """One batch of a partition, from its first record until its outcome is reported."""

    __slots__ = (
        "_builder",
        "attempts",
        "base_sequence",
        "created_ms",
        "data",
        "entries",
        "generation",
        "identity",
        "is_done",
        "is_full",
        "may_be_appended",
        "number",
        "retry_at_ms",
        "span",
        "topic_partition",
    )

    def __init__(
        self,
        topic_partition: TopicPartition,
        *,
        number: int,
        created_ms: int,
        generation: int,
        compression: Compression,
        limit_bytes: int,
        span: int = NUMBER_STEP,
    ) -> None:
        self.topic_partition = topic_partition
        # Numbers grow in the order of creation, over all partitions.
        self.number = number
        # How many numbers, from the batch's own on, are free for the parts of a split.
        self.span = span
        self.created_ms = created_ms
        # The number of flushes before the batch: all its records come before, or all after, any flush.
        self.generation = generation
        self.entries: list[Entry] = []
        self.is_full = False
        # The outcome of its records was reported to the user: a late answer changes nothing.
        self.is_done = False
        self.attempts = 0
        # The outcome of an earlier attempt is unknown: the batch may be in the log.
        self.may_be_appended = False
        self.retry_at_ms = created_ms
        self.identity: ProducerIdentity | None = None
        self.base_sequence = NO_SEQUENCE
        # The bytes as sent; empty until then.
        self.data = b""
        self._builder = BatchBuilder(BatchFields(compression=compression), limit_bytes=limit_bytes)

    def try_append(self, record: Record, entry: Entry) -> bool:
        """Adds the record and returns True; returns False, and the batch is full, where it has no room.

        Raises InvalidRecord.
        """
        assert not self.data, "sent batches do not grow"
        if self.is_full or not self._builder.try_append(record):
            # The first record always has room.
            assert self.entries, self.number
            self.is_full = True
            return False
        self.entries.append(entry)
        self.is_full = self._builder.size_estimate >= self._builder.limit_bytes
        return True

    @property
    def record_count(self) -> int:
        return len(self.entries)

    @property
    def size_bytes(self) -> int:
        """The size of the bytes as sent; until then an estimate without compression."""
        return len(self.data) or self._builder.size_estimate

    @property
    def is_sequenced(self) -> bool:
        return self.base_sequence != NO_SEQUENCE

    @property
    def last_sequence(self) -> int:
        return add_to_sequence(self.base_sequence, self.record_count - 1)

    def seal(self) -> None:
        """Builds the bytes without a producer id, unless they were built before."""
        assert not self.is_sequenced, self.base_sequence
        if not self.data:
            self.data = self._builder.build()

    def seal_as(self, identity: ProducerIdentity, base_sequence: int) -> None:
        """Builds the bytes with the producer's id, epoch and sequence. After `unsequence` it may be called again."""
        assert not self.is_sequenced, self.number
        assert base_sequence >= 0, (self.number, base_sequence)
        self.identity, self.base_sequence = identity, base_sequence
        self._builder.fields = BatchFields(
            compression=self._builder.fields.compression,
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
            base_sequence=base_sequence,
        )
        self.data = self._builder.build()

    def unsequence(self) -> None:
        """Takes the sequence away, so that the batch can get another: the broker certainly lacks the batch."""
        assert self.is_sequenced, self.number
        assert not self.is_done, self.number
        self.identity, self.base_sequence = None, NO_SEQUENCE
        self.attempts, self.may_be_appended = 0, False

    @property
    def may_split(self) -> bool:
        return self.record_count > 1 and self.span > 1

    def split(self) -> tuple[ProducerBatch, ProducerBatch]:
        """Returns two halves of the batch, with the same records and, where the batch had any, the same sequences."""
        assert self.may_split, (self.record_count, self.span)
        assert self.data, self.number
        records = list(RecordBatch(self.data, 0, len(self.data)).records())
        middle, half = len(records) // 2, self.span // 2
        first = self._part(records, 0, middle, self.number)
        second = self._part(records, middle, len(records), self.number + half)
        assert first.record_count + second.record_count == self.record_count, (
            first.record_count,
            self.record_count,
        )
        assert first.is_sequenced == second.is_sequenced == self.is_sequenced, self.number
        return first, second

    def _part(self, records: list[Record], start: int, end: int, number: int) -> ProducerBatch:
        assert start < end, (start, end)
        part = ProducerBatch(
            self.topic_partition,
            number=number,
            created_ms=self.created_ms,
            generation=self.generation,
            compression=self._builder.fields.compression,
            limit_bytes=MAX_INT32,
            span=self.span // 2,
        )
        for index in range(start, end):
            is_taken = part.try_append(records[index]._replace(offset=index - start), self.entries[index])
            assert is_taken, index
        part.is_full = True
        part.attempts, part.may_be_appended = self.attempts, self.may_be_appended
        if self.identity is not None:
            part.seal_as(self.identity, add_to_sequence(self.base_sequence, start))
        return part


@final
class PartitionQueue:
    """The batches of one partition, and the sequences under which its broker knows them."""

    def __init__(self, topic_partition: TopicPartition) -> None:
        self.topic_partition = topic_partition
        self.queue: deque[ProducerBatch] = deque()
        self.in_flight: list[ProducerBatch] = []
        # The leader to which the batches in flight were sent.
        self.leader = -1
        self.identity: ProducerIdentity | None = None
        self.next_sequence = 0
        self.last_acked_sequence = NO_SEQUENCE
        self._last_acked_number = -1
        # A sequence was lost for certain: no new batch may follow it without a new producer epoch.
        self.has_gap = False
        # A batch that was given up may be in the log.
        self.is_unresolved = False

    def is_free_for(self, leader: int) -> bool:
        """Whether a batch may be sent to `leader`: two leaders at a time could append batches out of order."""
        return not self.in_flight or self.leader == leader

    @property
    def outstanding_count(self) -> int:
        """Counts the batches that a broker may know: in flight, or sent and to be sent again (first in `queue`)."""
        waiting = 0
        for batch in self.queue:
            if not batch.is_sequenced:
                break
            waiting += 1
        return len(self.in_flight) + waiting

    @property
    def is_unproven(self) -> bool:
        """Whether the first batch of an identity is still to be acknowledged: until then it is sent alone.

        A broker that knows nothing of a producer accepts any sequence, as Kafka's does, because its state may have
        expired. A second batch that arrived without the first would be appended before it.
        """
        return self.last_acked_sequence == NO_SEQUENCE and self.outstanding_count > 0

    def is_next_expected(self, batch: ProducerBatch) -> bool:
        """Whether everything before `batch` was acknowledged: a broker that then misses a predecessor has lost that
        one."""
        if self.last_acked_sequence == NO_SEQUENCE:
            return batch.base_sequence == 0
        return batch.base_sequence == add_to_sequence(self.last_acked_sequence, 1)

    def sequence(self, batch: ProducerBatch, producer: ProducerIdentity) -> None:
        """Seals `batch` before it is first sent, with the partition's next sequence: 0 for a new producer."""
        assert batch.record_count > 0, batch.number
        if self.identity is None:
            self.restart(producer)
        assert self.identity is not None
        batch.seal_as(self.identity, self.next_sequence)
        self.next_sequence = add_to_sequence(self.next_sequence, batch.record_count)

    def sent(self, batch: ProducerBatch, leader: int) -> None:
        """Moves the first batch of `queue` to `in_flight`: it was sent to `leader`."""
        assert self.queue[0] is batch, batch.number
        self.queue.popleft()
        assert all(other.number != batch.number for other in self.in_flight), batch.number
        self.in_flight.append(batch)
        self.in_flight.sort(key=_number)
        self.leader = leader
        batch.attempts += 1

    def answered(self, batch: ProducerBatch) -> None:
        """Removes the batch from `in_flight`, whatever the answer was."""
        self.in_flight.remove(batch)

    def acked(self, batch: ProducerBatch) -> None:
        """Notes that the batch is in the log, and all before it of the same identity: sequences have no gaps."""
        if batch.is_sequenced and batch.identity == self.identity and batch.number > self._last_acked_number:
            self.last_acked_sequence, self._last_acked_number = batch.last_sequence, batch.number

    def put_back(self, batch: ProducerBatch) -> None:
        """Queues a batch again, by its number: before all that came after it."""
        assert not batch.is_done, batch.number
        position = 0
        while position < len(self.queue) and self.queue[position].number < batch.number:
            position += 1
        following = self.queue[position].number if position < len(self.queue) else None
        assert following != batch.number, batch.number
        self.queue.insert(position, batch)

    @property
    def needs_resolution(self) -> bool:
        return self.has_gap or self.is_unresolved

    @property
    def may_resolve(self) -> bool:
        """Whether sequences may restart: no batch is left that the broker may know under an old one."""
        if not self.needs_resolution or self.in_flight:
            return False
        return not any(batch.is_sequenced for batch in self.queue)

    def unsequence_followers(self) -> None:
        """Takes the sequences away from all queued batches, once the first of them has lost its own.

        The broker certainly lacks the first batch, so it has none of the later ones either: sequences have no gaps.
        """
        if self.needs_resolution and self.queue and not self.queue[0].is_sequenced:
            for batch in self.queue:
                if batch.is_sequenced:
                    batch.unsequence()

    @property
    def is_complete(self) -> bool:
        """Whether the last sequence in use was acknowledged: then the batch given up is in the log after all."""
        expected = 0 if self.last_acked_sequence < 0 else add_to_sequence(self.last_acked_sequence, 1)
        return not self.has_gap and self.next_sequence == expected

    def resolved(self) -> None:
        self.has_gap = self.is_unresolved = False

    def restart(self, producer: ProducerIdentity) -> None:
        """Begins again at sequence 0 under a new id or epoch: the broker refuses late batches of the old one."""
        assert not self.in_flight, len(self.in_flight)
        assert not any(batch.is_sequenced for batch in self.queue), self.topic_partition
        self.identity = producer
        self.next_sequence, self.last_acked_sequence = 0, NO_SEQUENCE
        self.resolved()


def _number(batch: ProducerBatch) -> int:
    return batch.number
