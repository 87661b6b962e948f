"""Bugs in what a client is promised: each removes one protection of the producer, the consumer or the leader."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from cluster.core.client.accumulator import ProducerBatch
from cluster.core.client.config import OffsetReset
from cluster.core.client.effects import ConsumerEffect, Delivered
from cluster.core.client.fetched_records import FetchedRecords
from cluster.core.client.partition_queue import PartitionQueue
from cluster.core.errors import ErrorCode
from cluster.core.messages import EpochEnd
from sim.bugs.planting import Bug, Replacement
from storage.batch import Record, RecordBatch

Original = Callable[..., Any]

_QUEUE = "cluster.core.client.partition_queue:PartitionQueue"


def _never(original: Original) -> Original:
    return lambda *arguments: False


def _does_nothing(original: Original) -> Original:
    return lambda *arguments: None


def _counts_unanswered(original: Original) -> Original:
    def has_room_for_new(queue: PartitionQueue, limit: int) -> bool:
        return len(queue.in_flight) < limit

    return has_room_for_new


def _forgets_doubt(original: Original) -> Original:
    def is_in_doubt(queue: PartitionQueue, batch: ProducerBatch) -> bool:
        batch.may_be_appended = False
        return False

    return is_in_doubt


def _claims_success(original: Original) -> Original:
    def fail(producer: object, batch: ProducerBatch, error: ErrorCode, message: str) -> list[Delivered]:
        told = original(producer, batch, error, message)
        return [replace(each, error=ErrorCode.NONE, message="", is_unknown=False) for each in told]

    return fail


def _claims_refusal(original: Original) -> Original:
    def fail(producer: object, batch: ProducerBatch, error: ErrorCode, message: str) -> list[Delivered]:
        return [replace(each, is_unknown=False) for each in original(producer, batch, error, message)]

    return fail


def _drops_first(original: Original) -> Original:
    def read_fetched(*arguments: object, **named: object) -> FetchedRecords:
        fetched: FetchedRecords = original(*arguments, **named)
        if len(fetched.batches) < 2 or not fetched.batches[0].record_count:
            return fetched
        first = fetched.batches[0]._replace(record_count=fetched.batches[0].record_count - 1)
        return replace(fetched, records=fetched.records[1:], batches=(first, *fetched.batches[1:]))

    return read_fetched


def _keeps_what_is_below(original: Original) -> Original:
    def visible(batch: RecordBatch, position: int, high_watermark: int, room: object) -> list[Record]:
        return list(original(batch, batch.base_offset, high_watermark, room))

    return visible


def _puts_last(original: Original) -> Original:
    def put_back(queue: PartitionQueue, batch: ProducerBatch) -> None:
        queue.queue.append(batch)

    return put_back


def _never_expires(original: Original) -> Original:
    return lambda *arguments: []


def _starts_at_the_end(original: Original) -> Original:
    def on_out_of_range(consumer: object, position: Any) -> list[ConsumerEffect]:
        told: list[ConsumerEffect] = original(consumer, position)
        if position.offset is None:
            position.reset = OffsetReset.LATEST
        return told

    return on_out_of_range


def _keeps_its_epoch(original: Original) -> Original:
    def on_diverging(consumer: object, position: Any, diverging: EpochEnd) -> list[ConsumerEffect]:
        before = position.last_fetched_epoch
        told: list[ConsumerEffect] = original(consumer, position, diverging)
        if position.offset is not None:
            position.last_fetched_epoch = before
        return told

    return on_diverging


CLIENT_BUGS: tuple[Bug, ...] = (
    Bug(
        name="producer-counts-unanswered-only",
        story="Five batches may be unanswered, however many later ones are acknowledged.",
        replacements=(
            Replacement(target=f"{_QUEUE}.has_room_for_new", make=_counts_unanswered),
            Replacement(target=f"{_QUEUE}.is_in_doubt", make=_forgets_doubt),
        ),
        found_by="withheld-answer",
    ),
    Bug(
        name="producer-forgets-doubt",
        story="A batch is reported as refused, or gets a new sequence, although an attempt has no certain answer.",
        replacements=(
            Replacement(target="cluster.core.client.producer:leaves_doubt", make=_never),
            Replacement(target=f"{_QUEUE}.is_in_doubt", make=_forgets_doubt),
        ),
        found_by="bad-network",
    ),
    Bug(
        name="producer-believes-old-news",
        story="An answer that a predecessor is missing counts, although the predecessor was under way (KIP-360).",
        replacements=(Replacement(target=f"{_QUEUE}.is_old_news", make=_never),),
        found_by="bad-network",
    ),
    Bug(
        name="producer-claims-success",
        story="A producer reports records that it gave up as delivered, without an offset.",
        replacements=(
            Replacement(target="cluster.core.client.producer:ProducerCore._fail", make=_claims_success),
        ),
        found_by="bad-network",
    ),
    Bug(
        name="producer-claims-refusal",
        story="A producer reports records whose outcome is unknown as refused.",
        replacements=(
            Replacement(target="cluster.core.client.producer:ProducerCore._fail", make=_claims_refusal),
        ),
        found_by="bad-network",
    ),
    Bug(
        name="leader-accepts-any-sequence",
        story="A leader appends a producer's batch although it misses the one before it (TXN-1).",
        replacements=(
            Replacement(
                target="storage.producers.entry:ProducerAppendInfo._check_sequence", make=_does_nothing
            ),
        ),
        found_by="bad-network",
    ),
    Bug(
        name="consumer-drops-record",
        story="A consumer drops the first record where an answer has several batches.",
        replacements=(Replacement(target="cluster.core.client.consumer:read_fetched", make=_drops_first),),
        found_by="leader-crash",
    ),
    Bug(
        name="consumer-reads-again",
        story="A consumer returns the records of a batch that are below its position too.",
        replacements=(
            Replacement(target="cluster.core.client.fetched_records:_visible", make=_keeps_what_is_below),
        ),
        found_by="consumer-reads-again",
    ),
    Bug(
        name="consumer-starts-at-the-end",
        story="A consumer that is out of range goes on at the end, although it is set to go to the start.",
        replacements=(
            Replacement(
                target="cluster.core.client.consumer:ConsumerCore._on_out_of_range", make=_starts_at_the_end
            ),
        ),
        found_by="consumer-starts-at-the-end",
    ),
    Bug(
        name="consumer-keeps-epoch-after-cut",
        story="A consumer whose position was cut still names the epoch of the records that are gone (KIP-320).",
        replacements=(
            Replacement(
                target="cluster.core.client.consumer:ConsumerCore._on_diverging", make=_keeps_its_epoch
            ),
        ),
        found_by="consumer-keeps-epoch-after-cut",
    ),
    Bug(
        name="producer-puts-back-last",
        story="A batch that is sent again is queued after those that were sent after it.",
        replacements=(Replacement(target=f"{_QUEUE}.put_back", make=_puts_last),),
        found_by="too-few-in-sync",
    ),
    Bug(
        name="producer-never-gives-up",
        story="A producer forgets delivery.timeout.ms.",
        replacements=(
            Replacement(target="cluster.core.client.producer:ProducerCore._expire", make=_never_expires),
        ),
        found_by="too-few-in-sync",
    ),
)
