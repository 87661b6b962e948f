"""The segments of one partition and where they end: append, read, roll, truncate, flush, as files need it.

What a record means to producers, epochs and consumers is `partition_log.py`'s. Kafka: LocalLog; rules RO2, FL2, RD2 to
RD4, RT9 to RT12.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import final

from storage.config import LogConfig
from storage.disk.filesystem import FileSystem, join
from storage.draws import Draws
from storage.errors import OffsetOutOfRange, StorageError
from storage.index.transaction_index import AbortedTransaction
from storage.segment import SEGMENT_SUFFIXES, LogSegment, offset_name
from storage.segment.fetch_data import FetchData
from storage.segment.place import LogOffsetMetadata
from storage.segment.segments import LogSegments

logger = logging.getLogger(__name__)


@final
class LocalLog:
    """The segments of one log. There is always an active one.

    All below `recovery_point` is on disk; it is at most the log end offset (FL5), but in a gap that a follower left.
    It, and `log_end_offset`, the offset of the next record, are plain to read; only the methods here set them.
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
        self._log_end: LogOffsetMetadata | None = None
        self.update_log_end(log_end_offset)

    def raise_recovery_point(self, offset: int) -> None:
        """Move the recovery point up to `offset`, if it is below: all before it is on disk now."""
        self.recovery_point = max(self.recovery_point, offset)

    def lower_recovery_point(self, offset: int) -> None:
        """Move the recovery point down to `offset`, if it is above: what follows is not known to be on disk."""
        self.recovery_point = min(self.recovery_point, offset)

    @property
    def log_end(self) -> LogOffsetMetadata:
        """The same object until the log end moves; made when somebody asks, for few appends are asked after."""
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
        """The place is that of the active segment's end, whatever it was before a roll or a truncation."""
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
    ) -> FetchData:
        """Raises OffsetOutOfRange above the log end and below the first segment (RD2).

        The bound's position counts only in the bound's own segment; a segment behind it, or one where its place
        is unknown, gives no bytes (RD3). `with_aborted` adds the aborted transactions (RD5).
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
            place = self.resolve(start_offset)
            return FetchData(offset_metadata=place, aborted_transactions=() if with_aborted else None)
        while segment is not None:
            max_position = _max_position(segment, bound)
            data = segment.read(start_offset, max_size, max_position, min_one_message)
            if data is not None:
                return self._with_aborted(segment, data) if with_aborted else data
            segment = self.segments.higher(segment.base_offset)
        return FetchData(offset_metadata=self.log_end)  # all records from there on are compacted away (RD4)

    def _with_aborted(self, segment: LogSegment, data: FetchData) -> FetchData:
        """Those that reach from the offset asked for up to the end of the bytes, as far as the index knows it (RD5)."""
        start = data.offset_metadata
        found = segment.fetch_upper_bound_offset(start.position, len(data.records))
        if found is None:
            following = self.segments.higher(segment.base_offset)
            found = self.log_end_offset if following is None else following.base_offset
        return replace(data, aborted_transactions=self.collect_aborted(start.offset, found, segment))

    def collect_aborted(
        self, start_offset: int, upper_bound_offset: int, segment: LogSegment | None
    ) -> tuple[AbortedTransaction, ...]:
        """Those that reach into [start, upper bound), from `segment` upward until one knows that it has them all."""
        aborted: list[AbortedTransaction] = []
        while segment is not None:
            found, is_complete = segment.collect_aborted(start_offset, upper_bound_offset)
            aborted += found
            if is_complete:
                break
            segment = self.segments.higher(segment.base_offset)
        return tuple(aborted)

    def place_of(self, offset: int) -> LogOffsetMetadata:
        """`offset`, and where the batch that holds it, or the next one there is, lies. Raises OffsetOutOfRange."""
        found = self.resolve(offset)
        return LogOffsetMetadata(offset, found.segment_base_offset, found.position)

    def resolve(self, offset: int) -> LogOffsetMetadata:
        """The base offset and place of the batch that holds `offset`, or of the next one there is; else the log end.

        Raises OffsetOutOfRange. Kafka 4.1: LocalLog.convertToOffsetMetadataOrThrow (4.2 gives `offset` itself).
        """
        segment = self.segments.floor(offset)
        if offset > self.log_end_offset or segment is None:
            raise OffsetOutOfRange(offset, self.segments.base_offsets[0], self.log_end_offset)
        if offset == self.log_end_offset:
            return self.log_end
        while segment is not None:
            if (found := segment.translate_offset(offset)) is not None:
                return LogOffsetMetadata(found.base_offset, segment.base_offset, found.position)
            segment = self.segments.higher(segment.base_offset)
        return self.log_end

    def roll(self, expected_next_offset: int | None, now_ms: int) -> LogSegment:
        """Begin a segment at the greater of the log end and the expected offset (RO2).

        What came before is synced first, names included, and the recovery point moves to the log end. Kafka syncs it
        later, on another thread: a power loss between may keep the new segment and lose the end of the old one at a
        batch boundary, a hole that no recovery can see and that a follower would never close.
        An empty active segment of that base is made new in place (KAFKA-6388). Raises StorageError for a base that
        exists or lies below the active one.
        """
        new_base = max(expected_next_offset or 0, self.log_end_offset)
        active = self.segments.active
        if new_base in self.segments:
            if active.base_offset != new_base or active.size_bytes > 0:
                raise StorageError(f"{self.directory}: cannot roll, there is a segment at {new_base}")
            active.restart(now_ms)
            self._flush_all()
            return active
        if new_base < active.base_offset:
            raise StorageError(f"{self.directory}: cannot roll to {new_base}, below {active.base_offset}")
        self._remove_stale_files(new_base)
        active.on_become_inactive()
        self._flush_all()
        segment = self._open_segment(new_base, now_ms)
        self.segments.add(segment)
        self.update_log_end(self.log_end_offset)
        # Beyond the log end when a follower leaves a gap: nothing is to come there.
        self.recovery_point = new_base
        return segment

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

    def truncate_to(self, offset: int, now_ms: int) -> list[LogSegment]:
        """Drop the batch that holds `offset` and all behind it; gives the segments that went whole (RT9).

        The log end is exactly `offset` then, also in the middle of the removed batch (RT10).
        """
        assert 0 <= offset < self.log_end_offset, (offset, self.log_end)
        doomed = [segment for segment in self.segments if segment.base_offset > offset]
        self._delete_from_end(doomed)
        self.segments.active.truncate_to(offset, now_ms)
        self.update_log_end(offset)
        return doomed

    def truncate_fully_and_start_at(self, offset: int, now_ms: int) -> list[LogSegment]:
        """One empty segment at `offset` remains; gives the segments that went (RT12)."""
        doomed = list(self.segments)
        self._delete_from_end(doomed)
        self.segments.add(self._open_segment(offset, now_ms))
        self.update_log_end(offset)
        return doomed

    def delete_all_segments(self) -> list[LogSegment]:
        doomed = list(self.segments)
        self._delete_from_end(doomed)
        return doomed

    def _delete_from_end(self, doomed: Sequence[LogSegment]) -> None:
        """Each is gone for good before the next goes: a crash between leaves a shorter log, never one with a hole."""
        for segment in reversed(doomed):
            self.segments.remove(segment.base_offset)
            segment.delete()
            self.file_system.sync_directory(self.directory)

    def segments_to_flush(self, offset: int) -> list[LogSegment]:
        """Those that hold bytes not known to be on disk, up to `offset` (exclusive) (FL2)."""
        if self.recovery_point > offset:
            return []
        return self.segments.values(self.recovery_point, offset)

    def close(self) -> None:
        for segment in self.segments:
            segment.close()

    def close_handlers(self) -> None:
        for segment in self.segments:
            segment.close_handlers()


def _max_position(segment: LogSegment, bound: LogOffsetMetadata) -> int | None:
    """Up to where a read of `segment` may go; None where nothing of it may be seen (RD3)."""
    if segment.base_offset < bound.segment_base_offset:
        return segment.size_bytes
    if segment.base_offset == bound.segment_base_offset:
        return bound.position
    return None
