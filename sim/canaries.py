"""Sends a record to every partition of a cluster that has come to rest: what is healed must serve again."""

from __future__ import annotations

from collections.abc import Callable
from typing import final

from cluster.core.client.producer import ProducerCore
from cluster.core.errors import ErrorCode
from cluster.core.messages import TopicPartition
from sim.checkers.base import Jury
from sim.cluster import Cluster, topic_properties
from sim.hosts.clients import ProducerShell
from sim.hosts.history import Outcome, SendOperation
from sim.scenario.settings import SETTINGS
from sim.scenario.steps import AlterTopic
from sim.witness.topic_lives import TopicLives
from storage.config import LogConfig

NAME = "canaries"
# The network may lose what is sent, also when it is healed. A producer of less patience has more tries.
TRIES, _TRY_US = 5, 8_000_000
# The partitions of one topic that get a record. What keeps one of many from serving keeps others too.
MOST_PARTITIONS = 8
_LOOK_US = 20_000
# Where jobs take time, a flush of each replica may last longer than a request of less patience; where messages are
# lost, so may the fetches of all followers.
_PATIENT_MS = 1_000
# Beside the flushes of all partitions, which wait for each other: one that runs already, and that of the leader.
_MORE_FLUSHES = 2
# The kinds of jobs of which a cluster at rest has more and more.
_RECURRING = ("flush", "checkpoint", "compact")
# The buggify point that has brokers flush each append.
_FLUSHES_EACH = "flushes-each"
_IN_SYNC = "min.insync.replicas"
_LAG, _FETCH_TIMEOUT = "replica.lag.time.max.ms", "replica.socket.timeout.ms"
# At least what a batch with one record of a run needs beside its value: headers, key, lengths.
_BATCH_OVERHEAD_BYTES = 100
_TIME_OUTS = frozenset({ErrorCode.REQUEST_TIMED_OUT.name, ErrorCode.NETWORK_EXCEPTION.name})
_TOO_LARGE = frozenset({ErrorCode.MESSAGE_TOO_LARGE.name, ErrorCode.RECORD_LIST_TOO_LARGE.name})


@final
class Canaries:
    """Demands that each producer's record is acknowledged in time, in one of some tries for each partition.

    Nobody sends at rest, all replicas are in sync, and no fault strikes any more: nothing excuses a refusal.
    """

    def __init__(self, cluster: Cluster, jury: Jury, lives: TopicLives) -> None:
        self._cluster, self._jury, self._lives = cluster, jury, lives

    def send(self, is_over: Callable[[], bool]) -> None:
        """Send the records, and wait for their outcomes or until `is_over`. Reports who got no acknowledgement."""
        waiting = [
            (producer, topic_partition)
            for producer in self._cluster.producers
            for topic_partition in self._served(producer.model.topic)
            # One that stops sends nothing more: its streams may be half closed.
            if producer.is_up and not producer.is_stopping and self._is_patient(producer)
            if not self._is_unsteady(topic_partition.topic)
        ]
        soonest_us = min([producer.model.delivery_timeout for producer, _ in waiting], default=_TRY_US)
        tries = TRIES * max(1, -(-_TRY_US // soonest_us))
        for _ in range(tries):
            sent = [(each, self._sent(*each)) for each in waiting]
            self._await_outcomes(is_over)
            waiting = [each for each, operation in sent if operation.outcome is not Outcome.OK]
            if not waiting or is_over():
                return
        for (producer, topic_partition), operation in sent:
            is_excused = (
                self._is_too_large(topic_partition, operation)
                or self._is_apart(producer, topic_partition, operation)
                or self._waits_for_jobs(producer, topic_partition, operation)
            )
            if operation.outcome is not Outcome.OK and not is_excused:
                what = f"gets no record into the healed cluster, in {tries} tries: {operation.error}"
                self._jury.report(NAME, f"{topic_partition}: {producer.name} {what}")

    def _is_patient(self, producer: ProducerShell) -> bool:
        """Whether the producer waits as long as it takes until all partitions have its records, and each is flushed."""
        core = producer.core
        assert isinstance(core, ProducerCore), producer.name
        cluster, network = self._cluster.scenario.cluster, self._cluster.scenario.network
        needed_ms = _PATIENT_MS if cluster.jobs or network.loss else 0
        if flushed := self._flushed_partitions():
            # Each may wait for one of each other kind of jobs that come again and again.
            round_us = sum(cluster.jobs.get(kind, 0) for kind in _RECURRING)
            flushes_ms = (flushed + _MORE_FLUSHES) * round_us // 1_000
            needed_ms = max(needed_ms, flushes_ms)
        return core.config.request_timeout_ms >= needed_ms

    def _waits_for_jobs(
        self, producer: ProducerShell, topic_partition: TopicPartition, operation: SendOperation
    ) -> bool:
        """Whether the producer got no answer in time from a partition whose replicas have jobs that take as long.

        A flush waits for all of them. Where deletions of segments take long, and each record has a segment, the records
        themselves make them.
        """
        core = producer.core
        assert isinstance(core, ProducerCore), producer.name
        replicas = self._cluster.replicas().get(str(topic_partition), ())
        waited_us = max([self._cluster.brokers[broker].jobs_last_us for broker in replicas], default=0)
        return operation.error in _TIME_OUTS and waited_us >= core.config.request_timeout_ms * 1_000

    def _is_unsteady(self, topic: str) -> bool:
        """Whether lost fetches take a follower out of the in-sync set, of which the topic needs more than the leader.

        Its next fetch comes when the lost one has timed out, and two in a row are lost often enough. In a cluster of
        such settings followers join and leave all the time, so there may be no moment for a record.
        """
        scenario = self._cluster.scenario
        settings = {**SETTINGS, **scenario.cluster.settings}
        is_out = settings[_LAG] <= 2 * settings[_FETCH_TIMEOUT]
        config = LogConfig.from_properties(topic_properties(scenario.topics[topic]))
        needs_more = config.min_insync_replicas > 1 or any(
            isinstance(each, AlterTopic) and each.alter_topic == topic and _IN_SYNC in each.config
            for each in scenario.steps
        )
        return bool(scenario.network.loss) and is_out and needs_more

    def _flushed_partitions(self) -> int:
        """Returns the number of partitions whose records may have to be flushed before they are acknowledged."""
        scenario = self._cluster.scenario
        if _FLUSHES_EACH in scenario.buggify.points:
            return sum(topic.partitions for topic in scenario.topics.values())
        altered = {each.alter_topic for each in scenario.steps if isinstance(each, AlterTopic)}
        return sum(
            topic.partitions
            for name, topic in scenario.topics.items()
            if name in altered or LogConfig.from_properties(topic_properties(topic)).flush_messages == 1
        )

    def _is_too_large(self, topic_partition: TopicPartition, operation: SendOperation) -> bool:
        """Whether the topic's settings, perhaps those that a step has altered, refuse records of that size."""
        scenario, topic = self._cluster.scenario, topic_partition.topic
        if operation.error not in _TOO_LARGE:
            return False
        if any(isinstance(each, AlterTopic) and each.alter_topic == topic for each in scenario.steps):
            return True
        config = LogConfig.from_properties(topic_properties(scenario.topics[topic]))
        most_bytes = min(config.segment_bytes, config.max_message_bytes)
        return len(operation.value) + _BATCH_OVERHEAD_BYTES > most_bytes

    def _is_apart(
        self, producer: ProducerShell, topic_partition: TopicPartition, operation: SendOperation
    ) -> bool:
        """Whether the leader has refused the record for its time, and clocks are so far apart that it has to."""
        if operation.error != ErrorCode.INVALID_TIMESTAMP.name:
            return False
        topic = self._cluster.scenario.topics[topic_partition.topic]
        config = LogConfig.from_properties(topic_properties(topic))
        leader = self._cluster.brokers.get(self._jury.ghost.partition(str(topic_partition)).leader)
        if leader is None:
            return False
        ahead_ms = producer.clock.now_ms() - leader.clock.now_ms()
        bounds = config.message_timestamp_before_max_ms, config.message_timestamp_after_max_ms
        return ahead_ms > bounds[1] or -ahead_ms > bounds[0]

    def _served(self, topic: str) -> list[TopicPartition]:
        """Returns partitions of the topic that are judged; none of a topic that was deleted."""
        if not self._lives.exists(topic):
            return []
        ghost = self._jury.ghost
        mine = [each for each in self._cluster.partitions if each.topic == topic]
        return [each for each in mine if not ghost.partition(str(each)).unjudged][:MOST_PARTITIONS]

    def _sent(self, producer: ProducerShell, topic_partition: TopicPartition) -> SendOperation:
        return producer.send_one(partition=topic_partition.partition)

    def _await_outcomes(self, is_over: Callable[[], bool]) -> None:
        """Run the world until every record has its outcome: each producer stops trying after its delivery time-out."""
        world = self._cluster.world
        while not is_over() and any(not producer.is_done for producer in self._cluster.producers):
            world.run_to(world.now_us + _LOOK_US)
