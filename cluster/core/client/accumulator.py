"""A batch of records on its way to one partition. Kafka: ProducerBatch.

A batch gets its producer id, epoch and sequence when it is first sent and keeps them in retries,
so that the broker recognises a repetition. They change only where the leader certainly lacks the batch and no
late copy of it can be appended: see `PartitionQueue.is_cut_off`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import NamedTuple, final

from cluster.core.messages import TopicPartition
from storage.batch import BatchBuilder, BatchFields, RecordBatch
from storage.batch.record import MAX_INT32, Record, add_to_sequence
from storage.codec.compression import Compression
from storage.values import maker

_batch_fields = maker(BatchFields)
NO_SEQUENCE = -1
# The distance between the numbers of two batches: the parts of a split batch take the numbers in between.
NUMBER_STEP = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerIdentity:
    """The producer id that the controller allocated, and its epoch."""

    producer_id: int
    producer_epoch: int


@cache
def _unsealed(compression: Compression) -> BatchFields:
    """Returns the header fields of a batch that has no sequence yet: the same for all of a codec."""
    return _batch_fields(compression=compression)


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
        "ordinal",
        "retry_at_ms",
        "span",
        "topic_partition",
        "was_sent_in_turn",
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
        # The outcome of an earlier attempt is unknown: the batch may be in the log. Once set it stays: whatever a later
        # attempt is answered, a copy may be in a log that the answering broker does not see.
        self.may_be_appended = False
        # At its last sending every earlier batch of its partition had its outcome.
        self.was_sent_in_turn = False
        # Counts the batches of its partition in the order of first sending; the parts of a split share one.
        self.ordinal = -1
        self.retry_at_ms = created_ms
        self.identity: ProducerIdentity | None = None
        self.base_sequence = NO_SEQUENCE
        # The bytes as sent; empty until then.
        self.data = b""
        self._builder = BatchBuilder(_unsealed(compression), limit_bytes=limit_bytes)

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
        self._builder.fields = _batch_fields(
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
        self.attempts, self.ordinal = 0, -1

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
        part.ordinal = self.ordinal
        if self.identity is not None:
            part.seal_as(self.identity, add_to_sequence(self.base_sequence, start))
        return part
