"""Truncates a partition's log, and brings marks, epochs and producers back to the cut. Kafka: UnifiedLog.truncateTo;
rules RT9 to RT12."""

from __future__ import annotations

import logging
from bisect import bisect_right
from typing import NamedTuple, final

from storage.errors import ReadGoesOn
from storage.leader_epochs import LeaderEpochCache
from storage.log.flushes import Flushes
from storage.log.local_log import LocalLog
from storage.log.marks import Marks
from storage.log.online import Online
from storage.producers.rebuild import rebuild_producer_state
from storage.producers.reload import BATCHES_A_SLICE, ProducerReload
from storage.producers.state import ProducerStateManager
from storage.segment.kept_timestamps import KeptTimestamps, look_at_kept

logger = logging.getLogger(__name__)


class _Offsets(NamedTuple):
    """The offsets of a log that a truncation may lower."""

    log_end: int
    recovery_point: int
    log_start: int
    high_watermark: int


@final
class Truncation:
    """Truncates one log and everything that depends on its end."""

    __slots__ = (
        "_epochs",
        "_flushes",
        "_kept",
        "_local",
        "_marks",
        "_online",
        "_producers",
        "_recalls_batches",
        "_reload",
        "batches_a_slice",
    )

    def __init__(
        self,
        local: LocalLog,
        epochs: LeaderEpochCache,
        producers: ProducerStateManager,
        marks: Marks,
        flushes: Flushes,
        online: Online,
        *,
        recalls_batches: bool,
    ) -> None:
        self._local, self._epochs, self._producers = local, epochs, producers
        self._marks, self._flushes, self._online = marks, flushes, online
        self._recalls_batches = recalls_batches
        # The producers at the offset of a truncation that is being prepared.
        self._reload: ProducerReload | None = None
        # What it keeps of the segment that it cuts.
        self._kept: KeptTimestamps | None = None
        # So many batches are replayed, or looked at, in one step; `prepare` does more of them in slices.
        self.batches_a_slice = BATCHES_A_SLICE

    def prepare(self, offset: int, *, now_ms: int) -> bool:
        """Do a slice of what takes long in `truncate_to(offset)`. Returns whether all of it is done, or nothing is.

        Nothing of the log changes, except that a producer snapshot is deleted if it does not load. Each call that
        returns False is to be followed by another one in a later step, or by `forget_prepared`. An append, a move of
        the log start or a truncation in between makes the next call begin again. Raises StorageError; after an
        OutOfHandles the next call goes on. Damage that it meets raises CorruptBatch: the log stays online, as it was.
        """
        self._online.check()
        if offset >= self._local.log_end_offset or offset < self._local.segments.first_base_offset:
            self.forget_prepared()
            return True
        return self._has_place(offset) and self._has_kept(offset) and self._has_producers(offset, now_ms)

    def _has_place(self, offset: int) -> bool:
        """Search a slice of the batches before the cut. Returns whether its place is found."""
        segment = self._local.segments.floor(offset)
        assert segment is not None, (offset, self._local.directory)
        # No batch is without an offset, so the search of these is short.
        if offset - segment.base_offset <= self.batches_a_slice:
            return True
        with self._local.with_descriptors(), self._online.during("truncate"):
            try:
                segment.translate_offset(offset, a_step=self._local.searched_a_step, in_step=True)
            except ReadGoesOn:
                return False
        return True

    def _has_kept(self, offset: int) -> bool:
        """Look at a slice of the timestamps that stay. Returns whether none is left to look at."""
        segment = self._local.segments.floor(offset)
        assert segment is not None, (offset, self._local.directory)
        kept = self._kept
        if kept is None or not kept.is_for(segment, offset):
            self._kept = None
            # No batch is without an offset, so a look at these is short.
            if offset - segment.base_offset <= self.batches_a_slice:
                return True
            with self._local.with_descriptors(), self._online.during("truncate"):
                kept = self._kept = look_at_kept(segment, offset)
        if kept is None or kept.is_done:
            return True
        with self._local.with_descriptors(), self._online.during("truncate"):
            kept.advance(self.batches_a_slice)
        return kept.is_done

    def _has_producers(self, offset: int, now_ms: int) -> bool:
        """Replay a slice of the batches of producers. Returns whether none was left before."""
        log_start_offset = min(offset, self._marks.log_start_offset)
        if self._is_short(offset, log_start_offset):
            self._reload = None
            return True
        reload = self._prepared_for(offset, log_start_offset)
        if reload is None:
            reload = self._reload = self._begin_reload(offset, log_start_offset)
        elif reload.is_done:
            return True
        with self._local.with_descriptors(), self._online.during("truncate"):
            reload.advance(now_ms)
        return False

    def _begin_reload(self, offset: int, log_start_offset: int) -> ProducerReload:
        return ProducerReload(
            self._producers,
            self._local.segments,
            log_start_offset=log_start_offset,
            offset=offset,
            log_end_offset=self._local.log_end_offset,
            batches_a_slice=self.batches_a_slice,
        )

    @property
    def is_preparing(self) -> bool:
        """Whether something is kept for a truncation that has not come yet."""
        return self._reload is not None or self._kept is not None

    def forget_prepared(self) -> None:
        """Forget the prepared truncation, if any: nobody wants it any more."""
        self._reload = self._kept = None

    def _is_short(self, offset: int, log_start_offset: int) -> bool:
        """Whether a truncation replays no more than a slice without preparation, as far as offsets show it."""
        # Then nothing is replayed.
        if self._producers.is_empty:
            return True
        if len(self._producers.producers) > self._flushes.most_in_a_roll:
            return False
        snapshots = self._producers.snapshots.offsets
        older = bisect_right(snapshots, offset)
        replayed_from = snapshots[older - 1] if older else 0
        # No batch is without an offset.
        return offset - max(replayed_from, log_start_offset) <= self.batches_a_slice

    def _prepared_for(self, offset: int, log_start_offset: int) -> ProducerReload | None:
        reload = self._reload
        # All producers may have expired meanwhile. Then nothing is to come back.
        if self._producers.is_empty:
            return None
        if reload is None or reload.log_end_offset != self._local.log_end_offset:
            return None
        is_same = (reload.offset, reload.log_start_offset) == (offset, log_start_offset)
        return reload if is_same else None

    def truncate_to(self, offset: int, *, now_ms: int) -> bool:
        """Drop the batch that holds `offset`, whole, and all after it. Returns whether records were dropped (RT9).

        The log ends at exactly `offset` then. For an offset at or above the log end, only epochs without records are
        forgotten. Raises ValueError for a negative offset, StorageError; with nothing changed, OutOfHandles if there
        are too few descriptors, and CorruptBatch if a batch is damaged that the cut has to read.
        """
        if offset < 0:
            raise ValueError(f"cannot truncate to offset {offset}: the offset must not be negative")
        self._online.check()
        self._look_first(offset, now_ms)
        with self._local.with_descriptors(), self._online.during("truncate", refuses=False):
            if offset >= self._local.log_end_offset:
                self._epochs.truncate_from_end(self._local.log_end_offset)
                self._epochs.flush()
                return False
            if self._local.segments.first_base_offset > offset:
                self._truncate_fully(offset, None, now_ms)
            else:
                self._truncate(offset, now_ms)
        return True

    def _look_first(self, offset: int, now_ms: int) -> None:
        """Read what the cut reads of the batches that stay, while nothing has changed. Raises CorruptBatch.

        Of a cut that was prepared, all but its place has been read.
        """
        segment = self._local.segments.floor(offset)
        if segment is None or offset >= self._local.log_end_offset:
            return
        with self._local.with_descriptors(), self._online.during("truncate"):
            segment.translate_offset(offset)
            if self._kept is None or not self._kept.is_for(segment, offset):
                self._kept = look_at_kept(segment, offset)
            while self._kept is not None and not self._kept.is_done:
                self._kept.advance(self.batches_a_slice)
            log_start_offset = min(offset, self._marks.log_start_offset)
            reload = self._prepared_for(offset, log_start_offset)
            if not self._producers.is_empty and (reload is None or not reload.is_done):
                reload = self._begin_reload(offset, log_start_offset)
                while not reload.is_done:
                    reload.advance(now_ms)

    def _truncate(self, offset: int, now_ms: int) -> None:
        before = self._offsets()
        assert offset < before.log_end, (offset, before)
        reload = self._prepared_for(offset, min(offset, self._marks.log_start_offset))
        reloaded = None if reload is None or not reload.is_done else reload.state
        kept = self._kept
        self.forget_prepared()
        self._flushes.truncated_to(offset)
        removed = self._local.truncate_to(offset, now_ms, kept)
        self._producers.snapshots.delete_of(removed)
        self._epochs.truncate_from_end(offset)
        self._epochs.flush()
        self._marks.restart_at(min(offset, self._marks.log_start_offset))
        self._rebuild_producers(offset, now_ms, reloaded)
        self._marks.keep_high_watermark_within_log()
        assert self._local.log_end_offset == offset, (self._local.log_end, offset)
        assert self._marks.log_start_offset <= offset, (self._marks.log_start_offset, offset)
        self._note_truncation(before)

    def truncate_fully_and_start_at(
        self, offset: int, log_start_offset: int | None = None, *, now_ms: int
    ) -> None:
        """Drop all records: the log restarts empty at `offset` (RT12).

        The log start offset becomes `log_start_offset`, by default `offset`.

        Raises StorageError; OutOfHandles, with nothing changed, if there are too few descriptors.
        """
        self._online.check()
        with self._local.with_descriptors(), self._online.during("truncate", refuses=False):
            self._truncate_fully(offset, log_start_offset, now_ms)

    def _truncate_fully(self, offset: int, log_start_offset: int | None, now_ms: int) -> None:
        before = self._offsets()
        assert offset >= 0, offset
        self.forget_prepared()
        self._flushes.truncated_to(0)
        self._local.truncate_fully_and_start_at(offset, now_ms)
        self._epochs.clear_and_flush()
        self._producers.truncate_fully_and_start_at(offset)
        self._marks.restart_at(offset if log_start_offset is None else log_start_offset)
        self._rebuild_producers(offset, now_ms)
        self._marks.set_high_watermark(self._local.log_end)
        assert self._marks.high_watermark == offset, (self._marks.high_watermark, offset)
        assert not len(self._epochs), self._epochs.latest_entry
        self._note_truncation(before)

    def _offsets(self) -> _Offsets:
        local, marks = self._local, self._marks
        return _Offsets(
            local.log_end_offset, local.recovery_point, marks.log_start_offset, marks.high_watermark
        )

    def _note_truncation(self, before: _Offsets) -> None:
        local, now = self._local, self._offsets()
        logger.info("truncated: log=%s from=%d to=%d", local.directory, before.log_end, now.log_end)
        if now.log_start < before.log_start or now.high_watermark < before.high_watermark:
            self._marks.are_lowered = True
        if self._marks.are_lowered or now.recovery_point < before.recovery_point:
            local.is_below_checkpoints = True
        high_watermark = self._marks.high_watermark
        assert local.recovery_point <= local.log_end_offset, (local.recovery_point, local.log_end)
        assert high_watermark <= local.log_end_offset, (high_watermark, local.log_end)

    def _rebuild_producers(
        self, last_offset: int, now_ms: int, reloaded: ProducerStateManager | None = None
    ) -> None:
        rebuild_producer_state(
            self._producers,
            self._local.segments,
            log_start_offset=self._marks.log_start_offset,
            last_offset=last_offset,
            now_ms=now_ms,
            is_clean=False,
            recalls_batches=self._recalls_batches,
            reloaded=reloaded,
            save=self._flushes.save_producers,
        )
