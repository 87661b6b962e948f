"""A reload of the producer state in slices, before the truncation that needs it: beside a log that still has its tail.

The batches of 200,000 producers take most of a second to replay, and nothing else may run meanwhile. So the state at
the cut is built first, in a `ProducerStateManager` of its own. The log, its state and its files stay as they are until
the truncation takes the result over; whoever does not truncate after all drops it.
"""

from __future__ import annotations

from typing import Final, final

from storage.producers.replay import end_of_replay, replay_segment
from storage.producers.rows import SnapshotRows
from storage.producers.state import ProducerStateManager
from storage.segment.segments import LogSegments

# A replay of so many takes 7 ms. A full garbage collection in between walks the entries of both states: with 200,000
# producers it takes some 45 ms more, once in fifty slices.
BATCHES_A_SLICE: Final = 4000
# To read so many entries of a snapshot takes 5 ms, and to look for those that have expired as long.
ROWS_A_SLICE: Final = 50_000
# The look-up of its first batch takes as long as so many.
BATCHES_FOR_A_SEGMENT: Final = 50


@final
class ProducerReload:
    """The state of a log's producers at `offset` (exclusive), as `rebuild_producer_state` would make it there.

    It holds while the log has the same start and the same end, and was not truncated meanwhile.
    """

    __slots__ = (
        "_batches_a_slice",
        "_is_loaded",
        "_is_read",
        "_newest",
        "_rows_a_slice",
        "_segments",
        "is_done",
        "log_end_offset",
        "log_start_offset",
        "offset",
        "state",
    )

    def __init__(
        self,
        producers: ProducerStateManager,
        segments: LogSegments,
        *,
        log_start_offset: int,
        offset: int,
        log_end_offset: int,
        batches_a_slice: int = BATCHES_A_SLICE,
        rows_a_slice: int = ROWS_A_SLICE,
    ) -> None:
        assert batches_a_slice > 0, batches_a_slice
        assert 0 <= log_start_offset <= offset < log_end_offset, (log_start_offset, offset, log_end_offset)
        self.state = producers.empty_state(log_start_offset, offset)
        self._segments, self._batches_a_slice = segments, batches_a_slice
        self._rows_a_slice = rows_a_slice
        self.log_start_offset, self.offset, self.log_end_offset = log_start_offset, offset, log_end_offset
        self._is_read = self._is_loaded = self.is_done = False
        # The offset and the entries of the snapshot, from the call that reads it to the one that takes it over.
        self._newest: tuple[int, SnapshotRows] | None = None

    def advance(self, now_ms: int) -> None:
        """Load the snapshot at the first call, a large one in two calls, then replay a slice of the batches after it in
        each one.

        Raises CorruptBatch, StorageError, OSError.
        """
        assert not self.is_done, self.offset
        if not self._is_read:
            self._newest = self.state.read_newest(self.log_start_offset, self.offset)
            self._is_read = True
            if self._newest is not None and self._newest[1].left > self._rows_a_slice:
                return
        if not self._is_loaded:
            self.state.truncate_and_reload(self.log_start_offset, self.offset, now_ms, newest=self._newest)
            self._newest, self._is_loaded = None, True
            return
        self.is_done = self._replay_slice()
        assert self.state.map_end_offset <= self.offset, (self.state.map_end_offset, self.offset)

    def _replay_slice(self) -> bool:
        """Replay some batches. Returns whether none is left."""
        state, left = self.state, self._batches_a_slice
        # Looked up again at each slice: a compaction may have replaced segments meanwhile.
        for segment in self._segments.values(state.map_end_offset, self.offset):
            start_offset = max(segment.base_offset, state.map_end_offset, self.log_start_offset)
            state.reached(start_offset)
            if left <= 0:
                return False
            end_position = end_of_replay(self._segments, segment, self.offset)
            replayed = replay_segment(state, segment, start_offset, end_position, left)
            if replayed == left:
                return False
            left -= replayed + BATCHES_FOR_A_SEGMENT
        state.reached(self.offset)
        return True
