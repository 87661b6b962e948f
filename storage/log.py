"""One partition's log: what a leader and a follower append to, what is read, truncated and recovered.

It joins the segments (`local_log.py`) with what their records mean: leader epochs, producers, the high watermark and
the log start offset. One thread owns it. Kafka: UnifiedLog.

| verb | in |
| --- | --- |
| `append_as_leader`, `append_as_follower` | `log_write.py`, checks in `log_append.py` |
| `roll`, `flush`, `prepare_flush` | `log_flush.py` |
| `read`, `offset_for_timestamp` | `log_read.py` |
| `truncate_to`, `truncate_fully_and_start_at` | `log_truncate.py` |
| `cleanable_offsets`, `prepare_compaction` | `log_compact.py` |
| high watermark, log start, epochs | `log_state.py` |
"""

from __future__ import annotations

from collections.abc import Callable
from typing import final

from storage.append_info import AppendInfo
from storage.config import LogConfig
from storage.draws import Draws
from storage.errors import StorageError, reason_of
from storage.fetch_data import FetchData, Isolation
from storage.filesystem import FileSystem, delete_log_files, dirname
from storage.load_request import LoadRequest
from storage.loader import load_log
from storage.log_compact import LogCompactions
from storage.log_flush import PreparedFlush
from storage.log_read import LogReads
from storage.log_state import do_nothing
from storage.log_write import LogAppends
from storage.offset_metadata import LogOffsetMetadata
from storage.producer_append import AppendOrigin
from storage.recovery_cut import RecoveryCut, ReportCut, ignore_cut

__all__ = [
    "AppendInfo",
    "AppendOrigin",
    "FetchData",
    "Isolation",
    "LogOffsetMetadata",
    "PartitionLog",
    "PreparedFlush",
    "RecoveryCut",
]

_NO_DRAWS = Draws(0)


@final
class PartitionLog(LogAppends, LogReads, LogCompactions):
    """`high_watermark` <= `log_end_offset`, always; offline after an OSError (`LogState`)."""

    @classmethod
    def open(
        cls,
        file_system: FileSystem,
        directory: str,
        config: LogConfig,
        *,
        log_start_offset: int = 0,
        recovery_point: int = 0,
        clean: bool,
        now_ms: int,
        draws: Draws = _NO_DRAWS,
        report: ReportCut = ignore_cut,
        recalls_batches: bool = False,
        on_recovery_point_lowered: Callable[[], None] = do_nothing,
    ) -> PartitionLog:
        """Create or load the log in `directory`, named TOPIC-PARTITION; `report` is told of every cut.

        `log_start_offset` and `recovery_point` are what the checkpoints say. `on_recovery_point_lowered` is called
        after a truncation below the recovery point: the checkpoint must go down before an append passes it again.
        With `recalls_batches` a retry of any of a producer's last five batches is known after a load or a truncation;
        without, as in Kafka, of the newest one of its snapshot and what was read behind that.
        Raises StorageError with file and place for what can be neither cut nor rebuilt.
        """
        request = LoadRequest(
            file_system=file_system,
            directory=directory,
            config=config,
            now_ms=now_ms,
            is_clean=clean,
            log_start_offset=log_start_offset,
            recovery_point=recovery_point,
            draws=draws,
            report=report,
            recalls_batches=recalls_batches,
        )
        try:
            return cls(request, load_log(request), on_recovery_point_lowered)
        except OSError as error:
            raise StorageError(f"{directory} cannot be loaded: {reason_of(error)}") from error

    def close(self, now_ms: int | None = None) -> None:
        """An orderly stop: all of it on disk, names too, with a producer snapshot at the log end (RT14).

        Raises StorageError; the log is offline then, and the next start must not be called clean.
        """
        self._begin(self._now_ms if now_ms is None else now_ms)
        # Not all: of an empty active segment the indexes may not be there yet, and the next start makes them, as after
        # Kafka's close. It takes the producers' snapshot at the log end anew then.
        self.flush(self.log_end_offset)
        try:
            self.producer_state.take_snapshot()
            self._local.close()
            # A clean start that finds no snapshot knows nobody (T45): this one's name must not get lost.
            self._file_system.sync_directory(self.directory)
        except OSError as error:
            raise self._go_offline("close", error) from error

    def close_handles(self) -> None:
        """No trim and no sync, as in a crash."""
        self._local.close_handlers()

    def delete(self) -> None:
        """Remove the segments, what lies beside them and the directory (RT13)."""
        self._local.delete_all_segments()
        self.leader_epochs.clear()
        delete_log_files(self._file_system, self.directory)

    def rename_directory(self, name: str) -> bool:
        """Whether it had another name, which is durable then; the log goes on in it, checkpoints too (RT15)."""
        parent = dirname(self.directory)
        directory = f"{parent}/{name}" if parent else name
        if directory == self.directory:
            return False
        self._check_online()
        try:
            self._file_system.rename(self.directory, directory)
            self._file_system.sync_directory(parent)
            self._file_system.sync_directory(directory)
        except OSError as error:
            raise self._go_offline("rename", error) from error
        self._local.directory = directory
        self.segments.update_parent_directory(directory)
        self.producer_state.update_parent_directory(directory)
        self.leader_epochs.update_parent_directory(directory)
        return True

    def __repr__(self) -> str:
        return f"PartitionLog({self.directory}, [{self.log_start_offset}, {self.log_end_offset}))"
