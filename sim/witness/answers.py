"""Shows the checkers what brokers answer to producers and consumers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import final

from cluster.core.errors import ErrorCode
from cluster.core.messages import (
    FetchResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ProducePartitionResponse,
    ProduceRequest,
    ProduceResponse,
    TopicPartition,
)
from sim.checkers.base import Jury
from sim.checkers.chain import marks_of, values_of
from sim.checkers.sightings import Acknowledged, LookUpPutOff, OffsetLookedUp, Served
from sim.checkers.stored import NAME as STORED_AS_SENT
from sim.checkers.stored import crc_of, difference
from sim.witness.disk_logs import DiskLogs
from sim.witness.views import Member, ReplicaView, replica_of
from sim.world.packets import Exchange
from storage.codec.buffer import Buffer


@final
class AnswerWitness:
    """Watches the partitions that the scenario creates, beside the bytes on the brokers' disks."""

    def __init__(
        self, jury: Jury, logs: DiskLogs, names: Mapping[str, TopicPartition],
        leaders: Mapping[str, tuple[Member, int]],
    ) -> None:  # fmt: skip
        """`leaders` has the node that began to lead last, and its epoch, by partition."""
        self._jury, self._logs, self._names, self._leaders = jury, logs, names, leaders
        self._lives = logs.lives
        # When a replica went offline or was removed, and in which epoch, by broker and partition.
        self._gone: dict[tuple[int, str], tuple[int, int]] = {}
        # As a look-up of an offset came: the end of what was committed, and the epoch of a leader that knew this end.
        self._asked_at: dict[Exchange, tuple[int, int]] = {}

    def note_acknowledged(self, broker: int, request: ProduceRequest, body: ProduceResponse) -> None:
        """Note which life of each topic has acknowledged the values, where a topic has several."""
        if not self._lives.may_end:
            return
        for asked, answer in zip(request.partitions, body.partitions, strict=False):
            if answer.error is ErrorCode.NONE:
                for _, value in values_of(asked.records):
                    self._lives.note_acknowledged(broker, str(answer.topic_partition), value, asked.topic_id)

    def on_produced(self, broker: int, request: ProduceRequest, body: ProduceResponse) -> None:
        """Show what a producer was told to be in the log, and which disks would keep it through a power loss."""
        acks = request.acks
        for asked, answer in zip(request.partitions, body.partitions, strict=False):
            if answer.error is ErrorCode.NONE and answer.base_offset >= 0:
                name = str(answer.topic_partition)
                is_named = self._lives.is_named(name, asked.topic_id)
                if not is_named or not self._lives.is_present(broker, name):
                    continue
                self._judge_stored(broker, name, asked.records, answer)
                durable_on: tuple[int, ...] = ()
                if acks == -1 and self._jury.ghost.partition(name).flush_promised:
                    durable_on = tuple(
                        each for each in self._logs.brokers if self._keeps(each, name, answer.last_offset)
                    )
                self._jury.see(
                    Acknowledged(
                        broker, name, answer.base_offset, answer.last_offset, acks, durable_on,
                        answer.leader_epoch,
                    )
                )  # fmt: skip

    def _judge_stored(
        self, broker: int, partition: str, sent: Buffer, answer: ProducePartitionResponse
    ) -> None:
        """Compare what a leader has stored in this epoch with what it was sent; a compacted log may have changed it."""
        ghost = self._jury.ghost.partition(partition)
        image = ghost.image(broker)
        mark = image.chain.at(answer.base_offset)
        if mark is None or mark.epoch != answer.leader_epoch or mark.crc == crc_of(sent):
            return
        if ghost.unjudged or image.damage or image.cache_damage or self._logs.is_compacted(partition):
            return
        stored = self._logs.reader(broker, partition).batch_at(answer.base_offset)
        what = "" if stored is None else difference(sent, stored)
        if what:
            where = f"{partition}: broker {broker} at offset {answer.base_offset}"
            self._jury.report(STORED_AS_SENT, f"{where}: {what}")

    def _keeps(self, broker: int, partition: str, offset: int) -> bool:
        """Whether the broker's disk would keep the record through a power loss, or has deleted it for its age.

        One whose syncs lied said that it would.
        """
        reader = self._logs.reader(broker, partition)
        if self._logs.disk(broker).deceives:
            return True
        return reader.durable_end() > offset or reader.base_offset() > offset

    def on_asked(self, node: Member, exchange: Exchange, request: ListOffsetsRequest) -> None:
        """Note how much is committed as a look-up of an offset comes, and whether its node knows that."""
        committed = self._jury.ghost.partition(str(request.topic_partition)).truth.end
        replica = replica_of(node.core, request.topic_partition)
        self._asked_at[exchange] = committed, _epoch_that_knows_its_end(replica)

    def on_died(self) -> None:
        """Forget the look-ups that wait: those of a dead broker are never answered."""
        self._asked_at.clear()

    def on_gone(self, broker: int, partition: str, leader_epoch: int) -> None:
        """Note that a broker's replica of that epoch has gone offline or was removed in this turn."""
        self._gone[broker, partition] = self._jury.now_us(), leader_epoch

    def on_looked_up(
        self, node: Member, exchange: Exchange, request: ListOffsetsRequest, body: ListOffsetsResponse
    ) -> None:
        """Show the offset that a client was told for a timestamp."""
        committed_before, knowing_epoch = self._asked_at.pop(exchange, (0, -1))
        broker, name = node.node_id, str(body.topic_partition)
        if not self._lives.is_present(broker, name):
            return
        if body.error is ErrorCode.OFFSET_NOT_AVAILABLE and knowing_epoch >= 0:
            replica = replica_of(node.core, body.topic_partition)
            if _epoch_that_knows_its_end(replica) == knowing_epoch:
                self._jury.see(LookUpPutOff(broker, name, knowing_epoch))
        if body.error is not ErrorCode.NONE:
            return
        log_start = self._log_start(broker, name)
        is_readable, found = False, None
        replica = replica_of(node.core, body.topic_partition)
        own_start = log_start if replica is None else max(log_start, replica.log.log_start_offset)
        # The log may begin later than it did when the answer was made, or when the job of a long search began.
        if request.timestamp >= 0 and not 0 <= body.offset < own_start:
            is_readable, found = self._logs.first_as_late(broker, name, request.timestamp, log_start)
        # An event of the same turn may have taken the replica away since.
        gone_us, gone_epoch = self._gone.get((broker, name), (-1, -1))
        was_there = gone_epoch if gone_us == self._jury.now_us() else -1
        epoch = was_there if replica is None else replica.leader_epoch
        # Who has copied a compacted log knows the epochs of what was left.
        found_epoch = None if self._logs.is_compacted(name) else body.leader_epoch
        self._jury.see(
            OffsetLookedUp(
                broker, name, request.timestamp, body.offset, body.timestamp, committed_before, is_readable,
                found, request.current_leader_epoch, epoch, found_epoch, _is_behind(replica),
                log_start,
            )
        )  # fmt: skip

    def _log_start(self, broker: int, partition: str) -> int:
        """Returns where the leader's log begins, as it says itself: nobody else knows that after its start."""
        known = self._jury.ghost.partition(partition).image(broker).log_start
        node, _ = self._leaders.get(partition, (None, -1))
        core = None if node is None or node.node_id != broker else node.core
        replica = replica_of(core, self._names[partition])
        return known if replica is None else max(known, replica.log.log_start_offset)

    def on_served(self, broker: int, body: FetchResponse) -> None:
        """Show the records that a consumer was given."""
        for answer in body.partitions:
            partition = str(answer.topic_partition)
            if answer.records and self._lives.may_end:
                for offset, value in values_of(answer.records):
                    self._lives.note_served(broker, partition, offset, value)
            if answer.records and self._lives.is_present(broker, partition):
                marks = self._logs.originals(broker, partition, marks_of(answer.records))
                self._jury.see(Served(broker, partition, answer.high_watermark, marks))


def _is_behind(replica: ReplicaView | None) -> bool:
    """Whether a leader has not committed up to the start of its epoch, as its log says it (KIP-207)."""
    start = _epoch_start(replica)
    return replica is not None and start is not None and replica.log.high_watermark < start


def _epoch_that_knows_its_end(replica: ReplicaView | None) -> int:
    """Returns the epoch of a leader that has committed up to its start, which it keeps; -1 for any other replica."""
    start = _epoch_start(replica)
    knows = replica is not None and start is not None and replica.log.high_watermark >= start
    return replica.leader_epoch if replica is not None and knows else -1


def _epoch_start(replica: ReplicaView | None) -> int | None:
    """Returns where the epoch of a leader begins in its log; None for a follower, and where the log does not say it."""
    if replica is None or replica.leader is None:
        return None
    for epoch, start in replica.log.epochs.entries:
        if epoch == replica.leader_epoch:
            return start
    return None
