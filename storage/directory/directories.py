"""The log directories of one broker. One of them may fail: then its logs are offline and the others continue.

Each directory has its own lock, checkpoints and mark of an orderly stop (`manager.py`). If there is only one, its
errors are raised to the caller. Kafka: LogManager, LogDirFailureChannel (KIP-112); rules LL1 to LL5, AP16.
"""

from __future__ import annotations

import errno
import logging
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import final

from storage.config import LogConfig
from storage.directory.manager import ConfigOf, LogManager
from storage.disk.checkpoints import NO_BROKER_EPOCH, MetaProperties
from storage.disk.filesystem import FileSystem, dirname
from storage.disk.lack import is_lack
from storage.draws import Draws
from storage.errors import (
    ConfigError,
    CorruptCheckpoint,
    DirectoryFailed,
    LogHalfMade,
    NoLogDirectory,
    OutOfHandles,
    StorageError,
    reason_of,
)
from storage.log.partition_log import PartitionLog
from storage.recovery.cut import ReportCut, ignore_cut
from storage.topics import directory_name

logger = logging.getLogger(__name__)

_CLOSED_OR_GONE = frozenset({errno.EBADF, errno.ENOENT})


@dataclass(frozen=True, slots=True, kw_only=True)
class OfflineDirectory:
    """A log directory that failed, and the reason."""

    directory: str
    reason: str


def _close(manager: LogManager, reason: str) -> None:
    manager.close_handles()


@final
class LogDirectories:
    """The log directories of one broker.

    `online` are the managers of those that work, in the order given; `offline` are the others, with their reasons. Only
    errors of the disk take a directory offline. `on_offline` is called with each directory that fails after the load.
    It has to close the directory's handles: at once, or when no other thread works on its files any more.

    The constructor raises ConfigError for a directory given twice, DirectoryInUse for one that another process uses,
    and NoLogDirectory when no directory works; all are closed then.
    """

    def __init__(
        self,
        file_system: FileSystem,
        directories: Sequence[str],
        default_config: LogConfig,
        now_ms: int,
        draws: Draws,
        *,
        report: ReportCut = ignore_cut,
        recovered: Collection[str] = (),
    ) -> None:
        self._file_system = file_system
        self._recovered = recovered
        self.online: list[LogManager] = []
        self.offline: list[OfflineDirectory] = []
        # The names and topic ids of the logs, also half made ones, in directories that have failed since the load.
        self._logs_offline: set[tuple[str, str | None]] = set()
        self.on_offline: Callable[[LogManager, str], None] = _close
        paths = _distinct(file_system, directories)
        self._is_single = len(paths) == 1
        try:
            for directory in paths:
                self._open(directory, default_config, now_ms, draws, report)
        except BaseException:
            self.close_handles()
            raise
        self._check_any()

    def _open(
        self, directory: str, default_config: LogConfig, now_ms: int, draws: Draws, report: ReportCut
    ) -> None:
        try:
            manager = LogManager(
                self._file_system,
                directory,
                default_config,
                now_ms,
                draws,
                report=report,
                recovered=self._recovered,
            )
        except DirectoryFailed as error:
            if self._is_single:
                raise
            self._note_offline(directory, error)
        else:
            self.online.append(manager)

    def load(self, now_ms: int, *, config_of: ConfigOf | None = None) -> None:
        """Load each directory (`LogManager.load`).

        Raises StorageError for damage that cannot be repaired, for a partition that is in two directories, and when no
        directory is left; nothing stays open then.
        """
        try:
            for manager in list(self.online):
                try:
                    manager.load(now_ms, config_of=config_of)
                except (StorageError, OSError) as error:
                    if self._is_single or not is_disk_error(error):
                        raise
                    self._drop_at_start(manager, error)
            self._check_any()
            self._delete_half_made()
            self._check_duplicates()
        except BaseException:
            self.close_handles()
            raise

    def _check_any(self) -> None:
        if not self.online:
            reasons = "; ".join(f"{each.directory}: {each.reason}" for each in self.offline)
            raise NoLogDirectory(f"no log directory can be used: {reasons}")

    def _delete_half_made(self) -> None:
        """Delete each log that a crash left half made, if another directory has one of its name.

        That one may be of a deleted topic, in a directory that was offline at the deletion and at the creation.
        """
        counts = Counter(name for manager in self.online for name in manager.logs)
        for manager in list(self.online):
            try:
                for name in [
                    name for name in manager.logs if counts[name] > 1 and manager.is_half_made(name)
                ]:
                    counts[name] -= 1
                    manager.delete(manager.logs[name].topic, manager.logs[name].partition)
            except DirectoryFailed as error:
                self._drop_at_start(manager, error)

    def _check_duplicates(self) -> None:
        """Refuse a partition that is in two directories (LL4): only an operator can know which copy is right.

        Of logs with different topic ids all but one are of deleted topics, as a directory has them that was offline at
        the deletion. The metadata tells which, before any is used.
        """
        found: dict[tuple[str, str], str] = {}
        for manager in self.online:
            for name, log in manager.logs.items():
                before = self._same_log(found, name, manager.topic_ids.get(name))
                if before is not None:
                    raise StorageError(f"{name} is in two log directories: {before} and {log.directory}")
                found[name, manager.topic_ids.get(name, "")] = log.directory

    @staticmethod
    def _same_log(found: dict[tuple[str, str], str], name: str, topic_id: str | None) -> str | None:
        """Returns where another log of the partition is that may be of the same topic; one without an id may be."""
        if topic_id is None:
            return next((path for (other, _), path in found.items() if other == name), None)
        return found.get((name, topic_id), found.get((name, "")))

    @property
    def was_clean(self) -> bool:
        """Whether all directories that work were stopped in order before this start."""
        return all(manager.was_clean for manager in self.online)

    @property
    def previous_broker_epoch(self) -> int | None:
        """The broker epoch of the last orderly stop, if all directories have the same one; else None."""
        epochs = [manager.previous_broker_epoch for manager in self.online]
        return epochs[0] if len(set(epochs)) == 1 and not self.offline else None

    def get(self, topic: str, partition: int) -> PartitionLog | None:
        manager = self.manager_of(topic, partition)
        return None if manager is None else manager.get(topic, partition)

    def manager_of(self, topic: str, partition: int) -> LogManager | None:
        name = directory_name(topic, partition)
        return next((manager for manager in self.online if name in manager.logs), None)

    def create(
        self,
        topic: str,
        partition: int,
        config: LogConfig | None = None,
        topic_id: str | None = None,
        now_ms: int | None = None,
        *,
        directory: str | None = None,
    ) -> PartitionLog:
        """Return the partition's log; where there is none, create it in `directory` or where the fewest logs are.

        A directory whose disk fails is taken offline. The next one is tried, but none in place of `directory`, and as
        in Kafka none after the log's directory was made: LogHalfMade says so (LL4), also of a log that went offline
        with its directory. Raises what `LogManager.create` raises, the disk error of the last directory too;
        StorageError if `directory` is not online. A lack of descriptors is no failure of a disk: OutOfHandles fails
        this call alone.
        """
        known = self.manager_of(topic, partition)
        if known is not None:
            return known.create(topic, partition, config, topic_id, now_ms)
        name = directory_name(topic, partition)
        # A start after its directory is back would find two logs of one topic.
        if not self._logs_offline.isdisjoint({(name, topic_id), (name, None)}):
            raise LogHalfMade(f"{name} is in a log directory that is offline")

        def place(manager: LogManager) -> tuple[bool, int]:
            # What a call has made that found no descriptor would be a second log, were the log made elsewhere.
            return not manager.has_half_made(topic, partition), len(manager.logs)

        # The sort is stable: among equal ones the first is chosen.
        candidates = sorted(self.online, key=place)
        for manager in candidates:
            if directory is not None and manager.directory != directory:
                continue
            try:
                return manager.create(topic, partition, config, topic_id, now_ms)
            except (StorageError, OSError) as error:
                if not is_disk_error(error):
                    raise
                self._fail(manager, error)
                if manager.has_half_made(topic, partition):
                    raise LogHalfMade(str(error)) from error
        wanted = "" if directory is None else f" {directory}"
        raise StorageError(f"no log directory{wanted} can take {name}")

    def delete(self, topic: str, partition: int) -> bool:
        manager = self.manager_of(topic, partition)
        return manager is not None and manager.delete(topic, partition)

    def begin_deletion(self, topic: str, partition: int) -> Callable[[], None] | None:
        """What `LogManager.begin_deletion` of the partition's directory returns; None without a log."""
        manager = self.manager_of(topic, partition)
        return None if manager is None else manager.begin_deletion(topic, partition)

    def directory_of(self, path: str | None) -> str | None:
        """The online directory that `path` is in or is itself; None without one."""
        while path:
            if any(manager.directory == path for manager in self.online):
                return path
            path = dirname(path)
        return None

    def fail(self, directory: str, error: Exception) -> list[str]:
        """Take a directory offline: nothing in it is flushed or marked, and its logs refuse every call (AP16).

        Returns the names of the logs that went offline with it. If no other directory is left, it raises `error` and
        takes nothing offline.
        """
        manager = next((manager for manager in self.online if manager.directory == directory), None)
        if manager is None:
            return []
        self._fail(manager, error)
        return list(manager.logs)

    def _fail(self, manager: LogManager, error: Exception) -> None:
        if len(self.online) == 1:
            raise error
        self.online.remove(manager)
        assert self.online, manager.directory
        assert manager not in self.online, manager.directory
        self._logs_offline |= manager.half_made.items()
        self._logs_offline |= {(name, manager.topic_ids.get(name)) for name in manager.logs}
        reason = str(error) or type(error).__name__
        for log in manager.logs.values():
            log.online.fail_with_directory(reason)
        noted = self._note_offline(manager.directory, error)
        self.on_offline(manager, noted.reason)

    def _drop_at_start(self, manager: LogManager, error: Exception) -> None:
        self.online.remove(manager)
        assert manager not in self.online, manager.directory
        manager.close_handles()
        self._note_offline(manager.directory, error)

    def _note_offline(self, directory: str, error: Exception) -> OfflineDirectory:
        assert all(each.directory != directory for each in self.offline), (directory, self.offline)
        reason = reason_of(error) if isinstance(error, OSError) else str(error)
        logger.error("log directory offline: directory=%s reason=%s", directory, reason)
        noted = OfflineDirectory(directory=directory, reason=reason)
        self.offline.append(noted)
        return noted

    def checkpoint(self) -> None:
        """Write recovery points, log starts and high watermarks of each directory; one that cannot goes offline.

        Raises DirectoryFailed if no other directory is left; OutOfHandles, while all stay online.
        """
        for manager in list(self.online):
            try:
                manager.checkpoint_recovery_points()
                manager.checkpoint_log_start_offsets()
                manager.checkpoint_high_watermarks()
            except DirectoryFailed as error:
                self._fail(manager, error)

    def read_owners(self) -> dict[str, MetaProperties]:
        """Read the `meta.properties` of each directory that has one. Returns them by directory.

        A directory that cannot be read goes offline. Raises CorruptCheckpoint, ConfigError for directories of several
        nodes or clusters, DirectoryFailed for the error of the only directory, and NoLogDirectory if none is left.
        """
        owners = {}
        for manager in list(self.online):
            try:
                owner = manager.read_owner()
            except DirectoryFailed as error:
                if self._is_single:
                    raise
                self._drop_at_start(manager, error)
                continue
            if owner is not None:
                owners[manager.directory] = owner
        self._check_any()
        assert len(owners) <= len(self.online), (list(owners), len(self.online))
        if len({(owner.node_id, owner.cluster_id) for owner in owners.values()}) > 1:
            found = ", ".join(
                f"{name} of node {owner.node_id} in cluster {owner.cluster_id}"
                for name, owner in owners.items()
            )
            raise ConfigError(f"the log directories belong to different nodes or clusters: {found}")
        ids = [owner.directory_id for owner in owners.values() if owner.directory_id is not None]
        if len(ids) != len(set(ids)):
            raise CorruptCheckpoint(
                next(iter(owners)), None, "another log directory has the same directory.id"
            )
        return owners

    def shutdown(self, broker_epoch: int = NO_BROKER_EPOCH, now_ms: int | None = None) -> bool:
        """Stop each directory that works, even after one fails. Returns whether all were stopped in order (LL5).

        Raises DirectoryFailed for the error of the only directory.
        """
        if self._is_single:
            return self.online[0].shutdown(broker_epoch, now_ms)
        return all([_stopped(manager, broker_epoch, now_ms) for manager in self.online])

    def close_handles(self) -> None:
        """Close without flush or mark, as in a crash."""
        for manager in self.online:
            manager.close_handles()


def _stopped(manager: LogManager, broker_epoch: int, now_ms: int | None) -> bool:
    try:
        return manager.shutdown(broker_epoch, now_ms)
    except (DirectoryFailed, OutOfHandles) as error:
        logger.error("log directory not closed cleanly: directory=%s reason=%s", manager.directory, error)
        return False


def errors_in(error: Exception) -> Sequence[Exception]:
    """Returns the errors that work on several files has collected and raised as one; `error` alone if it is no such."""
    return error.exceptions if isinstance(error, ExceptionGroup) else (error,)


def os_error_of(error: BaseException) -> OSError | None:
    """Returns the error of the system call that is `error` or its cause; None without one."""
    os_error = error if isinstance(error, OSError) else error.__cause__
    return os_error if isinstance(os_error, OSError) else None


def is_disk_error(error: BaseException) -> bool:
    """Whether `error` comes from the disk, and not from the content of a file, nor from a lack of descriptors."""
    if is_lack(error):
        return False
    return os_error_of(error) is not None


def is_late_disk_error(error: BaseException) -> bool:
    """Whether a disk has failed in work that may have been overtaken by the end of its log.

    That files of such a log are closed or gone is no failure.
    """
    os_error = os_error_of(error)
    return is_disk_error(error) and os_error is not None and os_error.errno not in _CLOSED_OR_GONE


def _distinct(file_system: FileSystem, directories: Sequence[str]) -> list[str]:
    """The paths of the directories in one spelling. Raises ConfigError where two lead to one directory (LL1)."""
    paths = ["/".join(part for part in path.split("/") if part != ".").rstrip("/") for path in directories]
    if not paths or "" in paths:
        raise ConfigError("log.dirs: expected at least one directory, none of them empty")
    targets = [file_system.canonical(path) for path in paths]
    repeated = sorted({path for path, at in zip(paths, targets, strict=True) if targets.count(at) > 1})
    if repeated:
        raise ConfigError(f"log.dirs: these directories are given more than once: {', '.join(repeated)}")
    return paths
