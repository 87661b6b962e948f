"""Compacting a partition's log: what of it may be cleaned, and the two moments in which a round touches it.

Kafka: LogCleanerManager.cleanableOffsets and LogToClean, Cleaner.doClean; rules CL2, CL3, CL5, CL14.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from storage.cleaner import Compaction, DirtyRange
from storage.cleaner_filter import LastRecord
from storage.cleaner_plan import CleanerConfig, Source
from storage.log_truncate import LogTruncations
from storage.replace_segments import replace_segments
from storage.segment import LogSegment
from storage.split_segment import split_overflowed_segment

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanableOffsets:
    """[first_dirty_offset, first_uncleanable_offset) may be cleaned; equal when nothing may.

    `is_checkpoint_invalid`: the checkpoint lies outside the log, and `first_dirty_offset` is to be written there.
    """

    first_dirty_offset: int
    first_uncleanable_offset: int
    is_checkpoint_invalid: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LogToClean:
    """How filthy a log is. `dirty` ends at the base of a segment (CL3); bytes are those of whole segments."""

    dirty: DirtyRange
    clean_bytes: int
    cleanable_bytes: int
    compaction_delay_ms: int  # above 0: max.compaction.lag.ms has passed, it is to be cleaned now (CL5)

    @property
    def total_bytes(self) -> int:
        return self.clean_bytes + self.cleanable_bytes

    @property
    def cleanable_ratio(self) -> float:
        return self.cleanable_bytes / self.total_bytes if self.total_bytes else 0.0


class LogCompactions(LogTruncations):
    def cleanable_offsets(self, checkpoint: int | None, now_ms: int) -> CleanableOffsets:
        """From the cleaner's checkpoint, or the log start, to the last stable offset, the active segment or the first
        segment that is younger than min.compaction.lag.ms (CL1, CL2, CL25).
        """
        first_dirty = self.log_start_offset if checkpoint is None else checkpoint
        is_invalid = not self.log_start_offset <= first_dirty <= self.log_end_offset
        if is_invalid:
            if (
                "delete" not in self.config.cleanup_policies
            ):  # else retention may pass the cleaner at any time
                logger.warning(
                    "cleaner checkpoint outside the log: log=%s offset=%d", self.directory, first_dirty
                )
            first_dirty = self.log_start_offset
        bounds = [self.last_stable_offset, self.active_segment.base_offset]
        lag_ms = self.config.min_compaction_lag_ms
        if lag_ms > 0:
            bounds += [
                segment.base_offset
                for segment in self.segments.non_active_from(first_dirty)
                if segment.largest_timestamp_ms > now_ms - lag_ms
            ][:1]
        return CleanableOffsets(
            first_dirty_offset=first_dirty,
            first_uncleanable_offset=max(first_dirty, min(bounds)),
            is_checkpoint_invalid=is_invalid,
        )

    def log_to_clean(self, offsets: CleanableOffsets, now_ms: int) -> LogToClean:
        """CL3 to CL5."""
        segments, first_dirty = self.segments, offsets.first_dirty_offset
        beyond = segments.non_active_from(offsets.first_uncleanable_offset)
        end_offset = (beyond[0] if beyond else self.active_segment).base_offset
        dirty = segments.values(min(first_dirty, end_offset), end_offset)
        clean = segments.values(0, first_dirty) if first_dirty > 0 else []
        return LogToClean(
            dirty=DirtyRange(first_dirty, end_offset),
            clean_bytes=sum(segment.size_bytes for segment in clean),
            cleanable_bytes=sum(segment.size_bytes for segment in dirty),
            compaction_delay_ms=self._compaction_delay_ms(first_dirty, now_ms),
        )

    def _compaction_delay_ms(self, first_dirty_offset: int, now_ms: int) -> int:
        firsts = [
            segment.first_batch_timestamp for segment in self.segments.non_active_from(first_dirty_offset)
        ]
        earliest = min((first for first in firsts if first is not None and first > 0), default=None)
        clean_until_ms = now_ms - self.config.max_compaction_lag_ms
        return max(clean_until_ms - earliest, 0) if earliest is not None else 0

    def prepare_compaction(self, offsets: CleanableOffsets, config: CleanerConfig, now_ms: int) -> Compaction:
        """A round over the whole segments of `offsets`; see `Compaction` for how it is run.

        ValueError where no whole segment lies behind the first dirty offset.
        """
        self._begin(now_ms)
        dirty = self.log_to_clean(offsets, now_ms).dirty
        if dirty.end_offset < dirty.start_offset:
            raise ValueError(f"{self.directory}: no whole segment lies in {offsets}")
        assert dirty.end_offset <= self.active_segment.base_offset, (dirty, self.active_segment)
        return Compaction(self._file_system, self, dirty, config, now_ms)

    # What a round asks

    def last_records_of_producers(self) -> dict[int, LastRecord]:
        """CL14: by producer id. Kafka: UnifiedLog.lastRecordsOfActiveProducers."""
        return {
            producer_id: LastRecord(entry.last_offset if entry.batches else None, entry.producer_epoch)
            for producer_id, entry in self.producer_state.producers.items()
        }

    def plan_source(self, segment: LogSegment, end_offset: int, start_offset: int) -> Source:
        """Aborted transactions are looked for from this segment on: their entries lie where their markers do (CL22)."""
        return Source(
            base_offset=segment.base_offset,
            path=segment.path,
            start_position=segment.offset_index.lookup(start_offset).position,
            size_bytes=segment.size_bytes,
            modified_ms=segment.records.modified_ms(),
            end_offset=end_offset,
            aborted=self._local.collect_aborted(self.log_start_offset, end_offset, segment),
        )

    def swap_in(self, cleaned: LogSegment, old: Sequence[LogSegment]) -> None:
        """`cleaned`, complete and synced, takes the place of `old` (CL11)."""
        try:
            gone = replace_segments(
                self._file_system,
                self.directory,
                self.segments,
                [cleaned],
                old,
                delete=self._delete_files,
            )
            self._delete_snapshots_of(gone)
        except OSError as error:
            raise self._go_offline("swap", error) from error
        logger.info(
            "compacted: log=%s base_offset=%d segments=%d bytes_before=%d bytes=%d",
            self.directory,
            cleaned.base_offset,
            len(old),
            sum(segment.size_bytes for segment in old),
            cleaned.size_bytes,
        )

    def split_overflowed(self, base_offset: int) -> None:
        """Its offsets do not fit a segment of the group's base: it is made into several (CL23)."""
        segment = self.segments.get(base_offset)
        assert segment is not None, base_offset
        try:
            split = split_overflowed_segment(
                self._file_system,
                self.directory,
                self.segments,
                segment,
                self.config,
                self._now_ms,
                delete=self._delete_files,
            )
            self._delete_snapshots_of(split.deleted)
        except OSError as error:
            raise self._go_offline("split", error) from error
