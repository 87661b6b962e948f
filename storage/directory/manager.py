"""All logs of one log directory: lock, checkpoints, start-up and orderly stop.

| file | meaning |
| --- | --- |
| `.lock` | locked while a process works here |
| `.kafka_cleanshutdown` | the last stop was in order; deleted before the logs are loaded (KAFKA-10471) |
| `recovery-point-offset-checkpoint` | all below it is on disk |
| `log-start-offset-checkpoint` | only where records below were deleted inside a segment |
| `replication-offset-checkpoint` | the high watermark |

Kafka: LogManager, and the checkpoint of ReplicaManager; rules LL1 to LL5.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import final

from storage.config import LogConfig
from storage.disk.checkpoints import (
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    NO_BROKER_EPOCH,
    RECOVERY_POINT_CHECKPOINT,
    CleanShutdownFile,
    MetaProperties,
    MetaPropertiesFile,
    OffsetCheckpoint,
    PartitionMetadataFile,
)
from storage.disk.filesystem import (
    FileSystem,
    Lock,
    delete_log_files,
    is_directory,
    join,
    make_directory_durably,
)
from storage.disk.lack import refusing_lack, reserving
from storage.draws import Draws
from storage.errors import (
    CorruptCheckpoint,
    DirectoryFailed,
    DirectoryInUse,
    InconsistentTopicId,
    OutOfHandles,
    StorageError,
    reason_of,
)
from storage.log.partition_log import PartitionLog
from storage.recovery.cut import ReportCut, ignore_cut
from storage.topics import (
    DELETE_SUFFIX,
    METADATA_TOPIC,
    STRAY_SUFFIX,
    BadDirectoryName,
    check_topic_name,
    directory_name,
    parse_directory_name,
    suffixed_directory_name,
)

logger = logging.getLogger(__name__)

# Removed logs whose offsets may be left in the checkpoints.
MOST_FORGOTTEN = 10_000

LOCK_FILE = ".lock"
_REMOTE_INDEX_CACHE = "remote-log-index-cache"

Offsets = dict[tuple[str, int], int]
ConfigOf = Callable[[str], LogConfig]


@final
class PreparedCheckpoint:
    """Offsets that a job writes beside their checkpoints, and that the owner of the logs then puts in place.

    While the job is in its write, the owner may remove a log, and write the checkpoints without it. What the job has
    then is of no use: the next log of that name would begin with the offsets of the removed one.
    """

    def __init__(
        self,
        offsets: Sequence[tuple[OffsetCheckpoint, Offsets]],
        *,
        disk: Callable[[str], AbstractContextManager[None]],
        forgotten_count: Callable[[], int],
    ) -> None:
        self._offsets, self._disk, self._forgotten_count = offsets, disk, forgotten_count
        self._count_before = forgotten_count()

    def __call__(self) -> None:
        """Write the offsets beside the checkpoints, on any thread. Raises DirectoryFailed."""
        with self._disk("checkpoint"):
            for checkpoint, offsets in self._offsets:
                checkpoint.write_beside(offsets)

    def adopt(self) -> bool:
        """Put in place what was written, on the thread that owns the logs, unless a log was removed since, or cut below
        its marks.

        Returns whether it did. Raises DirectoryFailed.
        """
        if self._forgotten_count() != self._count_before:
            return False
        with self._disk("checkpoint"):
            for checkpoint, _ in self._offsets:
                checkpoint.adopt()
        return True


@final
class LogManager:
    """Holds all logs of `directory`, which is created when missing.

    It holds the lock of the directory from the constructor to `shutdown` or `close_handles`. `logs` has the open logs
    by the name of their directory, in order of loading and creation. `was_clean` and `previous_broker_epoch` describe
    the stop before this start. `recovered` are the directories of logs that were recovered for this start already: they
    are opened as after a clean stop.

    The constructor raises DirectoryInUse. It and all verbs raise DirectoryFailed for disk errors outside of the logs,
    and OutOfHandles for want of a descriptor: no disk has failed then, and the verb may be called again.
    """

    def __init__(
        self,
        file_system: FileSystem,
        directory: str,
        default_config: LogConfig,
        now_ms: int,
        draws: Draws,
        *,
        report: ReportCut = ignore_cut,
        recovered: Collection[str] = (),
    ) -> None:
        self._file_system, self.directory = file_system, directory
        self._default_config, self._draws, self._report = default_config, draws, report
        self._now_ms = now_ms
        self._recovered = frozenset(recovered)
        self.logs: dict[str, PartitionLog] = {}
        # Topic ids by directory name, for partitions that have one.
        self.topic_ids: dict[str, str] = {}
        # The directory of the log that is being made, from when it may be on the disk; those of creations that failed.
        # Each with the topic id that the creation was given: it may be on the disk, too.
        self.half_made: dict[str, str | None] = {}
        self._is_loaded = False
        # Whether a call on the disk has failed of which no step hears.
        self._is_distrusted = False
        # Whether a load has lowered a high watermark: its log ends below the checkpoint.
        self._is_high_watermark_lowered = False
        self._deleted_count = 0
        # How often offsets in the checkpoints became wrong: those of a removed log, or of one cut below them.
        self._forgotten_count = 0
        # Logs that are not here, whose offsets the checkpoints may still have.
        self._forgotten: set[tuple[str, int]] = set()
        # Renamed logs, each with the time at which its files are to be deleted.
        self._doomed: list[tuple[int, PartitionLog]] = []
        self._lock: Lock | None = None
        with self._disk("open"):
            self._open_directory()

    def _open_directory(self) -> None:
        assert self._lock is None, self.directory
        file_system, directory = self._file_system, self.directory
        assert not self.logs, (self.directory, len(self.logs))
        _make_durable_directory(file_system, directory)
        self._lock = lock_directory(file_system, directory)
        try:
            clean_file = CleanShutdownFile(file_system, directory)
            self.previous_broker_epoch = clean_file.read()
            self.was_clean = clean_file.delete()
            # Without this sync a power loss while loading could bring the mark of a clean stop back.
            file_system.sync_directory(directory)
            self._recovery_points = OffsetCheckpoint(file_system, join(directory, RECOVERY_POINT_CHECKPOINT))
            self._log_starts = OffsetCheckpoint(file_system, join(directory, LOG_START_OFFSET_CHECKPOINT))
            self._high_watermarks = OffsetCheckpoint(file_system, join(directory, HIGH_WATERMARK_CHECKPOINT))
        except BaseException:
            self._release_lock()
            raise

    @contextmanager
    def _disk(self, action: str) -> Iterator[None]:
        try:
            with refusing_lack(f"{self.directory}: {action} failed"):
                yield
        except OSError as error:
            raise DirectoryFailed(f"{self.directory}: {action} failed: {reason_of(error)}") from error

    @contextmanager
    def _change(self, action: str) -> Iterator[None]:
        """Keep the descriptors that a change of names and files needs, within the block: half of it must not be left.

        Raises OutOfHandles, with nothing changed, if there are too few; DirectoryFailed.
        """
        with reserving(self._file_system, self.directory), self._disk(action):
            yield

    def read_owner(self) -> MetaProperties | None:
        """Read whose directory it is; None without a `meta.properties`. Raises CorruptCheckpoint."""
        with self._disk("read"):
            return MetaPropertiesFile(self._file_system, self.directory).read()

    def load(self, now_ms: int, *, config_of: ConfigOf | None = None) -> None:
        """Open every partition directory (LL2 to LL4); `config_of` returns a topic's configuration.

        Deletions that a crash interrupted are finished. Raises StorageError when a log can be neither opened nor
        repaired, for a directory that is no partition's, and where a checkpoint cannot be written; nothing stays open
        then.
        """
        assert self._lock is not None, self.directory
        assert not self._is_loaded, self.directory
        self._now_ms = now_ms
        try:
            with self._disk("load"):
                self._load_all(config_of)
            # Recovery may have ended below the recovery point in the file, and appends will soon exceed it again.
            self.checkpoint_recovery_points()
            # In the same way, records that will be appended there must not count as committed.
            if self._is_high_watermark_lowered:
                self.checkpoint_high_watermarks()
        except BaseException:
            self.close_handles()
            raise
        self._is_loaded = True

    def _load_all(self, config_of: ConfigOf | None) -> None:
        assert not self.logs, (self.directory, list(self.logs))
        recovery_points = _read_or_nothing(self._recovery_points)
        log_starts = _read_or_nothing(self._log_starts)
        high_watermarks = _read_or_nothing(self._high_watermarks)
        for name in self._directories():
            try:
                parsed = parse_directory_name(name)
            except BadDirectoryName as error:
                raise BadDirectoryName(f"{self.directory}/{error}") from error
            # The controller's log. A topic may have a name that only begins like it.
            if parsed.topic == METADATA_TOPIC:
                continue
            if parsed.suffix == DELETE_SUFFIX:
                delete_log_files(self._file_system, join(self.directory, name))
                continue
            if parsed.suffix:
                logger.warning("stray log directory ignored: path=%s", join(self.directory, name))
                continue
            key = (parsed.topic, parsed.partition)
            config = self._default_config if config_of is None else config_of(parsed.topic)
            is_clean = self.was_clean or join(self.directory, name) in self._recovered
            log = self._open(name, config, is_clean, log_starts.get(key, 0), recovery_points.get(key, 0))
            committed = max(high_watermarks.get(key, 0), 0)
            if log.marks.update_high_watermark(committed) < committed:
                self._is_high_watermark_lowered = True
            topic_id = PartitionMetadataFile(self._file_system, log.directory).read()
            if topic_id is not None:
                self.topic_ids[name] = topic_id
        # What a stop after a deletion has left.
        named = recovery_points.keys() | log_starts.keys() | high_watermarks.keys()
        self._forgotten = named - {(log.topic, log.partition) for log in self.logs.values()}
        assert len(self.topic_ids) <= len(self.logs), (self.directory, len(self.topic_ids), len(self.logs))

    def _directories(self) -> list[str]:
        return [
            name
            for name in self._file_system.list(self.directory)
            if name != _REMOTE_INDEX_CACHE and is_directory(self._file_system, join(self.directory, name))
        ]

    def _open(
        self, name: str, config: LogConfig, is_clean: bool, log_start_offset: int, recovery_point: int
    ) -> PartitionLog:
        assert self._lock is not None, (self.directory, name)
        assert name not in self.logs, (self.directory, name)
        log = PartitionLog.open(
            self._file_system,
            join(self.directory, name),
            config,
            log_start_offset=log_start_offset,
            recovery_point=recovery_point,
            clean=is_clean,
            now_ms=self._now_ms,
            draws=self._draws.child("log", name),
            report=self._report,
            recalls_batches=True,
            write_lowered_offsets=self._write_recovery_points,
        )
        self.logs[name] = log
        return log

    def get(self, topic: str, partition: int) -> PartitionLog | None:
        return self.logs.get(directory_name(topic, partition))

    def create(
        self,
        topic: str,
        partition: int,
        config: LogConfig | None = None,
        topic_id: str | None = None,
        now_ms: int | None = None,
    ) -> PartitionLog:
        """Return the partition's log; where there is none, create one, whose directory is durable on return.

        A log without a topic id takes `topic_id` (LL26). After a call that failed, another one goes on with what it has
        made.

        Raises InvalidTopic; InconsistentTopicId when the directory belongs to another topic with that name.
        """
        assert self._lock is not None, self.directory
        check_topic_name(topic)
        name = directory_name(topic, partition)
        if (log := self.logs.get(name)) is not None:
            self._check_topic_id(name, topic_id)
            if topic_id is not None and name not in self.topic_ids:
                with self._disk("create"):
                    self._note_topic_id(name, log.directory, topic_id)
            return log
        self._now_ms = self._now_ms if now_ms is None else now_ms
        with reserving(self._file_system, self.directory):
            # The new log must not begin, after a crash, with the offsets of one that had its name.
            if (topic, partition) in self._forgotten:
                self._drop_forgotten()
            self._make_directory(name, topic_id)
            log = self._open(name, config or self._default_config, True, 0, 0)
        # What the name says is what a start will read from it.
        assert (log.topic, log.partition) == (topic, partition), (log, topic, partition)
        del self.half_made[name]
        return log

    def _make_directory(self, name: str, topic_id: str | None) -> None:
        """Make the directory of a new log, durably, with its topic id in it."""
        path = join(self.directory, name)
        # That of a creation that failed.
        self.topic_ids.pop(name, None)
        with self._disk("create"):
            self._file_system.make_directory(path)
            self.half_made[name] = topic_id
            self._file_system.sync_directory(self.directory)
            if topic_id is not None:
                self._note_topic_id(name, path, topic_id)

    def has_half_made(self, topic: str, partition: int) -> bool:
        """Whether the creation of the partition's log has failed after its directory was made."""
        return directory_name(topic, partition) in self.half_made

    def is_half_made(self, name: str) -> bool:
        """Whether a loaded log may be what a crash left of its creation: it has no topic id and never held a batch.

        The topic id is durable before the first append, so nothing that was ever acknowledged can be in it.
        """
        log = self.logs[name]
        return name not in self.topic_ids and log.log_start_offset == log.log_end_offset == 0

    def _note_topic_id(self, name: str, path: str, topic_id: str) -> None:
        """Write the topic id beside the log, so that the next topic of the name does not take the log for its own."""
        assert name not in self.topic_ids, (name, self.topic_ids[name], topic_id)
        PartitionMetadataFile(self._file_system, path).write(topic_id)
        self.topic_ids[name] = topic_id

    def _check_topic_id(self, name: str, topic_id: str | None) -> None:
        known = self.topic_ids.get(name)
        if topic_id is not None and known is not None and topic_id != known:
            raise InconsistentTopicId(f"{name} has topic id {known}, not {topic_id}")

    def delete(self, topic: str, partition: int) -> bool:
        """Delete the partition's log. Returns whether there was one.

        Its directory is renamed first, so that after a crash the next start finishes the deletion. Raises OutOfHandles,
        with nothing changed, if there are too few descriptors.
        """
        log = self.get(topic, partition)
        if log is None:
            return False
        with self._change("delete"):
            with _ending(log, "delete"):
                log.close_handles()
                path = self._move_away(log, DELETE_SUFFIX)
                self._take_out(topic, partition)
            delete_log_files(self._file_system, path)
        return True

    def _take_out(self, topic: str, partition: int) -> None:
        """Forget the log, whose directory has another name now: the name may be given again."""
        name = directory_name(topic, partition)
        self.topic_ids.pop(name, None)
        del self.logs[name]
        self._forget_offsets(topic, partition)

    def begin_deletion(self, topic: str, partition: int) -> Callable[[], None] | None:
        """Remove the partition's log, as `delete` does, but leave its files to a job. None without a log.

        The job closes and deletes them, and raises DirectoryFailed; after OutOfHandles it may be called again. No other
        job may use the files after it. After a crash the next start finishes the deletion. Raises OutOfHandles, with
        nothing changed, if there are too few descriptors.
        """
        log = self.get(topic, partition)
        if log is None:
            return None
        with self._change("delete"), _ending(log, "delete"):
            path = self._move_away(log, DELETE_SUFFIX)
            self._take_out(topic, partition)
        removed = log

        def delete_files() -> None:
            removed.close_handles()
            with self._disk("delete"):
                delete_log_files(self._file_system, path)

        return delete_files

    def delete_later(self, topic: str, partition: int, now_ms: int) -> bool:
        """Remove the partition's log while readers still use it. Returns whether there was one.

        `delete_due` deletes its files file.delete.delay.ms later. The log is removed from `logs`, and its directory
        gets a `-delete` name, at once: after a crash the next start finishes the deletion.
        """
        name = directory_name(topic, partition)
        log = self.logs.get(name)
        if log is None:
            return False
        with reserving(self._file_system, self.directory), _ending(log, "delete"):
            log.rename_directory(self._unused_name(topic, partition, DELETE_SUFFIX))
            del self.logs[name]
            assert log.directory != join(self.directory, name), log.directory
            self.topic_ids.pop(name, None)
            self._doomed.append((now_ms + self._default_config.file_delete_delay_ms, log))
            self._forget_offsets(topic, partition)
        return True

    @property
    def next_deletion_ms(self) -> int | None:
        """The time at which `delete_due` has something to delete; None while nothing waits."""
        return min((due_ms for due_ms, _ in self._doomed), default=None)

    def delete_due(self, now_ms: int) -> list[str]:
        """Delete the logs that waited long enough. Returns their directories.

        A log that cannot be deleted waits for the next start.
        """
        before = len(self._doomed)
        assert self._is_loaded or before == 0, (self.directory, before)
        due = [log for due_ms, log in self._doomed if due_ms <= now_ms]
        self._doomed = [(due_ms, log) for due_ms, log in self._doomed if due_ms > now_ms]
        assert len(due) + len(self._doomed) == before, (len(due), len(self._doomed), before)
        for log in due:
            try:
                log.delete()
            except (StorageError, OSError) as error:
                logger.error("log not deleted: log=%s reason=%s", log.directory, error)
        return [log.directory for log in due]

    def set_aside(self, topic: str, partition: int) -> str | None:
        """Rename the directory of a log that the metadata does not know, to a name that nothing loads (LL4).

        Returns the new path; None without such a log. The log is not deleted because the metadata may be wrong: only an
        operator may delete it. Raises OutOfHandles, with nothing changed, if there are too few descriptors.
        """
        log = self.get(topic, partition)
        if log is None:
            return None
        with self._change("set aside"), _ending(log, "set aside"):
            log.close()
            path = self._move_away(log, STRAY_SUFFIX)
            self._take_out(topic, partition)
        logger.warning("stray log set aside: log=%s path=%s", directory_name(topic, partition), path)
        return path

    def _move_away(self, log: PartitionLog, suffix: str) -> str:
        path = join(self.directory, self._unused_name(log.topic, log.partition, suffix))
        self._file_system.rename(log.directory, path)
        self._file_system.sync_directory(self.directory)
        return path

    def _forget_offsets(self, topic: str, partition: int) -> None:
        """Note that the checkpoints may still have a removed log's offsets: they are written without them before a log
        of its name is created, or by the next checkpoint. A write for each of many deletions would take long.
        """
        self._forgotten_count += 1
        self._forgotten.add((topic, partition))
        if len(self._forgotten) > MOST_FORGOTTEN:
            self._drop_forgotten()
        assert directory_name(topic, partition) not in self.logs, (self.directory, topic, partition)

    def _drop_forgotten(self) -> None:
        """Remove the offsets of all removed logs from the checkpoints, durably."""
        self.checkpoint_recovery_points()
        self.checkpoint_log_start_offsets()
        self.checkpoint_high_watermarks()
        self._forgotten.clear()

    def _unused_name(self, topic: str, partition: int, suffix: str) -> str:
        while True:
            self._deleted_count += 1
            identity = (topic, partition, self._now_ms, self._deleted_count)
            high, low = (self._draws.bits(f"deleted-directory-{half}", *identity) for half in "hl")
            name = suffixed_directory_name(topic, partition, f"{high:016x}{low:016x}", suffix)
            # Else the next start would open it as a log.
            assert parse_directory_name(name).suffix == suffix, (name, suffix)
            if not self._file_system.exists(join(self.directory, name)):
                assert name not in self.logs, (self.directory, name)
                return name

    def checkpoint_recovery_points(self) -> None:
        """Write the recovery points. Only the thread that owns the logs may call this.

        The first append after a truncation writes them too (RT16): one write for all logs that were truncated, because
        each takes longer the more logs there are. With them go the marks that a truncation has lowered.
        """
        with self._disk("checkpoint"):
            self._write_recovery_points()

    def _write_recovery_points(self) -> None:
        """Write the recovery points. Raises OSError: an append that called this takes its log offline then."""
        self._recovery_points.write(self._offsets(lambda log: log.flushes.saved_recovery_point))
        if any(log.marks.are_lowered for log in self.logs.values()):
            self._write_lowered_marks()
        for log in self.logs.values():
            log.local.is_below_checkpoints = False

    def _write_lowered_marks(self) -> None:
        """Write the log starts and high watermarks after a truncation below one of them. Raises OSError.

        A start empties a log that ends below the log start of its checkpoint, and takes all for committed that is below
        the high watermark of its checkpoint.
        """
        # A job may have the offsets of before.
        self._forgotten_count += 1
        self._log_starts.write(self._log_start_offsets())
        self._high_watermarks.write(self._offsets(lambda log: log.high_watermark))
        for log in self.logs.values():
            log.marks.are_lowered = False

    def checkpoint_log_start_offsets(self) -> None:
        with self._disk("checkpoint"):
            self._log_starts.write(self._log_start_offsets())

    def checkpoint_high_watermarks(self) -> None:
        with self._disk("checkpoint"):
            self._high_watermarks.write(self._offsets(lambda log: log.high_watermark))

    def prepare_checkpoint(self) -> PreparedCheckpoint:
        """Take the high watermarks and log starts of this moment, to be written by a job.

        Recovery points are left out: a late write must not raise again what a truncation has lowered.
        """
        high_watermarks, log_starts = Offsets(), Offsets()
        # One walk for both: with thousands of logs most of the time goes to memory that no cache holds.
        for log in self.logs.values():
            name, marks = (log.topic, log.partition), log.marks
            high_watermarks[name] = marks.high_watermark
            if marks.log_start_offset > log.local.segments.first_base_offset:
                log_starts[name] = marks.log_start_offset
        return PreparedCheckpoint(
            ((self._high_watermarks, high_watermarks), (self._log_starts, log_starts)),
            disk=self._disk,
            forgotten_count=lambda: self._forgotten_count,
        )

    def _offsets(self, offset_of: Callable[[PartitionLog], int]) -> Offsets:
        return {(log.topic, log.partition): offset_of(log) for log in self.logs.values()}

    def _log_start_offsets(self) -> Offsets:
        return {
            (log.topic, log.partition): log.log_start_offset
            for log in self.logs.values()
            if log.log_start_offset > log.local.segments.first_base_offset
        }

    def shutdown(self, broker_epoch: int = NO_BROKER_EPOCH, now_ms: int | None = None) -> bool:
        """Flush and close all logs, then write checkpoints and the mark of a clean stop (LL5); release the lock last.

        Returns whether the stop was clean: if a log cannot be closed, or the disk is distrusted, the mark is not
        written and the next start recovers all logs. Before `load` only the mark of the stop before is written again.
        """
        # Without it the mark of a clean stop could be written while another process appends.
        assert self._lock is not None, self.directory
        now_ms = self._now_ms if now_ms is None else now_ms
        is_clean = not self._is_distrusted
        for _, log in self._doomed:
            log.close_handles()
        for log in self.logs.values():
            try:
                # With an empty active segment, whose index files may not exist yet: a clean start would miss them.
                log.flushes.flush()
                log.close()
            except (StorageError, OSError) as error:
                is_clean = False
                logger.error("log not closed: log=%s reason=%s", log.directory, error)
                log.close_handles()
        try:
            # Before the load no log is known here, and the checkpoints have the offsets of all.
            if is_clean and self._is_loaded:
                self.checkpoint_recovery_points()
                self.checkpoint_log_start_offsets()
                self.checkpoint_high_watermarks()
            if is_clean and (self._is_loaded or self.was_clean):
                with self._disk("mark of a clean stop"):
                    CleanShutdownFile(self._file_system, self.directory).write(broker_epoch)
        finally:
            self._release_lock()
        return is_clean

    def distrust(self, error: Exception) -> None:
        """Note that a call on the disk has failed of which no step hears: the stop is not clean (AP16)."""
        logger.error("log directory not closed cleanly: directory=%s reason=%s", self.directory, error)
        self._is_distrusted = True

    def close_handles(self) -> None:
        """Close without sync or mark, as in a crash; the lock is released."""
        for log in [*self.logs.values(), *(log for _, log in self._doomed)]:
            log.close_handles()
        self._release_lock()

    def _release_lock(self) -> None:
        lock, self._lock = self._lock, None
        if lock is not None:
            lock.release()


def lock_directory(file_system: FileSystem, directory: str) -> Lock:
    """Take the lock of the log directory. Raises DirectoryInUse while another process holds it."""
    try:
        return file_system.lock(join(directory, LOCK_FILE))
    except BlockingIOError as error:
        raise DirectoryInUse(f"{directory} is in use: another process holds {LOCK_FILE}") from error


def _make_durable_directory(file_system: FileSystem, directory: str) -> None:
    # In one that is empty, the life that made it may have ended before the sync, or because it failed.
    if not file_system.exists(directory) or not file_system.list(directory):
        make_directory_durably(file_system, directory)


def _read_or_nothing(checkpoint: OffsetCheckpoint) -> Offsets:
    """Read a checkpoint. An unreadable one counts as empty: more is recovered than necessary, and nothing is lost."""
    try:
        return checkpoint.read()
    except (CorruptCheckpoint, OSError) as error:
        logger.error("checkpoint ignored: reason=%s", error)
        return {}


@contextmanager
def _ending(log: PartitionLog, action: str) -> Iterator[None]:
    """Take the log offline if the block raises: its directory may have another name, and its files be closed.

    OutOfHandles means that nothing was changed.
    """
    try:
        yield
    except OutOfHandles:
        raise
    except Exception as error:
        if log.online.reason is None:
            log.online.failed(action, error)
        raise
