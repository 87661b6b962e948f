"""One segment of a log: a `.log` file of record batches and its indexes (`indexes.py`).

The indexes say where to look; the `.log` alone is the truth: recovery (`storage/recovery/walk.py`) builds the indexes
from it. Kafka: LogSegment; rules LS1 to LS20.
"""

from __future__ import annotations

from contextlib import suppress
from typing import final

from storage.batch.columns import BatchColumns
from storage.codec.buffer import Buffer
from storage.config import LogConfig
from storage.disk.filesystem import FileSystem
from storage.draws import Draws
from storage.errors import InvalidOffset, SegmentOffsetOverflow, StorageError
from storage.index.due_entries import IndexEntries
from storage.index.memory_mapped import MAX_RELATIVE_OFFSET
from storage.index.offset_index import OffsetIndex
from storage.index.time_index import TimeIndex, TimestampOffset
from storage.index.transaction_index import AbortedTransaction, AbortedTransactions, TransactionIndex
from storage.segment.batch_frames import columns_of
from storage.segment.fetch_data import FetchData
from storage.segment.file_records import SEARCHED_A_STEP, FileRecords, LogOffsetPosition, TimestampAndOffset
from storage.segment.indexes import SegmentIndexes, close_each, with_suffix
from storage.segment.names import (
    DELETED_SUFFIX,
    LOG_SUFFIX,
    deleted_path_in_live_directory,
    log_path,
)
from storage.segment.place import LogOffsetMetadata


@final
class LogSegment:
    """One segment. The offsets of its batches are in [base_offset, base_offset + 2^31); it has one writer.

    `created_ms` and the bytes since the last index entry are kept in memory only: a segment that is opened again
    counts from 0 (LS2).
    """

    __slots__ = (
        "_bytes_since_last_index_entry",
        "_created_ms",
        "_file_system",
        "_first_batch_timestamp",
        "_has_index_room",
        "_has_true_max",
        "_index_interval_bytes",
        "_is_deleted",
        "_max_timestamp",
        "_most_before_cut_ms",
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
            file_system, directory, base_offset, max_bytes=config.index_bytes, suffix=suffix
        )
        self._index_interval_bytes = config.index_interval_bytes
        self._roll_jitter_ms = _draw_jitter(config, draws, base_offset)
        self._created_ms = now_ms
        self._bytes_since_last_index_entry = 0
        self._first_batch_timestamp: int | None = None
        self._max_timestamp: TimestampOffset | None = None
        # Whether no batch has a greater timestamp: all were seen. A time index that was read says less.
        self._has_true_max = self.records.size_bytes == 0
        # What the time index had as the greatest timestamp before a cut forgot it; -1 if no cut did.
        self._most_before_cut_ms = -1
        # Whether the indexes were not full when they were last looked at; only an append makes them fuller, and a trim.
        self._has_index_room = False
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
        """Open the segment based at `base_offset`; its files are created when missing.

        With `file_already_exists` the bytes up to the file's end are records, not a preallocated tail. `suffix` is
        appended to the files' names; `draws` decide the jitter of the roll (LS6). Raises OSError.
        """
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

    @property
    def size_bytes(self) -> int:
        return self.records.size_bytes

    @property
    def path(self) -> str:
        return self.records.path

    @property
    def offset_index(self) -> OffsetIndex:
        """The offset index, which is opened, and created when missing, at the first use."""
        return self.indexes.offset

    @property
    def time_index(self) -> TimeIndex:
        """The time index, which is opened, and created when missing, at the first use."""
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

    def is_gone(self, error: OSError) -> bool:
        """Whether the segment has left the log, and `error` is of files that are not there any more.

        They are deleted; or they wait for that, and another segment of this base offset, which left later, has taken
        their names: a compaction replaced this one, then retention deleted the one in its place.
        """
        return isinstance(error, FileNotFoundError) and (
            self._is_deleted or self.path.endswith(DELETED_SUFFIX)
        )

    @property
    def max_timestamp(self) -> TimestampOffset:
        """The greatest timestamp and the last offset of the earliest batch that has it.

        It is read from the time index's last entry when it is first asked for: a segment that was closed in order has
        its true maximum there (LS3).
        """
        if self._max_timestamp is None:
            self._max_timestamp = self.time_index.last_entry
        return self._max_timestamp

    @property
    def is_max_timestamp_known(self) -> bool:
        """Whether `max_timestamp` is known without a look at the time index."""
        return self._max_timestamp is not None

    @property
    def largest_timestamp_ms(self) -> int:
        """The greatest timestamp; without one the time when the file was last modified (LS19)."""
        timestamp = self.max_timestamp.timestamp
        return timestamp if timestamp >= 0 else self.records.modified_ms()

    @property
    def kept_until_ms(self) -> int:
        """The timestamp from which on retention counts the age: that of no record is greater.

        It is `largest_timestamp_ms`, unless a cut came before that was known. Kafka takes the greatest of later appends
        for it then, and may delete records before their time.
        """
        return max(self.largest_timestamp_ms, self._most_before_cut_ms)

    def can_hold(self, offset: int) -> bool:
        """Whether `offset` fits this segment: it is at most 2^31-1 above the base offset."""
        return 0 <= offset - self.base_offset <= MAX_RELATIVE_OFFSET

    def append(
        self,
        last_offset: int,
        data: Buffer,
        columns: BatchColumns | None = None,
        max_timestamp: int | None = None,
    ) -> None:
        """Write whole batches as one set, in one write (LS1).

        A batch with more than index.interval.bytes between the last index entry and its start gets an entry in each
        index. `columns` describe the batches. Without them `data` counts as one batch whose greatest timestamp is
        `max_timestamp`; without both, the frames of `data` are read. Raises SegmentOffsetOverflow, before a byte is
        written, when `last_offset` does not fit, and OSError, after which the records end where they did.
        """
        if not data:
            return
        if not 0 <= last_offset - self.base_offset <= MAX_RELATIVE_OFFSET:
            raise SegmentOffsetOverflow(self.path, self.base_offset, last_offset)
        position = self.records.append(data)
        if columns is not None or max_timestamp is None:
            columns = columns_of(memoryview(data), self.path) if columns is None else columns
            self._note_batches(position, len(data), columns)
            assert self.records.size_bytes == position + len(data), (self.records.size_bytes, position)
            return
        # The most frequent case, one batch, does the same as `_note_batches` without columns.
        greatest = self._max_timestamp
        if greatest is None:
            greatest = self.max_timestamp
        if max_timestamp > greatest[0]:
            greatest = self._max_timestamp = TimestampOffset(max_timestamp, last_offset)
        unindexed_bytes = self._bytes_since_last_index_entry
        assert unindexed_bytes >= 0, (unindexed_bytes, position)
        if unindexed_bytes > self._index_interval_bytes:
            self.indexes.append(last_offset, position, greatest)
            self._has_index_room = not self.indexes.are_full
            unindexed_bytes = 0
        self._bytes_since_last_index_entry = unindexed_bytes + len(data)

    def _note_batches(self, position: int, size_bytes: int, columns: BatchColumns) -> None:
        """Append an entry to both indexes for each batch that is due; only the due batches are visited (T1)."""
        entries = IndexEntries()
        self._max_timestamp, counted_from = entries.find_due(
            columns,
            position=position,
            unindexed_bytes=self._bytes_since_last_index_entry,
            interval_bytes=self._index_interval_bytes,
            greatest=self.max_timestamp,
        )
        assert counted_from < size_bytes, (counted_from, position, size_bytes)
        if entries.offsets:
            self.indexes.append_all(entries)
            self._has_index_room = not self.indexes.are_full
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
        """Whether the next set certainly fits into this segment. If not, `should_roll` has to be asked.

        `size_bytes`, `last_offset` and `max_timestamp` are those of the set, the limits those of the topic.
        """
        first = self._first_batch_timestamp
        return (
            self._has_index_room
            and first is not None
            and first >= 0
            and max_timestamp - first <= max_segment_ms - self._roll_jitter_ms
            and self.records.size_bytes <= max_segment_bytes - size_bytes
            and 0 <= last_offset - self.base_offset <= MAX_RELATIVE_OFFSET
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
        """Whether the next set must begin a new segment: by size, age, a full index, or its offset (LS4).

        An empty segment takes a set of any size.
        """
        size = self.records.size_bytes
        if 0 < size and size > max_segment_bytes - messages_size:
            return True
        if not self.can_hold(max_offset):
            return True
        most_ms = max_segment_ms - self._roll_jitter_ms
        if size > 0 and self.time_waited_for_roll(now_ms, max_timestamp) > most_ms:
            return True
        self._has_index_room = not self.indexes.are_full
        return not self._has_index_room

    def time_waited_for_roll(self, now_ms: int, message_timestamp: int) -> int:
        """The age that decides about a roll, in milliseconds (LS5).

        It is the time from the first batch to the message, if the first batch has a timestamp; else the time since
        this object was made.
        """
        first = self._first_batch_timestamp
        if first is None:
            first = self.first_batch_timestamp
        if first is not None and first >= 0:
            return message_timestamp - first
        return now_ms - self._created_ms

    @property
    def first_batch_timestamp(self) -> int | None:
        """The greatest timestamp of the first batch (LS5), read from the file when it is first asked for; None in an
        empty segment.
        """
        if self._first_batch_timestamp is None:
            batch = self.records.first_batch()
            if batch is not None:
                self._first_batch_timestamp = batch.max_timestamp
        return self._first_batch_timestamp

    def on_become_inactive(self) -> None:
        """Finish the files of a segment that will take no more appends (LS14).

        The time index gets its last entry; the unused ends of all three files are cut off.
        """
        assert not self._is_deleted, self.path
        # A roll may fail after this, and the segment stay active: its next append rolls first.
        self._has_index_room = False
        self.indexes.append_last_time_entry(self.max_timestamp)
        self.indexes.trim()
        self.records.trim()
        # A clean start takes each slot for an entry.
        assert self.time_index.free_entries == 0, (self.path, self.time_index.free_entries)

    def translate_offset(
        self,
        offset: int,
        start_position: int = 0,
        *,
        a_step: int = SEARCHED_A_STEP,
        in_step: bool = False,
    ) -> LogOffsetPosition | None:
        """The first batch whose last offset is at least `offset`; None when there is none (LS7).

        Raises TruncatedWhileRead, StorageError, OSError; `in_step` ReadGoesOn for a search over more than `a_step`
        batches.
        """
        records = self.records
        cuts = records.cuts
        try:
            indexed = self.indexes.lazy_offset.get().lookup(offset)
            start = max(indexed.position, start_position)
            found = records.search_for_offset_with_size(offset, start, a_step, in_step=in_step)
        except StorageError:
            records.check_uncut(cuts)
            raise
        if records.cuts != cuts:
            records.check_uncut(cuts)
        return found

    def indexed_position(self, offset: int) -> int:
        """The position from which the batch that holds `offset` is searched, by the offset index.

        A negative one shows a damaged index: then it is the start of the segment. A read there would fail as if the
        disk had.
        """
        return max(self.offset_index.lookup(offset).position, 0)

    def read(
        self,
        start_offset: int,
        max_size: int,
        max_position: int | None = None,
        min_one_message: bool = False,
        *,
        a_step: int = SEARCHED_A_STEP,
        in_step: bool = False,
    ) -> FetchData | None:
        """The bytes from the batch that holds `start_offset`: at most `max_size`, up to `max_position` (exclusive).

        A `max_position` of None stands for a bound whose place in this segment is unknown: no bytes are returned then.
        With `min_one_message` the first batch is returned whole even above `max_size`. Returns None when the segment
        ends below `start_offset`. Raises ValueError for a negative size (LS8), TruncatedWhileRead, OSError; `in_step`
        ReadGoesOn for a search over more than `a_step` batches.
        """
        if max_size < 0:
            raise ValueError(f"{self.path}: cannot read {max_size} bytes: the size must not be negative")
        records = self.records
        cuts = records.cuts
        found = self.translate_offset(start_offset, a_step=a_step, in_step=in_step)
        if found is None:
            return None
        place = LogOffsetMetadata(found.base_offset, self.base_offset, found.position)
        adjusted = max(max_size, found.size_bytes) if min_one_message else max_size
        if adjusted == 0 or max_position is None:
            return FetchData(offset_metadata=place)
        fetch_size = min(max_position - found.position, adjusted)
        try:
            data = records.read_slice(found.position, max(fetch_size, 0))
        except (StorageError, ValueError):
            records.check_uncut(cuts)
            raise
        # The batch was looked up first and read afterwards: a truncation between puts other bytes at its place.
        if records.cuts != cuts:
            records.check_uncut(cuts)
        return FetchData(
            offset_metadata=place, records=data, first_entry_incomplete=adjusted < found.size_bytes
        )

    def collect_aborted(self, fetch_offset: int, upper_bound_offset: int) -> AbortedTransactions:
        """The aborted transactions of this segment that reach into [fetch_offset, upper_bound_offset) (IX29)."""
        return self.indexes.transactions.collect(fetch_offset, upper_bound_offset)

    def unseen_from(self, offset: int) -> int | None:
        """The position from which `truncate_to(offset)` looks at each batch that stays, for the greatest timestamp.

        None where it looks at none, or only at those since the last index entry. Raises StorageError, OSError.
        """
        if self._has_true_max and not self.indexes.may_lack_times:
            return None
        indexed = self.time_index.last_before(offset)
        # The cut reads it from the index if it is not known; so it stays unknown here.
        known = indexed if self._max_timestamp is None else self._max_timestamp
        if known.timestamp < 0:
            return None
        # A cut that empties an index looks at all batches.
        return 0 if self.indexes.may_be_too_large else self.indexed_position(indexed.offset)

    def truncate_to(self, offset: int, now_ms: int, kept: TimestampAndOffset | None = None) -> int:
        """Remove the batch that holds `offset`, whole, and all after it. Returns the bytes removed (LS13).

        Beyond the end nothing is removed; the indexes get their full size and the interval counter restarts all the
        same. `kept` is the greatest timestamp from `unseen_from` on, if somebody has looked before. Raises OSError.
        """
        found = self.translate_offset(offset)
        assert found is None or found.position < self.records.size_bytes, (self.records.size_bytes, found)
        if self._max_timestamp is None:
            self._most_before_cut_ms = max(self._most_before_cut_ms, self.time_index.last_entry.timestamp)
        self.indexes.truncate_to(offset)
        removed_bytes = 0 if found is None else self.cut_records(found.position)
        if self.records.size_bytes == 0:
            self._created_ms, self._most_before_cut_ms = now_ms, -1
            self._first_batch_timestamp = None
        self._bytes_since_last_index_entry = 0
        known, indexed = self.max_timestamp, self.time_index.last_entry
        # Nothing is above what nothing was above before the cut. Where all timestamps are equal, the index has a single
        # entry, and all batches would be read.
        if self._has_true_max and known.timestamp == indexed.timestamp >= 0:
            self._max_timestamp = indexed
        elif known.timestamp >= 0:
            self._max_timestamp = self._read_largest_timestamp(offset, kept)
        assert found is None or self.records.size_bytes == found.position, (self.records.size_bytes, found)
        return removed_bytes

    def cut_records(self, position: int) -> int:
        """Truncate the `.log` to `position` bytes, durably. Returns the bytes removed. Raises OSError.

        Kafka leaves the sync out. Then a power loss may bring old blocks back between those of later appends, and
        one file holds sound batches of two histories.
        """
        removed_bytes = self.records.truncate_to(position)
        if removed_bytes > 0:
            self.records.flush()
        assert self.records.size_bytes == position, (self.path, self.records.size_bytes, position)
        return removed_bytes

    def _read_largest_timestamp(self, end_offset: int, kept: TimestampAndOffset | None) -> TimestampOffset:
        """The greatest timestamp of a segment that was just cut to `end_offset`."""
        indexed = self.time_index.last_entry
        # With each entry of the offset index the time index gets the greatest timestamp so far, if it has risen. So
        # only the batches from the last entry on are read: where timestamps were equal for long, that of the time
        # index may be far before it.
        is_indexed = self._has_true_max and not self.indexes.may_lack_times
        if kept is None:
            position = self.indexed_position(end_offset if is_indexed else indexed.offset)
            kept = self.records.largest_timestamp_after(position)
        if kept.timestamp > indexed.timestamp:
            return TimestampOffset(kept.timestamp, kept.offset)
        return indexed

    def resize_indexes(self) -> None:
        """Resize both indexes to the full size that they have in an active segment."""
        self.indexes.resize()

    def reset_indexes(self) -> None:
        """Empty both indexes, restore their full size, and forget the greatest timestamp: recovery fills them again."""
        self.indexes.reset()
        self._max_timestamp = None

    def restart(self, now_ms: int) -> None:
        """Restart an empty segment with new indexes and an age that counts from now (KAFKA-6388)."""
        assert self.records.size_bytes == 0, self
        self.indexes.restart_empty()
        self._max_timestamp, self._has_true_max = None, True
        self._created_ms = now_ms
        self._first_batch_timestamp = None
        self._bytes_since_last_index_entry = 0
        assert self.time_index.last_entry.timestamp < 0, (self.path, self.time_index.last_entry)

    def note_recovered(self, max_timestamp: TimestampOffset) -> None:
        """Finish the indexes after recovery has walked the `.log` to its end (LS10).

        Raises InvalidOffset if the batch of the greatest timestamp is below the last entry of the time index.
        """
        assert self.can_hold(max_timestamp.offset), (self.path, max_timestamp)
        self._max_timestamp, self._has_true_max = max_timestamp, True
        self.offset_index.trim_to_valid_size()
        last = self.time_index.last_entry
        if max_timestamp.offset < last.offset:
            raise InvalidOffset(
                f"{self.path}: the greatest timestamp is at offset {max_timestamp.offset}, "
                f"below the offset {last.offset} of the last time entry"
            )
        self.indexes.append_last_time_entry(max_timestamp)
        self.time_index.trim_to_valid_size()
        self._bytes_since_last_index_entry = 0
        # The next start takes each slot for an entry.
        assert self.time_index.free_entries == 0, (self.path, self.time_index.free_entries)

    def sanity_check(self) -> None:
        """Check the transaction index; the offset and the time index are trusted (LS17). Raises CorruptIndex."""
        self.indexes.transactions.sanity_check()

    def flush(self) -> None:
        """Sync the log, the offset index, the time index and the transaction index, in that order (LS16)."""
        self.records.flush()
        self.indexes.flush()

    def close(self) -> None:
        """Append the last time entry if the greatest timestamp is known, then sync, trim and close the files (LS15).

        All files are closed, whatever fails; then the first error is raised.
        """
        close_each(self._append_last_time_entry, self.indexes.close, self._close_records)

    def _append_last_time_entry(self) -> None:
        if self._max_timestamp is not None:
            self.indexes.append_last_time_entry(self._max_timestamp)

    def _close_records(self) -> None:
        try:
            self.records.close()
        except BaseException:
            self.records.close_handlers()
            raise

    def rest(self) -> None:
        """Give the descriptors up until the next use, those of files without bytes that wait for a sync."""
        self.records.rest()
        self.indexes.rest()

    def close_handlers(self) -> None:
        """Close the files without a trim and without a sync, as a crash would."""
        self.indexes.close_handlers()
        self.records.close_handlers()

    def change_file_suffixes(self, old_suffix: str, new_suffix: str) -> None:
        """Rename the files: `new_suffix` takes the place of `old_suffix` at the end of each name (LS24).

        Nothing is synced. An index file that was never made is no error, a missing `.log` is. Raises ValueError, with
        nothing renamed, if a name does not end in `old_suffix`.
        """
        assert old_suffix != new_suffix, (self.path, old_suffix)
        self.records.rename_to(with_suffix(self.path, LOG_SUFFIX + old_suffix, LOG_SUFFIX + new_suffix))
        self.indexes.change_suffix(old_suffix, new_suffix)
        # An index that kept its name would be taken for that of another segment.
        assert self.offset_index_path.endswith(new_suffix), (self.offset_index_path, new_suffix)

    def update_parent_directory(self, directory: str) -> None:
        """Take over the new name of the directory; only the remembered paths change."""
        self.directory = directory
        self.records.update_parent_directory(directory)
        self.indexes.update_parent_directory(directory)

    def set_modified(self, modified_ms: int) -> None:
        """Set the modification time of the `.log` and of both indexes.

        Retention and compaction read it where records have no timestamp (LS23).
        """
        self.records.set_modified(modified_ms)
        for path in (self.offset_index_path, self.time_index_path):
            if self._file_system.exists(path):
                self._file_system.set_modified(path, modified_ms)

    def delete(self) -> None:
        """Close and unlink the files; one that is missing is no error (LS22).

        If the directory was a `-future` one and has got its live name meanwhile, the files are looked for there.
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


def _draw_jitter(config: LogConfig, draws: Draws | None, base_offset: int) -> int:
    """Draw the time by which this segment rolls earlier, so that many partitions do not roll at once (LS6)."""
    bound = min(config.segment_jitter_ms, config.segment_ms)
    if draws is None or bound == 0:
        return 0
    return draws.below(bound, "segment-jitter", base_offset)
