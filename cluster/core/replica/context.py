"""What the parts of one broker's replica layer share."""

from __future__ import annotations

from typing import final

from cluster.core.config import BrokerConfig
from cluster.core.errors import ClusterError, ErrorCode
from cluster.core.messages import NO_EPOCH, NO_LEADER, TopicPartition
from cluster.core.metadata.image import MetadataImage
from cluster.core.outbox import Outbox
from cluster.core.replica.logs import Logs
from cluster.core.replica.replica import Replica
from storage.errors import StorageError

NO_BROKER_EPOCH = -1


@final
class ReplicaContext:
    """`touched` collects partitions whose end, high watermark, role or flush moved in this step.

    Whoever is parked on one of them is looked at before the step ends; where only the log grew, those who wait for
    records: what has been produced is no safer for it.

    `offline` are the partitions placed here whose log directory cannot be used: there is no replica of them, and none
    is made in this life.
    """

    def __init__(self, config: BrokerConfig, image: MetadataImage, outbox: Outbox, logs: Logs) -> None:
        self.config = config
        self.broker_id = config.node_id
        self.image = image
        self.outbox = outbox
        self.logs = logs
        # That of this life, once registered.
        self.broker_epoch = NO_BROKER_EPOCH
        self.is_shutting_down = False
        self.replicas: dict[TopicPartition, Replica] = {}
        self.offline: set[TopicPartition] = set()
        # Until the controller has been told.
        self.has_newly_offline = False
        # Whether more than the end of the log moved.
        self._touched: dict[TopicPartition, bool] = {}

    def touch(self, topic_partition: TopicPartition) -> None:
        self._touched[topic_partition] = True

    def take_touched(self) -> dict[TopicPartition, bool]:
        """Returns the partitions touched since the last call, each with whether more than its log end moved."""
        touched, self._touched = self._touched, {}
        return touched

    def replica(self, topic_partition: TopicPartition) -> Replica:
        """Raises ClusterError: a partition of others is told apart from one that nobody knows."""
        replica = self.replicas.get(topic_partition)
        if replica is not None:
            return replica
        if topic_partition in self.offline:
            raise ClusterError(ErrorCode.KAFKA_STORAGE_ERROR, f"{topic_partition} is in an offline directory")
        if self.image.partition(topic_partition) is not None:
            raise ClusterError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{topic_partition} is not here")
        raise ClusterError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic_partition} is not known")

    def leader_hint(self, topic_partition: TopicPartition) -> tuple[int, int]:
        """(leader, leader epoch) for a client that asked the wrong broker."""
        registration = self.image.partition(topic_partition)
        if registration is None:
            return NO_LEADER, NO_EPOCH
        return registration.leader, registration.leader_epoch

    def check_online(self, topic_partition: TopicPartition, error: StorageError) -> None:
        """PRO-9: a log that went offline takes its directory with it before anything else is appended (KAFKA-10778).

        With the last directory the broker ends: raised again.
        """
        replica = self.replicas.get(topic_partition)
        if replica is not None and replica.log.online.reason is not None:
            self.logs.on_disk_failed(replica.log, error)

    def take_offline(self, topic_partition: TopicPartition) -> None:
        """Whoever waits for it is answered, and the controller told, at the end of the step."""
        self.offline.add(topic_partition)
        self.has_newly_offline = True
        self.touch(topic_partition)

    def forget_offline(self, topic: str) -> None:
        """Forgets a deleted topic: one that is created again has nothing in an offline directory."""
        self.offline = {each for each in self.offline if each.topic != topic}

    def advance_high_watermark(self, replica: Replica, now_ms: int) -> bool:
        """On a leader, after one of the events of HWM-5."""
        leader = replica.leader
        if leader is None or not leader.maybe_advance_high_watermark(now_ms):
            return False
        self.tell_high_watermark(replica)
        return True

    def tell_high_watermark(self, replica: Replica) -> None:
        """HWM-7: it wakes who waits."""
        self._touched[replica.topic_partition] = True
        self.outbox.observe(
            "replica.high_watermark",
            topic_partition=replica.name,
            leader_epoch=replica.leader_epoch,
            high_watermark=replica.log.marks.high_watermark,
            role=str(replica.role),
        )

    def tell_appended(self, replica: Replica, first_offset: int, last_offset: int, origin: str) -> None:
        self._touched.setdefault(replica.topic_partition, False)
        self.outbox.observe(
            "replica.appended",
            topic_partition=replica.name,
            leader_epoch=replica.leader_epoch,
            first_offset=first_offset,
            last_offset=last_offset,
            origin=origin,
        )
