"""Reading a partition's log by offset and by timestamp. Kafka: UnifiedLog.read, fetchOffsetByTimestamp; rules RD."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Final, final

from storage.disk.handle_pool import OUT_OF_HANDLES
from storage.errors import OffsetOutOfRange, OutOfHandles, ReadGoesOn, StorageError, TruncatedWhileRead
from storage.leader_epochs import LeaderEpochCache
from storage.log.local_log import LocalLog
from storage.log.marks import Marks
from storage.log.online import Online
from storage.segment import LogSegment
from storage.segment.fetch_data import FetchData, Isolation
from storage.segment.file_records import TimestampAndOffset
from storage.segment.lookups import find_max_timestamp, find_offset_by_timestamp
from storage.segment.place import LogOffsetMetadata

LATEST_TIMESTAMP: Final = -1
EARLIEST_TIMESTAMP: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL_TIMESTAMP: Final = -4
LATEST_TIERED_TIMESTAMP: Final = -5

# The time indexes of so many segments take 6 ms to open and read.
SEGMENTS_A_STEP: Final = 256

# Searches one segment; takes the most bytes of a batch to decode, None for any.
Search = Callable[[int | None], TimestampAndOffset | None]


@final
class Reads:
    """Answers what readers ask of one log. It has no state of its own."""

    __slots__ = ("_epochs", "_local", "_marks", "_online", "segments_a_step")

    def __init__(self, local: LocalLog, epochs: LeaderEpochCache, marks: Marks, online: Online) -> None:
        self._local, self._epochs, self._marks, self._online = local, epochs, marks, online
        # So many segments of which nothing is known a search by time reads in one step.
        self.segments_a_step = SEGMENTS_A_STEP

    def read(
        self,
        start_offset: int,
        *,
        max_size: int,
        isolation: Isolation = Isolation.LOG_END,
        min_one_message: bool = True,
        in_step: bool = False,
    ) -> FetchData:
        """Whole batches from the one that holds `start_offset`, up to the bound that `isolation` names (RD1 to RD4).

        At most `max_size` bytes; with `min_one_message` the first batch is returned whole even if it is larger.
        Raises OffsetOutOfRange outside [log start, log end], ValueError for a negative size, StorageError. `in_step` it
        raises ReadGoesOn where the search for a place takes longer than a step may: the same call in a later step goes
        on.
        """
        if max_size < 0:
            raise ValueError(f"cannot read {max_size} bytes: the size must not be negative")
        if self._online.reason is not None:
            self._online.check()
        log_start_offset = self._marks.log_start_offset
        if start_offset < log_start_offset:
            raise OffsetOutOfRange(start_offset, log_start_offset, self._local.log_end_offset)
        try:
            return self._local.read(
                start_offset,
                max_size,
                self._settled_bound(isolation, in_step=in_step),
                min_one_message=min_one_message,
                with_aborted=isolation is Isolation.TXN_COMMITTED,
                in_step=in_step,
            )
        except OSError as error:
            raise self.failed(error) from error

    def failed(self, error: OSError) -> StorageError:
        """Returns the error to raise. The log goes offline, unless the process has no descriptor left for its files:
        then only this read fails.
        """
        if error.errno in OUT_OF_HANDLES:
            return OutOfHandles(str(error))
        return self._online.failed("read", error)

    def _settled_bound(self, isolation: Isolation, *, in_step: bool) -> LogOffsetMetadata:
        """Returns the bound with its place, if the log has one. Raises OSError; `in_step` ReadGoesOn."""
        bound = self._bound(isolation)
        if bound.is_message_only:
            # What the marks look up from here on takes one slice.
            with suppress(OffsetOutOfRange):
                self._local.resolve(bound.offset, in_step=in_step)
            bound = self._bound(isolation)
        return bound

    def _bound(self, isolation: Isolation) -> LogOffsetMetadata:
        if isolation is Isolation.LOG_END:
            return self._local.log_end
        if isolation is Isolation.HIGH_WATERMARK:
            return self._marks.high_watermark_metadata
        return self._marks.last_stable_metadata

    def place_of(self, offset: int) -> LogOffsetMetadata:
        """Returns `offset` with the place of the batch that holds it, in a gap of the next. Raises OffsetOutOfRange."""
        log_start_offset, log_end_offset = self._marks.log_start_offset, self._local.log_end_offset
        if not log_start_offset <= offset <= log_end_offset:
            raise OffsetOutOfRange(offset, log_start_offset, log_end_offset)
        return self._local.place_of(offset)

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """Returns the greatest epoch that is at most `epoch`, and its end offset (exclusive); (-1, -1) if unknown
        (EP5)."""
        return self._epochs.end_offset_for(epoch, self._local.log_end_offset)

    def offset_for_timestamp(
        self, timestamp: int, most_bytes: int | None = None
    ) -> TimestampAndOffset | None:
        """Returns the first record with at least that timestamp (RD8).

        A timestamp of -1 asks for the log end, -2 for the log start, -3 for the record with the greatest timestamp, -4
        for the start of what is on this disk, which is the log start, and -5 for the end of what is on another storage,
        which is nothing: -1 for all three.
        Only the first segment that reaches the timestamp is searched, from the log start offset on; the record for -3
        may be below the log start offset. Kafka does the same. Raises StorageError. With `most_bytes`
        it raises a child where that takes longer than a step may: ReadTakesLong for a batch of more bytes to decode and
        for many batches, for which there is `search_for_timestamp`; ReadGoesOn for many segments: call it again.
        """
        self._online.check()
        try:
            return self._search(timestamp, most_bytes)
        except OSError as error:
            raise self.failed(error) from error

    def _search(self, timestamp: int, most_bytes: int | None) -> TimestampAndOffset | None:
        if timestamp == EARLIEST_TIMESTAMP:
            return self._earliest()
        if timestamp == LATEST_TIMESTAMP:
            end_offset, epoch = self._local.log_end_offset, self._epochs.latest_epoch
            return TimestampAndOffset(timestamp=-1, offset=end_offset, leader_epoch=epoch)
        if timestamp == EARLIEST_LOCAL_TIMESTAMP:
            start_offset = self._marks.log_start_offset
            epoch = self._epochs.epoch_for_offset(start_offset)
            return TimestampAndOffset(timestamp=-1, offset=start_offset, leader_epoch=epoch)
        if timestamp == LATEST_TIERED_TIMESTAMP:
            return TimestampAndOffset(timestamp=-1, offset=-1, leader_epoch=-1)
        search = self.search_for_timestamp(timestamp, None if most_bytes is None else self.segments_a_step)
        return None if search is None else search(most_bytes)

    def search_for_timestamp(self, timestamp: int, most_segments: int | None = None) -> Search | None:
        """Returns the search for a timestamp, -3 for the greatest, which may run on another thread.

        None if no segment reaches the timestamp. The search raises what `find_offset_by_timestamp` of a segment raises,
        TruncatedWhileRead also where the segment has left the log meanwhile and its files are gone.
        Raises ReadGoesOn if the greatest timestamps of more than `most_segments` are not known yet: those of so many
        are then.
        """
        segments = self._known(most_segments)
        if timestamp == MAX_TIMESTAMP:
            latest = max(segments, key=lambda segment: segment.max_timestamp.timestamp)
            return partial(_search, latest, partial(find_max_timestamp, latest))
        for segment in segments:
            if segment.largest_timestamp_ms >= timestamp:
                find = partial(find_offset_by_timestamp, segment, timestamp, self._marks.log_start_offset)
                return partial(_search, segment, find)
        return None

    def _known(self, most_segments: int | None) -> Iterator[LogSegment]:
        """The segments, each before its greatest timestamp is asked for, and not too many that do not know it."""
        unknown = 0
        for segment in self._local.segments:
            if most_segments is not None and not segment.is_max_timestamp_known:
                if unknown == most_segments:
                    raise ReadGoesOn(f"a search that reads the time indexes of more than {unknown} segments")
                unknown += 1
            yield segment

    def _earliest(self) -> TimestampAndOffset:
        """Returns the log start offset, with its leader epoch if the first known epoch begins at or below it."""
        entry, log_start_offset = self._epochs.earliest_entry, self._marks.log_start_offset
        is_known = entry is not None and entry.start_offset <= log_start_offset
        epoch = entry.epoch if entry is not None and is_known else None
        return TimestampAndOffset(timestamp=-1, offset=log_start_offset, leader_epoch=epoch)

    def offsets_before(self, timestamp: int, max_count: int, now_ms: int) -> list[int]:
        """Returns the base offsets of the segments that were modified by `timestamp`, newest first, at most
        `max_count`.

        A timestamp of -1 stands for the log end, -2 for the log start. The log end offset is included while the
        active segment has records. The modification times of the files decide, as in version 0 of ListOffsets (RD10;
        Kafka before 4.0: UnifiedLog.legacyFetchOffsetsBefore). Raises StorageError.
        """
        self._online.check()
        try:
            return self._starts_before(timestamp, max_count, now_ms)
        except OSError as error:
            raise self.failed(error) from error

    def _starts_before(self, timestamp: int, max_count: int, now_ms: int) -> list[int]:
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


def _search(segment: LogSegment, find: Search, most_bytes: int | None) -> TimestampAndOffset | None:
    """Returns what `find` returns. Raises TruncatedWhileRead where the segment left the log before it was searched."""
    try:
        return find(most_bytes)
    except OSError as error:
        if segment.is_gone(error):
            raise TruncatedWhileRead(f"{segment.path} has left the log: {error}") from error
        raise
