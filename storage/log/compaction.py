"""Compacts a partition's log: finds what may be cleaned, and has the two steps in which a round reads and changes the
log.

Kafka: LogCleanerManager.cleanableOffsets and LogToClean, Cleaner.doClean; rules CL2, CL3, CL5, CL14.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final, final

from storage.cleaner.compaction import Compaction, DirtyRange
from storage.cleaner.filter import LastRecord
from storage.cleaner.plan import CleanerConfig, Source
from storage.config import LogConfig
from storage.log.local_log import LocalLog
from storage.log.marks import Marks
from storage.log.online import Online
from storage.producers.state import ProducerStateManager
from storage.segment import LogSegment
from storage.segment.replace import DeleteFiles, replace_segments
from storage.segment.segments import LogSegments
from storage.segment.split import split_overflowed_segment

logger = logging.getLogger(__name__)

# So many producers take a step of the log about ten milliseconds.
PRODUCERS_IN_STEP: Final = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanableOffsets:
    """The offsets [first_dirty_offset, first_uncleanable_offset) that may be cleaned; none when both are equal.

    With `is_checkpoint_invalid` the cleaner's checkpoint is outside the log: `first_dirty_offset` has to replace it.
    """

    first_dirty_offset: int
    first_uncleanable_offset: int
    is_checkpoint_invalid: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LogToClean:
    """The measure of how dirty a log is. `dirty` ends at the base offset of a segment (CL3); bytes count whole
    segments."""

    dirty: DirtyRange
    clean_bytes: int
    cleanable_bytes: int
    # If this is above 0, max.compaction.lag.ms has passed, and the log must be cleaned now (CL5).
    compaction_delay_ms: int

    @property
    def total_bytes(self) -> int:
        """Clean and cleanable bytes."""
        return self.clean_bytes + self.cleanable_bytes

    @property
    def cleanable_ratio(self) -> float:
        """The cleanable part of all bytes, 0 to 1 (CL4)."""
        return self.cleanable_bytes / self.total_bytes if self.total_bytes else 0.0


@final
class Compactions:
    """Finds what may be compacted in one log, and makes the steps in which a round reads and changes the log.

    It has no state of its own. It is the `CompactedLog` that a `Compaction` works on.
    """

    __slots__ = ("_delete_files", "_local", "_marks", "_online", "_producers")

    def __init__(
        self,
        local: LocalLog,
        producers: ProducerStateManager,
        marks: Marks,
        delete_files: DeleteFiles,
        online: Online,
    ) -> None:
        self._local, self._producers, self._marks = local, producers, marks
        self._delete_files, self._online = delete_files, online

    def cleanable_offsets(self, checkpoint: int | None, now_ms: int) -> CleanableOffsets:
        """The offsets that may be cleaned, from the cleaner's checkpoint on or, without one, from the log start.

        They end at the last stable offset, the active segment or the first segment that is younger than
        min.compaction.lag.ms, whichever is first (CL1, CL2, CL25).
        """
        local, log_start_offset = self._local, self._marks.log_start_offset
        first_dirty = log_start_offset if checkpoint is None else checkpoint
        is_invalid = not log_start_offset <= first_dirty <= local.log_end_offset
        if is_invalid:
            # With the policy `delete`, retention may pass the cleaner's checkpoint at any time.
            if "delete" not in local.config.cleanup_policies:
                logger.warning(
                    "cleaner checkpoint outside the log: log=%s offset=%d", local.directory, first_dirty
                )
            first_dirty = log_start_offset
        bounds = [self._marks.last_stable_offset, local.segments.active.base_offset]
        lag_ms = local.config.min_compaction_lag_ms
        if lag_ms > 0:
            young = (
                segment.base_offset
                for segment in local.segments.non_active_from(first_dirty)
                if segment.kept_until_ms > now_ms - lag_ms
            )
            bounds += islice(young, 1)
        return CleanableOffsets(
            first_dirty_offset=first_dirty,
            first_uncleanable_offset=max(first_dirty, min(bounds)),
            is_checkpoint_invalid=is_invalid,
        )

    def log_to_clean(self, offsets: CleanableOffsets, now_ms: int) -> LogToClean:
        """Measure how dirty the log is within `offsets` (CL3 to CL5)."""
        segments, first_dirty = self._local.segments, offsets.first_dirty_offset
        beyond = segments.non_active_from(offsets.first_uncleanable_offset)
        end_offset = (beyond[0] if beyond else segments.active).base_offset
        dirty = segments.values(min(first_dirty, end_offset), end_offset)
        clean = segments.values(0, first_dirty) if first_dirty > 0 else []
        return LogToClean(
            dirty=DirtyRange(first_dirty, end_offset),
            clean_bytes=sum(segment.size_bytes for segment in clean),
            cleanable_bytes=sum(segment.size_bytes for segment in dirty),
            compaction_delay_ms=self._compaction_delay_ms(first_dirty, now_ms),
        )

    def _compaction_delay_ms(self, first_dirty_offset: int, now_ms: int) -> int:
        clean_until_ms = now_ms - self._local.config.max_compaction_lag_ms
        # Nothing is as old as that, as without such a limit.
        if clean_until_ms <= 0:
            return 0
        dirty = self._local.segments.non_active_from(first_dirty_offset)
        firsts = [segment.first_batch_timestamp for segment in dirty]
        earliest = min((first for first in firsts if first is not None and first > 0), default=None)
        return max(clean_until_ms - earliest, 0) if earliest is not None else 0

    def prepare(self, offsets: CleanableOffsets, config: CleanerConfig, now_ms: int) -> Compaction:
        """Plan a round over the whole segments of `offsets`; see `Compaction` for how it is run.

        Raises ValueError if no whole segment follows the first dirty offset, StorageError if the log is offline.
        """
        self._online.check()
        local, dirty = self._local, self.log_to_clean(offsets, now_ms).dirty
        if dirty.end_offset < dirty.start_offset:
            raise ValueError(f"{local.directory}: no whole segment is in the range {offsets}")
        assert dirty.end_offset <= local.segments.active.base_offset, (dirty, local.segments.active)
        return Compaction(local.file_system, self, dirty, config, now_ms)

    @property
    def directory(self) -> str:
        return self._local.directory

    @property
    def config(self) -> LogConfig:
        return self._local.config

    @property
    def segments(self) -> LogSegments:
        return self._local.segments

    def last_records_of_producers(self) -> Iterator[dict[int, LastRecord]]:
        """The last record of each producer, by producer id, in pieces of at most PRODUCERS_IN_STEP (CL14).

        A log without producers has no piece. Kafka: UnifiedLog.lastRecordsOfActiveProducers.
        """
        for piece in self._producers.producers.pieces(PRODUCERS_IN_STEP):
            yield {
                entry.producer_id: LastRecord(
                    entry.last_offset if entry.batches else None, entry.producer_epoch
                )
                for entry in piece
            }

    def plan_source(self, segment: LogSegment, end_offset: int, start_offset: int) -> Source:
        """Returns what a round reads of `segment`: the offsets from `start_offset` to `end_offset` (exclusive).

        Aborted transactions are searched from this segment on: an entry is in the segment of its marker (CL22).
        """
        return Source(
            base_offset=segment.base_offset,
            path=segment.path,
            # Most segments are read from their start on: their index need not be opened.
            start_position=0
            if start_offset <= segment.base_offset
            else segment.indexed_position(start_offset),
            size_bytes=segment.size_bytes,
            modified_ms=segment.records.modified_ms(),
            end_offset=end_offset,
            aborted=self._local.collect_aborted(self._marks.log_start_offset, end_offset, segment),
        )

    def swap_in(self, cleaned: LogSegment, old: Sequence[LogSegment]) -> None:
        """Replace the segments `old` by `cleaned`, which is complete and synced (CL11).

        Raises StorageError; the log is offline then, and its next start finishes or undoes the swap. Raises
        OutOfHandles, with nothing changed, if there are too few descriptors.
        """
        assert old[0].base_offset == cleaned.base_offset, (old[0], cleaned)
        local, bytes_before = self._local, sum(segment.size_bytes for segment in old)
        with local.with_descriptors(), self._online.during("swap", refuses=False):
            replaced = replace_segments(
                local.file_system,
                local.directory,
                local.segments,
                [cleaned],
                old,
                delete=self._delete_files,
            )
            self._producers.snapshots.delete_of(replaced)
        assert local.segments.get(cleaned.base_offset) is cleaned, (local.directory, cleaned)
        logger.info(
            "compacted: log=%s base_offset=%d segments=%d bytes_before=%d bytes=%d",
            local.directory,
            cleaned.base_offset,
            len(old),
            bytes_before,
            cleaned.size_bytes,
        )

    def split_overflowed(self, base_offset: int, now_ms: int) -> None:
        """Split the segment at `base_offset`, whose offsets do not fit the segment that its group would become
        (CL23).

        Raises StorageError, with nothing changed, where no split helps: damage put a batch out of place. If the disk
        failed the log is offline. Raises OutOfHandles, with nothing changed, if there are too few descriptors.
        """
        local, segment = self._local, self._local.segments.get(base_offset)
        assert segment is not None, base_offset
        assert segment is not local.segments.active, segment
        with local.with_descriptors(), self._online.during("split"):
            split = split_overflowed_segment(
                local.file_system,
                local.directory,
                local.segments,
                segment,
                local.config,
                now_ms,
                delete=self._delete_files,
            )
            self._producers.snapshots.delete_of(split.deleted)
