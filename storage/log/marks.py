"""The marks of one log: log start offset, high watermark, last stable offset.

Kafka: UnifiedLog; rules RD7, RD11, RT1, AP15.
"""

from __future__ import annotations

import logging
from typing import final

from storage.disk.handle_pool import is_out_of_handles
from storage.errors import OffsetOutOfRange, ReadGoesOn
from storage.leader_epochs import LeaderEpochCache
from storage.log.local_log import LocalLog
from storage.log.online import Online
from storage.producers.state import ProducerStateManager
from storage.segment.place import LogOffsetMetadata

logger = logging.getLogger(__name__)


@final
class Marks:
    """The offsets that bound what readers may see. The high watermark never exceeds the log end offset.

    The high watermark may be below the log start offset only while both are inside one batch. Anybody may read
    `log_start_offset` (the first offset that readers may ask for), `high_watermark` (the first offset that is not
    committed) and `first_unstable` (the place of the first transaction that is open or not yet replicated); only the
    methods here set them. `are_lowered` says that a truncation has lowered one of the first two since their checkpoints
    were written.
    """

    __slots__ = (
        "_epochs",
        "_high_watermark_place",
        "_local",
        "_online",
        "_producers",
        "are_lowered",
        "first_unstable",
        "high_watermark",
        "log_start_offset",
    )

    def __init__(
        self,
        local: LocalLog,
        epochs: LeaderEpochCache,
        producers: ProducerStateManager,
        online: Online,
        *,
        log_start_offset: int,
    ) -> None:
        self._local, self._epochs, self._producers, self._online = local, epochs, producers, online
        self.log_start_offset = log_start_offset
        self.high_watermark = log_start_offset
        self._high_watermark_place = LogOffsetMetadata(log_start_offset)
        self.first_unstable: LogOffsetMetadata | None = None
        self.are_lowered = False
        self.refresh_first_unstable()

    @property
    def high_watermark_metadata(self) -> LogOffsetMetadata:
        """The high watermark with its place, looked up when only the offset is known.

        A lookup moves the high watermark to the base offset of the batch that it finds: down to the start of the
        batch that holds it or, in a gap, up to the next batch. No record is between the old and the new value in a
        gap, and the new value is never inside a batch (Kafka 4.1).
        """
        if self._high_watermark_place.is_message_only:
            self.set_high_watermark(self._maybe_resolve(self.high_watermark))
        return self._high_watermark_place

    def _maybe_resolve(self, offset: int) -> LogOffsetMetadata:
        """Returns `offset` with its place; without it where the log has none, and where no file could be opened to find
        it, or the search takes long: the next call looks again, or goes on. Raises StorageError, as a read does.
        """
        unresolved = LogOffsetMetadata(offset)
        try:
            found = self._local.resolve(offset, in_step=True)
        except (OffsetOutOfRange, ReadGoesOn):
            return unresolved
        except OSError as error:
            if not is_out_of_handles(error):
                raise self._online.failed("read", error) from error
            return unresolved
        # No checksum covers a base offset: after damage it may be any number.
        return found if 0 <= found.offset <= self._local.log_end_offset else unresolved

    def update_high_watermark(self, offset: int) -> int:
        """Adopt a leader's high watermark, limited to [log start, log end], as a follower. Returns the new value
        (RD11).

        The new value may be lower than the old one. A negative `offset` is an AssertionError.
        """
        assert offset >= 0, offset
        offset = max(offset, self.log_start_offset)
        if offset >= self._local.log_end_offset:
            self.set_high_watermark(self._local.log_end)
        else:
            self.set_high_watermark(LogOffsetMetadata(offset))
        return self.high_watermark

    def maybe_increment_high_watermark(self, new: LogOffsetMetadata) -> bool:
        """Raise the high watermark, or move it onto a newer segment at the same offset. Returns whether it moved
        (RD11)."""
        assert new.offset <= self._local.log_end_offset, (new, self._local.log_end)
        old = self.high_watermark_metadata
        is_newer_place = new.offset == old.offset and old.is_on_older_segment(new)
        if new.offset <= old.offset and not is_newer_place:
            return False
        self.set_high_watermark(new)
        return True

    def set_high_watermark(self, new: LogOffsetMetadata) -> None:
        """Move the high watermark to `new`, which may be lower. The producers' completed transactions follow it."""
        assert new.offset >= 0, new
        if new.offset < self.high_watermark:
            logger.info(
                "high watermark lowered: log=%s from=%d to=%d",
                self._local.directory,
                self.high_watermark,
                new.offset,
            )
        self.high_watermark, self._high_watermark_place = new.offset, new
        self._producers.on_high_watermark_updated(new.offset)
        self.refresh_first_unstable()
        assert new.offset <= self._local.log_end_offset, (new, self._local.log_end)

    def keep_high_watermark_within_log(self) -> None:
        """Lower a high watermark above the log end to it, and refresh its place after a roll or truncation (AP15)."""
        if self.high_watermark >= self._local.log_end_offset:
            self.set_high_watermark(self._local.log_end)
        elif self._high_watermark_place.segment_base_offset > self._local.segments.active.base_offset:
            # A roll above a gap has put the place into a segment that a truncation into the gap has deleted. All of the
            # segment before would count as committed. Kafka keeps the place.
            self._high_watermark_place = LogOffsetMetadata(self.high_watermark)

    @property
    def last_stable_offset(self) -> int:
        """The offset below which every transaction is decided and replicated; at most the high watermark (RD7)."""
        unstable = self.first_unstable
        return self.high_watermark if unstable is None else min(unstable.offset, self.high_watermark)

    @property
    def last_stable_metadata(self) -> LogOffsetMetadata:
        """The last stable offset with its place, looked up when only the offset is known."""
        high_watermark, unstable = self.high_watermark_metadata, self.first_unstable
        if unstable is None or unstable.offset >= high_watermark.offset:
            return high_watermark
        if unstable.is_message_only:
            unstable = self.first_unstable = self._maybe_resolve(unstable.offset)
        return unstable

    def refresh_first_unstable(self) -> None:
        """Compute `first_unstable` again, after an append or a move of the high watermark or log start offset.

        It is not computed after a truncation above the high watermark: all transactions below the high watermark are
        replicated, but a producer state that was just rebuilt does not know that.
        """
        unstable = self._producers.first_unstable_transaction
        if unstable is None:
            self.first_unstable = None
            return
        place = unstable.place
        if place.is_message_only or place.offset < self.log_start_offset:
            place = self._maybe_resolve(max(place.offset, self.log_start_offset))
        self.first_unstable = place

    def maybe_increment_log_start_offset(self, offset: int) -> bool:
        """Raise the log start offset: readers cannot ask for records below it. Returns whether it moved (RT1).

        Raises OffsetOutOfRange above the high watermark, StorageError; OutOfHandles, with nothing changed, if there are
        too few descriptors.
        """
        if offset > self.high_watermark:
            raise OffsetOutOfRange(offset, self.log_start_offset, self.high_watermark)
        if offset <= self.log_start_offset:
            return False
        assert offset <= self._local.log_end_offset, (offset, self._local.log_end)
        with self._local.with_descriptors(), self._online.during("flush epochs", refuses=False):
            self.log_start_offset = offset
            self._local.raise_recovery_point(offset)
            self._epochs.truncate_from_start(offset)
            self._epochs.flush()
            self._producers.on_log_start_offset_incremented(offset)
            self.refresh_first_unstable()
        assert self._local.recovery_point >= offset, (self._local.recovery_point, offset)
        return True

    def restart_at(self, log_start_offset: int) -> None:
        """Set the log start offset, up or down, after a truncation has removed the records there (RT9, RT12)."""
        assert log_start_offset >= 0, log_start_offset
        self.log_start_offset = log_start_offset
