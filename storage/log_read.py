"""Reading a partition's log by offset and by timestamp. Kafka: UnifiedLog.read, fetchOffsetByTimestamp; rules RD."""

from __future__ import annotations

from storage.errors import OffsetOutOfRange
from storage.fetch_data import FetchData, Isolation
from storage.file_records import TimestampAndOffset
from storage.log_state import LogState
from storage.offset_metadata import LogOffsetMetadata

LATEST_TIMESTAMP = -1
EARLIEST_TIMESTAMP = -2
MAX_TIMESTAMP = -3


class LogReads(LogState):
    def read(
        self,
        start_offset: int,
        *,
        max_size: int,
        isolation: Isolation = Isolation.LOG_END,
        min_one_message: bool = True,
    ) -> FetchData:
        """Bytes from the batch that holds `start_offset`, up to the bound that `isolation` names (RD1 to RD4).

        Raises OffsetOutOfRange outside [log start, log end], ValueError for a negative size.
        """
        if max_size < 0:
            raise ValueError(f"a read of {max_size} bytes")
        self._check_online()
        if start_offset < self.log_start_offset:
            raise OffsetOutOfRange(start_offset, self.log_start_offset, self.log_end_offset)
        try:
            return self._local.read(
                start_offset,
                max_size,
                self._read_bound(isolation),
                min_one_message=min_one_message,
                with_aborted=isolation is Isolation.TXN_COMMITTED,
            )
        except OSError as error:
            raise self._go_offline("read", error) from error

    def _read_bound(self, isolation: Isolation) -> LogOffsetMetadata:
        if isolation is Isolation.LOG_END:
            return self.log_end
        if isolation is Isolation.HIGH_WATERMARK:
            return self.high_watermark_metadata
        return self.last_stable_metadata

    def place_of(self, offset: int) -> LogOffsetMetadata:
        """Where the batch with `offset`, or the next one there is, lies. Raises OffsetOutOfRange."""
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise OffsetOutOfRange(offset, self.log_start_offset, self.log_end_offset)
        return self._local.place_of(offset)

    def offset_for_timestamp(self, timestamp: int) -> TimestampAndOffset | None:
        """The first record at least that late; -1 asks for the end, -2 for the start, -3 for the latest one (RD8).

        Only the first segment that reaches the timestamp is looked into, and of its records those from the log start
        on; the latest one may lie below it. As Kafka does.
        """
        epochs = self.leader_epochs
        if timestamp == EARLIEST_TIMESTAMP:
            entry = epochs.earliest_entry
            is_known = entry is not None and entry.start_offset <= self.log_start_offset
            epoch = entry.epoch if entry is not None and is_known else None
            return TimestampAndOffset(timestamp=-1, offset=self.log_start_offset, leader_epoch=epoch)
        if timestamp == LATEST_TIMESTAMP:
            return TimestampAndOffset(
                timestamp=-1, offset=self.log_end_offset, leader_epoch=epochs.latest_epoch
            )
        if timestamp == MAX_TIMESTAMP:
            latest = max(self.segments, key=lambda segment: segment.max_timestamp.timestamp)
            return latest.find_max_timestamp()
        for segment in self.segments:
            if segment.largest_timestamp_ms >= timestamp:
                return segment.find_offset_by_timestamp(timestamp, self.log_start_offset)
        return None

    def offsets_before(self, timestamp: int, max_count: int, now_ms: int) -> list[int]:
        """Where segments begin that were modified by then, newest first, `max_count` at most; -1 and -2 as above.

        The log end is among them while the active segment has records. By the files' times, as ListOffsets of
        version 0 asks: Kafka before 4.0, UnifiedLog.legacyFetchOffsetsBefore (RD10).
        """
        starts = [
            (max(segment.base_offset, self.log_start_offset), segment.records.modified_ms())
            for segment in self.segments
        ]
        if self.active_segment.size_bytes > 0:
            starts.append((self.log_end_offset, now_ms))
        if timestamp == EARLIEST_TIMESTAMP:
            starts = starts[:1]
        elif timestamp != LATEST_TIMESTAMP:
            while starts and starts[-1][1] > timestamp:
                starts.pop()
        return sorted((offset for offset, _ in starts[-max_count:] if max_count > 0), reverse=True)
