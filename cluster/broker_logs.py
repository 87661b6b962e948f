"""A broker's log directory: the log manager, whose directory it is, and its checkpoints.

Kafka: LogManager, BrokerMetadataCheckpoint, ReplicaManager.checkpointHighWatermarks.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import final

from cluster.config import BrokerConfig
from cluster.messages import TopicPartition
from cluster.metadata import TopicImage
from cluster.replica.outbox import Outbox
from cluster.replica.replica import Replica
from storage.checkpoints import MetaProperties, MetaPropertiesFile
from storage.cleaner_manager import CleanerManager
from storage.config import LogConfig
from storage.draws import Draws
from storage.errors import CorruptCheckpoint, ForeignDirectory, StorageError
from storage.filesystem import FileSystem, basename, dirname
from storage.log import PartitionLog, RecoveryCut
from storage.log_manager import LogManager
from storage.topics import directory_name, parse_directory_name

HIGH_WATERMARK_TIMER = "checkpoint.high_watermark"
RECOVERY_POINT_TIMER = "checkpoint.recovery_point"


def text_topic_id(topic_id: str) -> str:
    """32 hex digits as the 22 characters that `partition.metadata` holds. Kafka: Uuid.toString."""
    if len(topic_id) != 32:
        return topic_id
    return base64.urlsafe_b64encode(bytes.fromhex(topic_id)).decode().rstrip("=")


@final
class BrokerLogs:
    """`open` first. Everything that can fail on the disk raises OSError or StorageError."""

    def __init__(
        self, config: BrokerConfig, fs: FileSystem, directory: str, draws: Draws, outbox: Outbox
    ) -> None:
        self._config = config
        self._file_system = fs
        self._directory = directory
        self._draws = draws
        self._outbox = outbox
        self._manager: LogManager | None = None
        self._cuts: list[RecoveryCut] = []
        self.cluster_id = ""

    @property
    def manager(self) -> LogManager:
        assert self._manager is not None, "not started"
        return self._manager

    # start

    def open(self, now_ms: int) -> None:
        """Locks the directory and loads every log. Raises DirectoryInUse."""
        self._manager = LogManager(
            self._file_system,
            self._directory,
            self._config.log,
            now_ms,
            self._draws.child("logs"),
            report=self._cuts.append,
        )
        try:
            self._check_owner()
            self._manager.load(now_ms)
        except BaseException:
            self._manager.close_handles()
            raise
        for cut in self._cuts:
            self._tell_cut(cut)

    def _check_owner(self) -> None:
        """The directory of another node must not be served under this one's name."""
        try:
            owner = MetaPropertiesFile(self._file_system, self._directory).read()
        except CorruptCheckpoint as error:
            raise ForeignDirectory(str(error)) from error
        if owner is None:
            return
        if owner.node_id != self._config.node_id:
            raise ForeignDirectory(
                f"{self._directory} belongs to node {owner.node_id}, not to {self._config.node_id}"
            )
        self.cluster_id = owner.cluster_id or ""

    def _tell_cut(self, cut: RecoveryCut) -> None:
        self._outbox.observe(
            "log.recovered_cut",
            topic_partition=basename(dirname(cut.path)),
            segment=basename(cut.path),
            position=cut.position,
            removed_bytes=cut.removed_bytes,
            reason=cut.reason,
        )

    def remember_cluster(self, cluster_id: str) -> None:
        """From the first registration on the directory belongs to that cluster."""
        if self.cluster_id or not cluster_id:
            return
        self.cluster_id = cluster_id
        file = MetaPropertiesFile(self._file_system, self._directory)
        file.write(MetaProperties(node_id=self._config.node_id, cluster_id=cluster_id))

    # partitions

    def open_or_create(
        self, topic: TopicImage, partition: int, config: LogConfig, now_ms: int
    ) -> PartitionLog:
        """The log of that very topic: one of an earlier topic of the same name goes first (ROL-5)."""
        topic_id = text_topic_id(topic.topic_id)
        known_id = self.manager.topic_ids.get(directory_name(topic.name, partition))
        if known_id is not None and known_id != topic_id:
            self.manager.delete(topic.name, partition)
        log = self.manager.get(topic.name, partition)
        if log is None:
            return self.manager.create(topic.name, partition, config, topic_id, now_ms)
        log.update_config(config)
        return log

    def delete(self, replica: Replica) -> None:
        self.manager.delete(replica.topic_partition.topic, replica.topic_partition.partition)

    def set_strays_aside(self, expected: dict[TopicPartition, str]) -> None:
        """At the first image: what it does not know is kept under another name, as Kafka keeps it (ROL-5, LL4)."""
        for name in list(self.manager.logs):
            parsed = parse_directory_name(name)
            topic_partition = TopicPartition(parsed.topic, parsed.partition)
            wanted_id = expected.get(topic_partition)
            known_id = self.manager.topic_ids.get(name)
            is_other = wanted_id is not None and known_id not in (None, text_topic_id(wanted_id))
            if wanted_id is None or is_other:
                path = self.manager.set_aside(parsed.topic, parsed.partition)
                self._outbox.observe(
                    "replica.set_aside", topic_partition=str(topic_partition), path=path or ""
                )

    def new_cleaner(self) -> CleanerManager:
        """Over the logs as they come and go."""
        return CleanerManager(self._file_system, self._directory, self.manager.logs)

    # checkpoints

    def start_checkpoints(self, now_ms: int) -> None:
        self._arm_high_watermarks(now_ms)
        self._arm_recovery_points(now_ms)

    def _arm_high_watermarks(self, now_ms: int) -> None:
        at_ms = now_ms + self._config.replica_high_watermark_checkpoint_interval_ms
        self._outbox.set_timer(HIGH_WATERMARK_TIMER, at_ms, self._on_high_watermark_timer)

    def _on_high_watermark_timer(self, now_ms: int) -> None:
        """HWM-8: late is harmless. The values are of now, the writing is a job."""
        write = self.manager.prepare_checkpoint()
        self._outbox.run_job("checkpoint", write, lambda at_ms, error: self._on_written(at_ms, error))

    def _on_written(self, now_ms: int, error: Exception | None) -> None:
        if error is not None:
            raise StorageError(f"checkpoint of high watermarks: {error}") from error
        self._arm_high_watermarks(now_ms)

    def _arm_recovery_points(self, now_ms: int) -> None:
        at_ms = now_ms + self._config.log_flush_offset_checkpoint_interval_ms
        self._outbox.set_timer(RECOVERY_POINT_TIMER, at_ms, self._on_recovery_point_timer)

    def _on_recovery_point_timer(self, now_ms: int) -> None:
        """Within the step: a truncation lowers the file at once, and an older value must not raise it again."""
        self.manager.checkpoint_recovery_points()
        self._arm_recovery_points(now_ms)

    # end

    def prepare_shutdown(self, broker_epoch: int, now_ms: int) -> Callable[[], None]:
        """Flush, close, checkpoints, the mark of a clean stop: nobody else may touch the logs from here on."""
        manager = self.manager

        def shut_down() -> None:
            manager.shutdown(broker_epoch, now_ms)

        return shut_down

    def close_handles(self) -> None:
        """As in a crash."""
        if self._manager is not None:
            self._manager.close_handles()
