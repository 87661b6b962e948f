"""The start offset of each leader epoch in one log, by which replicas find the offset up to which they agree.

Kafka: LeaderEpochFileCache (KIP-101, KIP-279). The entries ascend strictly in epoch and in start offset. `assign` is
on disk when it returns; a truncation is on disk only after `flush`. So a crash may leave too many entries in the file,
but never too few, and start-up truncates both ends again (EP12).
"""

from __future__ import annotations

import logging
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from typing import NamedTuple, final

from storage.disk.checkpoints import LeaderEpochCheckpoint
from storage.disk.filesystem import FileSystem, basename, dirname, join
from storage.disk.handle_pool import is_out_of_handles
from storage.errors import InvalidRecord

logger = logging.getLogger(__name__)

UNDEFINED_EPOCH = -1
UNDEFINED_OFFSET = -1
UNDEFINED = (UNDEFINED_EPOCH, UNDEFINED_OFFSET)


class EpochEntry(NamedTuple):
    """A leader epoch and its first offset."""

    epoch: int
    start_offset: int


def _do_nothing() -> None:
    return


@final
class LeaderEpochCache:
    """The epochs of one log, in memory and in the checkpoint file at `path`, created empty when missing.

    `schedule` is called after a truncation, which a later `flush` must write to disk. `last_epoch` is the latest
    epoch, -1 when there is none, and `last_start` its start offset: a loop over batches compares with them and calls
    `assign` only where something changes. Raises CorruptCheckpoint from the constructor.
    """

    __slots__ = (
        "_checkpoint",
        "_epochs",
        "_file_system",
        "_is_dirty",
        "_schedule",
        "_starts",
        "last_epoch",
        "last_start",
    )

    def __init__(
        self, file_system: FileSystem, path: str, *, schedule: Callable[[], None] = _do_nothing
    ) -> None:
        self._file_system, self._schedule = file_system, schedule
        self._checkpoint = LeaderEpochCheckpoint(file_system, path)
        self._epochs: list[int] = []
        self._starts: list[int] = []
        self.last_epoch = UNDEFINED_EPOCH
        self.last_start = UNDEFINED_OFFSET
        self._is_dirty = False
        # One by one: this corrects a file whose entries are out of order (EP1).
        for epoch, start_offset in self._checkpoint.read():
            self._insert(epoch, start_offset)

    def __len__(self) -> int:
        return len(self._epochs)

    @property
    def path(self) -> str:
        return self._checkpoint.path

    def update_parent_directory(self, directory: str) -> None:
        """Use the new name of the directory: the entries are written to the file there from now on."""
        self._checkpoint = LeaderEpochCheckpoint(self._file_system, join(directory, basename(self.path)))

    @property
    def is_dirty(self) -> bool:
        """Whether `flush` has something to write."""
        return self._is_dirty

    @property
    def entries(self) -> list[EpochEntry]:
        """A copy of the entries, ascending."""
        return list(map(EpochEntry, self._epochs, self._starts))

    @property
    def latest_epoch(self) -> int | None:
        return self.last_epoch if self._epochs else None

    @property
    def latest_entry(self) -> EpochEntry | None:
        return EpochEntry(self.last_epoch, self.last_start) if self._epochs else None

    @property
    def earliest_entry(self) -> EpochEntry | None:
        return EpochEntry(self._epochs[0], self._starts[0]) if self._epochs else None

    def entry_for(self, epoch: int) -> EpochEntry | None:
        index = bisect_left(self._epochs, epoch)
        return self._entry_at(index) if index < len(self._epochs) and self._epochs[index] == epoch else None

    def previous_epoch(self, epoch: int | None = None) -> int | None:
        """The greatest epoch below `epoch` or, without `epoch`, below the latest one."""
        entry = self.previous_entry(self.last_epoch if epoch is None else epoch)
        return None if entry is None else entry.epoch

    def previous_entry(self, epoch: int) -> EpochEntry | None:
        index = bisect_left(self._epochs, epoch)
        return self._entry_at(index - 1) if index > 0 else None

    def next_epoch(self, epoch: int) -> int | None:
        index = bisect_right(self._epochs, epoch)
        return self._epochs[index] if index < len(self._epochs) else None

    def epoch_for_offset(self, offset: int) -> int | None:
        """The epoch that `offset` belongs to: the greatest whose start is at most `offset` (EP9)."""
        index = bisect_right(self._starts, offset)
        return self._epochs[index - 1] if index > 0 else None

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """The greatest known epoch that is at most `epoch`, and its end offset, exclusive (EP5, KIP-279).

        Returns UNDEFINED for an epoch above the latest one, and for -1. An epoch below all known ones is returned with
        the first start offset: no record of it is left in this log.
        """
        if epoch == UNDEFINED_EPOCH or epoch > self.last_epoch:
            return UNDEFINED
        if epoch == self.last_epoch:
            return epoch, log_end_offset
        index = bisect_right(self._epochs, epoch)
        found = self._epochs[index - 1] if index > 0 else epoch
        return found, self._starts[index]

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Add that `epoch` begins at `start_offset`; on disk when it returns. Returns whether anything changed.

        Entries that contradict this are dropped: those of this or a later epoch, and those that start at or after
        `start_offset` (EP3). Of several starts of one epoch the first is kept. Raises InvalidRecord for a negative
        epoch or offset, as a batch has that no leader has stamped; nothing has changed then. Raises OSError: the
        entries in memory have changed then, the file has the old ones or the new ones. If only a descriptor is missing,
        those in memory are the old ones: the next call writes the file again.
        """
        if epoch == self.last_epoch and start_offset >= self.last_start and epoch >= 0:
            return False
        before = self.entries
        self.note(epoch, start_offset)
        try:
            self._write()
        except OSError as error:
            if is_out_of_handles(error):
                self._drop_from(0)
                for entry in before:
                    self._insert(*entry)
            raise
        return True

    def note(self, epoch: int, start_offset: int) -> None:
        """Do what `assign` does, in memory only until `flush`. Raises InvalidRecord.

        Recovery uses it: it finds the same epochs again after a crash, and need not sync once for each of them.
        """
        if epoch < 0 or start_offset < 0:
            raise InvalidRecord(f"{self.path}: leader epoch {epoch} at offset {start_offset} is negative")
        self._insert(epoch, start_offset)
        self._is_dirty = True
        assert self.last_epoch == epoch, (self.last_epoch, epoch)
        assert self.last_start <= start_offset, (self.last_start, start_offset)

    def truncate_from_end(self, end_offset: int) -> bool:
        """Drop the epochs that start at or above `end_offset`; none if `end_offset` is negative (EP6, EP8).

        Returns whether anything changed.
        """
        if end_offset < 0 or self.last_start < end_offset:
            return False
        assert self._starts[-1] == self.last_start, (self.path, self._starts, self.last_start)
        self._drop_from(bisect_left(self._starts, end_offset))
        assert self.last_start < end_offset, (self.path, self.last_start, end_offset)
        self._note_change()
        return True

    def truncate_from_start(self, start_offset: int) -> bool:
        """Drop the epochs before the epoch of `start_offset`, which then starts at `start_offset` (EP7).

        Returns whether anything changed.
        """
        index = bisect_right(self._starts, start_offset)
        if index == 0:
            return False
        del self._epochs[: index - 1], self._starts[: index - 1]
        self._starts[0] = start_offset
        self.last_start = self._starts[-1]
        assert self.last_start >= start_offset, (self.path, self.last_start, start_offset)
        assert len(self._epochs) == len(self._starts), (self.path, self._epochs, self._starts)
        self._note_change()
        return True

    def entries_in_range(self, start_offset: int, end_offset: int) -> list[EpochEntry]:
        """The entries that would remain after a truncation from both ends; nothing changes (EP11)."""
        first = bisect_right(self._starts, start_offset) if start_offset >= 0 else 0
        entries = self.entries
        if first > 0:
            entries[:first] = [EpochEntry(entries[first - 1].epoch, start_offset)]
        return [entry for entry in entries if end_offset < 0 or entry.start_offset < end_offset]

    def clear(self) -> None:
        """Drop all entries in memory only, for a log whose files are deleted (EP10)."""
        self._drop_from(0)

    def clear_and_flush(self) -> None:
        self._drop_from(0)
        self._write()

    def flush(self) -> None:
        """Write truncations to disk, if there are any; a directory that was deleted is no error (EP6)."""
        if not self._is_dirty:
            return
        try:
            self._write()
        except FileNotFoundError:
            if self._file_system.exists(dirname(self.path)):
                raise
            logger.debug("leader epochs not flushed, directory deleted: path=%s", self.path)

    def copy_to(self, file_system: FileSystem, path: str) -> LeaderEpochCache:
        """A copy with the same entries and another file, which is not written yet. Kafka: withCheckpoint."""
        assert path != self.path, path
        copy = LeaderEpochCache(file_system, path)
        copy._epochs, copy._starts = self._epochs[:], self._starts[:]
        copy.last_epoch, copy.last_start = self.last_epoch, self.last_start
        copy._is_dirty = True
        # A change of one must not reach the other.
        assert copy._starts is not self._starts, path
        return copy

    def _entry_at(self, index: int) -> EpochEntry:
        return EpochEntry(self._epochs[index], self._starts[index])

    def _insert(self, epoch: int, start_offset: int) -> None:
        if epoch == self.last_epoch and start_offset >= self.last_start:
            return
        assert start_offset >= 0, (self.path, epoch, start_offset)
        # Both lists ascend, so the entries that contradict form a tail in each: the longer tail is dropped.
        keep = min(bisect_left(self._epochs, epoch), bisect_left(self._starts, start_offset))
        if keep < len(self._epochs):
            logger.info(
                "leader epochs dropped for epoch=%d start=%d: count=%d", epoch, start_offset, len(self) - keep
            )
        self._drop_from(keep)
        self._epochs.append(epoch)
        self._starts.append(start_offset)
        self.last_epoch, self.last_start = epoch, start_offset
        assert len(self._starts) < 2 or self._starts[-2] < start_offset, (self.path, self._starts)
        assert len(self._epochs) < 2 or self._epochs[-2] < epoch, (self.path, self._epochs)

    def _drop_from(self, index: int) -> None:
        # A negative one would count from the end.
        assert 0 <= index, (self.path, index)
        del self._epochs[index:], self._starts[index:]
        self.last_epoch = self._epochs[-1] if self._epochs else UNDEFINED_EPOCH
        self.last_start = self._starts[-1] if self._starts else UNDEFINED_OFFSET
        assert len(self._epochs) == len(self._starts), (self.path, self._epochs, self._starts)

    def _note_change(self) -> None:
        self._is_dirty = True
        self._schedule()

    def _write(self) -> None:
        assert all(a < b for a, b in zip(self._starts, self._starts[1:], strict=False)), self._starts
        self._checkpoint.write(zip(self._epochs, self._starts, strict=True))
        self._is_dirty = False
