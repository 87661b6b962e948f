"""A broker's log directories: their owner, their checkpoints, and what happens when one fails.

Kafka: LogManager, BrokerMetadataCheckpoint, ReplicaManager.checkpointHighWatermarks, LogDirFailureHandler.
"""

from __future__ import annotations

import base64
import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import final

from cluster.core import fencing
from cluster.core.config import BrokerConfig
from cluster.core.messages import TopicPartition
from cluster.core.metadata.image import TopicImage
from cluster.core.outbox import Outbox
from cluster.core.replica.replica import Replica
from storage.config import LogConfig
from storage.directory.cleaners import CleanerManager
from storage.directory.directories import (
    LogDirectories,
    errors_in,
    is_disk_error,
    is_late_disk_error,
    os_error_of,
)
from storage.directory.manager import LogManager, PreparedCheckpoint
from storage.disk.checkpoints import MetaProperties, MetaPropertiesFile
from storage.disk.filesystem import FileSystem, basename, dirname
from storage.disk.lack import is_lack
from storage.draws import Draws
from storage.errors import (
    ConfigError,
    CorruptCheckpoint,
    DirectoryFailed,
    ForeignDirectory,
    OutOfHandles,
    StorageError,
    reason_of,
)
from storage.log import PartitionLog, RecoveryCut
from storage.topics import directory_name, parse_directory_name

logger = logging.getLogger(__name__)

OnOffline = Callable[[str], None]

NO_PREVIOUS_EPOCH = -1
HIGH_WATERMARK_TIMER = "checkpoint.high_watermark"
RECOVERY_POINT_TIMER = "checkpoint.recovery_point"


def text_topic_id(topic_id: str) -> str:
    """Returns 32 hex digits as the 22 characters that `partition.metadata` holds. Kafka: Uuid.toString."""
    if len(topic_id) != 32:
        return topic_id
    return base64.urlsafe_b64encode(bytes.fromhex(topic_id)).decode().rstrip("=")


@final
class DirectoryFailures:
    """Reports failed log directories to listeners. It is made before the directories and before the listeners.

    The listeners are called in the order in which they were added, inside the call that finds the failure.
    """

    def __init__(self) -> None:
        self._listeners: list[OnOffline] = []

    def listen(self, listener: OnOffline) -> None:
        self._listeners.append(listener)

    def report(self, directory: str) -> None:
        for listener in self._listeners:
            listener(directory)


@final
class BrokerLogs:
    """The log directories of one broker. Call `open` first. Every failure of a disk raises OSError or StorageError.

    A directory that fails after `open` is reported to `failures`; a job closes its files, after the jobs that use them.
    """

    def __init__(
        self,
        config: BrokerConfig,
        fs: FileSystem,
        directories: str | Sequence[str],
        draws: Draws,
        outbox: Outbox,
        failures: DirectoryFailures,
        *,
        recovered: Collection[str] = (),
    ) -> None:
        self._config = config
        self._file_system = fs
        if config.log_open_handles_max > 0:
            fs.handles.limit = config.log_open_handles_max
        self._paths = [directories] if isinstance(directories, str) else list(directories)
        self._draws = draws
        self._outbox = outbox
        self._failures = failures
        self._recovered = recovered
        self._directories: LogDirectories | None = None
        # The directories whose `meta.properties` name a cluster.
        self._marked: set[str] = set()
        # What found no descriptor and is tried again with the next checkpoint: deletions of logs, and the jobs of such.
        self._undeleted: dict[TopicPartition, PartitionLog] = {}
        self._unfinished: list[Callable[[], None]] = []
        # So are the logs that could not be set aside: by directory too, as two may have a log of one name.
        self._strays: dict[tuple[str, TopicPartition], LogManager] = {}
        self._cuts: list[RecoveryCut] = []
        self.cluster_id = ""

    @property
    def directories(self) -> LogDirectories:
        assert self._directories is not None, "not started"
        return self._directories

    @property
    def previous_broker_epoch(self) -> int:
        """The broker epoch of the last life if it stopped in order, else NO_PREVIOUS_EPOCH (ELE-9)."""
        directories = self.directories
        epoch = directories.previous_broker_epoch
        return epoch if directories.was_clean and epoch is not None else NO_PREVIOUS_EPOCH

    def open(self, now_ms: int) -> None:
        """Locks the directories and loads every log.

        Raises DirectoryInUse, ForeignDirectory, or NoLogDirectory if all directories fail.
        """
        assert self._directories is None, "opened twice"
        self._directories = directories = LogDirectories(
            self._file_system,
            self._paths,
            self._config.log,
            now_ms,
            self._draws.child("logs"),
            report=self._cuts.append,
            recovered=self._recovered,
        )
        try:
            self._check_owner()
            directories.load(now_ms)
        except BaseException:
            directories.close_handles()
            raise
        assert directories.online, self._paths
        directories.on_offline = self._on_offline
        for cut in self._cuts:
            self._report_cut(cut)
        for each in directories.offline:
            self._report_offline(each.directory, each.reason)

    def _check_owner(self) -> None:
        """Raises ForeignDirectory for the directory of another node, which must not be served under this one's name."""
        try:
            owners = self.directories.read_owners()
        except (CorruptCheckpoint, ConfigError) as error:
            raise ForeignDirectory(str(error)) from error
        assert not self._marked, sorted(self._marked)
        for directory, owner in owners.items():
            if owner.node_id != self._config.node_id:
                raise ForeignDirectory(
                    f"{directory} belongs to node {owner.node_id}, not to {self._config.node_id}"
                )
            if owner.cluster_id:
                self.cluster_id = owner.cluster_id
                self._marked.add(directory)
        assert bool(self._marked) == bool(self.cluster_id), (self.cluster_id, sorted(self._marked))

    def _report_cut(self, cut: RecoveryCut) -> None:
        self._outbox.observe(
            "log.recovered_cut",
            topic_partition=basename(dirname(cut.path)),
            segment=basename(cut.path),
            position=cut.position,
            removed_bytes=cut.removed_bytes,
            reason=cut.reason,
        )

    def _report_offline(self, directory: str, reason: str) -> None:
        self._outbox.observe("log_directory.offline", directory=directory, reason=reason)

    def remember_cluster(self, cluster_id: str) -> None:
        """Marks every directory as this cluster's, at the first registration and when a directory is new."""
        assert self.cluster_id or not self._marked, sorted(self._marked)
        self.cluster_id = self.cluster_id or cluster_id
        if not self.cluster_id:
            return
        owner = MetaProperties(node_id=self._config.node_id, cluster_id=self.cluster_id)
        for manager in list(self.directories.online):
            if manager.directory not in self._marked:
                self._marked.add(manager.directory)
                try:
                    MetaPropertiesFile(self._file_system, manager.directory).write(owner)
                except OSError as error:
                    if is_lack(error):
                        logger.warning("log directory not marked until the next start: reason=%s", error)
                    else:
                        self.directories.fail(manager.directory, error)
        online = self.directories.online
        assert len(self._marked) >= len(online), (sorted(self._marked), len(online))

    def get(self, topic: str, partition: int) -> PartitionLog | None:
        return self.directories.get(topic, partition)

    def is_online(self, topic_partition: TopicPartition) -> bool:
        return self.get(topic_partition.topic, topic_partition.partition) is not None

    def may_be_offline(self, topic_partition: TopicPartition, topic_id: str) -> bool:
        """Returns whether the log of that very topic may be in an offline directory: no online directory has it.

        An empty log made in its place would pass for all that this broker ever had (KIP-112).
        """
        topic, partition = topic_partition
        manager = self.directories.manager_of(topic, partition)
        if manager is not None:
            known_id = manager.topic_ids.get(directory_name(topic, partition))
            if known_id is None or fencing.is_same_topic(text_topic_id(topic_id), known_id):
                return False
        return bool(self.directories.offline)

    def open_or_create(
        self, topic: TopicImage, partition: int, config: LogConfig, now_ms: int
    ) -> PartitionLog:
        """Returns the log of that very topic, created if there is none. Raises OSError, StorageError.

        The log of an earlier topic of the same name, which no removal has deleted, is set aside first (ROL-5, LL4).
        """
        topic_partition = TopicPartition(topic.name, partition)
        topic_id = text_topic_id(topic.topic_id)
        manager = self.directories.manager_of(topic.name, partition)
        if manager is not None:
            known_id = manager.topic_ids.get(directory_name(topic.name, partition))
            is_other = known_id is not None and not fencing.is_same_topic(topic_id, known_id)
            # One that waits for its deletion and has no id may be of any topic.
            if is_other or (known_id is None and topic_partition in self._undeleted):
                self._set_aside(manager, topic_partition)
            self._strays.pop((manager.directory, topic_partition), None)
        # It is placed here again. Where an earlier topic's log could not be set aside, its deletion still waits.
        self._undeleted.pop(topic_partition, None)
        is_known = self.get(topic.name, partition) is not None
        log = self.directories.create(topic.name, partition, config, topic_id, now_ms)
        if is_known:
            log.update_config(config)
        return log

    def delete(self, replica: Replica) -> None:
        """Deletes the log of a replica that was removed; a job deletes the files of many segments.

        Without descriptors for it, the log is deleted with the next checkpoint of high watermarks, unless the
        partition is placed here again.
        """
        self._delete(replica.topic_partition, replica.log)

    def delete_unopened(self, topic_partition: TopicPartition, topic_id: str) -> None:
        """Deletes the log of that very topic of which there is no replica: its role waited for a descriptor."""
        topic, partition = topic_partition
        manager = self.directories.manager_of(topic, partition)
        log = self.get(topic, partition)
        if manager is None or log is None:
            return
        known_id = manager.topic_ids.get(directory_name(topic, partition))
        if known_id is None or fencing.is_same_topic(text_topic_id(topic_id), known_id):
            self._delete_alone(topic_partition, log)

    def _delete(self, topic_partition: TopicPartition, log: PartitionLog) -> None:
        topic, partition = topic_partition
        try:
            if len(log.local.segments) <= self._config.steps.deleted_segments:
                self.directories.delete(topic, partition)
                return
            delete_files = self.directories.begin_deletion(topic, partition)
        except OutOfHandles as error:
            logger.warning("log not deleted yet: log=%s reason=%s", log.directory, error)
            self._undeleted[topic_partition] = log
            return
        if delete_files is not None:
            self._run_deletion(delete_files)

    def _run_deletion(self, delete_files: Callable[[], None]) -> None:
        def then(_: int, error: Exception | None) -> None:
            if error is None:
                return
            if is_lack(error):
                self._unfinished.append(delete_files)
            else:
                self.on_disk_failed(None, error)

        self._outbox.run_job("delete", delete_files, then)

    def _delete_again(self) -> None:
        """Tries the deletions again that found no descriptor, and to set the logs aside that did not."""
        undeleted, self._undeleted = self._undeleted, {}
        unfinished, self._unfinished = self._unfinished, []
        for delete_files in unfinished:
            self._run_deletion(delete_files)
        for topic_partition, log in undeleted.items():
            # Where its directory is offline now, a log of that name in another one is not meant.
            if self.get(*topic_partition) is log:
                self._delete_alone(topic_partition, log)
        strays, self._strays = self._strays, {}
        for (_, topic_partition), manager in strays.items():
            log_left = manager.get(*topic_partition)
            if manager in self.directories.online and log_left is not None:
                try:
                    self._set_aside_alone(manager, topic_partition)
                except (StorageError, OSError) as error:
                    self.on_disk_failed(log_left, error)

    def _delete_alone(self, topic_partition: TopicPartition, log: PartitionLog) -> None:
        try:
            self._delete(topic_partition, log)
        except (StorageError, OSError) as error:
            self.on_disk_failed(log, error)

    def set_strays_aside(self, expected: dict[TopicPartition, str]) -> None:
        """Renames the logs that the first image does not place here, and keeps them, as Kafka does (ROL-5, LL4)."""
        for manager in list(self.directories.online):
            for topic_partition in self._strays_in(manager, expected):
                if not self._set_aside_alone(manager, topic_partition):
                    break

    def _set_aside_alone(self, manager: LogManager, topic_partition: TopicPartition) -> bool:
        """Sets a stray aside or, without descriptors for it, leaves that to the next checkpoint of high watermarks.

        Returns whether its directory is online then.
        """
        try:
            self._set_aside(manager, topic_partition)
        except OutOfHandles as error:
            logger.warning("stray log not set aside yet: log=%s reason=%s", topic_partition, error)
            self._strays[manager.directory, topic_partition] = manager
        except (StorageError, OSError) as error:
            if not is_disk_error(error):
                raise
            self.directories.fail(manager.directory, error)
            return False
        return True

    def _strays_in(
        self, manager: LogManager, expected: dict[TopicPartition, str]
    ) -> Iterator[TopicPartition]:
        for name in list(manager.logs):
            parsed = parse_directory_name(name)
            topic_partition = TopicPartition(parsed.topic, parsed.partition)
            wanted_id = expected.get(topic_partition)
            known_id = manager.topic_ids.get(name)
            if wanted_id is None or not (
                known_id is None or fencing.is_same_topic(text_topic_id(wanted_id), known_id)
            ):
                yield topic_partition

    def _set_aside(self, manager: LogManager, topic_partition: TopicPartition) -> None:
        path = manager.set_aside(topic_partition.topic, topic_partition.partition)
        self._outbox.observe("replica.set_aside", topic_partition=str(topic_partition), path=path or "")

    def new_cleaners(self, is_wanted: Callable[[PartitionLog], bool]) -> dict[str, CleanerManager]:
        """Makes one cleaner for each directory, which follows the logs that are added to and removed from it.

        It works on those that are wanted when it looks for one. A directory whose checkpoint of the cleaner cannot be
        created goes offline. Raises DirectoryFailed if no other one is left.
        """
        cleaners = {}
        for manager in list(self.directories.online):
            directory = manager.directory
            try:
                cleaners[directory] = CleanerManager(self._file_system, directory, manager.logs, is_wanted)
            except OSError as error:
                if is_lack(error):
                    raise
                failure = DirectoryFailed(f"{directory}: open failed: {reason_of(error)}")
                failure.__cause__ = error
                self.directories.fail(directory, failure)
        return cleaners

    def on_disk_failed(self, log: PartitionLog | None, error: Exception) -> None:
        """Takes the directory whose disk raised `error` offline; `log` is the log whose call raised it (AP16).

        Raises `error` if it does not come from a disk, as that of a lack of descriptors, or if no other directory is
        left (PRO-9).
        """
        os_error = os_error_of(error)
        path = None if os_error is None else os_error.filename
        if log is not None and (log.online.reason is not None or path is None):
            path = log.directory
        is_disks = is_disk_error(error) or (log is not None and log.online.reason is not None)
        if not is_disks or not isinstance(path, str):
            raise error
        directory = self.directories.directory_of(path)
        if directory is not None:
            self.directories.fail(directory, error)
        elif not self._is_offline(path):
            raise error

    def _is_offline(self, path: str) -> bool:
        """Whether `path` is in a directory that is already offline: later errors from it are ignored."""
        return any(path.startswith(each.directory + "/") for each in self.directories.offline)

    def find_offline_log(self) -> PartitionLog | None:
        """Returns a log that failed and whose directory is still online; None if there is none."""
        for manager in self.directories.online:
            for log in manager.logs.values():
                if log.online.reason is not None:
                    return log
        return None

    def _on_offline(self, manager: LogManager, reason: str) -> None:
        self._report_offline(manager.directory, reason)
        self._outbox.run_job("close", manager.close_handles, note_unclosed)
        self._failures.report(manager.directory)

    def start_checkpoints(self, now_ms: int) -> None:
        self._arm_high_watermarks(now_ms)
        self._arm_recovery_points(now_ms)

    def _arm_high_watermarks(self, now_ms: int) -> None:
        at_ms = now_ms + self._config.replica_high_watermark_checkpoint_interval_ms
        self._outbox.set_timer(HIGH_WATERMARK_TIMER, at_ms, self._on_high_watermark_timer)

    def _on_high_watermark_timer(self, now_ms: int) -> None:
        """Starts a job that writes the present high watermarks; a late checkpoint does no harm (HWM-8)."""
        self._delete_again()
        prepared = [(manager, manager.prepare_checkpoint()) for manager in self.directories.online]
        failed: dict[str, DirectoryFailed | OutOfHandles] = {}

        def write_all() -> None:
            for manager, write in prepared:
                try:
                    write()
                except (DirectoryFailed, OutOfHandles) as error:
                    failed[manager.directory] = error
            if failed:
                # A stop that has begun meanwhile learns of it in no other way.
                raise ExceptionGroup("checkpoints not written", list(failed.values()))

        self._outbox.run_job(
            "checkpoint", write_all, lambda at_ms, error: self._on_written(at_ms, prepared, failed, error)
        )

    def _on_written(
        self,
        now_ms: int,
        prepared: list[tuple[LogManager, PreparedCheckpoint]],
        failed: dict[str, DirectoryFailed | OutOfHandles],
        error: Exception | None,
    ) -> None:
        """Puts in place what the job has written: not inside the job, which a deletion of a topic may overtake."""
        if error is not None and not failed:
            raise StorageError(f"checkpoint of high watermarks: {error}") from error
        for manager, written in prepared:
            # Its directory may have failed since.
            if manager not in self.directories.online:
                continue
            try:
                if manager.directory in failed:
                    raise failed[manager.directory]
                written.adopt()
            except OutOfHandles as lack:
                # The next one has newer offsets.
                logger.warning("checkpoint not written: reason=%s", lack)
            except DirectoryFailed as reason:
                self.directories.fail(manager.directory, reason)
        self._arm_high_watermarks(now_ms)

    def _arm_recovery_points(self, now_ms: int) -> None:
        at_ms = now_ms + self._config.log_flush_offset_checkpoint_interval_ms
        self._outbox.set_timer(RECOVERY_POINT_TIMER, at_ms, self._on_recovery_point_timer)

    def _on_recovery_point_timer(self, now_ms: int) -> None:
        """Writes the recovery points within the step, not in a job.

        A truncation lowers the value in the file at once; an older value, written later, would raise it again.
        """
        for manager in list(self.directories.online):
            try:
                manager.checkpoint_recovery_points()
            except OutOfHandles as lack:
                # The older points of the file are right, too: a start recovers more.
                logger.warning("recovery points not written: reason=%s", lack)
            except DirectoryFailed as error:
                self.directories.fail(manager.directory, error)
        self._arm_recovery_points(now_ms)

    def distrust(self, directory: str, error: Exception) -> None:
        """Lets an orderly stop leave no mark in a directory of which nobody hears any more that its disk has failed."""
        for manager in self.directories.online:
            if manager.directory == directory:
                manager.distrust(error)

    def distrust_disk_of(self, error: Exception) -> None:
        """Distrusts each directory whose disk has raised what a job has met; does nothing if that is of no disk."""
        for each in errors_in(error):
            os_error = os_error_of(each)
            path = None if os_error is None else os_error.filename
            directory = self.directories.directory_of(path) if isinstance(path, str) else None
            if directory is not None and is_late_disk_error(each):
                self.distrust(directory, each)

    def prepare_shutdown(self, broker_epoch: int, now_ms: int) -> Callable[[], None]:
        """Returns the job of an orderly stop: it flushes and closes all logs, then marks the stop as clean (STO-3).

        Nothing else may use the logs from this call on.
        """
        directories = self.directories

        def shut_down() -> None:
            directories.shutdown(broker_epoch, now_ms)

        return shut_down

    def close_handles(self) -> None:
        """Closes all files and locks, and writes nothing, as a crash would."""
        if self._directories is not None:
            self._directories.close_handles()


def note_unclosed(now_ms: int, error: Exception | None) -> None:
    """Ends a job that closed the files of an offline directory: an error is logged, and nothing depends on it."""
    if error is not None:
        logger.error("files of an offline log directory not closed: reason=%s", error)
