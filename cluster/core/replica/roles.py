"""The roles that the metadata assigns to the replicas of a broker; each change of a role has one place.

Kafka: ReplicaManager.applyDelta, Partition.makeLeader, Partition.makeFollower; rules ROL-1 to ROL-6.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import final

from cluster.core import fencing
from cluster.core.messages import NO_LEADER, TopicPartition
from cluster.core.metadata.delta import MetadataDelta
from cluster.core.metadata.image import PartitionRegistration, TopicImage
from cluster.core.replica.context import ReplicaContext
from cluster.core.replica.fetcher import Fetchers
from cluster.core.replica.flushes import Flushes
from cluster.core.replica.follower import Follower
from cluster.core.replica.isr_changes import IsrChanges
from cluster.core.replica.leader import Leader
from cluster.core.replica.logs import LogKeeper
from cluster.core.replica.replica import Replica
from cluster.core.replica.truncation import Truncations
from storage.config import LogConfig
from storage.disk.lack import is_lack
from storage.errors import LogHalfMade, StorageError

logger = logging.getLogger(__name__)

# The most bytes of a set that a leader stores: with one that no answer can carry, its followers and consumers would
# come no further. An answer has 64 MiB, of which so much is left for all else in it.
MOST_SET_BYTES = 63 << 20
RETRY_TIMER = "replica.role:"
# Connections may end meanwhile, and idle files be closed.
RETRY_MS = 1000


@final
class Roles:
    """Opens, leads, follows and removes the replicas that the metadata places here."""

    def __init__(
        self,
        context: ReplicaContext,
        keeper: LogKeeper,
        truncations: Truncations,
        fetchers: Fetchers,
        isr_changes: IsrChanges,
        flushes: Flushes,
    ) -> None:
        self._context = context
        self._logs = context.logs
        self._keeper = keeper
        self._truncations = truncations
        self._fetchers = fetchers
        self._isr_changes = isr_changes
        self._flushes = flushes
        # The replicas whose role waits for a descriptor.
        self._postponed: set[TopicPartition] = set()

    def apply_image(self, now_ms: int) -> None:
        """Applies the first image of a life: opens all that it places here, and sets all other logs aside (ROL-5)."""
        image = self._context.metadata.image
        mine = [each for each in image.partitions() if self._context.broker_id in each.replicas]
        expected = {each.topic_partition: image.topics[each.topic_partition.topic].topic_id for each in mine}
        self._forget_strays(expected)
        self._logs.set_strays_aside(expected)
        # What an earlier life of this process knew of them may be over; those that are still placed here are found
        # again.
        self._context.offline = {}
        self._postponed.clear()
        # Properties may have changed while another process was registered as this broker.
        for name in dict.fromkeys([each.topic for each in self._context.replicas]):
            self._update_config(name)
        for registration in mine:
            topic_partition = registration.topic_partition
            if topic_partition in self._context.offline:
                # A replica of that earlier life, whose directory has failed in this loop.
                continue
            topic_id = self._context.topic_id(topic_partition.topic)
            if self._logs.may_be_offline(topic_partition, topic_id):
                self._report_offline(topic_partition, topic_id, registration.leader_epoch)
            else:
                self.apply(now_ms, registration)
        here, offline = len(self._context.replicas), len(self._context.offline)
        waiting = len(self._postponed - self._context.replicas.keys())
        assert here + offline + waiting == len(mine), (here, offline, waiting, len(mine))

    def _forget_strays(self, expected: Mapping[TopicPartition, str]) -> None:
        """Forgets the replicas of an earlier life of this process that are not placed here any more."""
        for topic_partition, replica in list(self._context.replicas.items()):
            topic_id = expected.get(topic_partition)
            if topic_id is not None and fencing.is_same_topic(topic_id, replica.topic_id):
                continue
            # A directory that fails takes its other replicas out of the table.
            if self._context.replicas.get(topic_partition) is not replica:
                continue
            del self._context.replicas[topic_partition]
            try:
                self._keeper.on_log_removed(replica)
            except (StorageError, OSError) as error:
                self._logs.on_disk_failed(replica.log, error)

    def step_down(self) -> None:
        """Ends all roles, because another process is registered as this broker; the replicas keep their logs."""
        self._postponed.clear()
        for topic_partition, replica in self._context.replicas.items():
            self._fetchers.remove(topic_partition)
            replica.leader = replica.follower = None
            # This answers the requests that wait (PRO-5).
            self._context.touch(topic_partition)

    def apply_delta(self, now_ms: int, delta: MetadataDelta) -> None:
        """Applies the outcome of a delta; epochs that began and ended within it are skipped (CTL-5)."""
        for name, topic_id in delta.removed_topics:
            self._remove_topic(name, topic_id)
        for name in delta.changed_configs:
            self._update_config(name)
        for topic_partition in delta.changed_partitions:
            registration = self._context.metadata.image.partition(topic_partition)
            if registration is not None:
                self.apply(now_ms, registration)
        for name in delta.changed_configs:
            self._commit_by_new_config(now_ms, name)

    def apply(self, now_ms: int, registration: PartitionRegistration) -> None:
        """Applies the role that `registration` says. A disk that fails takes only its own replicas offline.

        Without a descriptor for a file of the replica it is tried again later, under the registration of then. Raises
        StorageError or OSError if the error does not come from a disk, or if no log directory is left.
        """
        topic_partition = registration.topic_partition
        self._postponed.discard(topic_partition)
        try:
            self._apply(now_ms, registration)
        except LogHalfMade:
            self._report_unopened(registration)
        except (StorageError, OSError) as error:
            if is_lack(error):
                self._postpone(now_ms, topic_partition, error)
                return
            replica = self._context.replicas.get(topic_partition)
            has_log = self._logs.is_online(topic_partition)
            self._logs.on_disk_failed(None if replica is None else replica.log, error)
            if replica is not None:
                return
            if has_log:
                # It went offline before it was open: an empty log in another directory must not take its place.
                self._report_unopened(registration)
            else:
                self.apply(now_ms, registration)

    @property
    def postponed(self) -> Collection[TopicPartition]:
        """The partitions whose role waits for a descriptor, for checkers."""
        return self._postponed

    def _postpone(self, now_ms: int, topic_partition: TopicPartition, error: Exception) -> None:
        logger.warning("role not taken yet: topic_partition=%s reason=%s", topic_partition, error)
        self._postponed.add(topic_partition)
        # This answers the requests that waited for the role before.
        self._context.touch(topic_partition)

        def go_on(now_ms: int) -> None:
            registration = self._context.metadata.image.partition(topic_partition)
            # Newer metadata may have brought a role meanwhile.
            if topic_partition in self._postponed and registration is not None:
                self.apply(now_ms, registration)

        self._context.outbox.set_timer(f"{RETRY_TIMER}{topic_partition}", now_ms + RETRY_MS, go_on)

    def _apply(self, now_ms: int, registration: PartitionRegistration) -> None:
        if registration.topic_partition in self._context.offline:
            return
        replica = self._context.replicas.get(registration.topic_partition)
        assert replica is None or fencing.is_same_topic(
            replica.topic_id, self._context.topic_id(registration.topic_partition.topic)
        ), (replica.name, replica.topic_id, registration)
        if self._context.broker_id not in registration.replicas:
            if replica is not None:
                self.remove(replica)
            return
        if replica is None:
            replica = self._open(now_ms, registration)
        if self.is_stale(replica, registration):
            return
        if registration.leader == self._context.broker_id:
            self.become_leader(now_ms, replica, registration)
        else:
            self.become_follower(now_ms, replica, registration)

    def is_stale(self, replica: Replica, registration: PartitionRegistration) -> bool:
        """Returns whether the registration is older than what the replica knows, and so ignored (ROL-1)."""
        return fencing.is_older_partition_epoch(registration.partition_epoch, replica.partition_epoch)

    def _open(self, now_ms: int, registration: PartitionRegistration) -> Replica:
        topic_partition = registration.topic_partition
        assert topic_partition not in self._context.replicas, topic_partition
        assert topic_partition not in self._context.offline, topic_partition
        topic = self._context.metadata.image.topics[topic_partition.topic]
        config = self.config_of(topic)
        log = self._logs.open_or_create(topic, topic_partition.partition, config, now_ms)
        replica = Replica(topic_partition, topic.topic_id, log, now_ms)
        self._context.replicas[topic_partition] = replica
        self._keeper.on_log_opened(replica)
        return replica

    def config_of(self, topic: TopicImage) -> LogConfig:
        """Returns the configuration of the topic's logs: its own properties over the broker's.

        No set is larger than an answer can carry, whatever they say.
        """
        config = self._context.config.log.overridden_by(dict(topic.configs))
        if config.max_message_bytes <= MOST_SET_BYTES:
            return config
        return replace(config, max_message_bytes=MOST_SET_BYTES)

    def _update_config(self, name: str) -> None:
        topic = self._context.metadata.image.topics[name]
        config = self.config_of(topic)
        for number in topic.partitions:
            replica = self._context.replicas.get(TopicPartition(name, number))
            if replica is not None:
                replica.log.update_config(config)
                self._flushes.on_new_role(replica)
                self._context.touch(replica.topic_partition)

    def _commit_by_new_config(self, now_ms: int, name: str) -> None:
        """Raises the high watermarks that `min.insync.replicas` has held back: the next append may be far away."""
        for number in self._context.metadata.image.topics[name].partitions:
            replica = self._context.replicas.get(TopicPartition(name, number))
            if replica is not None:
                self._context.advance_high_watermark(replica, now_ms)

    def become_leader(self, now_ms: int, replica: Replica, registration: PartitionRegistration) -> None:
        """Makes the replica the leader: fetching ends and the epoch is noted before anything is appended (ROL-2).

        In the leader epoch that the replica leads already, only the ISR and the replicas change. Raises StorageError.
        """
        assert registration.leader == self._context.broker_id, (registration, self._context.broker_id)
        leader = replica.leader
        if leader is not None and fencing.is_same_leader_epoch(
            leader.leader_epoch, registration.leader_epoch
        ):
            replica.adopt(registration)
            leader.adopt_replicas(registration.replicas, now_ms)
            self._isr_changes.adopt(now_ms, replica, leader, registration.isr, registration.partition_epoch)
            return
        self._fetchers.remove(replica.topic_partition)
        replica.adopt(registration)
        # Nothing is appended in the epoch before, should this one find no descriptor for its file.
        replica.leader = replica.follower = None
        self.begin_leader_epoch(replica)
        replica.leader = self.new_leader(now_ms, replica, registration)
        self._context.outbox.observe(
            "replica.became_leader",
            topic_partition=replica.name,
            leader_epoch=replica.leader_epoch,
            log_end_offset=replica.log.local.log_end_offset,
        )
        replica.log.truncation.forget_prepared()
        self._flushes.on_new_role(replica)
        self._context.advance_high_watermark(replica, now_ms)
        assert replica.follower is None, replica.name
        # This answers the requests that waited in the previous epoch (PRO-5).
        self._context.touch(replica.topic_partition)

    def begin_leader_epoch(self, replica: Replica) -> None:
        """Notes that the leader epoch starts at the log end, before anything is appended (EPC-5, KAFKA-7415).

        Raises StorageError.
        """
        replica.log.appends.assign_epoch(replica.leader_epoch, replica.log.local.log_end_offset)

    def new_leader(self, now_ms: int, replica: Replica, registration: PartitionRegistration) -> Leader:
        """Returns the state of a leader that knows nothing of its followers, even if it led before (ISR-8, B-21)."""
        return Leader(
            broker_id=self._context.broker_id,
            log=replica.log,
            metadata=self._context.metadata,
            registration=registration,
            lag_time_max_ms=self._context.config.replica_lag_time_max_ms,
            now_ms=now_ms,
        )

    def become_follower(self, now_ms: int, replica: Replica, registration: PartitionRegistration) -> None:
        """Makes the replica a follower (ROL-3). Without a leader it keeps its log and fetches nothing (ROL-4).

        Raises StorageError.
        """
        assert registration.leader != self._context.broker_id, (registration, self._context.broker_id)
        is_new_epoch = replica.follower is None or fencing.is_newer_leader_epoch(
            registration.leader_epoch, replica.leader_epoch
        )
        replica.adopt(registration)
        if not is_new_epoch:
            follower = replica.follower
            assert follower is not None, replica.name
            assert follower.leader_id == registration.leader, (follower.leader_id, registration)
            self._stop_fetching_on_shutdown(replica, registration)
            return
        self._fetchers.remove(replica.topic_partition)
        replica.leader = None
        replica.follower = Follower(leader_id=registration.leader, leader_epoch=registration.leader_epoch)
        self._context.outbox.observe(
            "replica.became_follower",
            topic_partition=replica.name,
            leader_epoch=replica.leader_epoch,
            leader=replica.leader_id,
            log_end_offset=replica.log.local.log_end_offset,
        )
        self._context.touch(replica.topic_partition)
        if registration.leader == NO_LEADER or not self.may_fetch(registration):
            return
        self._truncations.on_new_epoch(now_ms, replica)
        # A disk that fails in the cut takes the replica offline.
        if replica.follower is None:
            return
        self._flushes.on_new_role(replica)
        self._fetchers.add(replica)

    def may_fetch(self, registration: PartitionRegistration) -> bool:
        """Returns whether to fetch: not if this broker is shutting down and has left the ISR (ROL-6)."""
        return not self._context.is_shutting_down or self._context.broker_id in registration.isr

    def _stop_fetching_on_shutdown(self, replica: Replica, registration: PartitionRegistration) -> None:
        if not self.may_fetch(registration):
            self._fetchers.remove(replica.topic_partition)

    def go_offline(self, replica: Replica) -> None:
        """Ends the role of a replica whose disk failed (AP16). A later start that can read its log brings it back."""
        assert self._context.replicas.get(replica.topic_partition) is replica, replica.name
        self._fetchers.remove(replica.topic_partition)
        replica.leader = replica.follower = None
        del self._context.replicas[replica.topic_partition]
        self._report_offline(replica.topic_partition, replica.topic_id, replica.leader_epoch)
        assert replica.topic_partition in self._context.offline, replica.name

    def _report_unopened(self, registration: PartitionRegistration) -> None:
        topic_partition = registration.topic_partition
        topic_id = self._context.topic_id(topic_partition.topic)
        self._report_offline(topic_partition, topic_id, registration.leader_epoch)

    def _report_offline(self, topic_partition: TopicPartition, topic_id: str, leader_epoch: int) -> None:
        self._context.take_offline(topic_partition, topic_id)
        self._context.outbox.observe(
            "replica.offline", topic_partition=str(topic_partition), leader_epoch=leader_epoch
        )

    def _remove_topic(self, name: str, topic_id: str) -> None:
        """Removes the replicas of a deleted topic by its id: the same delta may create a new topic of that name."""
        for topic_partition, replica in list(self._context.replicas.items()):
            if topic_partition.topic != name or not fencing.is_same_topic(replica.topic_id, topic_id):
                continue
            # A deletion that fails takes the other replicas of its directory out of the table.
            if self._context.replicas.get(topic_partition) is replica:
                self.remove(replica)
        # Their logs may have been found before a file of theirs could not be opened.
        for topic_partition in sorted(self._postponed):
            if topic_partition.topic == name and topic_partition not in self._context.replicas:
                self._postponed.discard(topic_partition)
                self._logs.delete_unopened(topic_partition, topic_id)
        self._context.forget_offline(topic_id)

    def remove(self, replica: Replica) -> None:
        """Ends the role of a replica that is not placed here any more, and deletes its log (ROL-5).

        The requests that wait for it are answered at the end of the step. Raises StorageError or OSError if the last
        log directory fails.
        """
        assert self._context.replicas.get(replica.topic_partition) is replica, replica.name
        self._fetchers.remove(replica.topic_partition)
        replica.leader = replica.follower = None
        del self._context.replicas[replica.topic_partition]
        self._context.touch(replica.topic_partition)
        self._context.outbox.observe(
            "replica.removed",
            topic_partition=replica.name,
            leader_epoch=replica.leader_epoch,
            log_end_offset=replica.log.local.log_end_offset,
        )
        try:
            self._keeper.on_log_removed(replica)
            self._logs.delete(replica)
        except (StorageError, OSError) as error:
            self._logs.on_disk_failed(replica.log, error)
        # A partition that is not placed here must not be reported as offline here.
        assert replica.topic_partition not in self._context.offline, replica.name
