"""Notes the points that sightings show. It watches beside the checkers, with the same ghost, and judges nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import final

from sim.checkers.base import Checker, Judge
from sim.checkers.ghost import Ghost, PartitionGhost
from sim.checkers.sightings import (
    Acknowledged,
    Appended,
    BecameFollower,
    BecameLeader,
    Died,
    Elected,
    HighWatermark,
    IsrChanged,
    Loaded,
    LogStarted,
    Served,
    Truncated,
    WaitedFor,
    Waits,
)
from sim.sometimes.points import Reached

ACKS_ALL = -1


@final
class SightingPoints(Checker):
    """Sees each sighting with the ghost as it was before, as a checker does."""

    name = "sometimes"

    def __init__(self, ghost: Ghost, reached: Reached) -> None:
        super().__init__(ghost)
        self._reached = reached
        # The brokers that are down.
        self._down: dict[int, None] = {}
        # Those that were loaded and have had no role since, by partition.
        self._early: dict[tuple[str, int], None] = {}
        # The epoch of the last truncation of each replica.
        self._truncated_in: dict[tuple[str, int], int] = {}
        # The end (exclusive) of what each leader acknowledged with acks=all, by partition and epoch.
        self._acknowledged: dict[tuple[str, int], int] = {}

    def judges(self) -> Mapping[type, Judge]:
        """Returns the methods that look at each kind of sighting; none of them finds anything wrong."""
        return {
            Elected: self._on_elected,
            IsrChanged: self._on_isr,
            WaitedFor: self._on_waited_for,
            BecameLeader: self._on_leader,
            BecameFollower: self._on_follower,
            Appended: self._on_appended,
            HighWatermark: self._on_high_watermark,
            Acknowledged: self._on_acknowledged,
            Waits: self._on_waits,
            Served: self._on_served,
            Truncated: self._on_truncated,
            LogStarted: self._on_log_started,
            Died: self._on_died,
            Loaded: self._on_loaded,
        }

    def _note(self, name: str, *, when: bool = True) -> None:
        if when:
            self._reached.note(name)

    def _on_elected(self, partition: PartitionGhost, seen: Elected) -> None:
        if seen.leader < 0:
            self._note("elected-none")
            return
        images = partition.images
        end = images[seen.leader].chain.end if seen.leader in images else 0
        self._note("elected-clean", when=seen.clean and bool(partition.elected))
        self._note("elected-unclean", when=not seen.clean)
        self._note("elected-behind", when=any(image.chain.end > end for image in images.values()))
        self._note("elected-alone", when=len(seen.isr) == 1 and len(images) > 1)
        last = max(partition.elected, default=-1)
        self._note("elected-again", when=partition.elected.get(last) == seen.leader)

    def _on_isr(self, partition: PartitionGhost, seen: IsrChanged) -> None:
        is_smaller = len(seen.isr) < len(partition.isr)
        self._note("isr-shrank", when=is_smaller)
        self._note("isr-grew", when=len(seen.isr) > len(partition.isr))
        self._note("isr-below-minimum", when=len(seen.isr) < partition.min_isr)
        self._note("isr-of-leader", when=is_smaller and seen.isr == (partition.leader,))

    def _on_waited_for(self, partition: PartitionGhost, seen: WaitedFor) -> None:
        is_present = seen.epoch == partition.epoch
        self._note("joiner-awaited", when=is_present and any(each not in partition.isr for each in seen.isr))

    def _on_leader(self, partition: PartitionGhost, seen: BecameLeader) -> None:
        self._early.pop((seen.partition, seen.broker), None)
        self._note("late-leader", when=seen.epoch < partition.epoch)
        last = partition.image(seen.broker).chain.last
        self._note("empty-epoch", when=last is not None and last.epoch < seen.epoch - 1)

    def _on_follower(self, partition: PartitionGhost, seen: BecameFollower) -> None:
        self._early.pop((seen.partition, seen.broker), None)
        self._note("late-follower", when=seen.epoch < partition.epoch)

    def _on_appended(self, partition: PartitionGhost, seen: Appended) -> None:
        if seen.is_leader:
            self._note("late-append", when=seen.epoch < partition.epoch)
        else:
            self._note("copied-epochs", when=seen.marks[0].epoch != seen.marks[-1].epoch)

    def _on_high_watermark(self, partition: PartitionGhost, seen: HighWatermark) -> None:
        self._note("late-commit", when=seen.is_leader and seen.epoch < partition.epoch)

    def _on_acknowledged(self, partition: PartitionGhost, seen: Acknowledged) -> None:
        self._note("late-acknowledgement", when=0 <= seen.epoch < partition.epoch)
        if seen.acks != ACKS_ALL:
            return
        replicas = len(partition.images)
        is_least = len(partition.isr) == partition.min_isr < replicas
        self._note("minimum-acknowledged", when=is_least)
        # Within an epoch a leader acknowledges offsets in their order, except where a batch comes again.
        key = (partition.name, seen.epoch)
        self._note("duplicate-acknowledged", when=seen.last_offset < self._acknowledged.get(key, 0))
        self._acknowledged[key] = max(seen.last_offset + 1, self._acknowledged.get(key, 0))

    def _on_waits(self, partition: PartitionGhost, seen: Waits) -> None:
        self._note("appends-waited", when=bool(seen.appends))

    def _on_served(self, partition: PartitionGhost, seen: Served) -> None:
        self._note("late-answer", when=seen.broker != partition.leader)

    def _on_truncated(self, partition: PartitionGhost, seen: Truncated) -> None:
        chain = partition.image(seen.broker).chain
        dropped = [mark for mark in chain.marks if mark.next_offset > seen.to_offset]
        self._note("truncated", when=bool(dropped))
        self._note("truncated-batches", when=len(dropped) > 1)
        self._note("truncated-epochs", when=len({mark.epoch for mark in dropped}) > 1)
        cuts_batch = bool(dropped) and dropped[0].base_offset < seen.to_offset
        self._note("truncated-into-batch", when=cuts_batch)
        self._note("truncated-whole", when=bool(dropped) and len(dropped) == len(chain.marks))
        key = (partition.name, seen.broker)
        self._note("truncated-again", when=self._truncated_in.get(key) == seen.epoch)
        self._truncated_in[key] = seen.epoch

    def _on_log_started(self, partition: PartitionGhost, seen: LogStarted) -> None:
        self._note("retention" if seen.deleted else "copied-from-start")

    def _on_died(self, partition: PartitionGhost, seen: Died) -> None:
        image = partition.image(seen.broker)
        self._down[seen.broker] = None
        self._note("leader-died", when=seen.broker == partition.leader)
        self._note(
            "in-sync-died", when=bool(partition.isr) and all(each in self._down for each in partition.isr)
        )
        self._note("died-early", when=(seen.partition, seen.broker) in self._early)
        leader = partition.images.get(partition.leader)
        is_behind = leader is not None and image.chain.end < leader.chain.end
        self._note("died-behind", when=is_behind and seen.broker in partition.isr)
        if seen.lost_power:
            end = seen.marks[-1].next_offset if seen.marks else seen.start
            self._note("power-lost-batches", when=end < image.chain.end)
            self._note("power-lost-committed", when=end < min(image.chain.end, partition.truth.end))
            self._note("power-lost-all", when=bool(image.chain.marks) and not seen.marks)

    def _on_loaded(self, partition: PartitionGhost, seen: Loaded) -> None:
        self._down.pop(seen.broker, None)
        self._early[seen.partition, seen.broker] = None
