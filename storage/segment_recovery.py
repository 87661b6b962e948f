"""Make a segment sound from its `.log` alone: check every batch, build the indexes anew, cut what is damaged.

Kafka: LogSegment.recover; rules LS10 to LS12.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from storage.batch import LOG_OVERHEAD, RecordBatch
from storage.batch_format import CONTROL_FLAG, CURRENT_MAGIC
from storage.errors import (
    CorruptBatch,
    InvalidOffset,
    InvalidRecord,
    InvalidTransactionState,
    SegmentOffsetOverflow,
)
from storage.leader_epochs import LeaderEpochCache
from storage.memory_mapped_index import MAX_RELATIVE_OFFSET
from storage.producer_state import ProducerStateManager
from storage.recovery_cut import RecoveryCut, ReportCut, ignore_cut, report_cut
from storage.time_index import TimestampOffset

if TYPE_CHECKING:
    from storage.segment import LogSegment

ENTRIES_HELD: Final = 1 << 13  # so that a long segment takes no more memory than a short one


def do_nothing() -> None:
    return


def recover_segment(
    segment: LogSegment,
    producers: ProducerStateManager,
    epochs: LeaderEpochCache,
    report: ReportCut = ignore_cut,
    before_cut: Callable[[], None] = do_nothing,
) -> int:
    """Gives the bytes cut. `producers` and `epochs` follow the batches that stay.

    `before_cut` runs when something is to be cut and is not yet. Raises InvalidOffset when offsets go back (the caller
    empties the segment, LL16) and SegmentOffsetOverflow for an offset above the segment's range; the file is as it
    was then, the indexes are not.
    """
    segment.reset_indexes()
    walk = _Walk(segment, producers, epochs)
    reason = ""
    try:
        walk.run()
    except (CorruptBatch, InvalidRecord) as error:
        reason = error.reason if isinstance(error, CorruptBatch) else str(error)
    walk.write_indexes()
    position = walk.valid_bytes
    doomed_bytes = segment.size_bytes - position
    if doomed_bytes > 0:
        reason = reason or f"the last {doomed_bytes} bytes are no whole batch"
        report_cut(
            RecoveryCut(path=segment.path, position=position, reason=reason, removed_bytes=doomed_bytes),
            report,
        )
        before_cut()
    removed_bytes = segment.cut_records(position)
    assert removed_bytes == doomed_bytes, (segment.path, removed_bytes, doomed_bytes)
    segment.note_recovered(walk.max_timestamp)
    return removed_bytes


class _Walk:
    """One pass over the batches; what it found stays in the object when it stops at damage."""

    def __init__(
        self, segment: LogSegment, producers: ProducerStateManager, epochs: LeaderEpochCache
    ) -> None:
        self._segment, self._producers, self._epochs = segment, producers, epochs
        self.valid_bytes = 0
        self.max_timestamp = TimestampOffset(-1, segment.base_offset)
        # The columns of both indexes, of each batch that gets an entry; written now and then.
        self._offsets: list[int] = []
        self._positions: list[int] = []
        self._times: list[int] = []
        self._time_offsets: list[int] = []

    def run(self) -> None:
        """The work of one batch stands in one loop, without a call: it decides how fast a broker comes back."""
        segment, producers, epochs = self._segment, self._producers, self._epochs
        base = segment.base_offset
        last_allowed = base + MAX_RELATIVE_OFFSET
        interval = next_indexed = segment.index_interval_bytes
        latest_epoch = epochs.last_epoch
        max_timestamp, max_timestamp_offset, last_indexed, last_indexed_time = -1, base, -1, -1
        offsets = self._offsets
        add_offset, add_position = offsets.append, self._positions.append
        add_time, add_time_offset = self._times.append, self._time_offsets.append
        position, size, last = 0, -LOG_OVERHEAD, producers.map_end_offset - 1
        before, is_refused, is_replayed = last, False, True
        headers = segment.records.scan_headers(is_live=False)
        try:
            for buffer, at, position, header in headers:
                before = last
                (
                    first,
                    size,
                    epoch,
                    magic,
                    _,
                    flags,
                    delta,
                    _,
                    timestamp,
                    producer_id,
                    p_epoch,
                    sequence,
                    _,
                ) = header
                last = first + delta
                if not base <= last <= last_allowed:
                    is_refused = True
                    self._refuse(position, last)
                if timestamp > max_timestamp:
                    max_timestamp, max_timestamp_offset = timestamp, last
                if position > next_indexed:  # strictly, and never for the first batch (LS10)
                    if last <= last_indexed:
                        is_refused = True
                        raise InvalidOffset(f"{segment.path} at byte {position}: offset {last} goes back")
                    last_indexed, next_indexed = last, position + interval
                    if len(offsets) == ENTRIES_HELD:
                        self.write_indexes()
                    add_offset(last)
                    add_position(position)
                    if max_timestamp > last_indexed_time:
                        last_indexed_time = max_timestamp
                        add_time(max_timestamp)
                        add_time_offset(max_timestamp_offset)
                if epoch > latest_epoch:
                    epochs.assign(epoch, first)
                    latest_epoch = epoch
                if producer_id >= 0:
                    is_replayed = False
                    if flags & CONTROL_FLAG:
                        control = bytes(
                            buffer[at : at + size + LOG_OVERHEAD]
                        )  # outlives the walk in an error
                        self._replay_control(RecordBatch(control, 0, len(control), position))
                    else:
                        producers.replay_data(flags, delta, timestamp, producer_id, p_epoch, sequence, first)
                    is_replayed = True
                elif magic < CURRENT_MAGIC:
                    last = before  # producers do not follow magic 0 and 1
        finally:
            headers.close()  # before the file is cut
            # What raised inside the loop is the batch's own fault, or the scan's, which stopped behind it.
            self.valid_bytes = position if is_refused else position + size + LOG_OVERHEAD
            producers.map_end_offset = (last if is_replayed and not is_refused else before) + 1
            self.max_timestamp = TimestampOffset(max_timestamp, max_timestamp_offset)

    def write_indexes(self) -> None:
        """The entries held, by one write an index: one for each entry would cost more than the checksums.

        What an index has no room for is left out, it is sparse anyway (Kafka refuses to start).
        Raises InvalidOffset when the offsets of the greatest timestamps go back.
        """
        offset_index, time_index = self._segment.offset_index, self._segment.time_index
        room = offset_index.free_entries
        offset_index.append_all(self._offsets[:room], self._positions[:room])
        room = max(time_index.free_entries - 1, 0)  # the last slot is for the entry at the end
        time_index.append_all(self._times[:room], self._time_offsets[:room])
        for column in (self._offsets, self._positions, self._times, self._time_offsets):
            column.clear()

    def _refuse(self, position: int, last_offset: int) -> None:
        """Above the range an older broker may have written it, and a split would save it; below only damage can."""
        segment = self._segment
        if last_offset > segment.base_offset:
            raise SegmentOffsetOverflow(segment.path, segment.base_offset, last_offset)
        reason = f"offset {last_offset} lies below the segment's base offset"
        raise CorruptBatch(segment.path, position, reason)

    def _replay_control(self, batch: RecordBatch) -> None:
        completed = self._producers.replay(batch)
        if completed is None:
            return
        self._segment.note_completed(completed, self._producers.last_stable_offset(completed))
        try:
            self._producers.complete_transaction(completed)
        except InvalidTransactionState as error:
            place = f"{self._segment.path} at byte {batch.position}"
            raise InvalidTransactionState(f"{place}: {error}") from error
