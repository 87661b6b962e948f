"""The three indexes of one segment, and what is done with them together.

An index says where to look; the `.log` alone is the truth. An index that contradicts the `.log` is emptied, an entry
that does so or that finds no room is left out, and neither stops an append, a roll or a close. Kafka: LogSegment, which
has them; rules LS1, LS13 to LS16.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import final

from storage.disk.filesystem import FileSystem, join
from storage.disk.handle_pool import OUT_OF_HANDLES
from storage.errors import InvalidOffset, StorageError
from storage.index.due_entries import IndexEntries
from storage.index.lazy import LazyIndex, lazy_offset_index, lazy_time_index
from storage.index.offset_index import OffsetIndex
from storage.index.time_index import TimeIndex, TimestampOffset
from storage.index.transaction_index import TransactionIndex
from storage.segment.names import INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX, offset_name

logger = logging.getLogger(__name__)


@final
class SegmentIndexes:
    """The offset, time and transaction index of one segment.

    `max_bytes` is the size of the offset index, and of the time index, in an active segment; in a full one both are
    trimmed.
    """

    __slots__ = ("_max_bytes", "lazy_offset", "lazy_time", "may_lack_times", "transactions")

    def __init__(
        self, file_system: FileSystem, directory: str, base_offset: int, *, max_bytes: int, suffix: str = ""
    ) -> None:
        def path(kind: str) -> str:
            return join(directory, offset_name(base_offset) + kind + suffix)

        self._max_bytes = max_bytes
        self.lazy_offset: LazyIndex[OffsetIndex] = lazy_offset_index(
            file_system, path(INDEX_SUFFIX), base_offset, max_index_size=max_bytes
        )
        self.lazy_time: LazyIndex[TimeIndex] = lazy_time_index(
            file_system, path(TIME_INDEX_SUFFIX), base_offset, max_index_size=max_bytes
        )
        self.transactions = TransactionIndex(file_system, path(TRANSACTION_INDEX_SUFFIX), base_offset)
        # Whether an entry was left out of the time index, which an entry of the offset index would lead to expect.
        self.may_lack_times = False

    @property
    def offset(self) -> OffsetIndex:
        """The offset index, opened at the first use, and created when missing."""
        return self.lazy_offset.get()

    @property
    def time(self) -> TimeIndex:
        """The time index, opened at the first use, and created when missing."""
        return self.lazy_time.get()

    @property
    def are_full(self) -> bool:
        """Whether the offset index or the time index is full."""
        offset_index, time_index = self.lazy_offset.index, self.lazy_time.index
        if offset_index is None or time_index is None:
            offset_index, time_index = self.offset, self.time
        return offset_index.is_full or time_index.is_full

    @property
    def may_be_too_large(self) -> bool:
        """Whether `truncate_to` may find an index too large for the size of an active segment's, and empty it."""
        return max(self.offset.size_bytes, self.time.size_bytes) > self._max_bytes

    def append_all(self, entries: IndexEntries) -> None:
        """Append the entries of one set with one write per index.

        Where an index has no room for all, or contradicts them, they are appended one by one.
        """
        offset_index, time_index = self.offset, self.time
        if 1 < len(entries) < min(offset_index.free_entries, time_index.free_entries):
            before = time_index.last_entry
            if (
                entries.offsets[0] > offset_index.last_offset
                and entries.times[0] >= before.timestamp
                and entries.time_offsets[0] >= before.offset
            ):
                try:
                    offset_index.append_all(entries.offsets, entries.positions)
                    time_index.append_all(*entries.rising_times(before.timestamp))
                except OSError as error:
                    _check_left_out(error)
                    self.may_lack_times = True
                return
        columns = entries.offsets, entries.positions, entries.times, entries.time_offsets
        for offset, position, timestamp, time_offset in zip(*columns, strict=True):
            self.append(offset, position, TimestampOffset(timestamp, time_offset))

    def append(self, last_offset: int, position: int, max_timestamp: TimestampOffset) -> None:
        """Append one entry to the offset and to the time index.

        An index that contradicts the bytes just written was damaged before a clean start, which trusts indexes (LL17).
        It is emptied: a lookup then scans from an earlier position. The append must not fail, its bytes are written.
        A full index, which is one that got full within this set, leaves the entry out: indexes are sparse, and before
        the next set the segment rolls. Kafka raises there, after the bytes are written. An index whose file cannot be
        opened, because the process has no descriptor left, misses the entry, too.
        """
        try:
            self.offset.append(last_offset, position)
        except ValueError:
            if not self.offset.is_full:
                raise
        except InvalidOffset as error:
            logger.error("offset index emptied: path=%s reason=%s", self.lazy_offset.path, error)
            self.offset.truncate()
        except OSError as error:
            _check_left_out(error)
        try:
            self.time.maybe_append(*max_timestamp)
        except OSError as error:
            _check_left_out(error)
            self.may_lack_times = True
        except (InvalidOffset, ValueError) as error:
            self.may_lack_times = True
            if not self.time.is_full:
                logger.error("time index emptied: path=%s reason=%s", self.lazy_time.path, error)
                self.time.truncate()

    def append_last_time_entry(self, last: TimestampOffset) -> None:
        """Append the last entry of a full segment, or of a log that stops, to the time index (LS15).

        If a damaged index refuses it, this is logged only: neither a roll nor a stop may fail.
        """
        index = self.time
        assert index.entries <= index.max_entries, (index.path, index.entries, index.max_entries)
        if index.entries == index.max_entries and last.timestamp > index.last_entry.timestamp:
            logger.warning("time index full, last entry left out: path=%s", index.path)
            return
        try:
            index.maybe_append(*last, skip_full_check=True)
        except (InvalidOffset, ValueError) as error:
            logger.warning("last time entry left out: path=%s reason=%s", index.path, error)
        assert index.entries <= index.max_entries, (index.path, index.entries, index.max_entries)

    def truncate_to(self, offset: int) -> None:
        """Drop the entries at `offset` and above, and restore the size that an active segment's indexes have (LS13).

        An index with more entries than fit that size, after segment.index.bytes was lowered, is emptied: a lookup then
        scans from an earlier position. Kafka's truncation fails.
        """
        self.offset.truncate_to(offset)
        self.time.truncate_to(offset)
        self.transactions.truncate_to(offset)
        for index in (self.offset, self.time):
            if index.size_bytes > self._max_bytes:
                logger.warning("index emptied: path=%s entries=%d", index.path, index.entries)
                index.truncate()
                self.may_lack_times = True
        self.resize()
        assert self.offset.size_bytes <= self._max_bytes, (self.offset.path, self.offset.size_bytes)
        assert self.time.size_bytes <= self._max_bytes, (self.time.path, self.time.size_bytes)

    def resize(self) -> None:
        """Resize the offset and the time index to the size that those of an active segment have."""
        self.offset.resize(self._max_bytes)
        self.time.resize(self._max_bytes)

    def reset(self) -> None:
        """Empty all three; the offset and the time index get the full size that they have in an active segment."""
        self.offset.reset()
        self.time.reset()
        self.transactions.reset()
        self.may_lack_times = False
        assert self.offset.entries == 0, (self.offset.path, self.offset.entries)
        assert self.time.entries == 0, (self.time.path, self.time.entries)

    def restart_empty(self) -> None:
        """Restart all three as in a new segment: there is no transaction index until a transaction aborts (IX26)."""
        self.offset.reset()
        self.time.reset()
        self.transactions.restart_empty()
        self.may_lack_times = False
        assert self.offset.entries == 0, (self.offset.path, self.offset.entries)
        assert self.time.entries == 0, (self.time.path, self.time.entries)

    def trim(self) -> None:
        self.offset.trim_to_valid_size()
        self.time.trim_to_valid_size()

    def flush(self) -> None:
        self.offset.flush()
        self.time.flush()
        self.transactions.flush()

    def close(self) -> None:
        """Trim, sync and close the indexes; one that was never opened stays as it is (IX25).

        Kafka does not sync the trimmed indexes. But the next start trusts them, and a tail of zeros that a power loss
        brought back would count as entries. All are closed, whatever fails; then the first error is raised.
        """
        close_each(
            partial(_close_index, self.lazy_offset),
            partial(_close_index, self.lazy_time),
            self.transactions.flush,
            self.transactions.close,
        )

    def rest(self) -> None:
        """Give the descriptors of the offset and the time index up until their next use."""
        for index in (self.lazy_offset.index, self.lazy_time.index):
            if index is not None:
                index.rest()

    def close_handlers(self) -> None:
        """Close without trim or sync, as a crash would."""
        self.lazy_offset.close_handler()
        self.lazy_time.close_handler()
        self.transactions.close()

    def delete(self) -> list[str]:
        """Close and delete the files. Returns the paths at which there was none, which is no error."""
        indexes = (self.lazy_offset, self.lazy_time, self.transactions)
        return [index.path for index in indexes if not index.delete_if_exists()]

    def change_suffix(self, old: str, new: str) -> None:
        """Rename the files that exist from the suffix `old` to `new` (LS24)."""
        for index in (self.lazy_offset, self.lazy_time, self.transactions):
            index.rename_to(with_suffix(index.path, old, new))

    def update_parent_directory(self, directory: str) -> None:
        """Use the new name of the directory; only the remembered paths change."""
        for index in (self.lazy_offset, self.lazy_time, self.transactions):
            index.update_parent_directory(directory)


def _check_left_out(error: OSError) -> None:
    """Log that an entry is left out because a file cannot be opened. Raises any other error."""
    if error.errno not in OUT_OF_HANDLES:
        raise error
    logger.warning("index entry left out: reason=%s", error)


def _close_index(index: LazyIndex[OffsetIndex] | LazyIndex[TimeIndex]) -> None:
    try:
        if index.is_open:
            index.get().trim_to_valid_size()
            index.get().flush()
        index.close()
    except BaseException:
        index.close_handler()
        raise


def close_each(*steps: Callable[[], None]) -> None:
    """Run every step, whatever fails. Errors are logged, then the first one is raised.

    Kafka only logs them (LS15). But then an orderly stop would leave its mark, and the next start would trust files
    that were not trimmed or not synced.
    """
    first: Exception | None = None
    for step in steps:
        try:
            step()
        except (OSError, StorageError) as error:
            logger.error("file not closed in order: reason=%s", error)
            first = first or error
    if first is not None:
        raise first


def with_suffix(path: str, old: str, new: str) -> str:
    """`path` with `new` in place of `old` at its end. Raises ValueError when it does not end in `old` (LS24)."""
    if not path.endswith(old):
        raise ValueError(f"{path} does not end in {old!r}")
    return path[: len(path) - len(old)] + new
