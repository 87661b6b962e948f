"""The segments of one partition and their end: append, read, roll, truncate and flush, as far as files are concerned.

The parts of `partition_log.py` know what the records mean to producers, epochs and consumers. Kafka: LocalLog; rules
RO2, FL2, RD2 to RD4, RT9 to RT12.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import final

from storage.config import LogConfig
from storage.disk.filesystem import FileSystem, join
from storage.disk.handle_pool import is_out_of_handles
from storage.disk.lack import reserving
from storage.draws import Draws
from storage.errors import OffsetOutOfRange, OutOfHandles, StorageError
from storage.index.transaction_index import AbortedTransaction
from storage.segment import SEGMENT_SUFFIXES, LogSegment, offset_name
from storage.segment.fetch_data import FetchData
from storage.segment.file_records import SEARCHED_A_STEP
from storage.segment.indexes import close_each
from storage.segment.kept_timestamps import KeptTimestamps
from storage.segment.lookups import fetch_upper_bound_offset
from storage.segment.place import LogOffsetMetadata
from storage.segment.segments import LogSegments

logger = logging.getLogger(__name__)


@final
class LocalLog:
    """The segments of one log. There is always an active one.

    All below `recovery_point` is on disk. The recovery point is at most the log end offset (FL5), except after a roll
    above the log end, which follows when a follower leaves a gap. Anybody may read `recovery_point` and
    `log_end_offset`, the offset of the next record; only the methods of this class set them.
    `is_below_checkpoints` says that a truncation has lowered the recovery point, the log start offset or the high
    watermark since their checkpoints were written: these may be above, and must be written before the next append
    (RT16).
    """

    def __init__(
        self,
        file_system: FileSystem,
        directory: str,
        config: LogConfig,
        draws: Draws,
        segments: LogSegments,
        *,
        log_end_offset: int,
        recovery_point: int,
    ) -> None:
        self.file_system, self.directory, self.config, self._draws = file_system, directory, config, draws
        self.segments = segments
        self.recovery_point = recovery_point
        self.is_below_checkpoints = False
        # So many batches a search by offset passes in one step.
        self.searched_a_step = SEARCHED_A_STEP
        self._log_end: LogOffsetMetadata | None = None
        self.update_log_end(log_end_offset)

    def raise_recovery_point(self, offset: int) -> None:
        """Move the recovery point up to `offset`, if it is below: all before `offset` is on disk now."""
        assert offset <= self.log_end_offset, (offset, self.log_end)
        self.recovery_point = max(self.recovery_point, offset)

    def lower_recovery_point(self, offset: int) -> None:
        """Move the recovery point down to `offset`, if it is above: what follows `offset` may not be on disk."""
        assert offset >= 0, offset
        self.recovery_point = min(self.recovery_point, offset)

    @property
    def log_end(self) -> LogOffsetMetadata:
        """The log end offset with its place: one object until the log end moves.

        The object is created when it is first asked for, because after most appends it is not.
        """
        if self._log_end is None:
            self._log_end = LogOffsetMetadata(*self._log_end_place)
        return self._log_end

    def end_at(self, offset: int, segment_base_offset: int, position: int) -> None:
        """Move the log end to `offset`, which is at byte `position` of the segment: all before it is written."""
        self.log_end_offset = offset
        self._log_end_place = (offset, segment_base_offset, position)
        self._log_end = None

    @property
    def unflushed_messages(self) -> int:
        return self.log_end_offset - self.recovery_point

    def update_log_end(self, offset: int) -> None:
        """Move the log end to `offset`, at the end of the active segment; the recovery point does not stay above it."""
        active = self.segments.active
        self.end_at(offset, active.base_offset, active.size_bytes)
        self.lower_recovery_point(offset)

    def read(
        self,
        start_offset: int,
        max_size: int,
        bound: LogOffsetMetadata,
        *,
        min_one_message: bool,
        with_aborted: bool = False,
        in_step: bool = False,
    ) -> FetchData:
        """Read whole batches from `start_offset` on, at most `max_size` bytes and none from `bound` on.

        The position of `bound` counts only in the segment of `bound`; no bytes are read from a later segment, nor from
        any segment when the place of `bound` is unknown (RD3). `with_aborted` adds the aborted transactions (RD5).
        Raises OffsetOutOfRange above the log end and below the first segment (RD2); `in_step` ReadGoesOn for a search
        that takes longer.
        """
        segment = self.segments.floor(start_offset)
        if start_offset > self.log_end_offset or segment is None:
            first = self.segments.first
            raise OffsetOutOfRange(
                start_offset, first.base_offset if first is not None else 0, self.log_end_offset
            )
        if start_offset == bound.offset:
            return FetchData(offset_metadata=bound, aborted_transactions=() if with_aborted else None)
        if start_offset > bound.offset:
            place = self.resolve(start_offset, in_step=in_step)
            return FetchData(offset_metadata=place, aborted_transactions=() if with_aborted else None)
        a_step = self.searched_a_step
        while segment is not None:
            max_position = _max_position(segment, bound)
            data = segment.read(
                start_offset, max_size, max_position, min_one_message, a_step=a_step, in_step=in_step
            )
            if data is not None:
                return self._with_aborted(segment, data) if with_aborted else data
            segment = self.segments.higher(segment.base_offset)
        # Compaction deleted all records from `start_offset` on (RD4).
        return FetchData(offset_metadata=self.log_end)

    def _with_aborted(self, segment: LogSegment, data: FetchData) -> FetchData:
        """Add the aborted transactions between the offset of `data` and the end of its bytes (RD5).

        Where the offset index does not know the offset at that end, the next segment's base or the log end bounds them.
        """
        start = data.offset_metadata
        found = fetch_upper_bound_offset(segment, start.position, len(data.records))
        if found is None:
            following = self.segments.higher(segment.base_offset)
            found = self.log_end_offset if following is None else following.base_offset
        return replace(data, aborted_transactions=self.collect_aborted(start.offset, found, segment))

    def collect_aborted(
        self, start_offset: int, upper_bound_offset: int, segment: LogSegment | None
    ) -> tuple[AbortedTransaction, ...]:
        """The aborted transactions that overlap [start_offset, upper_bound_offset).

        The transaction indexes of `segment` and of the later segments are read, up to the first whose answer is
        complete.
        """
        aborted: list[AbortedTransaction] = []
        if segment is not None:
            for each in self.segments.with_transactions_from(segment):
                found, is_complete = each.collect_aborted(start_offset, upper_bound_offset)
                aborted += found
                if is_complete:
                    break
        return tuple(aborted)

    def place_of(self, offset: int) -> LogOffsetMetadata:
        """Returns `offset` with the place of the batch that holds it or, in a gap, of the next batch.

        Raises OffsetOutOfRange.
        """
        found = self.resolve(offset)
        return LogOffsetMetadata(offset, found.segment_base_offset, found.position)

    def resolve(self, offset: int, *, in_step: bool = False) -> LogOffsetMetadata:
        """Returns base offset and place of the batch that holds `offset` or, in a gap, of the next one; else the log
        end.

        Raises OffsetOutOfRange; `in_step` ReadGoesOn for a search that takes longer.
        Kafka 4.1: LocalLog.convertToOffsetMetadataOrThrow (4.2 returns `offset` itself).
        """
        segment = self.segments.floor(offset)
        if offset > self.log_end_offset or segment is None:
            raise OffsetOutOfRange(offset, self.segments.first_base_offset, self.log_end_offset)
        if offset == self.log_end_offset:
            return self.log_end
        a_step = self.searched_a_step
        while segment is not None:
            if (found := segment.translate_offset(offset, a_step=a_step, in_step=in_step)) is not None:
                return LogOffsetMetadata(found.base_offset, segment.base_offset, found.position)
            segment = self.segments.higher(segment.base_offset)
        return self.log_end

    def roll(self, expected_next_offset: int | None, now_ms: int) -> LogSegment:
        """Begin a segment at the greater of the log end and the expected offset (RO2). Returns the segment.

        All earlier segments are synced first, names included, and the recovery point moves to the new base offset.
        Kafka syncs them later, on another thread: a power loss between may keep the new segment and lose the end of
        the old one at a batch boundary, a hole that no recovery can see and that a follower would never close.
        An empty active segment with that base offset is restarted in place (KAFKA-6388). Raises StorageError for a base
        offset that a segment has, or that is below the active segment's: nothing has changed then. Raises OSError: the
        log must go offline then. Raises OutOfHandles if a file cannot be opened for want of a descriptor: the active
        segment is the same then and takes appends, its indexes may have no room, and a roll may be tried again.
        """
        self.check_roll(expected_next_offset)
        new_base = max(expected_next_offset or 0, self.log_end_offset)
        try:
            return self._roll(new_base, now_ms)
        except OSError as error:
            if not is_out_of_handles(error):
                raise
            self._remove_unused(new_base)
            raise OutOfHandles(f"{self.directory}: no segment begun at offset {new_base}: {error}") from error

    def _remove_unused(self, base_offset: int) -> None:
        """Delete the files of a segment that was not begun: a start would find them beside those of the active one."""
        if base_offset not in self.segments:
            self._remove_stale_files(base_offset)

    def _roll(self, new_base: int, now_ms: int) -> LogSegment:
        active = self.segments.active
        if new_base in self.segments:
            active.restart(now_ms)
            self._flush_all()
            assert self.segments.active is active, (active, self.segments.active)
            assert active.size_bytes == 0, active
            return active
        self._remove_stale_files(new_base)
        active.on_become_inactive()
        self._flush_all()
        segment = self._open_segment(new_base, now_ms)
        self.segments.add(segment)
        self.update_log_end(self.log_end_offset)
        # Above the log end when a follower leaves a gap: no record will be written into the gap.
        self.recovery_point = new_base
        assert segment.size_bytes == 0, segment
        assert self.segments.active is segment, (segment, self.segments.active)
        assert self.log_end_offset <= segment.base_offset, (self.log_end, segment)
        return segment

    def check_roll(self, expected_next_offset: int | None) -> None:
        """Raise StorageError if `roll` would: the log has a segment with that base offset, or a later one."""
        new_base = max(expected_next_offset or 0, self.log_end_offset)
        active = self.segments.active
        if new_base in self.segments:
            if active.base_offset != new_base or active.size_bytes > 0:
                raise StorageError(
                    f"{self.directory}: cannot roll to offset {new_base}, a segment begins there already"
                )
        elif new_base < active.base_offset:
            raise StorageError(
                f"{self.directory}: cannot roll to offset {new_base}, below the active segment at {active.base_offset}"
            )

    def _flush_all(self) -> None:
        for segment in self.segments_to_flush(self.log_end_offset + 1):
            segment.flush()
        self.file_system.sync_directory(self.directory)
        self.recovery_point = self.log_end_offset

    def _open_segment(self, base_offset: int, now_ms: int) -> LogSegment:
        return LogSegment.open(
            self.file_system, self.directory, base_offset, self.config, now_ms, draws=self._draws
        )

    def _remove_stale_files(self, base_offset: int) -> None:
        for suffix in SEGMENT_SUFFIXES:
            path = join(self.directory, offset_name(base_offset) + suffix)
            if self.file_system.exists(path):
                logger.warning("stale file removed before a roll: path=%s", path)
                self.file_system.unlink(path)

    @contextmanager
    def with_descriptors(self) -> Iterator[None]:
        """Keep the descriptors that a change of several files needs, within the block.

        Without one in its midst the log would have to go offline. Raises OutOfHandles, with nothing changed, if there
        are too few.
        """
        with reserving(self.file_system, self.directory):
            yield

    def truncate_to(self, offset: int, now_ms: int, kept: KeptTimestamps | None = None) -> list[LogSegment]:
        """Drop the batch that holds `offset` and all later batches. Returns the segments that were deleted whole (RT9).

        The log end is exactly `offset` then, even where that is in the middle of the dropped batch (RT10). `kept` is
        what was seen of the batches that stay. Raises OSError: the log must go offline then, and it ends somewhere
        between `offset` and its end before.
        """
        assert 0 <= offset < self.log_end_offset, (offset, self.log_end)
        assert self.segments.floor(offset) is not None, (offset, self.segments.first)
        doomed = self.segments.from_offset(offset + 1)
        self._delete_from_end(doomed)
        active = self.segments.active
        active.truncate_to(offset, now_ms, None if kept is None else kept.greatest(active, offset))
        self.update_log_end(offset)
        assert active.base_offset <= offset, (active, offset)
        assert self.recovery_point <= offset, (self.recovery_point, offset)
        return doomed

    def truncate_fully_and_start_at(self, offset: int, now_ms: int) -> list[LogSegment]:
        """Replace all segments by an empty one at `offset`. Returns the deleted segments (RT12).

        Raises OSError: the log must go offline then, and it may have no segment left.
        """
        doomed = list(self.segments)
        self._delete_from_end(doomed)
        self.segments.add(self._open_segment(offset, now_ms))
        self.update_log_end(offset)
        assert len(self.segments) == 1, self.segments.base_offsets
        assert self.log_end.segment_base_offset == offset, (self.log_end, offset)
        return doomed

    def delete_all_segments(self) -> list[LogSegment]:
        """Delete all segments of a log that is not used any more. Returns the deleted segments."""
        doomed = list(self.segments)
        self._delete_from_end(doomed)
        assert not len(self.segments), self.segments.base_offsets
        return doomed

    def _delete_from_end(self, doomed: Sequence[LogSegment]) -> None:
        """Delete the segments from the last one backwards, each durably before the next.

        A crash between two deletions then leaves a shorter log, never a log with a hole.
        """
        assert not doomed or self.segments.last is doomed[-1], (self.segments.last, doomed)
        for segment in reversed(doomed):
            self.segments.remove(segment.base_offset)
            segment.delete()
            self.file_system.sync_directory(self.directory)
        assert not doomed or doomed[0].base_offset not in self.segments, (doomed[0], self.segments.last)

    def segments_to_flush(self, offset: int) -> list[LogSegment]:
        """Returns the segments below `offset` (exclusive) that may have bytes which are not on disk (FL2)."""
        if self.recovery_point > offset:
            return []
        return self.segments.values(self.recovery_point, offset)

    def close(self) -> None:
        """Close all segments in order, whatever fails; then the first error is raised."""
        close_each(*(segment.close for segment in self.segments))

    def close_handlers(self) -> None:
        for segment in self.segments:
            segment.close_handlers()


def _max_position(segment: LogSegment, bound: LogOffsetMetadata) -> int | None:
    """Returns the position at which a read of `segment` must end; None where it must return no bytes (RD3)."""
    if segment.base_offset < bound.segment_base_offset:
        return segment.size_bytes
    if segment.base_offset == bound.segment_base_offset:
        return bound.position
    return None
