"""Bring a log's producer state to an offset: from the newest snapshot, then from the batches after it.

Kafka: UnifiedLog.rebuildProducerState, loadProducersFromRecords; rules PS24, PS25.
"""

from __future__ import annotations

from collections.abc import Callable

from storage.producers.recall import recall_batches
from storage.producers.replay import end_of_replay, replay_segment
from storage.producers.state import ProducerStateManager
from storage.segment.segments import LogSegments


def rebuild_producer_state(
    producers: ProducerStateManager,
    segments: LogSegments,
    *,
    log_start_offset: int,
    last_offset: int,
    now_ms: int,
    is_clean: bool,
    recalls_batches: bool = False,
    reloaded: ProducerStateManager | None = None,
    save: Callable[[], object] | None = None,
) -> None:
    """Bring `producers` to the state at `last_offset` (exclusive), and `save` it; by default in a snapshot at once.

    `reloaded` is the state at that offset if it was built before (`reload.py`): it is taken over, nothing is replayed.
    With `recalls_batches` the state has more batches of each producer than a snapshot has (`recall.py`). A log without
    any snapshot after a clean stop was written before snapshots existed: nothing is scanned, and no producer is known
    (T45). Raises CorruptBatch, with the place, for batches that no broker can have written.
    """
    if is_clean and producers.snapshots.latest_offset is None:
        for offset in _snapshot_offsets(segments, last_offset):
            producers.reached(offset)
            producers.take_snapshot()
        return
    was_empty = producers.is_empty and producers.map_end_offset >= last_offset
    producers.truncate_and_reload(log_start_offset, last_offset, now_ms, reloaded)
    if last_offset > producers.map_end_offset and not was_empty:
        _replay_segments(producers, segments, log_start_offset, last_offset)
    producers.reached(last_offset)
    (save or producers.take_snapshot)()
    if recalls_batches:
        recall_batches(producers, segments, log_start_offset=log_start_offset)
    assert producers.map_end_offset == last_offset, (producers.map_end_offset, last_offset)


def _snapshot_offsets(segments: LogSegments, last_offset: int) -> list[int]:
    """The offsets at which a snapshot is taken: the bases of the last two segments, and the end."""
    return [*segments.last_base_offsets(2), last_offset]


def _replay_segments(
    producers: ProducerStateManager, segments: LogSegments, log_start_offset: int, last_offset: int
) -> None:
    snapshot_offsets = _snapshot_offsets(segments, last_offset)
    for segment in segments.values(producers.map_end_offset, last_offset):
        start_offset = max(segment.base_offset, producers.map_end_offset, log_start_offset)
        producers.reached(start_offset)
        if segment.base_offset in snapshot_offsets:
            producers.take_snapshot()
        replay_segment(producers, segment, start_offset, end_of_replay(segments, segment, last_offset))
