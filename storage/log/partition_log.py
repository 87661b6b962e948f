"""One partition's log: append as leader or follower, read, truncate, recover.

It joins the segments (`local_log.py`) with what their records mean: leader epochs, producers, the high watermark and
the log start offset. Kafka: UnifiedLog.

| part | what it does |
| --- | --- |
| `appends` | append as leader and as follower, leader epochs, verification of transactions |
| `reads` | read, offsets by timestamp, end offset of an epoch |
| `marks` | log start offset, high watermark, last stable offset |
| `flushes` | roll, flush, a flush on another thread |
| `truncation` | truncate to an offset, restart empty at an offset |
| `retention` | deletion of old segments |
| `compactions` | what may be cleaned, a round of compaction |
| `local` | segments, log end, recovery point, configuration |
| `epochs`, `producers` | what the records say of leaders and of producers |
| `online` | whether the log may be used |
"""

from __future__ import annotations

from collections.abc import Callable
from typing import final

from storage.config import LogConfig
from storage.disk.filesystem import FileSystem, basename, delete_log_files, dirname
from storage.disk.lack import refusing_lack
from storage.draws import Draws
from storage.errors import StorageError, reason_of
from storage.log.appends import Appends
from storage.log.compaction import Compactions
from storage.log.flushes import Flushes
from storage.log.local_log import LocalLog
from storage.log.marks import Marks
from storage.log.online import Online
from storage.log.reads import Reads
from storage.log.retention import Retention
from storage.log.truncation import Truncation
from storage.recovery.cut import ReportCut, ignore_cut
from storage.recovery.loader import load_log
from storage.recovery.request import NO_DRAWS, LoadedLog, LoadRequest
from storage.topics import parse_directory_name


@final
class PartitionLog:
    """One partition's log: its parts, and the methods and offsets that are used most. One thread owns it.

    `append_as_leader`, `append_as_follower`, `read` and `truncate_to` are the methods `appends.as_leader`,
    `appends.as_follower`, `reads.read` and `truncation.truncate_to` themselves, bound to attributes: this saves a
    call.
    """

    __slots__ = (
        "append_as_follower",
        "append_as_leader",
        "appends",
        "compactions",
        "epochs",
        "flushes",
        "local",
        "marks",
        "online",
        "partition",
        "producers",
        "read",
        "reads",
        "recovered_bytes_removed",
        "retention",
        "topic",
        "truncate_to",
        "truncation",
    )

    def __init__(
        self,
        request: LoadRequest,
        loaded: LoadedLog,
        write_lowered_offsets: Callable[[], None] = lambda: None,
    ) -> None:
        directory = parse_directory_name(basename(request.directory))
        self.topic, self.partition = directory.topic, directory.partition
        self.recovered_bytes_removed = loaded.removed_bytes
        self.epochs, self.producers = loaded.leader_epochs, loaded.producers
        self.local = local = LocalLog(
            request.file_system,
            request.directory,
            request.config,
            request.draws,
            loaded.segments,
            log_end_offset=loaded.log_end_offset,
            recovery_point=loaded.recovery_point,
        )
        self.online = online = Online(request.directory)
        self.marks = marks = Marks(
            local, self.epochs, self.producers, online, log_start_offset=loaded.log_start_offset
        )
        self.flushes = flushes = Flushes(local, self.producers, marks, online)
        self.appends = Appends(
            local, self.epochs, self.producers, marks, flushes, online, write_lowered_offsets
        )
        self.reads = Reads(local, self.epochs, marks, online)
        self.retention = Retention(local, self.producers, marks, flushes, online)
        self.compactions = Compactions(local, self.producers, marks, self.retention.delete_files, online)
        self.truncation = Truncation(
            local,
            self.epochs,
            self.producers,
            marks,
            flushes,
            online,
            recalls_batches=request.recalls_batches,
        )
        self.append_as_leader, self.append_as_follower = self.appends.as_leader, self.appends.as_follower
        self.read, self.truncate_to = self.reads.read, self.truncation.truncate_to

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
        draws: Draws = NO_DRAWS,
        report: ReportCut = ignore_cut,
        recalls_batches: bool = False,
        write_lowered_offsets: Callable[[], None] = lambda: None,
    ) -> PartitionLog:
        """Create or load the log in `directory`, named TOPIC-PARTITION; `report` is called with every cut.

        `log_start_offset` and `recovery_point` are those of the checkpoints. `write_lowered_offsets` is called before
        the first append after a truncation that lowered the recovery point or, with `marks.are_lowered`, the log start
        offset or the high watermark: on return the checkpoints must be on disk without the old ones. It may raise
        OSError, which takes the log offline.
        With `recalls_batches` a retry of any of a producer's last five batches is recognized after a load or a
        truncation; without it, as in Kafka, only a retry of the batch in its snapshot or of a batch after the
        snapshot. Raises StorageError with file and place for what can be neither cut nor rebuilt, OutOfHandles if a
        file cannot be opened for want of a descriptor, TypeError for a directory that is no str.
        """
        if not isinstance(directory, str):
            raise TypeError(
                f"directory: expected a str, got {type(directory).__name__}: write str(directory)"
            )
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
            with refusing_lack(f"{directory} is not loaded"):
                loaded = load_log(request)
                # The load has looked at the last segment, which may not be used soon.
                loaded.segments.active.rest()
                return cls(request, loaded, write_lowered_offsets)
        except OSError as error:
            raise StorageError(f"{directory} cannot be loaded: {reason_of(error)}") from error

    @property
    def directory(self) -> str:
        """The path of its directory, named TOPIC-PARTITION."""
        return self.local.directory

    @property
    def config(self) -> LogConfig:
        """The settings of its topic."""
        return self.local.config

    @property
    def log_start_offset(self) -> int:
        """The first offset that readers may ask for."""
        return self.marks.log_start_offset

    @property
    def high_watermark(self) -> int:
        """The first offset that is not committed."""
        return self.marks.high_watermark

    @property
    def log_end_offset(self) -> int:
        """The offset of the next record."""
        return self.local.log_end_offset

    def update_config(self, config: LogConfig) -> None:
        """Use `config` from now on; the active segment keeps its jitter and its index interval until the next roll."""
        self.local.config = config
        self.appends.configure(config)
        self.producers.expire_after(config.producer_id_expiration_ms)

    def close(self) -> None:
        """Close the log in order: sync all files and names, and take a producer snapshot at the log end (RT14).

        Raises StorageError; the log is offline then, and the stop must not be marked as clean.
        """
        self.online.check()
        # Without the offset, `flush` would also sync an empty active segment, whose index files may not exist yet, as
        # an orderly stop does before (FL4). After a close alone the next start creates them, as after Kafka's.
        self.flushes.flush(self.local.log_end_offset)
        with self.online.during("close"):
            # That of the log end takes its place.
            self.flushes.drop_snapshot()
            self.producers.take_snapshot()
            self.local.close()
            # A clean start without a snapshot knows no producer (T45), so the name of this snapshot must be durable.
            self.local.file_system.sync_directory(self.local.directory)

    def close_handles(self) -> None:
        """Close the files without a trim and without a sync, as a crash does."""
        self.local.close_handlers()

    def delete(self) -> None:
        """Remove the segments, what is beside them and the directory (RT13). Raises OSError."""
        self.local.delete_all_segments()
        self.epochs.clear()
        delete_log_files(self.local.file_system, self.local.directory)

    def rename_directory(self, name: str) -> bool:
        """Rename the directory, and use it with its checkpoints from now on (RT15). Returns whether the name changed.

        The new name is durable on return. Raises StorageError; OutOfHandles, with nothing changed, if there are too few
        descriptors.
        """
        assert "/" not in name, name
        before = self.local.directory
        parent = dirname(before)
        directory = f"{parent}/{name}" if parent else name
        if directory == before:
            return False
        self.online.check()
        # A log that knows its new name only in part must not go on, whatever the error was.
        with self.local.with_descriptors(), self.online.during("rename", refuses=False):
            self._rename(before, parent, directory)
        # Files that are opened or renamed later are looked for there.
        assert dirname(self.local.segments.active.path) == directory, (self.local.segments.active, directory)
        assert dirname(self.epochs.path) == directory, (self.epochs.path, directory)
        return True

    def _rename(self, before: str, parent: str, directory: str) -> None:
        file_system = self.local.file_system
        # Before the rename: a file that rests is opened again under its name of then, also by another thread.
        self.local.segments.update_parent_directory(directory)
        file_system.rename(before, directory)
        file_system.sync_directory(parent)
        file_system.sync_directory(directory)
        self.local.directory = directory
        self.online.update_parent_directory(directory)
        self.producers.snapshots.update_parent_directory(directory)
        self.epochs.update_parent_directory(directory)

    def __repr__(self) -> str:
        return f"PartitionLog({self.directory}, [{self.log_start_offset}, {self.log_end_offset}))"
