"""What the replicas of a broker need from its log directories and from the timed work on logs."""

from __future__ import annotations

from typing import Protocol

from cluster.core.messages import TopicPartition
from cluster.core.metadata.image import TopicImage
from cluster.core.replica.replica import Replica
from storage.config import LogConfig
from storage.log import PartitionLog


class Logs(Protocol):
    """The log directories, as far as replicas need them."""

    def on_disk_failed(self, log: PartitionLog | None, error: Exception) -> None:
        """Takes the directory whose disk raised `error` offline; `log` is the log whose call raised it, if any.

        Raises `error` if it does not come from a disk, or if no directory would be left.
        """

    def is_online(self, topic_partition: TopicPartition) -> bool:
        """Returns whether an online directory has a log of the partition."""

    def may_be_offline(self, topic_partition: TopicPartition, topic_id: str) -> bool:
        """Returns whether the log of that very topic may be in an offline directory: there is one, and no online
        directory has the log.
        """

    def open_or_create(
        self, topic: TopicImage, partition: int, config: LogConfig, now_ms: int
    ) -> PartitionLog:
        """Returns the log of the partition, created if there is none. Raises OSError, StorageError.

        LogHalfMade says that the directory has been taken offline, and that the log must not be made in another one.
        """

    def delete(self, replica: Replica) -> None:
        """Deletes the log of a replica that was removed. Raises OSError, StorageError."""

    def delete_unopened(self, topic_partition: TopicPartition, topic_id: str) -> None:
        """Deletes the log of that very topic, if there is one of which no replica was made."""

    def set_strays_aside(self, expected: dict[TopicPartition, str]) -> None:
        """Renames the logs that are not among `expected`, topic ids by partition: the metadata does not know them."""


class LogKeeper(Protocol):
    """The timed work on logs (retention, compaction), which must learn what replicas do to them."""

    def on_log_opened(self, replica: Replica) -> None:
        """Notes a new replica, before its log is read or written."""

    def on_log_truncated(self, replica: Replica) -> None:
        """Notes that the log was cut."""

    def on_log_removed(self, replica: Replica) -> None:
        """Notes that the log is about to be deleted."""
