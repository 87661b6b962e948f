"""One segment of a log: a `.log` file of record batches and its indexes (`indexes.py`).

The indexes tell where to look; the `.log` alone is the truth: recovery (`storage/recovery/walk.py`) makes the indexes
from it.
Kafka: LogSegment; rules LS1 to LS20.
"""

from __future__ import annotations

from contextlib import suppress
from typing import final

from storage.batch import RecordBatch
from storage.batch.columns import BatchColumns
from storage.codec.buffer import Buffer
from storage.config import LogConfig
from storage.disk.filesystem import FileSystem
from storage.draws import Draws
from storage.errors import InvalidOffset, SegmentOffsetOverflow
from storage.index.due_entries import IndexEntries
from storage.index.memory_mapped import MAX_RELATIVE_OFFSET
from storage.index.offset_index import OffsetIndex, OffsetPosition
from storage.index.time_index import TimeIndex, TimestampOffset
from storage.index.transaction_index import AbortedTransaction, AbortedTransactions, TransactionIndex
from storage.segment.batch_frames import columns_of
from storage.segment.fetch_data import FetchData
from storage.segment.file_records import FileRecords, LogOffsetPosition, TimestampAndOffset
from storage.segment.indexes import SegmentIndexes, with_suffix
from storage.segment.names import (
    LOG_SUFFIX,
    deleted_path_in_live_directory,
    log_path,
)
from storage.segment.place import LogOffsetMetadata


@final
class LogSegment:
    """All batches have offsets in [base_offset, base_offset + 2^31); one writer.

    `created_ms` and the interval counter live in the object, not on disk: a reopened segment counts from 0 (LS2).
    """

    __slots__ = (
        "_bytes_since_last_index_entry",
        "_created_ms",
        "_file_system",
        "_first_batch_timestamp",
        "_index_interval_bytes",
        "_is_deleted",
        "_max_timestamp",
        "_roll_jitter_ms",
        "base_offset",
        "directory",
        "indexes",
        "records",
    )

    def __init__(
        self,
        file_system: FileSystem,
        directory: str,
        base_offset: int,
        config: LogConfig,
        now_ms: int,
        *,
        file_already_exists: bool = False,
        suffix: str = "",
        draws: Draws | None = None,
    ) -> None:
        assert base_offset >= 0, base_offset
        self._file_system, self.directory, self.base_offset = file_system, directory, base_offset
        self.records = FileRecords(
            file_system,
            log_path(directory, base_offset, suffix),
            file_already_exists=file_already_exists,
            preallocate_bytes=config.segment_bytes if config.preallocate else 0,
        )
        self.indexes = SegmentIndexes(
            file_system, directory, base_offset, max_bytes=config.segment_index_bytes, suffix=suffix
        )
        self._index_interval_bytes = config.index_interval_bytes
        self._roll_jitter_ms = _draw_jitter(config, draws, base_offset)
        self._created_ms = now_ms
        self._bytes_since_last_index_entry = 0
        self._first_batch_timestamp: int | None = None
        self._max_timestamp: TimestampOffset | None = None
        self._is_deleted = False

    @classmethod
    def open(
        cls,
        file_system: FileSystem,
        directory: str,
        base_offset: int,
        config: LogConfig,
        now_ms: int,
        *,
        file_already_exists: bool = False,
        suffix: str = "",
        draws: Draws | None = None,
    ) -> LogSegment:
        """With `file_already_exists` its bytes are records up to the file's end, not a preallocated tail."""
        return cls(
            file_system,
            directory,
            base_offset,
            config,
            now_ms,
            file_already_exists=file_already_exists,
            suffix=suffix,
            draws=draws,
        )

    # What it is

    @property
    def size_bytes(self) -> int:
        return self.records.size_bytes

    @property
    def path(self) -> str:
        return self.records.path

    @property
    def offset_index(self) -> OffsetIndex:
        """Opened, and created when missing, at the first use."""
        return self.indexes.offset

    @property
    def time_index(self) -> TimeIndex:
        """Opened, and created when missing, at the first use."""
        return self.indexes.time

    def open_indexes(self) -> None:
        """Open the offset and the time index, and create their files when missing."""
        self.indexes.lazy_offset.get()
        self.indexes.lazy_time.get()

    @property
    def transaction_index(self) -> TransactionIndex:
        return self.indexes.transactions

    @property
    def offset_index_path(self) -> str:
        return self.indexes.lazy_offset.path

    @property
    def time_index_path(self) -> str:
        return self.indexes.lazy_time.path

    @property
    def index_interval_bytes(self) -> int:
        return self._index_interval_bytes

    @property
    def created_ms(self) -> int:
        return self._created_ms

    @property
    def roll_jitter_ms(self) -> int:
        return self._roll_jitter_ms

    @property
    def is_deleted(self) -> bool:
        return self._is_deleted

    @property
    def max_timestamp(self) -> TimestampOffset:
        """The greatest timestamp and the last offset of the earliest batch that has it.

        Taken from the time index's last entry at the first question: a segment that was closed in order has its
        true maximum there (LS3).
        """
        if self._max_timestamp is None:
            self._max_timestamp = self.time_index.last_entry
        return self._max_timestamp

    @property
    def largest_timestamp_ms(self) -> int:
        """The greatest timestamp, or for want of one when the file was last modified (LS19)."""
        timestamp = self.max_timestamp.timestamp
        return timestamp if timestamp >= 0 else self.records.modified_ms()

    @property
    def has_overflow(self) -> bool:
        """Whether its last offset does not fit the relative bits: written by an old broker (LS20)."""
        next_offset = self.read_next_offset()
        return next_offset > self.base_offset and not self.can_hold(next_offset - 1)

    def can_hold(self, offset: int) -> bool:
        """Whether `offset` is representable here: at most 2^31-1 above the base offset."""
        return 0 <= offset - self.base_offset <= MAX_RELATIVE_OFFSET

    # Append and roll

    def append(
        self,
        last_offset: int,
        data: Buffer,
        columns: BatchColumns | None = None,
        max_timestamp: int | None = None,
    ) -> None:
        """Write whole batches as one set, in one write (LS1).

        A batch with more than index.interval.bytes between the last index entry and its start gets an entry in each
        index. `columns` describe the batches, where somebody knows them; else `max_timestamp` stands for all of
        `data`, taken as one batch; with neither, the frames of `data` are read. Raises SegmentOffsetOverflow before
        a byte is written when `last_offset` does not fit.
        """
        if not data:
            return
        if not 0 <= last_offset - self.base_offset <= MAX_RELATIVE_OFFSET:
            raise SegmentOffsetOverflow(self.path, self.base_offset, last_offset)
        position = self.records.append(data)
        if columns is not None or max_timestamp is None:
            columns = columns_of(memoryview(data), self.path) if columns is None else columns
            self._note_batches(position, len(data), columns)
            return
        # One batch, the most frequent case: the same as `_note_batches`, without columns.
        greatest = self._max_timestamp
        if greatest is None:
            greatest = self.max_timestamp
        if max_timestamp > greatest[0]:
            greatest = self._max_timestamp = TimestampOffset(max_timestamp, last_offset)
        unindexed_bytes = self._bytes_since_last_index_entry
        if unindexed_bytes > self._index_interval_bytes:
            self.indexes.append(last_offset, position, greatest)
            unindexed_bytes = 0
        self._bytes_since_last_index_entry = unindexed_bytes + len(data)

    def _note_batches(self, position: int, size_bytes: int, columns: BatchColumns) -> None:
        """Each batch may get an entry (T1): those that are due are looked for, the others are not looked at."""
        entries = IndexEntries()
        self._max_timestamp, counted_from = entries.find_due(
            columns,
            position=position,
            unindexed_bytes=self._bytes_since_last_index_entry,
            interval_bytes=self._index_interval_bytes,
            greatest=self.max_timestamp,
        )
        if entries.offsets:
            self.indexes.append_all(entries)
        self._bytes_since_last_index_entry = size_bytes - counted_from

    def note_aborted(self, transaction: AbortedTransaction) -> None:
        """Append `transaction`, whose abort marker is in this segment, to the index. Kafka: updateTxnIndex."""
        self.indexes.transactions.append(transaction)

    def has_room_for(
        self,
        size_bytes: int,
        last_offset: int,
        max_timestamp: int,
        max_segment_bytes: int,
        max_segment_ms: int,
    ) -> bool:
        """Whether one look tells that the next set fits here; where it does not, `should_roll` has to be asked."""
        first = self._first_batch_timestamp
        offset_index, time_index = self.indexes.lazy_offset.index, self.indexes.lazy_time.index
        return (
            first is not None
            and first >= 0
            and max_timestamp - first <= max_segment_ms - self._roll_jitter_ms
            and self.records.size_bytes <= max_segment_bytes - size_bytes
            and 0 <= last_offset - self.base_offset <= MAX_RELATIVE_OFFSET
            and offset_index is not None
            and not offset_index.is_full
            and time_index is not None
            and not time_index.is_full
        )

    def should_roll(
        self,
        *,
        messages_size: int,
        max_timestamp: int,
        max_offset: int,
        now_ms: int,
        max_segment_bytes: int,
        max_segment_ms: int,
    ) -> bool:
        """Whether the next set must begin a segment of its own: by size, age, full index or offset (LS4)."""
        size = self.records.size_bytes
        if size > max_segment_bytes - messages_size or not self.can_hold(max_offset):
            return True
        most_ms = max_segment_ms - self._roll_jitter_ms
        if size > 0 and self.time_waited_for_roll(now_ms, max_timestamp) > most_ms:
            return True
        return self.indexes.are_full

    def time_waited_for_roll(self, now_ms: int, message_timestamp: int) -> int:
        """Time of the messages where they carry one, else of the clock since this object was made (LS5)."""
        first = self._first_batch_timestamp
        if first is None:
            first = self.first_batch_timestamp
        if first is not None and first >= 0:
            return message_timestamp - first
        return now_ms - self._created_ms

    @property
    def first_batch_timestamp(self) -> int | None:
        """The first batch's greatest timestamp; None in an empty segment."""
        if self._first_batch_timestamp is None:
            batch = next(iter(self.records.batches()), None)
            if batch is not None:
                self._first_batch_timestamp = batch.max_timestamp
        return self._first_batch_timestamp

    def on_become_inactive(self) -> None:
        """Full: the last time entry goes in, the unused tails go (LS14)."""
        self.indexes.append_last_time_entry(self.max_timestamp)
        self.indexes.trim()
        self.records.trim()

    # Read

    def translate_offset(self, offset: int, start_position: int = 0) -> LogOffsetPosition | None:
        """The first batch whose last offset is at least `offset`; None when there is none (LS7)."""
        indexed = self.indexes.lazy_offset.get().lookup(offset)
        return self.records.search_for_offset_with_size(offset, max(indexed.position, start_position))

    def read(
        self,
        start_offset: int,
        max_size: int,
        max_position: int | None = None,
        min_one_message: bool = False,
    ) -> FetchData | None:
        """Bytes from the batch that holds `start_offset`, at most `max_size` and not beyond `max_position`.

        `max_position` of None stands for a bound whose place here is unknown: no bytes. With `min_one_message`
        the first batch comes whole even above `max_size`. None when the segment ends below `start_offset`.
        ValueError for a negative size (LS8).
        """
        if max_size < 0:
            raise ValueError(f"a read of {max_size} bytes from {self.path}")
        found = self.translate_offset(start_offset)
        if found is None:
            return None
        place = LogOffsetMetadata(found.base_offset, self.base_offset, found.position)
        adjusted = max(max_size, found.size_bytes) if min_one_message else max_size
        if adjusted == 0 or max_position is None:
            return FetchData(offset_metadata=place)
        fetch_size = min(max_position - found.position, adjusted)
        return FetchData(
            offset_metadata=place,
            records=self.records.read_slice(found.position, max(fetch_size, 0)),
            first_entry_incomplete=adjusted < found.size_bytes,
        )

    def read_next_offset(self) -> int:
        """One above the last offset, found from the last index entry on; the base offset when empty (LS9)."""
        found = self.translate_offset(self.offset_index.last_offset)
        last = None if found is None else self.records.last_batch(found.position)
        return self.base_offset if last is None else last.next_offset

    def find_offset_by_timestamp(self, timestamp: int, start_offset: int) -> TimestampAndOffset | None:
        """The first record at least as late as `timestamp`, from `start_offset` on (LS18)."""
        from_offset = max(self.time_index.lookup(timestamp).offset, start_offset)
        position = self.offset_index.lookup(from_offset).position
        return self.records.search_for_timestamp(timestamp, position, start_offset)

    def fetch_upper_bound_offset(self, position: int, size: int) -> int | None:
        """An offset behind all of `size` bytes at `position`; None when the index has none (IX19).

        Where they end at the very first entry it is the second: Kafka's search never looks whether it hit that one.
        """
        index, end = self.offset_index, position + size
        entry = index.fetch_upper_bound_offset(OffsetPosition(0, position), size)
        if entry is not None and entry.position == end and entry == index.entry(0):
            entry = index.entry(1) if index.entries > 1 else None
        return None if entry is None else entry.offset

    def collect_aborted(self, fetch_offset: int, upper_bound_offset: int) -> AbortedTransactions:
        """Those of this segment that reach into [fetch_offset, upper_bound_offset) (IX29)."""
        return self.indexes.transactions.collect(fetch_offset, upper_bound_offset)

    def find_max_timestamp(self) -> TimestampAndOffset | None:
        """The first record that has the segment's greatest timestamp; none in an empty segment (RD8)."""
        latest = self.max_timestamp
        position = self.offset_index.lookup(latest.offset).position
        for batch in self.records.batches(position):
            if batch.max_timestamp == latest.timestamp:
                return _first_record_at(batch, latest.timestamp)
        return None

    # Truncate

    def truncate_to(self, offset: int, now_ms: int) -> int:
        """Remove the batch that holds `offset`, whole, and all behind it; gives the bytes removed (LS13).

        Beyond the end nothing is removed, though the indexes return to full size and the interval counter
        restarts.
        """
        found = self.translate_offset(offset)
        self.indexes.truncate_to(offset)
        removed_bytes = 0 if found is None else self.cut_records(found.position)
        if self.records.size_bytes == 0:
            self._created_ms = now_ms
            self._first_batch_timestamp = None
        self._bytes_since_last_index_entry = 0
        if self.max_timestamp.timestamp >= 0:
            self._max_timestamp = self._read_largest_timestamp()
        return removed_bytes

    def cut_records(self, position: int) -> int:
        """Truncate the `.log`, durably: gives the bytes removed.

        Kafka leaves the sync out. Then a power loss may bring old blocks back between those of later appends,
        and sound batches of two histories would stand in one file.
        """
        removed_bytes = self.records.truncate_to(position)
        if removed_bytes > 0:
            self.records.flush()
        return removed_bytes

    def _read_largest_timestamp(self) -> TimestampOffset:
        indexed = self.time_index.last_entry
        position = self.offset_index.lookup(indexed.offset).position
        found = self.records.largest_timestamp_after(position)
        if found.timestamp > indexed.timestamp:
            return TimestampOffset(found.timestamp, found.offset)
        return indexed

    def resize_indexes(self) -> None:
        """To the full size that an active segment's have."""
        self.indexes.resize()

    def reset_indexes(self) -> None:
        """Empty and of full size, the greatest timestamp forgotten: `recover` fills them anew."""
        self.indexes.reset()
        self._max_timestamp = None

    def restart(self, now_ms: int) -> None:
        """An empty segment that is to begin anew: fresh indexes, and its age counts from now (KAFKA-6388)."""
        assert self.records.size_bytes == 0, self
        self.indexes.begin_anew()
        self._max_timestamp = None
        self._created_ms = now_ms
        self._first_batch_timestamp = None
        self._bytes_since_last_index_entry = 0

    def note_recovered(self, max_timestamp: TimestampOffset) -> None:
        """The `.log` was walked to its end: finish the indexes, as at the end of LogSegment.recover (LS10).

        Raises InvalidOffset where the batch of the greatest timestamp lies below the last index entry.
        """
        self._max_timestamp = max_timestamp
        self.offset_index.trim_to_valid_size()
        last = self.time_index.last_entry
        if max_timestamp.offset < last.offset:
            raise InvalidOffset(
                f"{self.path}: the greatest timestamp is at {max_timestamp.offset}, below {last.offset}"
            )
        self.indexes.append_last_time_entry(max_timestamp)
        self.time_index.trim_to_valid_size()
        self._bytes_since_last_index_entry = 0

    # Files

    def has_offset_index_file(self) -> bool:
        return self._file_system.exists(self.offset_index_path)

    def has_time_index_file(self) -> bool:
        return self._file_system.exists(self.time_index_path)

    def sanity_check(self) -> None:
        """Raises CorruptIndex. The offset and the time index are trusted (LS17)."""
        self.indexes.transactions.sanity_check()

    def flush(self) -> None:
        """Log, offset index, time index, transaction index, in that order (LS16)."""
        self.records.flush()
        self.indexes.flush()

    def close(self) -> None:
        """In order: the last time entry if the maximum is known, then trimmed and synced files (LS15)."""
        if self._max_timestamp is not None:
            self.indexes.append_last_time_entry(self._max_timestamp)
        self.indexes.close()
        self.records.close()

    def close_handlers(self) -> None:
        """Without trim or sync, as a crash would."""
        self.indexes.close_handlers()
        self.records.close_handlers()

    def change_file_suffixes(self, old_suffix: str, new_suffix: str) -> None:
        """Rename its files: `old_suffix` behind the names goes, `new_suffix` comes (LS24). Nothing is synced.

        An index file that was never made is no error, a missing `.log` is. ValueError, with nothing renamed, where a
        name does not end in `old_suffix`.
        """
        self.records.rename_to(with_suffix(self.path, LOG_SUFFIX + old_suffix, LOG_SUFFIX + new_suffix))
        self.indexes.change_suffix(old_suffix, new_suffix)

    def update_parent_directory(self, directory: str) -> None:
        """The directory was renamed: only the remembered paths change."""
        self.directory = directory
        self.records.update_parent_directory(directory)
        self.indexes.update_parent_directory(directory)

    def set_modified(self, modified_ms: int) -> None:
        """Of the `.log` and of both indexes; retention and compaction read it where records carry no time (LS23)."""
        self.records.set_modified(modified_ms)
        for path in (self.offset_index_path, self.time_index_path):
            if self._file_system.exists(path):
                self._file_system.set_modified(path, modified_ms)

    def delete(self) -> None:
        """Close and unlink the files; one that is missing is no error (LS22).

        A `-future` directory may have taken its live name while they waited to be deleted: then they are there.
        """
        self._is_deleted = True
        missing = [] if self.records.delete_if_exists() else [self.path]
        for path in missing + self.indexes.delete():
            moved = deleted_path_in_live_directory(path)
            if moved is not None:
                with suppress(FileNotFoundError):
                    self._file_system.unlink(moved)

    def __repr__(self) -> str:
        return f"LogSegment({self.path}, size_bytes={self.size_bytes})"


def _first_record_at(batch: RecordBatch, timestamp: int) -> TimestampAndOffset | None:
    epoch = batch.partition_leader_epoch
    for record in batch.records():
        if record.timestamp == timestamp:
            return TimestampAndOffset(
                timestamp=timestamp, offset=record.offset, leader_epoch=epoch if epoch >= 0 else None
            )
    return None


def _draw_jitter(config: LogConfig, draws: Draws | None, base_offset: int) -> int:
    """So that the segments of many partitions do not all roll at once (LS6)."""
    bound = min(config.segment_jitter_ms, config.segment_ms)
    if draws is None or bound == 0:
        return 0
    return draws.below(bound, "segment-jitter", base_offset)
