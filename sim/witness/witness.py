"""Turns the nodes' observations, their answers and the bytes on their disks into sightings for the checkers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import final

from cluster.core.broker.broker import Broker
from cluster.core.effects import Observe
from cluster.core.messages import (
    CONTROLLER_ID,
    FetchRequest,
    FetchResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    MetadataResponse,
    ProduceRequest,
    ProduceResponse,
    ResponseBody,
    TopicPartition,
)
from sim.checkers.base import Jury
from sim.checkers.chain import Mark
from sim.checkers.due_compaction import DueCompaction
from sim.checkers.fail_over import FailOver
from sim.checkers.ghost import ASTRAY
from sim.checkers.log_starts import NAME as LOG_START
from sim.checkers.log_starts import start_beyond
from sim.checkers.log_state import NAME as LOG_STATE
from sim.checkers.log_state import appended_epoch_findings, size_findings
from sim.checkers.produced_sets import NAME as PRODUCED_SETS
from sim.checkers.produced_sets import form_finding
from sim.checkers.producer_sequences import NAME as PRODUCER_SEQUENCES
from sim.checkers.producer_sequences import sequence_findings
from sim.checkers.sightings import (
    Appended,
    BecameFollower,
    BecameLeader,
    Checkpointed,
    Created,
    DeletedSegment,
    EpochsSeen,
    HighWatermark,
    LogStarted,
    StartMoved,
    Truncated,
    WaitedFor,
    Waits,
)
from sim.checkers.unseen import unseen_by_follower, unseen_difference
from sim.disk import SimDisk
from sim.witness.answers import AnswerWitness
from sim.witness.controller_log import ControllerLog
from sim.witness.disk_logs import DiskLogs
from sim.witness.ends import EndWitness
from sim.witness.fetches import FetchWitness
from sim.witness.flushes import FlushWitness
from sim.witness.log_reader import DAMAGE, LogReader
from sim.witness.open_logs import OpenLogs
from sim.witness.tombstones import Round
from sim.witness.views import Member, has_appends, has_replicas, replica_of
from sim.world.packets import Exchange
from storage.batch import RecordBatch
from storage.config import LogConfig

Values = dict[str, int | str]
# Returns the least value of a property, given its name and the least so far.
LeastKept = Callable[[str, int], int]
RETENTION_MS, RETENTION_BYTES = "retention.ms", "retention.bytes"
ACKS_ALL = -1
# The observations after which what a replica remembers of epochs and producers is looked at.
_ROLES_AND_CUTS = frozenset({"replica.became_leader", "replica.became_follower", "replica.truncated"})


def _as_before(_: str, known: int) -> int:
    return known


@final
class Witness:
    """Shows the jury what happens to the partitions that the scenario creates, and to no others."""

    def __init__(
        self, jury: Jury, logs: DiskLogs, controller_disk: SimDisk, directory: str, fail_over: FailOver,
        *, may_expire: bool = False,
    ) -> None:  # fmt: skip
        """`directory` has the metadata log on the controller's disk; `may_expire` says whether producers may."""
        self._open_logs = OpenLogs(jury, logs, may_expire=may_expire)
        self.jury, self._logs, self._fail_over = jury, logs, fail_over
        self._names: dict[str, TopicPartition] = {}
        self._created: dict[str, Created] = {}
        # The node that began to lead last, and its epoch, by partition.
        self._leaders: dict[str, tuple[Member, int]] = {}
        # The properties of each partition when its leader, a broker, has appended last.
        self._configs: dict[tuple[int, str], LogConfig] = {}
        # The partitions whose log begins in memory, at the end of a step, where none was seen to begin so far.
        self._raised: dict[str, None] = {}
        self.lives = logs.lives
        self._fetches = FetchWitness(jury, self.lives, self._names)
        self.flushes = FlushWitness(jury, logs, self._names)
        self.rounds = DueCompaction(jury)
        self.controller = ControllerLog(
            jury, controller_disk, directory, self._names, self._on_topic, fail_over
        )
        self._answers = AnswerWitness(jury, logs, self._names, self._leaders)
        self._ends = EndWitness(jury, logs, self._open_logs, self.flushes, self._names)
        self._handlers: dict[str, Callable[[Member, str, Values], None]] = {
            "replica.appended": self._on_appended,
            "replica.high_watermark": self._on_high_watermark,
            "replica.truncated": self._on_truncated,
            "replica.became_leader": self._on_became_leader,
            "replica.became_follower": self._on_became_follower,
            "log.compacted": self._on_compacted,
            "log.segments_deleted": self._on_segments_deleted,
        }

    def expect(
        self,
        topic_partition: TopicPartition,
        *,
        min_isr: int,
        flush_promised: bool,
        is_compacted: bool = False,
        keeps_tombstones: bool = True,
        is_preallocated: bool = False,
        deletes_old: bool = True,
        retention_ms: int | None = None,
        retention_bytes: int | None = None,
    ) -> None:
        """Watch a partition that the scenario creates; `deletes_old` says whether its cleanup policy has `delete`."""
        name = str(topic_partition)
        assert name not in self._names, name
        self._names[name] = topic_partition
        if is_preallocated:
            self._logs.expect_preallocation(name)
        if is_compacted:
            self._logs.expect_compaction(name, keeps_tombstones=keeps_tombstones)
        if not deletes_old:
            retention_ms = retention_bytes = -1
        elif is_compacted:
            # Which records a deleted segment still had is not known: compaction may have taken the newest ones.
            retention_ms = retention_bytes = None
        self._created[name] = Created(name, min_isr, flush_promised, retention_ms, retention_bytes)
        self.jury.see(self._created[name])

    def expect_change(
        self,
        topic_partition: TopicPartition,
        *,
        min_isr: int,
        moves_tombstones: bool,
        preallocates: bool = False,
        least_kept: LeastKept = _as_before,
    ) -> None:
        """Judge a partition by the least that its topic promises before or after a change, or after each change.

        Nobody outside knows when which broker has learned of it. `min_isr` are the least that have to be in sync then.
        `least_kept` returns the least that retention leaves, of a property and of what that was so far.
        """
        name = str(topic_partition)
        known = self._created[name]
        self._created[name] = known._replace(min_isr=min(known.min_isr, min_isr))
        ms, size = known.retention_ms, known.retention_bytes
        # Without `delete` in the cleanup policy there is no limit, whatever they say.
        if ms is not None and size is not None and not self._logs.is_compacted(name):
            least = least_kept(RETENTION_MS, ms), least_kept(RETENTION_BYTES, size)
            self._created[name] = self._created[name]._replace(
                retention_ms=least[0], retention_bytes=least[1]
            )
        self.jury.see(self._created[name])
        if moves_tombstones:
            self._logs.expect_moved_tombstones(name)
        if preallocates:
            self._logs.expect_preallocation(name)

    def expect_expiry(self) -> None:
        """Judge no longer whether a broker forgets a producer: a property says when it does."""
        self._open_logs.expect_expiry()

    def on_observes(self, node: Member, observes: list[Observe]) -> None:
        """Turn all observations of one step of a node into sightings."""
        if node.node_id == CONTROLLER_ID:
            self.controller.read_on()
            return
        looked_at: dict[str, None] = {}
        offline: dict[str, None] = {}
        for observe in observes:
            handler = self._handlers.get(observe.kind)
            if handler is not None:
                values = dict(observe.fields)
                partition = str(values["topic_partition"])
                if partition in self._names and self._is_present(node, partition):
                    if observe.kind in _ROLES_AND_CUTS:
                        looked_at[partition] = None
                    handler(node, partition, values)
            elif observe.kind == "broker.started":
                self._fail_over.on_broker_started(node.node_id)
                self._ends.on_loaded(node.node_id, offline)
            elif observe.kind == "log_directory.offline":
                offline[str(dict(observe.fields)["directory"])] = None
            elif observe.kind == "replica.offline":
                self._fail_over.on_offline(node.node_id, str(dict(observe.fields)["topic_partition"]))
        if self._raised:
            self._look_at_starts(node)
        for partition in looked_at:
            self._look_at_epochs(node, partition)
            self._look_at_log(node, partition)
        for observe in observes:
            if observe.kind in ("replica.removed", "replica.offline"):
                fields = dict(observe.fields)
                name = str(fields["topic_partition"])
                self._answers.on_gone(node.node_id, name, int(fields.get("leader_epoch", -1)))
                self._fetches.look_at_gone(node.node_id, node.core, name)

    def on_short(self, node_id: int, *, is_short: bool) -> None:
        """Receives whether the broker lacks descriptors, or did so little ago that what it left is still to be done."""
        if is_short:
            self._fail_over.on_short(node_id)
        else:
            self._fail_over.on_served(node_id, self.jury.now_us())

    def look(self, controller_since_us: int | None) -> None:
        """Judge what should have happened by now; to be called at intervals, beside the events.

        Since `controller_since_us` the controller's process runs without a pause or a long job, None if it does not.
        """
        ghost, controller = self.jury.ghost, self.controller
        present = {
            name: ghost.partition(name)
            for name, topic_partition in self._names.items()
            if self.lives.exists(topic_partition.topic) and not ghost.partition(name).unjudged
        }
        active = controller.replay.active()
        for what in self._fail_over.look(
            present,
            controller.elected_at,
            active,
            self.jury.now_us(),
            controller_since_us=controller_since_us,
            unreadable={name: controller.unreadable(name) for name in present},
            unclean=controller.replay.unclean_replicas(),
        ):
            self.jury.report(self._fail_over.name, what)
        for name, (node, epoch) in self._leaders.items():
            if self.lives.is_present(node.node_id, name):
                self._look_at_isr(node, name, epoch)

    def _is_present(self, node: Member, partition: str) -> bool:
        """Whether the replica that the node has after this step is of the topic that exists, not of a deleted one."""
        if not self.lives.may_end:
            # No step deletes a topic.
            return True
        replica = replica_of(node.core, self._names[partition])
        if replica is not None and self.lives.hold(node.node_id, partition, replica.topic_id):
            self._logs.forget(node.node_id, partition)
            self._open_logs.forget(node.node_id, partition)
        return self.lives.is_present(node.node_id, partition)

    def _on_topic(self, topic: str, topic_id: str | None) -> None:
        if topic_id is not None:
            self.lives.begin(topic, topic_id)
            return
        self.lives.end(topic)
        for name, topic_partition in self._names.items():
            if topic_partition.topic == topic:
                self.jury.ghost.begin_again(name)
                self._logs.begin_again(name)
                self.jury.see(self._created[name])

    def _on_appended(self, node: Member, partition: str, values: Values) -> None:
        broker = node.node_id
        reader = self._logs.reader(broker, partition)
        seen = reader.read_on(last_offset=int(values["last_offset"]))
        self.flushes.on_appended(broker, node.core, partition)
        ghost = self.jury.ghost.partition(partition)
        if seen:
            self._look_at_append(node, partition, reader, len(seen), int(values["first_offset"]))
            if values["origin"] == "leader":
                self._look_at_form(node, partition, reader.last_attributes)
        if seen and ghost.unjudged:
            self._judge_appended(broker, partition, reader, seen, int(values["first_offset"]))
        elif seen:
            chain = ghost.image(broker).chain
            self._logs.remember(partition, reader, seen)
            marks = self._logs.whole(broker, partition, seen, chain.end)
            is_new_epoch = chain.last is None or chain.last.epoch != marks[-1].epoch
            is_leader = values["origin"] == "leader"
            self.jury.see(Appended(broker, partition, int(values["leader_epoch"]), marks, is_leader))
            if is_leader:
                self._look_at_isr(node, partition, int(values["leader_epoch"]))
            if is_new_epoch:
                self._look_at_epochs(node, partition)

    def _look_at_append(
        self, node: Member, partition: str, reader: LogReader, count: int, first_offset: int
    ) -> None:
        """Judge the segment that has taken the last of so many new batches, and what the log knows of producers."""
        core = node.core
        replica = core.replicas().get(self._names[partition]) if isinstance(core, Broker) else None
        if replica is None:
            return
        self._open_logs.on_appended(node.node_id, partition, replica, first_offset)
        last = reader.places[-1]
        added = [place for place in reader.places[-count:] if place.path == last.path]
        start = min([place.position for place in added])
        config = replica.log.local.config
        findings = [*size_findings(start, last.position + last.size_bytes, config.segment_bytes)]
        findings += self._open_logs.ages.on_appended(node.node_id, added, config)
        if replica.log.log_end_offset == last.mark.next_offset:
            marks = [place.mark for place in reader.places[-count:]]
            batches = [(mark.base_offset, mark.epoch) for mark in marks]
            findings += appended_epoch_findings(batches, replica.log.epochs.epoch_for_offset)
        for what in findings:
            self.jury.report(LOG_STATE, f"{partition}: broker {node.node_id} {what}")

    def _look_at_form(self, node: Member, partition: str, attributes: int) -> None:
        """Judge the form of a batch that a leader has appended, unless the properties have changed lately."""
        core = node.core
        replica = core.replicas().get(self._names[partition]) if isinstance(core, Broker) else None
        if replica is None:
            return
        key, config = (node.node_id, partition), replica.log.local.config
        # The checks of a set that take several steps may have begun under the properties before.
        is_known = self._configs.get(key) is config
        self._configs[key] = config
        if is_known and (what := form_finding(config, attributes)):
            self.jury.report(PRODUCED_SETS, f"{partition}: broker {node.node_id} {what}")

    def _on_high_watermark(self, node: Member, partition: str, values: Values) -> None:
        broker, epoch, is_leader = node.node_id, int(values["leader_epoch"]), values["role"] == "leader"
        replica = replica_of(node.core, self._names[partition])
        log_start_offset = replica.log.log_start_offset if replica is not None else 0
        high_watermark = int(values["high_watermark"])
        if log_start_offset > self.jury.ghost.partition(partition).greatest_start:
            self._raised[partition] = None
        self.jury.see(HighWatermark(broker, partition, epoch, high_watermark, is_leader, log_start_offset))
        # A follower takes no appends, and those from before were looked at when its role began.
        if is_leader:
            self._look_at_appends(node, partition)

    def _look_at_starts(self, node: Member) -> None:
        """Judge the starts of logs that were raised, after all observations of the step: a deletion may be the last."""
        raised, self._raised = self._raised, {}
        for partition in raised:
            replica = replica_of(node.core, self._names[partition])
            if replica is not None:
                ghost = self.jury.ghost.partition(partition)
                what = start_beyond(ghost, node.node_id, replica.log.log_start_offset)
                if what:
                    self.jury.report(LOG_START, f"{partition}: {what}")

    def _look_at_isr(self, node: Member, partition: str, epoch: int) -> None:
        """Show whom the leader of `epoch` waits for, unless its role has ended in the same step."""
        replica = replica_of(node.core, self._names[partition])
        if replica is not None and replica.leader_epoch == epoch and (isr := replica.maximal_isr):
            self.jury.see(WaitedFor(node.node_id, partition, epoch, isr))

    def _on_truncated(self, node: Member, partition: str, values: Values) -> None:
        to_offset = int(values["to_offset"])
        reader = self._logs.reader(node.node_id, partition)
        reader.truncated(to_offset)
        core = node.core
        replica = core.replicas().get(self._names[partition]) if isinstance(core, Broker) else None
        if replica is not None and replica.log.online.reason is None:
            self._open_logs.on_cut(node.node_id, replica, reader)
        lowers_marks = replica is not None and replica.log.marks.are_lowered
        self.flushes.on_cut(node.node_id, partition, to_offset, lowers_marks=lowers_marks)
        self._logs.on_cut(node.node_id, partition, to_offset)
        self.jury.see(Truncated(node.node_id, partition, to_offset, int(values["leader_epoch"])))
        start = reader.base_offset()
        if start != self.jury.ghost.partition(partition).image(node.node_id).chain.start:
            # The follower begins again, empty, where its leader's log begins.
            self.jury.see(LogStarted(node.node_id, partition, start))

    def _on_became_leader(self, node: Member, partition: str, values: Values) -> None:
        epoch = int(values["leader_epoch"])
        self._leaders[partition] = (node, epoch)
        self._look_for_unseen(node, partition)
        self.jury.see(BecameLeader(node.node_id, partition, epoch, int(values["log_end_offset"])))
        self._logs.leads(node.node_id, partition)
        self._look_at_new_role(node, partition, values)

    def _look_at_new_role(self, node: Member, partition: str, values: Values) -> None:
        if self.lives.may_end and int(values["log_end_offset"]) == 0:
            # The checkpoints may still have what a log of that name had.
            offset = self._logs.checkpointed(node.node_id, self._names[partition])
            self.jury.see(Checkpointed(node.node_id, partition, offset))
        self._look_at_appends(node, partition)
        replica = replica_of(node.core, self._names[partition])
        if replica is not None:
            log = replica.log
            self._ends.loaded_marks.on_role(node.node_id, partition, log.high_watermark, log.log_end_offset)
        self._fetches.look_at_waiting(node.node_id, node.core, partition)

    def _look_for_unseen(self, node: Member, partition: str) -> None:
        """Stop judging a partition whose new leader cannot know where another replica's log differs from its own."""
        if replica_of(node.core, self._names[partition]) is None:
            return
        ghost, cached = self.jury.ghost.partition(partition), self._compacted_epochs(node, partition)
        found = unseen_difference(ghost, node.node_id, cached)
        if found is not None:
            self.jury.ghost.stop_judging(ghost, found.since, found.why)

    def _look_for_unseen_by_follower(self, node: Member, partition: str, leader: int) -> None:
        """Stop judging a partition whose new follower cannot know where its log differs from its leader's."""
        ghost, cached = self.jury.ghost.partition(partition), self._compacted_epochs(node, partition)
        if leader >= 0 and cached:
            found = unseen_by_follower(ghost, node.node_id, leader, cached)
            if found is not None:
                self.jury.ghost.stop_judging(ghost, found.since, found.why)

    def _compacted_epochs(self, node: Member, partition: str) -> dict[int, int]:
        """Returns where the epochs of a compacted log begin by its cache; nothing for another log."""
        replica = replica_of(node.core, self._names[partition])
        if replica is None or not self._logs.is_compacted(partition):
            return {}
        return {entry[0]: entry[1] for entry in replica.log.epochs.entries}

    def _on_became_follower(self, node: Member, partition: str, values: Values) -> None:
        epoch = int(values["leader_epoch"])
        if self.jury.ghost.partition(partition).image(node.node_id).leads:
            self._logs.led(node.node_id, partition)
        self._look_for_unseen_by_follower(node, partition, int(values["leader"]))
        self.jury.see(BecameFollower(node.node_id, partition, epoch, int(values["leader"])))
        self._look_at_new_role(node, partition, values)

    def _on_compacted(self, node: Member, partition: str, values: Values) -> None:
        core, topic_partition = node.core, self._names[partition]
        replica = core.replicas().get(topic_partition) if isinstance(core, Broker) else None
        log = None if replica is None else replica.log
        began_ms = None if log is None else self.rounds.began_ms(node.node_id, log)
        start = self.jury.ghost.partition(partition).greatest_start
        ended = Round(int(values["end_offset"]), began_ms, node.clock.now_ms(), start)
        self._logs.judge_compaction(node.node_id, partition, log, ended=ended)

    def _on_segments_deleted(self, node: Member, partition: str, values: Values) -> None:
        reader, now_ms = self._logs.reader(node.node_id, partition), node.clock.now_ms()
        deleted = [
            DeletedSegment(end, now_ms - newest_ms, left)
            for path, end, newest_ms, left in reader.deleted_segments()
            # A cut may have made it forget its latest time: then its age is that of later appends, as in Kafka.
            if self._logs.knows_times(node.node_id, path)
        ]
        # A disk that has lied may have lost the time index of a segment, by which retention takes its age.
        if self._logs.disk(node.node_id).has_deceived:
            deleted = []
        # While this start does not excuse yet that a producer was forgotten.
        self._judge_deleted(node.node_id, partition, reader)
        self.jury.see(LogStarted(node.node_id, partition, reader.base_offset(), tuple(deleted)))
        reader.refresh()

    def _judge_deleted(self, broker: int, partition: str, reader: LogReader) -> None:
        """Judge the sequences in what a leader has deleted, of which nothing is left at the end."""
        ghost = self.jury.ghost.partition(partition)
        image = ghost.image(broker)
        if ghost.unjudged or not image.leads or image.damage or self._logs.is_compacted(partition):
            return
        batches = (RecordBatch(data, 0, len(data)) for data in reader.oldest_batches())
        for what in sequence_findings(partition, batches, ghost.may_forget):
            self.jury.report(PRODUCER_SEQUENCES, what)

    def on_unwound(self, broker: int, core: Broker) -> None:
        """Receives a broker that has died within a step: it may have moved the start of a log and told nobody."""
        for replica in core.replicas().values():
            if not self.lives.is_named(replica.name, replica.topic_id):
                # It is of a topic that was deleted.
                continue
            start = replica.log.log_start_offset
            if start > self.jury.ghost.partition(replica.name).log_start:
                self.jury.see(StartMoved(broker, replica.name, start))

    def _look_at_epochs(self, node: Member, partition: str) -> None:
        """Show the epoch cache, if the log is at this moment as the checkers believe it to be.

        Compacted logs are left out: a follower that copies one sees only the records that are left of an epoch.
        """
        broker, core = node.node_id, node.core
        if not has_replicas(core) or self._logs.is_compacted(partition):
            return
        replica = core.replicas().get(self._names[partition])
        chain = self.jury.ghost.partition(partition).image(broker).chain
        if replica is not None and replica.log.log_end_offset == chain.end:
            starts = tuple((entry[0], entry[1]) for entry in replica.log.epochs.entries)
            leads = replica.leader_epoch if replica.maximal_isr else -1
            self.jury.see(EpochsSeen(broker, partition, starts, replica.log.log_start_offset, leads))

    def _look_at_log(self, node: Member, partition: str) -> None:
        """Compare what the broker holds of a log with its files, if they are as the checkers believe them to be."""
        core = node.core
        if not isinstance(core, Broker):
            return
        self._open_logs.forget_producers(node.node_id, partition)
        replica = core.replicas().get(self._names[partition])
        chain = self.jury.ghost.partition(partition).image(node.node_id).chain
        if replica is not None and replica.log.log_end_offset == chain.end:
            self._open_logs.look(core, partition, replica)

    def _look_at_appends(self, node: Member, partition: str) -> None:
        """Show what waits at the end of a step in which the replica's role or its high watermark moved."""
        core, topic_partition = node.core, self._names[partition]
        if not has_appends(core):
            return
        appends = tuple(
            (each.view[1], each.last_offset)
            for named, each in core.waiting_appends()
            if named == topic_partition and each.acks == ACKS_ALL
        )
        replica = core.replicas().get(topic_partition)
        if appends and replica is not None:
            epoch = -1 if replica.leader is None else replica.leader_epoch
            self.jury.see(Waits(node.node_id, partition, epoch, replica.log.high_watermark, appends))

    def on_power_loss(self, broker: int) -> None:
        """Read how far the logs of a dead process reach in the page cache that the power loss takes."""
        self._ends.on_power_loss(broker)

    def on_died(self, broker: int, *, lost_power: bool, damage: str = "") -> None:
        """Read what a crash or a power loss left of each log, and show it; `damage` as in `Died`."""
        self._answers.on_died()
        self.flushes.on_died(broker)
        self._ends.on_died(broker, lost_power=lost_power, damage=damage)

    def on_stopped(self, broker: int) -> None:
        """Show the orderly end of a broker's process, for the logs of the directories that it has marked."""
        self._ends.on_stopped(broker)

    def _judge_appended(
        self, broker: int, partition: str, reader: LogReader, seen: Sequence[Mark], first_offset: int
    ) -> None:
        """Report a damaged batch among those from `first_offset` on, in a partition that is judged no further.

        What was appended before may be read again here, and may be rotten.
        """
        is_astray = self.jury.ghost.partition(partition).image(broker).damage == ASTRAY
        count = 0 if is_astray else sum(mark.base_offset >= first_offset for mark in seen)
        if count and (what := reader.damaged(count)):
            self.jury.report(DAMAGE, f"{partition}: broker {broker} appended {what}")

    def on_accepted(self, node: Member, exchange: Exchange) -> None:
        """Show the checkers a request that a node got."""
        if node.node_id == CONTROLLER_ID:
            self.controller.on_request(exchange.body)
        elif isinstance(exchange.body, ListOffsetsRequest):
            self._answers.on_asked(node, exchange, exchange.body)

    def on_reply(self, node: Member, exchange: Exchange, body: ResponseBody) -> None:
        """Show what a node answers to producers, followers, consumers and brokers."""
        request, node_id = exchange.body, node.node_id
        known = node.core.image if isinstance(node.core, Broker) else None
        self.controller.named.on_answer(node_id, body, known)
        if isinstance(body, MetadataResponse):
            self.controller.on_described(node_id, body)
        elif node_id == CONTROLLER_ID:
            self.controller.on_answer(request, body, asked_us=exchange.asked_us)
        elif isinstance(request, ProduceRequest) and isinstance(body, ProduceResponse):
            self._answers.note_acknowledged(node_id, request, body)
            self._answers.on_produced(node_id, request, body)
        elif isinstance(request, FetchRequest) and isinstance(body, FetchResponse):
            self._fetches.on_answer(node_id, node.core, request, body)
            if request.replica_id < 0:
                self._answers.on_served(node_id, body)
        elif isinstance(request, ListOffsetsRequest) and isinstance(body, ListOffsetsResponse):
            self.on_looked_up(node, exchange, request, body)

    def on_looked_up(
        self, node: Member, exchange: Exchange, request: ListOffsetsRequest, body: ListOffsetsResponse
    ) -> None:
        """Show the offset that a node names, if the scenario has the partition."""
        if str(body.topic_partition) in self._names:
            self._answers.on_looked_up(node, exchange, request, body)
