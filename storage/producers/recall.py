"""Recall each producer's last batches after a reload: a snapshot keeps only the newest batch of each producer.

Without this, a batch may be in the log twice after a restart. A producer with several batches in flight sends one again
that the log holds; the leader does not recognize it and answers that a predecessor is missing; the producer sends it
once more under a new epoch. In Kafka this can happen: its snapshots are the same, and KAFKA-5494 made the cache five
batches long in memory only. A log that is opened alone does as Kafka's; the logs of a node
(`storage/directory/manager.py`) recall.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from itertools import islice

from storage.batch import NO_SEQUENCE, RecordBatch
from storage.batch.record import subtract_from_sequence
from storage.errors import StorageError
from storage.producers.entry import BATCHES_KEPT, CachedBatch, ProducerStateEntry, is_in_sequence
from storage.producers.state import ProducerStateManager
from storage.segment import LogSegment
from storage.segment.segments import LogSegments

logger = logging.getLogger(__name__)

# Five batches of the default greatest size, with room for batches of other producers between them.
RECALLED_BYTES = 8 << 20
# Entries of the offset index: small batches are many, and a start must stay short.
RECALLED_ENTRIES = 64
# More, where batches are small and index entries far apart, would take longer than a step may.
RECALLED_BATCHES = 2048


def recall_batches(producers: ProducerStateManager, segments: LogSegments, *, log_start_offset: int) -> None:
    """Fill each producer's cache with its last batches in the log, as far as a bounded look back finds them.

    Nothing else changes. Where the log cannot be read the caches stay as they are: a retry may then be unknown.
    """
    # To ask more producers would take longer than to look back.
    if not producers.producers.may_have_earlier_batches(_is_incomplete, RECALLED_BATCHES):
        return
    wanted: dict[int, ProducerStateEntry] = {}
    found: dict[int, list[CachedBatch]] = {}
    try:
        for batch in _last_batches(segments):
            entry = producers.last_entry(batch.producer_id)
            if entry is None or not _is_incomplete(entry):
                continue
            if _is_of(entry, batch) and batch.base_offset >= log_start_offset:
                wanted[batch.producer_id] = entry
                found.setdefault(batch.producer_id, []).append(_cached(batch))
    except StorageError as error:
        logger.warning("producers' last batches not recalled: reason=%s", error)
        return
    for producer_id, batches in found.items():
        _prepend(wanted[producer_id], batches)


def _last_batches(segments: LogSegments) -> list[RecordBatch]:
    """Returns the last batches of the log, RECALLED_BATCHES at most, in their order.

    Those of a look back may be more, of which the first are none of the last: then another one goes half as far. There
    are none where so many follow the last index entry.
    """
    room_bytes = RECALLED_BYTES
    while True:
        batches = list(islice(_batches_of(_look_back(segments, room_bytes)), RECALLED_BATCHES + 1))
        if len(batches) <= RECALLED_BATCHES:
            return batches
        room_bytes = sum(batch.size_bytes for batch in batches) // 2


def _batches_of(parts: Iterable[tuple[LogSegment, int]]) -> Iterator[RecordBatch]:
    for segment, position in parts:
        yield from segment.records.batches(position)


def _is_incomplete(entry: ProducerStateEntry) -> bool:
    batches, recalled = entry.batches, entry.recalled
    if not batches or len(batches) + len(recalled) >= BATCHES_KEPT:
        return False
    # Read directly: a start asks this of every producer. One that begins with sequence 0 may follow one that ends with
    # 2^31-1; nothing precedes one at offset 0.
    _, last_offset, delta, _ = (recalled or batches)[0]
    return last_offset > delta


def _is_of(entry: ProducerStateEntry, batch: RecordBatch) -> bool:
    is_data = not batch.is_control and batch.base_sequence != NO_SEQUENCE
    return is_data and batch.producer_epoch == entry.producer_epoch


def _cached(batch: RecordBatch) -> CachedBatch:
    return (batch.last_sequence, batch.last_offset, batch.last_offset_delta, batch.max_timestamp)


def _prepend(entry: ProducerStateEntry, found: list[CachedBatch]) -> None:
    """Add those of `found` that directly precede the known batches, without a gap in sequences."""
    known = [*entry.recalled, *entry.batches]
    assert known, entry
    for batch in reversed(found):
        last_sequence, last_offset, delta, _ = known[0]
        # It is known already, or above the offset up to which the state was replayed.
        if batch[1] > last_offset - delta - 1:
            continue
        first_sequence = subtract_from_sequence(last_sequence, delta)
        if len(known) == BATCHES_KEPT or not is_in_sequence(batch[0], first_sequence):
            break
        known.insert(0, batch)
    entry.recalled = tuple(known[: len(known) - len(entry.batches)])
    assert len(entry.recalled) + len(entry.batches) <= BATCHES_KEPT, entry


def _look_back(segments: LogSegments, room_bytes: int) -> list[tuple[LogSegment, int]]:
    """The last segments, each with the position from which on it is read, oldest first."""
    parts: list[tuple[LogSegment, int]] = []
    room_entries = RECALLED_ENTRIES
    for segment in reversed(segments):
        if room_bytes <= 0 or room_entries <= 0:
            break
        index = segment.offset_index
        least = segment.size_bytes - room_bytes
        slots = range(max(0, index.entries - room_entries), index.entries)
        slot = bisect_left(slots, least, key=lambda each: index.entry(each).position)
        is_whole = least <= 0 and len(slots) == index.entries
        # The last index entry is too far from the end of the segment.
        if not is_whole and slot == len(slots):
            break
        position = 0 if is_whole else index.entry(slots[slot]).position
        # The index is damaged.
        if not 0 <= position <= segment.size_bytes:
            break
        parts.append((segment, position))
        room_bytes -= segment.size_bytes - position
        room_entries -= len(slots) + 1
        if position > 0:
            break
    return parts[::-1]
