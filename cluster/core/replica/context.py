"""The state that the parts of one broker's replica layer share."""

from __future__ import annotations

from typing import final

from cluster.core import fencing
from cluster.core.config import BrokerConfig
from cluster.core.errors import NAMES_LEADER, ClusterError, ErrorCode
from cluster.core.messages import (
    NO_BROKER_EPOCH,
    NO_EPOCH,
    NO_LEADER,
    NO_TOPIC_ID,
    Header,
    OfflinePartition,
    TopicPartition,
)
from cluster.core.metadata.image import CurrentImage, MetadataImage
from cluster.core.outbox import Outbox
from cluster.core.replica.follower import FetchState
from cluster.core.replica.logs import Logs
from cluster.core.replica.replica import Replica
from storage.errors import StorageError


@final
class ReplicaContext:
    """The replicas of one broker, and the partitions touched in the present step.

    A partition is touched when its log end, high watermark, role or flush moves. Before the step ends, the requests
    that wait for it are looked at again; if only its log end moved, just the fetches: a longer log makes no produced
    record safer.

    `offline` holds the partitions placed here whose log directory cannot be used. They have no replica, and get none
    in this life.
    """

    def __init__(self, config: BrokerConfig, metadata: CurrentImage, outbox: Outbox, logs: Logs) -> None:
        self.config = config
        self.broker_id = config.node_id
        self.metadata = metadata
        self.outbox = outbox
        self.logs = logs
        # The broker epoch of this life, once it is registered.
        self.broker_epoch = NO_BROKER_EPOCH
        # This broker as its requests to other nodes name it.
        self.header = Header(broker_id=config.node_id, incarnation="")
        self.is_shutting_down = False
        self.replicas: dict[TopicPartition, Replica] = {}
        # By offline partition: the id of its topic.
        self.offline: dict[TopicPartition, str] = {}
        # Whether there are offline partitions that no heartbeat has named yet.
        self.has_newly_offline = False
        # By touched partition: whether more than its log end moved.
        self._touched: dict[TopicPartition, bool] = {}

    def adopt_image(self, image: MetadataImage) -> None:
        """Acts on `image` from now on, and says so with everything that is observed."""
        before = self.metadata.image.next_offset
        assert before <= image.next_offset, (before, image.next_offset)
        self.metadata.image = image
        self.outbox.metadata_offset = image.next_offset

    def touch(self, topic_partition: TopicPartition) -> None:
        self._touched[topic_partition] = True

    def take_touched(self) -> dict[TopicPartition, bool]:
        """Returns the partitions touched since the last call, each with whether more than its log end moved."""
        touched, self._touched = self._touched, {}
        return touched

    def replica(self, topic_partition: TopicPartition, topic_id: str) -> Replica:
        """Returns the replica of the partition, whose topic id the caller compares.

        Raises ClusterError, with different codes for a partition that is offline here, that other brokers have, or
        that the metadata does not know by this name, or by this id.
        """
        replica = self.replicas.get(topic_partition)
        if replica is not None:
            return replica
        if topic_id != NO_TOPIC_ID:
            fencing.check_known_topic_id(topic_partition, topic_id, self.topic_id(topic_partition.topic))
        if topic_partition in self.offline:
            raise ClusterError(ErrorCode.KAFKA_STORAGE_ERROR, f"{topic_partition} is in an offline directory")
        if self.metadata.image.partition(topic_partition) is not None:
            raise ClusterError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{topic_partition} is not here")
        raise ClusterError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic_partition} is not known")

    def topic_id(self, topic: str) -> str:
        """Returns the id of the topic that has the name in the metadata, NO_TOPIC_ID if there is none."""
        known = self.metadata.image.topics.get(topic)
        return NO_TOPIC_ID if known is None else known.topic_id

    def offline_partitions(self) -> tuple[OfflinePartition, ...]:
        """Returns the offline partitions in order, as heartbeats name them."""
        return tuple(
            [
                OfflinePartition(topic_partition=each, topic_id=self.offline[each])
                for each in sorted(self.offline)
            ]
        )

    def leader_hint(self, topic_partition: TopicPartition, error: ErrorCode) -> tuple[int, int]:
        """Returns (leader, leader epoch), for a client that asked the wrong broker; none with another error."""
        if error not in NAMES_LEADER:
            return NO_LEADER, NO_EPOCH
        registration = self.metadata.image.partition(topic_partition)
        if registration is None:
            return NO_LEADER, NO_EPOCH
        return registration.leader, registration.leader_epoch

    def check_online(self, topic_partition: TopicPartition, error: StorageError) -> None:
        """Takes the directory offline if `error` took the partition's log offline; else it does nothing.

        Nothing else is appended to the directory before that. Raises `error` if it is the last directory: then the
        broker ends (PRO-9, KAFKA-10778).
        """
        replica = self.replicas.get(topic_partition)
        if replica is not None and replica.log.online.reason is not None:
            self.logs.on_disk_failed(replica.log, error)

    def fail_follower(self, replica: Replica, error: StorageError) -> None:
        """Ends the fetches of a follower whose log raised `error`, until its next leader epoch.

        Does nothing if the directory has failed within the same call: the role has ended with it. Raises `error` if it
        took the last log directory offline.
        """
        follower = replica.follower
        if follower is None:
            assert replica.topic_partition in self.offline, replica.name
            return
        self.check_online(replica.topic_partition, error)
        follower.state = FetchState.FAILED
        self.outbox.observe("replica.failed", topic_partition=replica.name, reason=str(error))

    def take_offline(self, topic_partition: TopicPartition, topic_id: str) -> None:
        """Notes that the partition is offline.

        At the end of the step the requests that wait for it are answered, and the controller is informed.
        """
        assert topic_partition not in self.replicas, topic_partition
        assert topic_partition not in self.offline, topic_partition
        self.offline[topic_partition] = topic_id
        self.has_newly_offline = True
        self.touch(topic_partition)

    def forget_offline(self, topic_id: str) -> None:
        """Forgets a deleted topic: a new topic of the same name has nothing in an offline directory."""
        kept = {
            each: known for each, known in self.offline.items() if not fencing.is_same_topic(known, topic_id)
        }
        assert len(kept) <= len(self.offline), (topic_id, len(kept))
        self.offline = kept

    def advance_high_watermark(self, replica: Replica, now_ms: int) -> bool:
        """Raises a leader's high watermark as far as allowed; called after each event that can move it (HWM-5).

        Returns whether it moved. Does nothing on a follower. A disk that fails as a place is looked up takes only its
        directory offline: raises StorageError if it was the last one.
        """
        leader = replica.leader
        try:
            if leader is None or not leader.maybe_advance_high_watermark(now_ms):
                return False
        except StorageError as error:
            self.check_online(replica.topic_partition, error)
            return False
        self.report_high_watermark(replica)
        return True

    def report_high_watermark(self, replica: Replica) -> None:
        """Reports a high watermark that moved, and wakes the requests that wait for it (HWM-7)."""
        self._touched[replica.topic_partition] = True
        self.outbox.observe(
            "replica.high_watermark",
            topic_partition=replica.name,
            leader_epoch=replica.leader_epoch,
            high_watermark=replica.log.marks.high_watermark,
            role=str(replica.role),
        )

    def report_appended(self, replica: Replica, first_offset: int, last_offset: int, origin: str) -> None:
        """Reports an append of `first_offset` to `last_offset` (inclusive), and wakes the fetches that wait for it."""
        self._touched.setdefault(replica.topic_partition, False)
        self.outbox.observe(
            "replica.appended",
            topic_partition=replica.name,
            leader_epoch=replica.leader_epoch,
            first_offset=first_offset,
            last_offset=last_offset,
            origin=origin,
        )
