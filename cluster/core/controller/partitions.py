"""Changes of partitions: those proposed by a leader (CTL-1), and those caused by brokers that arrive or leave.

Decisions are made on the pending image, which already holds what is appended but not yet committed, so that two
decisions in a row never build on the same state (KAFKA-13173). Kafka: ReplicationControlManager.
"""

from __future__ import annotations

from typing import NamedTuple

from cluster.core import fencing
from cluster.core.controller.decisions import Decision
from cluster.core.controller.elections import Election, IsActive, LeaderElection
from cluster.core.errors import ClusterError, ErrorCode
from cluster.core.messages import (
    NO_LEADER,
    NO_TOPIC_ID,
    AlterPartitionRequest,
    AlterPartitionResponse,
    OfflinePartition,
    TopicPartition,
)
from cluster.core.metadata.image import CurrentImage, MetadataImage, PartitionRegistration, TopicImage
from cluster.core.metadata.records import LEADER_UNCHANGED, PartitionChangeRecord

UNCLEAN_ELECTION_CONFIG = "unclean.leader.election.enable"


# Whose a proposal is, by topic id, broker epoch and leader epoch.
Sender = tuple[str, int, int]


class Decided(NamedTuple):
    """The last proposal that was decided about a partition."""

    sender: Sender
    attempt: int


class PartitionControl:
    """Decides about partitions on the pending image; each check of a proposal (CTL-1) is a method.

    The checks raise ClusterError.
    """

    def __init__(self, pending: CurrentImage, election: LeaderElection) -> None:
        self._pending = pending
        self.election = election
        # By broker: its partitions in log directories that failed, as its last heartbeat said (KIP-858). They are not
        # in the log, because a restarted controller learns of them with the next heartbeat.
        self.offline: dict[int, frozenset[OfflinePartition]] = {}
        # The last proposal of each partition. No copy of an earlier one outlives the connections of this process.
        self._decided: dict[TopicPartition, Decided] = {}

    @property
    def image(self) -> MetadataImage:
        """The pending image: what is committed, and what is appended."""
        return self._pending.image

    def alter_partition(self, request: AlterPartitionRequest) -> Decision:
        """Decides about a proposed ISR. Raises the ClusterError of the first check that fails, in Kafka's order."""
        self.check_broker_epoch(request.broker_id, request.broker_epoch)
        partition = self._known_partition(request)
        self.check_not_ahead(request, partition)
        self.check_leader_epoch(request, partition)
        self.check_sender_leads(request, partition)
        self.check_partition_epoch(request, partition)
        self.check_isr_is_of_replicas(request, partition)
        self.check_is_latest(request)
        # Also if a check below refuses it: its leader drops it then.
        self._decided[request.topic_partition] = Decided(_sender(request), request.attempt)
        self.check_members_eligible(request)
        wanted = {member.broker_id for member in request.new_isr}
        isr = tuple(replica for replica in partition.replicas if replica in wanted)
        record = self.change_record(partition, Election(leader=partition.leader, isr=isr))
        changed = partition if record is None else partition.changed_by(record)
        assert changed.leader == partition.leader, (changed, partition)
        assert changed.leader_epoch == partition.leader_epoch, (changed, partition)
        return Decision(
            reply=AlterPartitionResponse(
                topic_partition=request.topic_partition,
                leader=changed.leader,
                leader_epoch=changed.leader_epoch,
                partition_epoch=changed.partition_epoch,
                isr=changed.isr,
            ),
            records=() if record is None else (record,),
        )

    def check_broker_epoch(self, broker_id: int, broker_epoch: int) -> None:
        """Refuses a request from an earlier life of the broker (KR-CTL-4)."""
        fencing.check_broker_epoch(broker_id, broker_epoch, self.image.broker_epoch(broker_id))

    def _known_partition(self, request: AlterPartitionRequest) -> PartitionRegistration:
        """Returns the partition of that very topic: the leader of a deleted topic knows nothing of the next one."""
        topic_partition = request.topic_partition
        topic = self.image.topics.get(topic_partition.topic)
        known_id = NO_TOPIC_ID if topic is None else topic.topic_id
        fencing.check_known_topic_id(topic_partition, request.topic_id, known_id)
        partition = self.image.partition(topic_partition)
        if partition is None:
            raise ClusterError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, str(topic_partition))
        return partition

    def check_not_ahead(self, request: AlterPartitionRequest, partition: PartitionRegistration) -> None:
        """Refuses a sender that knows of a newer change: then this controller is the stale one (KAFKA-14154)."""
        named = (request.leader_epoch, request.partition_epoch)
        current = (partition.leader_epoch, partition.partition_epoch)
        fencing.check_proposal_not_ahead(request.topic_partition, named, current)

    def check_leader_epoch(self, request: AlterPartitionRequest, partition: PartitionRegistration) -> None:
        """Refuses a sender that is in an older leader epoch."""
        fencing.check_proposal_of_leader_epoch(
            request.topic_partition, request.leader_epoch, partition.leader_epoch
        )

    def check_sender_leads(self, request: AlterPartitionRequest, partition: PartitionRegistration) -> None:
        if request.broker_id != partition.leader:
            raise ClusterError(
                ErrorCode.INVALID_REQUEST, f"{request.topic_partition} is led by {partition.leader}"
            )

    def check_partition_epoch(self, request: AlterPartitionRequest, partition: PartitionRegistration) -> None:
        """Refuses a proposal that does not build on the present ISR: changes are compare-and-set."""
        fencing.check_proposal_builds_on(
            request.topic_partition, request.partition_epoch, partition.partition_epoch
        )

    def check_isr_is_of_replicas(
        self, request: AlterPartitionRequest, partition: PartitionRegistration
    ) -> None:
        """Refuses an ISR that lacks the leader, has a member twice, or has one that is no replica (KAFKA-9672)."""
        members = [member.broker_id for member in request.new_isr]
        is_subset = all(member in partition.replicas for member in members)
        if not is_subset or partition.leader not in members or len(set(members)) != len(members):
            raise ClusterError(
                ErrorCode.INVALID_REQUEST,
                f"{request.topic_partition}: an ISR has the leader and only replicas, each once, not {members}",
            )

    def check_is_latest(self, request: AlterPartitionRequest) -> None:
        """Refuses a proposal that the leader sent before one that is decided."""
        decided = self._decided.get(request.topic_partition)
        latest = -1 if decided is None or decided.sender != _sender(request) else decided.attempt
        fencing.check_proposal_is_latest(request.topic_partition, request.attempt, latest)

    def forget_proposals(self, topic: TopicImage) -> None:
        """Drops what is known of the proposals of a topic that is deleted: its id refuses them from now on."""
        for number in range(len(topic.partitions)):
            self._decided.pop(TopicPartition(topic.name, number), None)

    def check_members_eligible(self, request: AlterPartitionRequest) -> None:
        """Refuses a member that is not active, or not in the life that the leader saw fetching (KIP-841, KIP-903)."""
        for member in request.new_isr:
            current = self.image.broker_epoch(member.broker_id)
            is_same_life = fencing.is_same_life(member.broker_epoch, current)
            is_offline = self.is_offline(member.broker_id, request.topic_partition)
            if not self.image.is_active(member.broker_id) or not is_same_life or is_offline:
                raise ClusterError(
                    ErrorCode.INELIGIBLE_REPLICA, f"{request.topic_partition}: broker {member.broker_id}"
                )

    def is_offline(self, broker_id: int, topic_partition: TopicPartition) -> bool:
        """Returns whether the broker cannot read the partition; that of an earlier topic of the name does not count."""
        topic = self.image.topics.get(topic_partition.topic)
        if topic is None:
            return False
        named = OfflinePartition(topic_partition=topic_partition, topic_id=topic.topic_id)
        return named in self.offline.get(broker_id, ())

    def records_for_offline(
        self, broker_id: int, offline: tuple[OfflinePartition, ...]
    ) -> list[PartitionChangeRecord]:
        """Notes what the broker cannot read, and returns the changes by which it leaves these ISRs and leads none.

        The last member of an ISR stays (ELE-5, KIP-858).
        """
        assert broker_id in self.image.brokers, broker_id
        self.offline[broker_id] = frozenset(offline)
        records = []
        for each in offline:
            partition = self.image.partition(each.topic_partition)
            if partition is None or not self.is_offline(broker_id, each.topic_partition):
                continue
            if broker_id in partition.isr or partition.leader == broker_id:
                isr = self.election.isr_without(partition, broker_id)
                records.append(self._elect(partition, isr, self.image.is_active))
        return [record for record in records if record is not None]

    def records_for_leaving(self, broker_id: int) -> list[PartitionChangeRecord]:
        """Returns the changes by which the broker leaves every ISR and leads nothing (BRK-5, BRK-7).

        The last member of an ISR stays (ELE-5).
        """

        def is_active(replica: int) -> bool:
            return replica != broker_id and self.image.is_active(replica)

        records = []
        for partition in self.image.partitions():
            if broker_id in partition.isr or partition.leader == broker_id:
                isr = self.election.isr_without(partition, broker_id)
                records.append(self._elect(partition, isr, is_active))
        return [record for record in records if record is not None]

    def records_for_arriving(self, broker_id: int) -> list[PartitionChangeRecord]:
        """Returns the elections that a broker makes possible by being unfenced, in leaderless partitions (BRK-5)."""

        def is_active(replica: int) -> bool:
            return replica == broker_id or self.image.is_active(replica)

        leaderless = [partition for partition in self.image.partitions() if not partition.has_leader]
        records = [self._elect(partition, partition.isr, is_active) for partition in leaderless]
        return [record for record in records if record is not None]

    def records_for_unclean_topic(self, topic: TopicImage) -> list[PartitionChangeRecord]:
        """Returns the elections in leaderless partitions of a topic that has just allowed unclean election."""
        records = []
        for partition in topic.partitions.values():
            if not partition.has_leader:
                is_usable = self._can_read(partition, self.image.is_active)
                outcome = self.election.elect(partition, partition.isr, is_usable, unclean=True)
                records.append(self.change_record(partition, outcome))
        return [record for record in records if record is not None]

    def leads_something(self, broker_id: int) -> bool:
        return any(partition.leader == broker_id for partition in self.image.partitions())

    def _elect(
        self, partition: PartitionRegistration, isr: tuple[int, ...], is_active: IsActive
    ) -> PartitionChangeRecord | None:
        unclean = self.allows_unclean_election(self.image.topics[partition.topic_partition.topic])
        outcome = self.election.elect(partition, isr, self._can_read(partition, is_active), unclean=unclean)
        return self.change_record(partition, outcome)

    def _can_read(self, partition: PartitionRegistration, is_active: IsActive) -> IsActive:
        """Returns `is_active` narrowed to replicas whose log directory has not failed (ELE-2)."""

        def is_usable(replica: int) -> bool:
            return is_active(replica) and not self.is_offline(replica, partition.topic_partition)

        return is_usable

    def allows_unclean_election(self, topic: TopicImage) -> bool:
        """Returns whether the topic's own configs allow unclean election (ELE-4)."""
        return dict(topic.configs).get(UNCLEAN_ELECTION_CONFIG, "false").strip().lower() == "true"

    def change_record(
        self, partition: PartitionRegistration, outcome: Election
    ) -> PartitionChangeRecord | None:
        """Returns a record of what changes, if anything: a new ISR alone does not raise the leader epoch (CTL-4)."""
        assert outcome.isr, partition
        assert outcome.leader == NO_LEADER or outcome.leader in outcome.isr, (partition, outcome)
        has_new_leader = outcome.leader != partition.leader
        has_new_isr = outcome.isr != partition.isr
        if not has_new_leader and not has_new_isr:
            return None
        return PartitionChangeRecord(
            topic=partition.topic_partition.topic,
            partition=partition.topic_partition.partition,
            isr=outcome.isr if has_new_isr else None,
            leader=outcome.leader if has_new_leader else LEADER_UNCHANGED,
        )


def _sender(request: AlterPartitionRequest) -> Sender:
    return request.topic_id, request.broker_epoch, request.leader_epoch
