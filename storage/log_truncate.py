"""Truncating a partition's log: what must follow when records go. Kafka: UnifiedLog.truncateTo; rules RT9 to RT12."""

from __future__ import annotations

import logging

from storage.log_retention import LogRetention
from storage.producer_rebuild import rebuild_producer_state

logger = logging.getLogger(__name__)


class LogTruncations(LogRetention):
    def truncate_to(self, offset: int, *, now_ms: int | None = None) -> bool:
        """Whether records went: the batch that holds `offset`, whole, and all behind it (RT9).

        The log ends at exactly `offset` then. At or beyond the end only epochs without records are forgotten.
        ValueError below 0.
        """
        if offset < 0:
            raise ValueError(f"a truncation to offset {offset}")
        self._begin(self._now_ms if now_ms is None else now_ms)
        try:
            if offset >= self.log_end_offset:
                self.leader_epochs.truncate_from_end(self.log_end_offset)
                self.leader_epochs.flush()
                return False
            if self.segments.base_offsets[0] > offset:
                self._truncate_fully(offset, None)
            else:
                self._truncate(offset)
        except OSError as error:
            raise self._go_offline("truncate", error) from error
        return True

    def _truncate(self, offset: int) -> None:
        before, recovery_point = self.log_end_offset, self.recovery_point
        self._lower_flushes(offset)
        removed = self._local.truncate_to(offset, self._now_ms)
        self._delete_snapshots_of(removed)
        self.leader_epochs.truncate_from_end(offset)
        self.leader_epochs.flush()
        self.log_start_offset = min(offset, self.log_start_offset)
        self._rebuild_producers(offset)
        self._keep_high_watermark_within_log()
        self._note_truncation(before, recovery_point)

    def truncate_fully_and_start_at(
        self, offset: int, log_start_offset: int | None = None, *, now_ms: int | None = None
    ) -> None:
        """Drop everything; the next record is `offset`, the first readable one that or `log_start_offset` (RT12)."""
        self._begin(self._now_ms if now_ms is None else now_ms)
        try:
            self._truncate_fully(offset, log_start_offset)
        except OSError as error:
            raise self._go_offline("truncate", error) from error

    def _truncate_fully(self, offset: int, log_start_offset: int | None) -> None:
        before, recovery_point = self.log_end_offset, self.recovery_point
        self._lower_flushes(0)
        self._local.truncate_fully_and_start_at(offset, self._now_ms)
        self.leader_epochs.clear_and_flush()
        self.producer_state.truncate_fully_and_start_at(offset)
        self.log_start_offset = offset if log_start_offset is None else log_start_offset
        self._rebuild_producers(offset)
        self._set_high_watermark(self.log_end)
        self._note_truncation(before, recovery_point)

    def _note_truncation(self, log_end_before: int, recovery_point_before: int) -> None:
        logger.info("truncated: log=%s from=%d to=%d", self.directory, log_end_before, self.log_end_offset)
        if self.recovery_point < recovery_point_before:
            self._on_recovery_point_lowered()
        assert self.recovery_point <= self.log_end_offset, (self.recovery_point, self.log_end)
        assert self.high_watermark <= self.log_end_offset, (self._high_watermark, self.log_end)

    def _lower_flushes(self, offset: int) -> None:
        for prepared in self._flushes:
            prepared.valid_up_to = min(prepared.valid_up_to, offset)

    def _rebuild_producers(self, last_offset: int) -> None:
        rebuild_producer_state(
            self.producer_state,
            self.segments,
            log_start_offset=self.log_start_offset,
            last_offset=last_offset,
            now_ms=self._now_ms,
            is_clean=False,
            recalls_batches=self._recalls_batches,
        )
