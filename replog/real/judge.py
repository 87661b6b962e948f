"""Judges the end of a run by the logs on its disks, with the checkers of the simulator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import final

from cluster.core.messages import TopicPartition
from replog.real.mirror import copy_logs, new_disk
from replog.real.rest import Places
from replog.real.site import broker_name
from replog.real.watch import Watch
from sim.checkers.base import Jury
from sim.checkers.registry import all_checkers
from sim.checkers.sightings import Appended, HighWatermark, LogStarted
from sim.disk import SimDisk
from sim.hosts.history import History
from sim.hosts.node import log_directories
from sim.judgement import FinalLogs
from sim.scenario.model import Scenario
from sim.witness.disk_logs import DiskLogs


def copied_disks(scenario: Scenario, data: Path) -> dict[int, SimDisk]:
    """Returns a copy of the logs that each broker has on its disk, by the broker's number. Raises OSError."""
    disks: dict[int, SimDisk] = {}
    names = log_directories(scenario.cluster.directories)
    for broker in range(1, scenario.cluster.brokers + 1):
        disk = disks[broker] = new_disk()
        for number, name in enumerate(names, 1):
            copy_logs(data / broker_name(broker) / f"log-{number}", disk, name)
    return disks


def is_compacted(scenario: Scenario, topic: str) -> bool:
    return "compact" in str(scenario.topics[topic].config.get("cleanup.policy", ""))


@final
class DiskJudge:
    """Shows the final logs to new checkers of the same classes, beside the ghost that knows all elections.

    The leader's log is shown first, as what was appended in each epoch; then those of the others, which must match it
    batch by batch; then the high watermark, from which the ghost learns what was committed.
    """

    def __init__(self, scenario: Scenario, data: Path, watch: Watch, history: History) -> None:
        self._scenario, self._watch, self._history = scenario, watch, history
        ghost, live = watch.ghost, watch.jury
        self.jury = Jury(
            ghost, all_checkers(ghost), now_us=live.now_us,
            on_violation=lambda found: live.report(found.checker, found.what),
        )  # fmt: skip
        directories = log_directories(scenario.cluster.directories)
        self._logs = DiskLogs(self.jury, copied_disks(scenario, data), directories)

    def judge(
        self, partitions: Sequence[TopicPartition], replicas: Mapping[str, Sequence[int]], places: Places
    ) -> dict[str, int]:
        """Report every violation. Returns the number of acknowledged records that are lost and excused, by reason.

        `replicas` has the brokers of each partition that exists, `places` how far they said they have come.
        """
        judged = [each for each in partitions if str(each) in replicas]
        for each in judged:
            if not is_compacted(self._scenario, each.topic):
                self._show(each, replicas[str(each)], places)
        plain = [each for each in judged if not is_compacted(self._scenario, each.topic)]
        history, lives = self._without_compacted(), self._watch.lives
        return FinalLogs(plain, history, self._logs, self.jury, lives, replicas).judge()

    def _show(self, topic_partition: TopicPartition, replicas: Sequence[int], places: Places) -> None:
        """Show the logs of one partition: the checkers judge batch by batch."""
        name = str(topic_partition)
        state = self._watch.ghost.partition(name)
        leader = state.leader if state.leader >= 0 else replicas[0]
        others = [broker for broker in sorted(replicas) if broker != leader]
        starts = {
            broker: self._append(name, broker, state.epoch, leads=broker == leader)
            for broker in (leader, *others)
        }
        for broker in (leader, *others):
            place = places.get((topic_partition, broker))
            if place is not None:
                self.jury.see(
                    HighWatermark(
                        broker, name, state.epoch, place.high_watermark, broker == leader, starts[broker]
                    )
                )  # fmt: skip

    def _append(self, name: str, broker: int, epoch: int, *, leads: bool) -> int:
        """Show what is in a broker's log. Returns the offset of its start."""
        reader = self._logs.reader(broker, name)
        marks, start = reader.read_all(), reader.base_offset()
        if start:
            self.jury.see(LogStarted(broker, name, start))
        if not leads:
            self.jury.see(Appended(broker, name, epoch, marks))
            return start
        for batch_epoch, of_epoch in groupby(marks, key=lambda mark: mark.epoch):
            self.jury.see(Appended(broker, name, batch_epoch, tuple(of_epoch), True))
        return start

    def _without_compacted(self) -> History:
        """Returns the history without the records of compacted topics."""
        compacted = [name for name in self._scenario.topics if is_compacted(self._scenario, name)]
        if not compacted:
            return self._history

        def stays(partition: str) -> bool:
            return partition.rpartition("-")[0] not in compacted

        rest = History(
            sends=(each for each in self._history.sends if stays(each.partition)),
            reads=(each for each in self._history.reads if stays(each.partition)),
        )
        rest.positions = {key: at for key, at in self._history.positions.items() if stays(key[1])}
        rest.handed_over = self._history.handed_over
        return rest
