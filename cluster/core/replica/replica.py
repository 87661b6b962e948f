"""One broker's copy of a partition: its log, its role, and the epochs under which it has that role.

Kafka: Partition.
"""

from __future__ import annotations

from enum import StrEnum
from typing import final

from cluster.core.errors import ClusterError, ErrorCode
from cluster.core.fencing import LogView
from cluster.core.messages import (
    NO_EPOCH,
    NO_LEADER,
    FetchPartitionResponse,
    ReplicaDescription,
    TopicPartition,
)
from cluster.core.metadata.image import PartitionRegistration
from cluster.core.replica.follower import Follower
from cluster.core.replica.isr import committed_isr, maximal_isr
from cluster.core.replica.leader import Leader
from storage.log import PartitionLog


class Role(StrEnum):
    """The role that a broker has in a partition."""

    LEADER = "leader"
    FOLLOWER = "follower"
    # The partition has no leader.
    OFFLINE = "offline"


@final
class Replica:
    """One replica. At most one of `leader` and `follower` is set, and neither before the first role."""

    def __init__(
        self, topic_partition: TopicPartition, topic_id: str, log: PartitionLog, now_ms: int
    ) -> None:
        self.topic_partition = topic_partition
        # The partition, as observers read it.
        self.name = str(topic_partition)
        self.topic_id = topic_id
        self.log = log
        self.leader: Leader | None = None
        self.follower: Follower | None = None
        self.leader_id = NO_LEADER
        self.leader_epoch = NO_EPOCH
        # The history that the log's offsets belong to now.
        self.view: LogView = (topic_id, NO_EPOCH)
        self.partition_epoch = -1
        self.replicas: tuple[int, ...] = ()
        self.is_flushing = False
        # When the last flush ended, or the log was opened.
        self.flushed_ms = now_ms
        # The last answer to a fetch that found nothing new here, under the present registration.
        self.quiet_answer: FetchPartitionResponse | None = None

    @property
    def role(self) -> Role:
        if self.leader is not None:
            return Role.LEADER
        return Role.FOLLOWER if self.leader_id != NO_LEADER else Role.OFFLINE

    @property
    def committed_isr(self) -> tuple[int, ...]:
        """The committed ISR in ascending order; empty on a follower, which does not know it (ROL-3)."""
        return () if self.leader is None else tuple(sorted(committed_isr(self.leader.isr).isr))

    @property
    def maximal_isr(self) -> tuple[int, ...]:
        return () if self.leader is None else tuple(sorted(maximal_isr(self.leader.isr)))

    def adopt(self, registration: PartitionRegistration) -> None:
        """Takes over what the controller has decided, whatever the role; it is never older than what is known."""
        assert registration.partition_epoch >= self.partition_epoch, (registration, self.partition_epoch)
        assert registration.leader_epoch >= self.leader_epoch, (registration, self.leader_epoch)
        self.replicas = registration.replicas
        self.leader_id = registration.leader
        self.leader_epoch = registration.leader_epoch
        self.view = (self.topic_id, self.leader_epoch)
        self.partition_epoch = registration.partition_epoch
        # It names the leader and the epoch of the registration before.
        self.quiet_answer = None

    def check_leads(self) -> Leader:
        """Returns the state as leader. Raises ClusterError if this broker does not lead the partition."""
        if self.leader is None:
            raise ClusterError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{self.topic_partition} is led by {self.leader_id}"
            )
        return self.leader

    def describe(self) -> ReplicaDescription:
        """Returns the replica as tables and checks read it."""
        return ReplicaDescription(
            topic_partition=self.topic_partition,
            role=self.role.value,
            leader=self.leader_id,
            leader_epoch=self.leader_epoch,
            isr=self.committed_isr,
            log_start_offset=self.log.marks.log_start_offset,
            high_watermark=self.log.marks.high_watermark,
            log_end_offset=self.log.local.log_end_offset,
            min_insync_replicas=self.log.local.config.min_insync_replicas,
        )
