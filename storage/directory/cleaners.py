"""The choice of the log that is cleaned next in a log directory, and the offset up to which each log is cleaned.

The file `cleaner-offset-checkpoint` holds the first dirty offset of each log. Everything here happens on the thread
that owns the logs; the work of a round runs elsewhere. Kafka: LogCleanerManager; rules CL1, CL4, CL6, CL28, RT16.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, final

from storage.disk.checkpoints import OffsetCheckpoint
from storage.disk.filesystem import FileSystem, join
from storage.disk.handle_pool import is_out_of_handles
from storage.disk.lack import refusing_lack
from storage.errors import CorruptCheckpoint, OutOfHandles, StorageError
from storage.log.compaction import CleanableOffsets, LogToClean
from storage.log.partition_log import PartitionLog

logger = logging.getLogger(__name__)

CLEANER_CHECKPOINT: Final = "cleaner-offset-checkpoint"

# A topic and a partition of it.
Key = tuple[str, int]


def key_of(log: PartitionLog) -> Key:
    return log.topic, log.partition


class Candidate(NamedTuple):
    """A log that may be cleaned, its cleanable offsets, and how dirty it is."""

    log: PartitionLog
    offsets: CleanableOffsets
    filth: LogToClean


@final
class _State:
    """The state of a log that is being cleaned, or must not be. `pauses` counts the callers that paused it."""

    __slots__ = ("is_aborted", "is_running", "pauses")

    def __init__(self) -> None:
        self.is_running = self.is_aborted = False
        self.pauses = 0


@final
class CleanerManager:
    """Chooses the logs of `directory` that are cleaned.

    `logs` is the log manager's own mapping, to which logs are added later; only those that are wanted are cleaned.
    """

    def __init__(
        self,
        file_system: FileSystem,
        directory: str,
        logs: Mapping[str, PartitionLog],
        is_wanted: Callable[[PartitionLog], bool] = lambda log: True,
    ) -> None:
        self._file = OffsetCheckpoint(file_system, join(directory, CLEANER_CHECKPOINT))
        self._logs, self._is_wanted = logs, is_wanted
        # Whether the file lacks the last change, because it could not be opened; `find_filthiest` writes it then.
        self._is_file_behind = False
        self._states: dict[Key, _State] = {}
        self._uncleanable: set[Key] = set()
        try:
            self._checkpoints = self._file.read()
        # All logs count as dirty then: more is read than necessary, and nothing is lost.
        except (CorruptCheckpoint, OSError) as error:
            logger.error("checkpoint ignored: reason=%s", error)
            self._checkpoints = {}

    @property
    def checkpoints(self) -> Mapping[Key, int]:
        """The first dirty offset of each log that was ever cleaned."""
        return dict(self._checkpoints)

    def grab_filthiest(self, now_ms: int) -> Candidate | None:
        """Find what `find_filthiest` returns and mark it as being cleaned."""
        filthiest = self.find_filthiest(now_ms)
        if filthiest is not None:
            self.grab(filthiest)
        return filthiest

    def grab(self, candidate: Candidate) -> None:
        """Mark the log as being cleaned; `done_cleaning` ends that."""
        state = self._state(key_of(candidate.log))
        assert not state.is_running, key_of(candidate.log)
        assert state.pauses == 0, (key_of(candidate.log), state.pauses)
        state.is_running = True

    def find_filthiest(self, now_ms: int) -> Candidate | None:
        """Find the log with the greatest share of dirty bytes among those that are due (CL4).

        Returns None when no log is due. A log whose offsets cannot be read is uncleanable from then on (CL6), but one
        whose file cannot be opened for want of a descriptor is passed over this time. Raises OSError when the
        checkpoint cannot be written.
        """
        if self._is_file_behind:
            self._write()
        candidates = [self._look_at(log, now_ms) for log in list(self._logs.values()) if self._may_clean(log)]
        due = [each for each in candidates if each is not None and _is_due(each)]
        if not due:
            return None
        return max(due, key=lambda each: each.filth.cleanable_ratio)

    def _may_clean(self, log: PartitionLog) -> bool:
        key = key_of(log)
        is_free = key not in self._states and key not in self._uncleanable
        return is_free and log.config.is_compacted and log.online.reason is None and self._is_wanted(log)

    def _look_at(self, log: PartitionLog, now_ms: int) -> Candidate | None:
        key = key_of(log)
        try:
            with refusing_lack(f"{log.directory} is not looked at"):
                offsets = log.compactions.cleanable_offsets(self._checkpoints.get(key), now_ms)
                filth = log.compactions.log_to_clean(offsets, now_ms)
        except OutOfHandles as error:
            logger.warning("log passed over: reason=%s", error)
            return None
        except StorageError as error:
            self.mark_uncleanable(key, error)
            return None
        if offsets.is_checkpoint_invalid:
            self._update(key, offsets.first_dirty_offset)
        return Candidate(log, offsets, filth) if filth.total_bytes > 0 else None

    def logs_to_shorten(self) -> list[PartitionLog]:
        """The compacted logs whose old segments the cleaner has to delete now (CL6).

        With the cleanup policy `compact` alone these are the segments below the log start offset.
        """
        return [log for log in self._logs.values() if self._may_clean(log)]

    def done_cleaning(self, key: Key, end_offset: int | None) -> bool:
        """End a round; `end_offset`, the next first dirty offset, is None if the round failed.

        Returns whether the round counts: not if it was aborted meanwhile. Raises OSError when the checkpoint cannot be
        written: the log is still marked as being cleaned then.
        """
        state = self._states[key]
        assert state.is_running, key
        assert end_offset is None or end_offset >= 0, (key, end_offset)
        counts = end_offset is not None and not state.is_aborted
        if counts and end_offset is not None:
            self._update(key, end_offset)
        state.is_running = state.is_aborted = False
        self._drop_if_free(key)
        assert not self.is_aborted(key), key
        return counts

    def is_aborted(self, key: Key) -> bool:
        state = self._states.get(key)
        return state is not None and state.is_aborted

    def abort(self, key: Key) -> None:
        """Note that the output of a running round must be discarded; a new round may begin when it has ended."""
        state = self._states.get(key)
        if state is not None and state.is_running:
            state.is_aborted = True

    def abort_and_pause(self, key: Key) -> None:
        """Abort a running round. No round begins until `resume` was called as often as this."""
        self.abort(key)
        self._state(key).pauses += 1

    def resume(self, key: Key) -> None:
        """Take back one `abort_and_pause`."""
        state = self._states.get(key)
        assert state is not None, f"{key} is not paused"
        assert state.pauses > 0, f"{key} is not paused"
        state.pauses -= 1
        self._drop_if_free(key)

    def _state(self, key: Key) -> _State:
        return self._states.setdefault(key, _State())

    def _drop_if_free(self, key: Key) -> None:
        state = self._states[key]
        if not state.is_running and state.pauses == 0:
            del self._states[key]

    @property
    def uncleanable(self) -> frozenset[Key]:
        return frozenset(self._uncleanable)

    def mark_uncleanable(self, key: Key, reason: Exception) -> None:
        """Exclude the log from cleaning until the next start (CL6)."""
        logger.error("log cannot be cleaned: log=%s-%d reason=%s", *key, reason)
        self._uncleanable.add(key)

    def forget(self, key: Key) -> None:
        """Forget a log that was deleted or emptied by a truncation: the next log with its name is dirty from its start.

        Raises OSError when the checkpoint cannot be written.
        """
        self._uncleanable.discard(key)
        self.abort(key)
        if key in self._checkpoints:
            self._update(key, None)
        assert key not in self._checkpoints, key

    def truncate_checkpoint(self, key: Key, offset: int) -> None:
        """Lower the checkpoint after a truncation: records written from `offset` on are dirty (RT16, KAFKA-3330).

        Raises OSError when the checkpoint cannot be written.
        """
        assert offset >= 0, (key, offset)
        if self._checkpoints.get(key, 0) > offset:
            self._update(key, offset)
        assert self._checkpoints.get(key, 0) <= offset, (key, offset)

    def _update(self, key: Key, offset: int | None) -> None:
        """Write the checkpoint with `offset` for `key`; it is durable on return, or after the next search for a log to
        clean if there is no descriptor for it.

        Logs that are no longer in the directory are left out (CL28). Raises OSError.
        """
        assert offset is None or offset >= 0, (key, offset)
        present = {key_of(log) for log in self._logs.values()}
        kept = {each: value for each, value in self._checkpoints.items() if each in present and each != key}
        self._checkpoints = kept if offset is None else {**kept, key: offset}
        self._write()
        assert self._checkpoints.get(key) == offset, (key, offset, self._checkpoints.get(key))

    def _write(self) -> None:
        self._is_file_behind = True
        try:
            self._file.write(self._checkpoints)
        except OSError as error:
            if not is_out_of_handles(error):
                raise
            logger.warning("cleaner checkpoint not written: reason=%s", error)
            return
        self._is_file_behind = False


def _is_due(candidate: Candidate) -> bool:
    """Whether a log is strictly above min.cleanable.dirty.ratio (T53), or overdue by max.compaction.lag.ms."""
    filth = candidate.filth
    is_overdue = filth.compaction_delay_ms > 0 and filth.cleanable_bytes > 0
    return is_overdue or filth.cleanable_ratio > candidate.log.config.min_cleanable_dirty_ratio
