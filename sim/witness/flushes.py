"""Shows the checkers what brokers take as flushed, beside what their disks would keep."""

from __future__ import annotations

from collections.abc import Mapping
from typing import final

from cluster.core.broker.broker import Broker
from cluster.core.messages import FetchRequest, TopicPartition
from cluster.core.replica.replica import Replica
from sim.checkers.base import Jury
from sim.checkers.sightings import AppendedAfterCut, FlushNoted, MarksKept
from sim.hosts.shell import Shell
from sim.witness.disk_logs import DiskLogs


@final
class FlushWitness:
    """Watches the partitions that the scenario creates, except compacted ones, whose batches are written again."""

    def __init__(self, jury: Jury, logs: DiskLogs, names: Mapping[str, TopicPartition]) -> None:
        self._jury, self._logs, self._names = jury, logs, names
        # By broker, life and partition: the recovery point that was shown last.
        self._shown: dict[tuple[int, int, str], int] = {}
        # By broker and partition: the lowest offset to which the log was cut since its last append.
        self._cuts: dict[tuple[int, str], int] = {}
        # By broker and partition: the last cut of its log, if that has lowered its high watermark or log start.
        self._lowered: dict[tuple[int, str], int] = {}
        # By broker and partition: the end of a log that a start has opened, if its checkpoint had a higher mark then.
        self._started: dict[tuple[int, str], int] = {}
        # By broker: the version of its disk's names when the checkpoints were looked at last.
        self._versions: dict[int, int] = {}

    def on_cut(self, broker: int, partition: str, to_offset: int, *, lowers_marks: bool = False) -> None:
        """Note a cut of a log of a running broker; `lowers_marks` as the log says it until its checkpoints know it."""
        assert to_offset >= 0, (broker, partition, to_offset)
        # A follower may adopt a lower one from its leader, too: no checkpoint is written for that, in Kafka neither.
        self._lowered.pop((broker, partition), None)
        if lowers_marks:
            self._lowered[broker, partition] = to_offset
        self._cuts[broker, partition] = min(to_offset, self._cuts.get((broker, partition), to_offset))

    def on_loaded(self, broker: int, partition: str, log_end: int, committed: int) -> None:
        """Note a log that a start has opened with this end; its checkpoint has `committed` since, or -1 for nothing."""
        if committed > log_end:
            self._started[broker, partition] = log_end

    def on_appended(self, broker: int, core: object, partition: str) -> None:
        """Show the checkpoint that the log has at its first append after cuts, or after a start that lost records."""
        self._look_after_start(broker, core, partition)
        cut = self._cuts.pop((broker, partition), None)
        if cut is None or not isinstance(core, Broker) or self._logs.disk(broker).deceives:
            return
        topic_partition = self._names[partition]
        replica = core.replicas().get(topic_partition)
        if replica is not None:
            point = self._logs.recovery_point(broker, topic_partition)
            flushed = replica.log.local.recovery_point
            may_regrow = self._logs.may_regrow(broker, partition)
            self._jury.see(AppendedAfterCut(broker, partition, cut, point, flushed, may_regrow))
            if (broker, partition) in self._lowered:
                self._look_at_marks(broker, replica, partition, replica.log.high_watermark)

    def _look_after_start(self, broker: int, core: object, partition: str) -> None:
        log_end = self._started.pop((broker, partition), None)
        if log_end is None or not isinstance(core, Broker) or self._logs.disk(broker).deceives:
            return
        replica = core.replicas().get(self._names[partition])
        if replica is not None and self._logs.lives.is_present(broker, partition):
            high_watermark = self._logs.high_watermark(broker, self._names[partition])
            most, start = max(log_end, replica.log.high_watermark), replica.log.log_start_offset
            self._jury.see(MarksKept(broker, partition, high_watermark, start, most, start))

    def on_job_done(self, shell: Shell, core: Broker) -> None:
        """Show what a flush has ended with, and what a job may have written of the logs that were cut.

        A flush that was under way as its log was cut says too much only until the next one ends.
        """
        broker = shell.node_id
        disk = self._logs.disk(broker)
        if disk.deceives:
            return
        replicas = core.replicas()
        for each in replicas.values():
            self._look_at_flushed(shell, each)
        if self._versions.get(broker) == disk.names_version:
            return
        self._versions[broker] = disk.names_version
        for number, partition in self._lowered:
            replica = replicas.get(self._names[partition]) if number == broker else None
            if replica is not None and (broker, partition) not in self._cuts:
                # Since then it may have been higher than it is now.
                self._look_at_marks(broker, replica, partition, replica.log.log_end_offset)

    def _look_at_marks(self, broker: int, replica: Replica, partition: str, most: int) -> None:
        if not self._logs.lives.is_present(broker, partition):
            return
        topic_partition = self._names[partition]
        high_watermark = self._logs.high_watermark(broker, topic_partition)
        log_start = self._logs.log_start(broker, topic_partition)
        most = max(most, self._lowered[broker, partition])
        self._jury.see(
            MarksKept(broker, partition, high_watermark, log_start, most, replica.log.log_start_offset)
        )

    def on_died(self, broker: int) -> None:
        """Forget the cuts of the broker's logs: a start looks at the checkpoint before it appends."""
        for cuts in (self._cuts, self._lowered, self._started):
            for key in [each for each in cuts if each[0] == broker]:
                del cuts[key]

    def on_sent(self, shell: Shell, request: FetchRequest) -> None:
        """Show the recovery points that have moved since the follower's last fetch."""
        core, broker = shell.core, shell.node_id
        if not isinstance(core, Broker) or self._logs.disk(broker).deceives:
            return
        replicas = core.replicas()
        for asked in request.partitions:
            replica = replicas.get(asked.topic_partition)
            if replica is not None:
                self._look_at_flushed(shell, replica)

    def _look_at_flushed(self, shell: Shell, replica: Replica) -> None:
        """Show the recovery point of a log if it has moved since it was shown last."""
        local, name, broker = replica.log.local, replica.name, shell.node_id
        key = (broker, shell.life_number, name)
        point = min(local.recovery_point, local.log_end_offset)
        if point == self._shown.get(key) or name not in self._names or self._logs.is_compacted(name):
            return
        if not self._logs.lives.is_present(broker, name):
            return
        self._shown[key] = point
        loses_from = self._logs.reader(broker, name).first_not_durable()
        # What is below the log's start is about to be deleted, and its file may have been renamed for that.
        is_left = loses_from is not None and loses_from >= replica.log.marks.log_start_offset
        self._jury.see(
            FlushNoted(broker, name, point, -1 if loses_from is None or not is_left else loses_from)
        )
