"""Rules about what a node believes to be on its disk: its checkpoints, its flushes, and the mark of an orderly stop."""

from __future__ import annotations

from collections.abc import Mapping
from typing import final

from sim.checkers.base import Checker, Judge
from sim.checkers.chain import Chain
from sim.checkers.ghost import Ghost, PartitionGhost
from sim.checkers.sightings import (
    AppendedAfterCut,
    Checkpointed,
    Died,
    FlushNoted,
    Loaded,
    MarksKept,
    StoppedCleanly,
)


@final
class RecoveryPointIsDurable(Checker):
    """No power loss loses a record below the recovery point that the checkpoint has then (ST2): no start looks there.

    The end of a process alone loses nothing; it may have cut the log in its last step, of which nobody was told. After
    a truncation the recovery point may be above the end of the log, until something is appended: then the checkpoint
    has to be lower first (RT16), whether or not a power loss shows it. A disk that lied about
    a sync, or that was replaced, excuses the broker. What compaction had removed behind the last batch cannot be lost.
    """

    name = "recovery-point"

    def judges(self) -> Mapping[type, Judge]:
        return {Died: self._on_died, AppendedAfterCut: self._on_appended_after_cut}

    def _on_appended_after_cut(self, partition: PartitionGhost, sighting: AppendedAfterCut) -> str | None:
        is_sound = sighting.checkpoint <= max(sighting.cut, sighting.flushed)
        if is_sound or partition.image(sighting.broker).damage:
            return None
        return (
            f"{partition.name}: broker {sighting.broker} has cut its log to {sighting.cut} and appended; its "
            f"checkpoint still has recovery point {sighting.checkpoint}, and it counts on {sighting.flushed}"
        )

    def _on_died(self, partition: PartitionGhost, sighting: Died) -> str | None:
        image = partition.image(sighting.broker)
        left_end = max(Chain(sighting.marks, sighting.start).end, sighting.removed_end)
        if not sighting.lost_power or sighting.damage or image.damage:
            return None
        # The step in which it died may have cut the log, of which nobody was told.
        held_end = image.chain.end if sighting.held_end is None else min(image.chain.end, sighting.held_end)
        if left_end >= held_end:
            return None
        # The log's start takes the recovery point along, as in Kafka: nobody can read what is before it. A follower may
        # have adopted that of its leader with an answer that moved no high watermark, by which starts are noted.
        log_start = max(image.log_start, partition.leader_log_start)
        if sighting.recovery_point > max(left_end, log_start):
            return (
                f"{partition.name}: broker {sighting.broker} has lost the records from {left_end} on; its checkpoint "
                f"has recovery point {sighting.recovery_point}"
            )
        return None


@final
class CutsAreDurable(Checker):
    """What was cut off a log is gone for good before anything is appended in its place (RT9).

    Else a power loss may bring old blocks back between those of later appends, and one file holds sound batches of two
    histories; Kafka leaves this sync out. A disk that lied about a sync, or that was replaced, excuses the broker.
    """

    name = "durable-cuts"

    def judges(self) -> Mapping[type, Judge]:
        return {AppendedAfterCut: self._on_appended_after_cut}

    def _on_appended_after_cut(self, partition: PartitionGhost, sighting: AppendedAfterCut) -> str | None:
        if not sighting.may_regrow or partition.image(sighting.broker).damage:
            return None
        return (
            f"{partition.name}: broker {sighting.broker} has cut its log to {sighting.cut} and appended; a power loss "
            "may bring back what was cut off"
        )


@final
class CheckpointsAreOfTheLog(Checker):
    """No checkpoint has an offset that the log has never reached, as it gets a role and when its process ends (RT16).

    It is that of another log: of a deleted topic that had its name. The next start would count uncommitted records as
    committed, or read no record below it, or begin the log there. After a cut that has lowered marks, and an append,
    the checkpoints have none that is higher: not even those that a job took before. A disk that lost what was synced
    excuses the broker.
    """

    name = "checkpoint-offsets"

    def judges(self) -> Mapping[type, Judge]:
        return {Died: self._on_died, Checkpointed: self._on_checkpointed, MarksKept: self._on_marks_kept}

    def _on_died(self, partition: PartitionGhost, sighting: Died) -> str | None:
        end, held_end = Chain(sighting.marks, sighting.start).end, sighting.held_end or 0
        left_end = max(end, sighting.removed_end, held_end, sighting.last_base)
        if sighting.damage:
            return None
        return self._judge(partition, sighting.broker, sighting.checkpointed, left_end)

    def _on_checkpointed(self, partition: PartitionGhost, sighting: Checkpointed) -> str | None:
        return self._judge(partition, sighting.broker, sighting.offset, 0)

    def _on_marks_kept(self, partition: PartitionGhost, sighting: MarksKept) -> str | None:
        image, most = partition.image(sighting.broker), sighting.most_high_watermark
        # A look-up moves the high watermark down to the begin of its batch (RD11).
        inside = image.chain.covering(most)
        most = most if inside is None else inside.next_offset
        is_sound = sighting.high_watermark <= most and sighting.log_start <= sighting.most_log_start
        if is_sound or image.damage or image.cache_damage:
            return None
        return (
            f"{partition.name}: a cut or a start has lowered the marks of broker {sighting.broker}, and its log goes "
            f"on; its checkpoints have {sighting.high_watermark} and {sighting.log_start}, and may have up to {most} "
            f"and {sighting.most_log_start}"
        )

    def _judge(self, partition: PartitionGhost, broker: int, checkpointed: int, left_end: int) -> str | None:
        image = partition.image(broker)
        reached = max(left_end, image.greatest_end, image.chain.end, image.log_start, partition.log_start)
        if checkpointed <= reached or image.damage:
            return None
        return (
            f"{partition.name}: the checkpoints of broker {broker} have offset {checkpointed} of a log that has never "
            f"gone beyond {reached}"
        )


@final
class FlushedIsDurable(Checker):
    """What a running broker takes as flushed would survive a power loss now: a leader counts on it (FL1 to FL4).

    A disk that lied about a sync, or that was replaced, excuses the broker.
    """

    name = "flushed-durable"

    def judges(self) -> Mapping[type, Judge]:
        return {FlushNoted: self._on_noted}

    def _on_noted(self, partition: PartitionGhost, sighting: FlushNoted) -> str | None:
        image = partition.image(sighting.broker)
        if image.damage or sighting.loses_from < 0 or sighting.recovery_point <= sighting.loses_from:
            return None
        return (
            f"{partition.name}: broker {sighting.broker} takes its log as flushed up to {sighting.recovery_point}; "
            f"its disk may lose the records from {sighting.loses_from} on"
        )


@final
class CleanStopKeepsAll(Checker):
    """What a log held at an orderly stop that was marked as such is there at the next start (ST4).

    Between them the machine may lose its power: all was flushed before the mark was written, the names of files and
    what they say of producers and epochs too.
    """

    name = "clean-stop"

    def __init__(self, ghost: Ghost) -> None:
        super().__init__(ghost)
        self._stopped: set[tuple[str, int]] = set()

    def judges(self) -> Mapping[type, Judge]:
        return {StoppedCleanly: self._on_stopped, Died: self._on_died, Loaded: self._on_loaded}

    def _on_stopped(self, partition: PartitionGhost, sighting: StoppedCleanly) -> str | None:
        self._stopped.add((partition.name, sighting.broker))
        if not sighting.may_lose or partition.image(sighting.broker).damage:
            return None
        return (
            f"{partition.name}: broker {sighting.broker} stopped in order, and marked it; a power loss may take "
            f"{sighting.may_lose}, or a part of it"
        )

    def _on_died(self, partition: PartitionGhost, sighting: Died) -> str | None:
        if sighting.damage:
            self._stopped.discard((partition.name, sighting.broker))
        return self._judge(partition, sighting, "after a power loss that followed it")

    def _on_loaded(self, partition: PartitionGhost, sighting: Loaded) -> str | None:
        what = self._judge(partition, sighting, "at the next start")
        self._stopped.discard((partition.name, sighting.broker))
        return what

    def _judge(self, partition: PartitionGhost, sighting: Died | Loaded, when: str) -> str | None:
        image = partition.image(sighting.broker)
        if (partition.name, sighting.broker) not in self._stopped or image.damage:
            return None
        found = Chain(sighting.marks, sighting.start)
        kept = found.agreed_end(image.chain, image.log_start)
        if kept < image.chain.end and not (kept == found.end and sighting.removed_end >= image.chain.end):
            return (
                f"{partition.name}: broker {sighting.broker} stopped in order with a log up to {image.chain.end}; "
                f"{when} it has the records up to {kept}"
            )
        return None
