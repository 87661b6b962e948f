"""Shows the checkers how the processes of brokers end, and what the next start makes of their logs."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import final

from cluster.core.messages import TopicPartition
from sim.checkers.base import Jury
from sim.checkers.chain import Mark
from sim.checkers.ghost import ROTTEN
from sim.checkers.sightings import Died, Loaded, StoppedCleanly
from sim.checkers.told_marks import LoadedMarks
from sim.witness.disk_logs import DiskLogs
from sim.witness.flushes import FlushWitness
from sim.witness.log_reader import DAMAGE, WRONG_CHECKSUM, LogReader
from sim.witness.open_logs import OpenLogs

# The name of the rule about files that a start needs.
READABLE = "readable-checkpoints"
# What excuses the records that recovery drops with a segment whose offsets go back.
STEP_BACK = "a torn write has an offset of zeros, for which recovery empties its segment, as Kafka does"


@final
class EndWitness:
    """Reads the partitions that the scenario creates from the disks of brokers that end and that start."""

    def __init__(
        self, jury: Jury, logs: DiskLogs, open_logs: OpenLogs, flushes: FlushWitness,
        names: Mapping[str, TopicPartition],
    ) -> None:  # fmt: skip
        self._jury, self._logs, self._open_logs, self._names = jury, logs, open_logs, names
        self._flushes = flushes
        self._lives = logs.lives
        self.loaded_marks = LoadedMarks(jury)
        # The partitions that a broker led when it died, until its next start.
        self._led_last: set[tuple[int, str]] = set()
        # The recovery points with which logs wait for their next start, after the end of a process without an order.
        self._unrecovered: dict[tuple[int, str], int] = {}
        # The ends of logs in a page cache that is about to be lost.
        self._held_ends: dict[tuple[int, str], int] = {}

    def on_power_loss(self, broker: int) -> None:
        """Read how far the logs of a dead process reach in the page cache that the power loss takes.

        What a compaction that told nobody had removed while consumers read is seen for the last time, too.
        """
        for partition in self._names:
            if self._lives.is_present(broker, partition):
                self._held_ends[broker, partition] = self._logs.held_end(broker, partition)
                leads = self._jury.ghost.partition(partition).image(broker).leads
                if leads or (broker, partition) in self._led_last:
                    self._logs.led(broker, partition)

    def _judge_checkpoints(self, broker: int, damage: str) -> None:
        """Report checkpoints that the next start cannot read, unless the disk has damaged them: each is written beside
        the one before and renamed, so that it is whole whenever a process ends.
        """
        images = [self._jury.ghost.partition(each).image(broker) for each in self._names]
        has_damage = any(image.damage or image.cache_damage for image in images)
        disk = self._logs.disk(broker)
        if damage or has_damage or disk.has_deceived or disk.has_rotten:
            return
        for what in self._logs.unreadable_checkpoints(broker, self._names):
            self._jury.report(READABLE, f"broker {broker}: {what}")

    def on_died(self, broker: int, *, lost_power: bool, damage: str = "") -> None:
        """Read what a crash or a power loss left of each log, and show it; `damage` as in `Died`."""
        self._judge_checkpoints(broker, damage)
        self.loaded_marks.on_ended(broker)
        for partition in self._names:
            if not self._lives.is_present(broker, partition):
                continue
            if self._is_of_deleted(broker, partition):
                # A disk that was set back may have it again; it holds nothing of the topic that exists now.
                self._logs.forget(broker, partition)
                self._jury.see(Died(broker, partition, lost_power, (), 0, damage))
                self._held_ends.pop((broker, partition), None)
                continue
            reader = self._logs.reader(broker, partition)
            reader.power_lost()
            start, found = reader.base_offset(), reader.read_all()
            # The step in which it died may have appended batches of which nobody was told.
            image = self._jury.ghost.partition(partition).image(broker)
            end = image.chain.end
            if image.leads:
                self._led_last.add((broker, partition))
            self._logs.remember(partition, reader, [mark for mark in found if mark.base_offset >= end])
            marks, removed_end = self._logs.opened(broker, partition, reader, found, start)
            if reader.step_back is not None and lost_power:
                marks, damage = _below(marks, reader.step_back), damage or STEP_BACK
            recovery_point = self._logs.recovery_point(broker, self._names[partition])
            self._unrecovered[broker, partition] = recovery_point
            held_end = self._held_ends.pop((broker, partition), None)
            checkpointed = self._logs.checkpointed(broker, self._names[partition])
            self._jury.see(
                Died(
                    broker, partition, lost_power, marks, start, damage, recovery_point, removed_end, held_end,
                    checkpointed, reader.last_base_offset(),
                )
            )  # fmt: skip

    def _is_of_deleted(self, broker: int, partition: str) -> bool:
        """Whether the log on the broker's disk is that of a deleted topic of the name, by its `partition.metadata`."""
        if not self._lives.may_end:
            return False
        written_id = self._logs.written_topic_id(broker, partition)
        return not self._lives.may_be_present(partition, written_id)

    def on_stopped(self, broker: int) -> None:
        """Show the orderly end of a broker's process, for the logs of the directories that it has marked."""
        self._judge_checkpoints(broker, "")
        self.loaded_marks.on_ended(broker)
        for partition in self._names:
            self._unrecovered.pop((broker, partition), None)
            if self._lives.is_present(broker, partition) and self._logs.is_marked_clean(broker, partition):
                may_lose = self._logs.may_lose(broker, partition)
                self._jury.see(StoppedCleanly(broker, partition, may_lose))

    def on_loaded(self, broker: int, offline: Collection[str]) -> None:
        """Show what a start has recovered; nothing of a log directory that is offline, which no start has read."""
        for partition in self._names:
            if offline and self._logs.log_directory(broker, partition) in offline:
                continue
            if self._is_of_deleted(broker, partition):
                continue
            reader = self._logs.reader(broker, partition)
            start = reader.base_offset()
            marks, removed_end = self._logs.opened(broker, partition, reader, reader.read_all(), start)
            # A disk that lost what was synced may have left an empty segment after a hole.
            image = self._jury.ghost.partition(partition).image(broker)
            has_damage = bool(image.damage or image.cache_damage)
            unsound = reader.unsound or (reader.hole() if has_damage else "")
            self._judge_recovery(broker, partition, reader)
            checkpoint = self._logs.log_start(broker, self._names[partition])
            self._open_logs.on_loaded(broker, partition, checkpoint)
            if not has_damage:
                committed = self._logs.high_watermark(broker, self._names[partition])
                self.loaded_marks.on_loaded(broker, partition, committed)
                end = max(marks[-1].next_offset if marks else start, removed_end)
                self._flushes.on_loaded(broker, partition, end, committed)
            self._jury.see(Loaded(broker, partition, marks, unsound, start, removed_end))
            self._logs.judge_compaction(broker, partition)
            if (broker, partition) in self._led_last:
                # Consumers may have read what a compaction left of which nobody was told.
                self._logs.leads(broker, partition)
                self._led_last.discard((broker, partition))

    def _judge_recovery(self, broker: int, partition: str, reader: LogReader) -> None:
        """Report damage that a start had to cut off, in a partition that is judged no further because of rot."""
        recovery_point = self._unrecovered.pop((broker, partition), None)
        ghost = self._jury.ghost.partition(partition)
        if recovery_point is None or not ghost.unjudged or ghost.image(broker).damage != ROTTEN:
            return
        sound_end = reader.places[-1].mark.next_offset if reader.places else reader.base_offset()
        if WRONG_CHECKSUM in reader.unsound and sound_end >= recovery_point:
            what = f"broker {broker} kept damage above its recovery point {recovery_point}: {reader.unsound}"
            self._jury.report(DAMAGE, f"{partition}: {what}")


def _below(marks: Sequence[Mark], base_offset: int) -> tuple[Mark, ...]:
    """Returns the batches before a segment whose offsets go back: recovery may empty it, as Kafka does (LL16).

    A block of an append that a power loss kept without the one before it can be such a batch: the checksum does not
    cover the offset, whose bytes are zeros then.
    """
    return tuple([mark for mark in marks if mark.base_offset < base_offset])
