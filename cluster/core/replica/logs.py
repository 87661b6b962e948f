"""What the replicas of a broker ask of its log directories, and of those who work on logs beside them."""

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
        """Takes the directory offline that is to blame for `error`, which a call on `log` raised where it is given.

        Raises `error` where that cannot be: the disk is not to blame, or no directory would be left.
        """

    def may_lie_offline(self, topic_partition: TopicPartition) -> bool:
        """Whether its log is in no directory that works, and not all of them do."""

    def open_or_create(
        self, topic: TopicImage, partition: int, config: LogConfig, now_ms: int
    ) -> PartitionLog:
        """Raises OSError, StorageError."""

    def delete(self, replica: Replica) -> None:
        """Deletes the log of a replica that is no replica any more. Raises OSError, StorageError."""

    def set_strays_aside(self, expected: dict[TopicPartition, str]) -> None:
        """Renames the logs that are on disk and not among `expected` (with its topic id): they belong to nobody."""


class LogKeeper(Protocol):
    """The work on logs that nobody asks for (retention, compaction); it must know what replicas do to them."""

    def on_log_opened(self, replica: Replica) -> None:
        """Called once the replica is known, before anything is read or written."""

    def on_log_truncated(self, replica: Replica) -> None:
        """Called after the log was cut."""

    def on_log_removed(self, replica: Replica) -> None:
        """Called before the log is deleted."""
