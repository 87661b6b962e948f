"""The batches of a segment into the producer state of its log, all of them or a slice. Rules PS24, PS25."""

from __future__ import annotations

from typing import Final

from storage.batch import RecordBatch
from storage.errors import CorruptBatch, InvalidRecord, InvalidTransactionState
from storage.producers.state import ProducerStateManager
from storage.segment import LogSegment
from storage.segment.segments import LogSegments

# So many bytes take 1 to 2 ms to read from the page cache, and more from a disk.
BYTES_A_SLICE: Final = 8 << 20


def end_of_replay(segments: LogSegments, segment: LogSegment, last_offset: int) -> int:
    """The position up to which the batches of `segment` are below `last_offset` (exclusive)."""
    is_last = segment is segments.floor(last_offset)
    found = segment.translate_offset(last_offset) if is_last else None
    return segment.size_bytes if found is None else found.position


def replay_segment(
    producers: ProducerStateManager,
    segment: LogSegment,
    start_offset: int,
    end_position: int,
    most_batches: int | None = None,
) -> int:
    """Replay the batches from `start_offset` up to `end_position`, all or a slice of at most `most_batches`.

    A slice ends after `BYTES_A_SLICE`, too. Returns the number of batches, and `most_batches` for a slice that has
    ended for its bytes; the state then has reached the end of the slice. Raises CorruptBatch.
    """
    start = segment.translate_offset(start_offset)
    if start is None:
        return 0
    replayed = 0
    for batch in segment.records.batches(start.position, end_position):
        if batch.producer_id >= 0:
            _replay(producers, segment, batch)
        replayed += 1
        if most_batches is None:
            continue
        is_long = batch.position + batch.size_bytes - start.position >= BYTES_A_SLICE
        if is_long or replayed == most_batches:
            producers.reached(batch.next_offset)
            return most_batches
    return replayed


def _replay(producers: ProducerStateManager, segment: LogSegment, batch: RecordBatch) -> None:
    try:
        completed = producers.replay(batch)
        if completed is not None:
            producers.complete_transaction(completed)
    except (InvalidRecord, InvalidTransactionState) as error:
        raise CorruptBatch(segment.path, batch.position, str(error)) from error
