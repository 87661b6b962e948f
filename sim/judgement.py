"""Judges the end of a run: does the healed cluster agree, does the history hold, did the run prove anything?"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum
from typing import final

from cluster.core.broker.broker import Broker
from cluster.core.controller.controller import Controller
from cluster.core.messages import TopicPartition
from cluster.core.replica.replica import Replica
from sim.checkers.base import Jury, Violation
from sim.checkers.client_history import ClientHistoryCheck
from sim.checkers.history import HistoryCheck
from sim.checkers.index_entries import NAME as INDEX_ENTRIES
from sim.checkers.index_entries import Indexed, Timed, index_findings, time_findings
from sim.checkers.producer_sequences import NAME as PRODUCER_SEQUENCES
from sim.checkers.producer_sequences import sequence_findings
from sim.cluster import Cluster
from sim.hosts.history import History, Outcome, text_of
from sim.left_logs import owes_deletions
from sim.story import Chronicle
from sim.witness.disk_logs import DiskLogs
from sim.witness.log_reader import LogReader
from sim.witness.topic_lives import TopicLives
from storage.batch import RecordBatch

# The interval of the checks whether everything is at rest.
LOOK_US = 50_000
# A cluster that still makes progress has this many times `converge` in all.
MOST_WAITS = 20
# How long a run goes on at most for deletions that wait for the next checkpoint of a broker.
MOST_OWED_US = 12_000_000
STARVED_BELOW_PERCENT = 20


class Verdict(Enum):
    """The result of a run."""

    HELD = "held"
    VIOLATED = "violated"
    # The run proved nothing: too few sends succeeded, or a step never came to strike.
    STARVED = "starved"


@final
class Progress:
    """How far replicas, consumers and jobs have come. It ends by itself, because nobody sends records any more."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        # The greatest log end, high watermark and position so far: a log that is cut and copied again is no progress.
        self._furthest: dict[tuple[str, str], tuple[int, int]] = {}
        # How long the jobs of each broker take that wait for each other: the least so far.
        self._least_us: dict[int, int] = {}

    def has_grown(self) -> bool:
        """Whether a log, a high watermark or a position is further, or a broker's jobs are fewer, than at any call
        before."""
        # Each is looked at, so that it counts once.
        grown = [self._is_further(name, at) for name, at in self._places()]
        return any(grown + [self._has_fewer_jobs(broker) for broker in self._cluster.brokers])

    def _has_fewer_jobs(self, broker: int) -> bool:
        waiting_us = self._cluster.brokers[broker].jobs_last_us
        before_us = self._least_us.setdefault(broker, waiting_us)
        self._least_us[broker] = min(waiting_us, before_us)
        return waiting_us < before_us

    def _is_further(self, name: tuple[str, str], at: tuple[int, int]) -> bool:
        before = self._furthest.get(name, (0, 0))
        reached = max(at[0], before[0]), max(at[1], before[1])
        self._furthest[name] = reached
        return reached != before

    def _places(self) -> Iterator[tuple[tuple[str, str], tuple[int, int]]]:
        """Yields log end and high watermark of each replica, and the position of each consumer."""
        for node in self._cluster.brokers.values():
            for topic_partition, replica in (
                node.core.replicas().items() if isinstance(node.core, Broker) else ()
            ):
                log = replica.log
                yield (node.name, str(topic_partition)), (log.log_end_offset, log.high_watermark)
        for consumer in self._cluster.consumers:
            for partition, position in consumer.positions.items():
                yield (consumer.name, partition), (position, position)


@final
class Convergence:
    """Checks that a healed cluster comes to rest: all replicas in sync, their logs equal, and all records read."""

    def __init__(self, cluster: Cluster, jury: Jury, chronicle: Chronicle, lives: TopicLives) -> None:
        self._cluster, self._jury, self._chronicle, self._lives = cluster, jury, chronicle, lives

    def await_rest(self, within_us: int, is_over: Callable[[], bool] = lambda: False) -> None:
        """Run the world until everything is at rest, or until `is_over`.

        Reports a violation if neither has come and no progress was made for `within_us`, or after MOST_WAITS of it.
        The time that a follower needs depends on how much it lacks, on its disk, and on what the network loses.
        """
        world, progress = self._cluster.world, Progress(self._cluster)
        begun_us = world.now_us
        end_us, last_us = begun_us + within_us, begun_us + MOST_WAITS * within_us
        while (lacking := self._lacking()) and world.now_us < end_us and not is_over():
            if progress.has_grown():
                end_us = min(world.now_us + within_us, last_us)
            world.run_to(min(world.now_us + LOOK_US, end_us))
        assert world.now_us <= last_us, (world.now_us, last_us)
        if is_over():
            return
        if lacking:
            waited_us = world.now_us - begun_us
            self._jury.report("convergence", f"{waited_us / 1e6:g} s after everything was healed {lacking}")
        else:
            self._chronicle.tell("every replica agrees")
            self._await_deletions()

    def _await_deletions(self) -> None:
        """Run the world until each broker has had the time to delete what it found no descriptor for."""
        world = self._cluster.world
        end_us = world.now_us + MOST_OWED_US
        while any(map(owes_deletions, self._cluster.brokers.values())) and world.now_us < end_us:
            world.run_to(world.now_us + LOOK_US)

    def _lacking(self) -> str:
        """Returns what is not at rest yet, in words; empty if everything is at rest."""
        for producer in self._cluster.producers:
            if not producer.is_done:
                return f"{producer.name} still waits for answers"
        for admin in self._cluster.admins:
            if not admin.is_done:
                return f"{admin.name} still waits for outcomes"
        if lacking := self._cluster.admin.open_request:
            return lacking
        for topic_partition in self._cluster.partitions:
            if not self._lives.exists(topic_partition.topic):
                continue
            if lacking := self._partition_lacks(topic_partition):
                return f"{topic_partition}: {lacking}"
        for consumer in self._cluster.consumers:
            for topic_partition in consumer.partitions:
                if not self._lives.exists(topic_partition.topic):
                    continue
                partition = str(topic_partition)
                position, ghost = consumer.positions.get(partition, -1), self._jury.ghost.partition(partition)
                if position < ghost.truth.end and not ghost.unjudged:
                    return f"{consumer.name} has read {partition} up to {max(position, 0)} only"
        return self._fenced()

    def _fenced(self) -> str:
        """Returns which broker is not unfenced in its present life, in words; it may have no partition."""
        for node in self._cluster.brokers.values():
            if node.is_up and isinstance(node.core, Broker) and not node.core.lifecycle.is_unfenced:
                return f"{node.name} is fenced"
        return ""

    def _is_of_earlier_topic(self, topic: str, replica: Replica) -> bool:
        """Whether the broker has not heard yet that the topic was deleted and created again."""
        controller = self._cluster.controller.core
        known = controller.pending_image.topics.get(topic) if isinstance(controller, Controller) else None
        return known is not None and known.topic_id != replica.topic_id

    def _partition_lacks(self, topic_partition: TopicPartition) -> str:
        ghost = self._jury.ghost.partition(str(topic_partition))
        if ghost.unjudged:
            return ""
        topic = self._cluster.scenario.topics[topic_partition.topic]
        if ghost.leader < 0:
            return "has no leader"
        if len(ghost.isr) < topic.replicas:
            return f"only {list(ghost.isr)} are in sync"
        ends: dict[int, tuple[int, int]] = {}
        for broker in ghost.isr:
            core = self._cluster.brokers[broker].core
            replica = core.replicas().get(topic_partition) if isinstance(core, Broker) else None
            if replica is None:
                return f"broker {broker} has no replica"
            if self._is_of_earlier_topic(topic_partition.topic, replica):
                return f"broker {broker} has the replica of an earlier topic"
            ends[broker] = (replica.log.log_end_offset, replica.log.high_watermark)
        if len({value for end in ends.values() for value in end}) > 1:
            return f"log end and high watermark differ: {ends}"
        return ""


@final
class FinalLogs:
    """Judges the logs on the disks at the end by what the clients saw and by what the checkers believe."""

    def __init__(
        self,
        partitions: Sequence[TopicPartition],
        history: History,
        logs: DiskLogs,
        jury: Jury,
        lives: TopicLives,
        replicas: Mapping[str, Sequence[int]],
    ) -> None:
        """`replicas` has the brokers that the controller has assigned to each partition; others hold no log of it."""
        self._names = [str(each) for each in partitions if lives.exists(each.topic)]
        self._lives, self._replicas = lives, replicas
        self._history, self._logs, self._jury = history, logs, jury

    def judge(self) -> dict[str, int]:
        """Report every violation. Returns the number of acknowledged records that are lost and excused, by reason."""
        for name in self._names:
            # What compaction took from it since then was compared with nothing, and is not known any more.
            if self._logs.is_compacted(name):
                self._jury.ghost.excuse_all(name)
        readers = {name: self._read(name, self._leader(name)) for name in self._names}
        kept = {name: self._values(reader) for name, reader in readers.items()}
        logs = {name: self._content(name, readers[name]) | kept[name] for name in self._names}
        starts = {name: start for name, reader in readers.items() if (start := reader.base_offset())}
        check = HistoryCheck(self._history, self._jury.ghost, logs, self._lives, log_starts=starts)
        for what in check.findings():
            self._jury.report(check.name, what)
        clients = ClientHistoryCheck(self._history, self._jury.ghost, logs, self._lives, log_starts=starts)
        for what in clients.findings({name: self._due(name, kept[name]) for name in self._names}):
            self._jury.report(clients.name, what)
        for name in self._names:
            if not self._jury.ghost.partition(name).unjudged:
                self._judge_sequences(name, readers[name])
                self._compare_replicas(name)
        return check.excused

    def _leader(self, name: str) -> int:
        """Returns the broker that leads; without a leader, the one with the longest log on its disk."""
        ghost = self._jury.ghost.partition(name)
        if ghost.leader >= 0:
            return ghost.leader
        return max(ghost.images, key=lambda broker: ghost.images[broker].chain.end)

    def _read(self, name: str, broker: int) -> LogReader:
        """Returns the broker's log, read to its end."""
        reader = self._logs.reader(broker, name)
        reader.read_all()
        return reader

    def _values(self, reader: LogReader) -> dict[int, str]:
        """Returns the values of a log by offset, as far as compaction has left them."""
        return {
            record.offset: text_of(record)
            for place, data in reader.batches()
            for record in RecordBatch(data, 0, place.size_bytes).records()
        }

    def _due(self, name: str, kept: Mapping[int, str]) -> dict[int, str]:
        """Returns the records that no leader's compaction had removed: every consumer had to read them.

        Each replica compacts its own log. A consumer may pass a hole of one leader that the next one does not have.
        """
        removed = self._logs.removed_by_leaders(name)
        return {offset: value for offset, value in kept.items() if offset not in removed}

    def _content(self, name: str, reader: LogReader) -> dict[int, str]:
        """Returns the values that a compacted log had before compaction, by offset; nothing for other logs.

        Nor of one that is judged no further: what was cut off and written again since would be there twice.
        """
        if not self._logs.is_compacted(name) or self._jury.ghost.partition(name).unjudged:
            return {}
        marks = self._logs.whole(self._leader(name), name, [place.mark for place in reader.places])
        taken = self._logs.content(name, marks)
        return {offset: text_of(record) for offset, record in taken.items()}

    def _judge_sequences(self, name: str, reader: LogReader) -> None:
        if not self._logs.is_compacted(name):
            batches = (RecordBatch(data, 0, place.size_bytes) for place, data in reader.batches())
            for what in sequence_findings(name, batches, self._jury.ghost.partition(name).may_forget):
                self._jury.report(PRODUCER_SEQUENCES, what)

    def _judge_indexes(self, name: str, broker: int, reader: LogReader) -> None:
        """Judge the indexes of sealed segments.

        The times of a compacted one may be those of records that are gone. A disk that has lied may have lost the last
        time of a segment whose records it has kept: below the recovery point no start looks.
        """
        who = f"{name}: broker {broker}"
        for base_offset, places, data in reader.indexes():
            batches = [Indexed(place.position, place.mark) for place in places]
            for what in index_findings(who, base_offset, batches, data):
                self._jury.report(INDEX_ENTRIES, what)
        is_rotten = bool(self._jury.ghost.partition(name).image(broker).damage)
        if is_rotten or self._logs.is_compacted(name) or self._logs.disk(broker).has_deceived:
            return
        for base_offset, places, data in reader.indexes(".timeindex"):
            if not all(self._logs.knows_times(broker, place.path) for place in places):
                continue
            timed = [Timed(place.mark.base_offset, place.newest_ms) for place in places]
            for what in time_findings(who, base_offset, timed, data):
                self._jury.report(INDEX_ENTRIES, what)

    def _compare_replicas(self, name: str) -> None:
        """Check that the disks hold the logs that the checkers believe, and that all replicas are equal (R1)."""
        ghost = self._jury.ghost.partition(name)
        for broker in sorted(self._replicas.get(name, ())):
            image = ghost.image(broker)
            reader = self._logs.reader(broker, name)
            found = reader.read_all()
            marks, _ = self._logs.opened(broker, name, reader, found, image.chain.start)
            if ghost.unclean_epochs:
                # A compacted log may be cut where compaction has left no batch.
                marks = self._logs.whole(broker, name, found, end=image.chain.end)
            self._logs.judge_compaction(broker, name)
            self._judge_indexes(name, broker, reader)
            agreed_end = ghost.held_end(image)
            if reader.unsound:
                what = f"broker {broker}: {reader.unsound}"
            elif list(marks) != list(image.chain.marks):
                what = f"the log of broker {broker} is not what it told"
            elif agreed_end < ghost.truth.end:
                what = (
                    f"broker {broker} agrees with the committed log up to {agreed_end} of {ghost.truth.end}"
                )
            else:
                continue
            self._jury.report("replicas-agree", f"{name}: {what}")


def starvation(history: History, unfired: Sequence[int], steps: int, excused_sends: int) -> str:
    """Returns why the run proved nothing; empty if it proved something.

    `unfired` are the steps that never came to strike. Of the sends that did not succeed, `excused_sends` could not.
    """
    if unfired:
        return f"step {unfired[0]} of {steps} never struck"
    ok_count = history.counts()[Outcome.OK.value]
    possible = len(history.sends) - excused_sends
    assert ok_count <= possible, (ok_count, possible)
    if history.sends and (ok_count == 0 or ok_count * 100 < STARVED_BELOW_PERCENT * possible):
        excused = f", {excused_sends} of them are excused" if excused_sends else ""
        return f"{ok_count} of {len(history.sends)} sends succeeded{excused}"
    return ""


def verdict_on(violations: Sequence[Violation], starved_because: str) -> Verdict:
    if violations:
        return Verdict.VIOLATED
    return Verdict.STARVED if starved_because else Verdict.HELD
