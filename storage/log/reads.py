"""Reading a partition's log by offset and by timestamp. Kafka: UnifiedLog.read, fetchOffsetByTimestamp; rules RD."""

from __future__ import annotations

from typing import Final, final

from storage.errors import OffsetOutOfRange
from storage.leader_epochs import LeaderEpochCache
from storage.log.local_log import LocalLog
from storage.log.marks import Marks
from storage.log.online import Online
from storage.segment.fetch_data import FetchData, Isolation
from storage.segment.file_records import TimestampAndOffset
from storage.segment.place import LogOffsetMetadata

LATEST_TIMESTAMP: Final = -1
EARLIEST_TIMESTAMP: Final = -2
MAX_TIMESTAMP: Final = -3


@final
class Reads:
    """The readers' questions to one log. It owns nothing."""

    __slots__ = ("_epochs", "_local", "_marks", "_online")

    def __init__(self, local: LocalLog, epochs: LeaderEpochCache, marks: Marks, online: Online) -> None:
        self._local, self._epochs, self._marks, self._online = local, epochs, marks, online

    def read(
        self,
        start_offset: int,
        *,
        max_size: int,
        isolation: Isolation = Isolation.LOG_END,
        min_one_message: bool = True,
    ) -> FetchData:
        """Whole batches from the one that holds `start_offset`, up to the bound that `isolation` names (RD1 to RD4).

        At most `max_size` bytes; with `min_one_message` the first batch comes whole even above that. Raises
        OffsetOutOfRange outside [log start, log end], ValueError for a negative size, StorageError.
        """
        if max_size < 0:
            raise ValueError(f"a read of {max_size} bytes")
        if self._online.reason is not None:
            self._online.check()
        log_start_offset = self._marks.log_start_offset
        if start_offset < log_start_offset:
            raise OffsetOutOfRange(start_offset, log_start_offset, self._local.log_end_offset)
        try:
            return self._local.read(
                start_offset,
                max_size,
                self._bound(isolation),
                min_one_message=min_one_message,
                with_aborted=isolation is Isolation.TXN_COMMITTED,
            )
        except OSError as error:
            raise self._online.failed("read", error) from error

    def _bound(self, isolation: Isolation) -> LogOffsetMetadata:
        if isolation is Isolation.LOG_END:
            return self._local.log_end
        if isolation is Isolation.HIGH_WATERMARK:
            return self._marks.high_watermark_metadata
        return self._marks.last_stable_metadata

    def place_of(self, offset: int) -> LogOffsetMetadata:
        """`offset`, with the place of the batch that holds it, or of the next one there is. Raises OffsetOutOfRange."""
        log_start_offset, log_end_offset = self._marks.log_start_offset, self._local.log_end_offset
        if not log_start_offset <= offset <= log_end_offset:
            raise OffsetOutOfRange(offset, log_start_offset, log_end_offset)
        return self._local.place_of(offset)

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """(greatest epoch at most `epoch`, its end offset, exclusive); (-1, -1) when unknown (EP5)."""
        return self._epochs.end_offset_for(epoch, self._local.log_end_offset)

    def offset_for_timestamp(self, timestamp: int) -> TimestampAndOffset | None:
        """The first record at least that late; -1 asks for the end, -2 for the start, -3 for the latest one (RD8).

        Only the first segment that reaches the timestamp is searched, and of its records those from the log start
        on; the latest one may be below it. Kafka does the same.
        """
        if timestamp == EARLIEST_TIMESTAMP:
            return self._earliest()
        if timestamp == LATEST_TIMESTAMP:
            end_offset, epoch = self._local.log_end_offset, self._epochs.latest_epoch
            return TimestampAndOffset(timestamp=-1, offset=end_offset, leader_epoch=epoch)
        if timestamp == MAX_TIMESTAMP:
            latest = max(self._local.segments, key=lambda segment: segment.max_timestamp.timestamp)
            return latest.find_max_timestamp()
        for segment in self._local.segments:
            if segment.largest_timestamp_ms >= timestamp:
                return segment.find_offset_by_timestamp(timestamp, self._marks.log_start_offset)
        return None

    def _earliest(self) -> TimestampAndOffset:
        """The log start, with its epoch where the first one known reaches down to it."""
        entry, log_start_offset = self._epochs.earliest_entry, self._marks.log_start_offset
        is_known = entry is not None and entry.start_offset <= log_start_offset
        epoch = entry.epoch if entry is not None and is_known else None
        return TimestampAndOffset(timestamp=-1, offset=log_start_offset, leader_epoch=epoch)

    def offsets_before(self, timestamp: int, max_count: int, now_ms: int) -> list[int]:
        """The base offsets of segments that were modified by then, newest first, `max_count` at most.

        A timestamp of -1 stands for the end, -2 for the start. The log end is among them while the active segment has
        records. The files' times decide, as for ListOffsets of version 0: Kafka before 4.0,
        UnifiedLog.legacyFetchOffsetsBefore (RD10).
        """
        local = self._local
        starts = [
            (max(segment.base_offset, self._marks.log_start_offset), segment.records.modified_ms())
            for segment in local.segments
        ]
        if local.segments.active.size_bytes > 0:
            starts.append((local.log_end_offset, now_ms))
        if timestamp == EARLIEST_TIMESTAMP:
            starts = starts[:1]
        elif timestamp != LATEST_TIMESTAMP:
            while starts and starts[-1][1] > timestamp:
                starts.pop()
        return sorted((offset for offset, _ in starts[-max_count:] if max_count > 0), reverse=True)
