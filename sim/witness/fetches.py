"""Shows the checkers what leaders answer to fetches, and which fetches wait when a role has changed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import final

from cluster.core.broker.broker import Broker
from cluster.core.errors import ErrorCode
from cluster.core.messages import (
    FetchPartition,
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
    TopicPartition,
)
from sim.checkers.base import Jury
from sim.checkers.fetch_range import LIMITS, limit_finding, range_finding
from sim.checkers.fetch_range import NAME as FETCH_RANGE
from sim.checkers.sightings import DivergenceJudged, Fetched, FetchesWait, OutOfRange
from sim.checkers.told_marks import StatedMarks
from sim.checkers.waiting import NoneWaitsInVain
from sim.witness.topic_lives import TopicLives


@final
class FetchWitness:
    """Watches the fetches of the partitions that the scenario creates; `names` has them by name."""

    def __init__(self, jury: Jury, lives: TopicLives, names: Mapping[str, TopicPartition]) -> None:
        self._jury, self._lives, self._names = jury, lives, names
        self._stated = StatedMarks(jury)

    def look_at_waiting(self, node_id: int, core: object, partition: str) -> None:
        """Show which fetches wait at the end of a step in which the replica's role has changed."""
        topic_partition = self._names[partition]
        replica = core.replicas().get(topic_partition) if isinstance(core, Broker) else None
        if not isinstance(core, Broker) or replica is None:
            return
        epochs = tuple([epoch for _, epoch in core.waiting_fetches(topic_partition)])
        if epochs:
            self._jury.see(FetchesWait(node_id, partition, replica.leader_epoch, epochs))

    def look_at_gone(self, node_id: int, core: object, partition: str) -> None:
        """Judge the end of a step in which a replica was removed or went offline: nobody waits for it (PRO-5)."""
        topic_partition = self._names.get(partition)
        if topic_partition is None or not isinstance(core, Broker) or topic_partition in core.replicas():
            return
        appends = sum(each == topic_partition for each, _ in core.waiting_appends())
        fetches = len(core.waiting_fetches(topic_partition))
        if appends or fetches:
            what = f"{appends} appends and {fetches} fetches wait for a replica that is gone"
            self._jury.report(NoneWaitsInVain.name, f"{partition}: at broker {node_id} {what}")

    def on_answer(self, node_id: int, core: object, request: FetchRequest, body: FetchResponse) -> None:
        """Show an answer as it leaves the node, each partition that was answered without an error."""
        of_broker = core.config.fetch_max_bytes if isinstance(core, Broker) else request.max_bytes
        if what := limit_finding(request, body, of_broker):
            self._jury.report(
                LIMITS, f"broker {node_id} answers a fetch of {request.max_bytes} bytes: {what}"
            )
        for asked, answer in zip(request.partitions, body.partitions, strict=False):
            epoch = asked.current_leader_epoch
            may_be_damaged = self._may_be_damaged(node_id, str(answer.topic_partition))
            if what := range_finding(asked, answer, may_be_damaged=may_be_damaged):
                self._jury.report(FETCH_RANGE, f"{answer.topic_partition}: broker {node_id} {what}")
            if answer.error is ErrorCode.OFFSET_OUT_OF_RANGE:
                self._look_at_range(node_id, core, asked, answer)
            if answer.error is ErrorCode.NONE and answer.diverging is None:
                self._look_at_marks(node_id, core, answer)
            if epoch < 0 or answer.error is not ErrorCode.NONE:
                continue
            # Nearly all answers are of the epoch that was asked for, and there is nothing to judge then.
            if epoch != answer.leader_epoch:
                name = str(answer.topic_partition)
                if self._lives.is_present(node_id, name):
                    self._jury.see(Fetched(node_id, name, request.replica_id, epoch, answer.leader_epoch))
            if asked.last_fetched_epoch >= 0 and isinstance(core, Broker):
                self._look_at_divergence(node_id, core, asked, answer)

    def _look_at_marks(self, node_id: int, core: object, answer: FetchPartitionResponse) -> None:
        """Show the high watermark that the leader of the partition as it exists states."""
        replica = core.replicas().get(answer.topic_partition) if isinstance(core, Broker) else None
        if replica is None or replica.leader is None or replica.leader_epoch != answer.leader_epoch:
            return
        if self._is_watched(node_id, replica.name):
            self._stated.on_answer(
                node_id,
                replica,
                replica.name,
                replica.leader_epoch,
                answer.high_watermark,
                replica.log.high_watermark,
            )

    def _may_be_damaged(self, node_id: int, name: str) -> bool:
        """Whether a disk may have changed the log that the node answers from, of this topic or a deleted one."""
        if name not in self._names:
            return False
        return not self._lives.is_present(node_id, name) or bool(self._jury.ghost.partition(name).unjudged)

    def _is_watched(self, node_id: int, name: str) -> bool:
        return name in self._names and self._lives.is_present(node_id, name)

    def _look_at_range(
        self, node_id: int, core: object, asked: FetchPartition, answer: FetchPartitionResponse
    ) -> None:
        """Show a fetch that the leader of the partition as it exists refuses as out of range."""
        replica = core.replicas().get(answer.topic_partition) if isinstance(core, Broker) else None
        if replica is None or replica.leader is None or replica.leader_epoch != answer.leader_epoch:
            return
        if self._is_watched(node_id, replica.name):
            self._jury.see(
                OutOfRange(
                    node_id,
                    replica.name,
                    asked.fetch_offset,
                    asked.last_fetched_epoch,
                    answer.log_start_offset,
                    answer.log_end_offset,
                    tuple([(entry.epoch, entry.start_offset) for entry in replica.log.epochs.entries]),
                )
            )

    def _look_at_divergence(
        self, node_id: int, core: Broker, asked: FetchPartition, answer: FetchPartitionResponse
    ) -> None:
        """Show what a leader says about divergence, unless it is plain that there is none and it says so."""
        replica = core.replicas().get(answer.topic_partition)
        # The log of a follower may have been cut since it answered.
        if replica is None or replica.leader is None or replica.leader_epoch != answer.leader_epoch:
            return
        log, told = replica.log, answer.diverging
        is_latest = asked.last_fetched_epoch == log.epochs.latest_epoch
        if told is None and is_latest and asked.fetch_offset <= log.log_end_offset:
            return
        if not self._is_watched(node_id, replica.name):
            return
        self._jury.see(
            DivergenceJudged(
                node_id,
                replica.name,
                asked.fetch_offset,
                asked.last_fetched_epoch,
                None if told is None else (told.epoch, told.end_offset),
                tuple([(entry.epoch, entry.start_offset) for entry in log.epochs.entries]),
                log.log_end_offset,
            )
        )
