"""Several log directories of one broker, of which one may fail: its logs go offline, the others go on.

Each has its own lock, checkpoints and mark of an orderly stop (`log_manager.py`). Kafka: LogManager,
LogDirFailureChannel (KIP-112); rules LL1 to LL5, AP16.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

from storage.checkpoints import NO_BROKER_EPOCH, MetaProperties, MetaPropertiesFile
from storage.config import LogConfig
from storage.draws import Draws
from storage.errors import ConfigError, CorruptCheckpoint, StorageError
from storage.filesystem import FileSystem
from storage.log import PartitionLog
from storage.log_manager import ConfigOf, LogManager
from storage.recovery_cut import ReportCut, ignore_cut
from storage.topics import directory_name

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class OfflineDirectory:
    directory: str
    reason: str


@final
class LogDirectories:
    """`online` are the managers of the directories that work, in the order given; `offline` tells of the others.

    A directory in use by another process keeps all from starting (DirectoryInUse), and so does a log that is damaged
    beyond repair: only the disk's own errors take a directory away. ConfigError for a directory given twice.
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
    ) -> None:
        self._file_system = file_system
        self.online: list[LogManager] = []
        self.offline: list[OfflineDirectory] = []
        try:
            for directory in _distinct(directories):
                self._open(directory, default_config, now_ms, draws, report)
        except BaseException:
            self.close_handles()
            raise
        self._check_any()

    def _open(
        self, directory: str, default_config: LogConfig, now_ms: int, draws: Draws, report: ReportCut
    ) -> None:
        try:
            manager = LogManager(self._file_system, directory, default_config, now_ms, draws, report=report)
        except OSError as error:
            self._note_offline(directory, error)
        else:
            self.online.append(manager)

    def load(self, now_ms: int, *, config_of: ConfigOf | None = None) -> None:
        """As LogManager.load of each. Raises StorageError for damage, for a partition that lies in two of them, and
        when no directory is left; nothing stays open then.
        """
        try:
            for manager in list(self.online):
                try:
                    manager.load(now_ms, config_of=config_of)
                except (StorageError, OSError) as error:
                    if not is_disk_error(error):
                        raise
                    self._drop(manager, error)
            self._check_any()
            self._check_duplicates()
        except BaseException:
            self.close_handles()
            raise

    def _check_any(self) -> None:
        if not self.online:
            told = "; ".join(f"{each.directory}: {each.reason}" for each in self.offline)
            raise StorageError(f"no log directory can be used: {told}")

    def _check_duplicates(self) -> None:
        """LL4: which of two copies holds the truth is an operator's to say."""
        found: dict[str, str] = {}
        for manager in self.online:
            for name, log in manager.logs.items():
                if name in found:
                    raise StorageError(
                        f"{name} lies in two log directories: {found[name]} and {log.directory}"
                    )
                found[name] = log.directory

    # Partitions

    @property
    def was_clean(self) -> bool:
        """Whether all that work were stopped in order."""
        return all(manager.was_clean for manager in self.online)

    @property
    def previous_broker_epoch(self) -> int | None:
        """That of the last orderly stop, if all directories know the same."""
        epochs = {manager.previous_broker_epoch for manager in self.online}
        return epochs.pop() if len(epochs) == 1 and not self.offline else None

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
        """The log of the partition, made in `directory`, or where the fewest logs are, when there is none.

        A directory whose disk fails goes offline and the next one is tried; `directory` has no substitute. Raises as
        LogManager.create, and StorageError when no directory is left.
        """
        known = self.manager_of(topic, partition)
        if known is not None:
            return known.create(topic, partition, config, topic_id, now_ms)
        candidates = sorted(
            self.online, key=lambda manager: len(manager.logs)
        )  # stable: the first of equal ones
        for manager in candidates:
            if directory is not None and manager.directory != directory:
                continue
            try:
                return manager.create(topic, partition, config, topic_id, now_ms)
            except (StorageError, OSError) as error:
                if not is_disk_error(error):
                    raise
                self._drop(manager, error)
        wanted = "" if directory is None else f" {directory}"
        raise StorageError(f"no log directory{wanted} can take {directory_name(topic, partition)}")

    def delete(self, topic: str, partition: int) -> bool:
        manager = self.manager_of(topic, partition)
        return manager is not None and manager.delete(topic, partition)

    # Failure

    def fail(self, directory: str, reason: str) -> list[str]:
        """Take a directory offline: nothing of it is flushed or marked. Gives the names of the logs that went."""
        manager = next((manager for manager in self.online if manager.directory == directory), None)
        if manager is None:
            return []
        names = list(manager.logs)
        self._drop(manager, reason)
        return names

    def _drop(self, manager: LogManager, reason: object) -> None:
        self.online.remove(manager)
        manager.close_handles()
        self._note_offline(manager.directory, reason)

    def _note_offline(self, directory: str, reason: object) -> None:
        logger.error("log directory offline: directory=%s reason=%s", directory, reason)
        self.offline.append(OfflineDirectory(directory=directory, reason=str(reason)))

    # Checkpoints and the end

    def checkpoint(self) -> None:
        """Recovery points, log starts and high watermarks of each; a directory that cannot write goes offline."""
        for manager in list(self.online):
            try:
                manager.checkpoint_recovery_points()
                manager.checkpoint_log_start_offsets()
                manager.checkpoint_high_watermarks()
            except OSError as error:
                self._drop(manager, error)

    def read_owners(self) -> dict[str, MetaProperties]:
        """`meta.properties` by directory, where there is one. Raises CorruptCheckpoint.

        Directories of several nodes or clusters are no broker's: ConfigError.
        """
        files = [
            (each.directory, MetaPropertiesFile(self._file_system, each.directory)) for each in self.online
        ]
        owners = {directory: owner for directory, file in files if (owner := file.read()) is not None}
        if len({(owner.node_id, owner.cluster_id) for owner in owners.values()}) > 1:
            told = ", ".join(f"{name} node {owner.node_id}" for name, owner in owners.items())
            raise ConfigError(f"log directories of several owners: {told}")
        ids = [owner.directory_id for owner in owners.values() if owner.directory_id is not None]
        if len(ids) != len(set(ids)):
            raise CorruptCheckpoint(next(iter(owners)), None, "a directory.id that another directory has too")
        return owners

    def shutdown(self, broker_epoch: int = NO_BROKER_EPOCH, now_ms: int | None = None) -> bool:
        """Whether each that works was stopped in order; one that fails does not keep the others from it (LL5)."""
        return all([_stopped(manager, broker_epoch, now_ms) for manager in self.online])

    def close_handles(self) -> None:
        """As in a crash."""
        for manager in self.online:
            manager.close_handles()


def _stopped(manager: LogManager, broker_epoch: int, now_ms: int | None) -> bool:
    try:
        return manager.shutdown(broker_epoch, now_ms)
    except OSError as error:
        logger.error("log directory not stopped in order: directory=%s reason=%s", manager.directory, error)
        return False


def is_disk_error(error: BaseException) -> bool:
    """Whether the disk, not what lies on it, is to blame."""
    return isinstance(error, OSError) or isinstance(error.__cause__, OSError)


def _distinct(directories: Sequence[str]) -> list[str]:
    """Without a trailing slash; ConfigError where two are the same (LL1)."""
    paths = ["/".join(part for part in path.split("/") if part != ".").rstrip("/") for path in directories]
    if not paths or "" in paths:
        raise ConfigError("log.dirs: a directory is wanted")
    repeated = sorted({path for path in paths if paths.count(path) > 1})
    if repeated:
        raise ConfigError(f"log.dirs: given twice: {', '.join(repeated)}")
    return paths
