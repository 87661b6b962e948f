from __future__ import annotations

from collections.abc import Mapping
from typing import final

from sim.checkers.base import Checker, Judge
from sim.checkers.chain import Mark
from sim.checkers.ghost import Image, PartitionGhost
from sim.checkers.sightings import HighWatermark, IsrChanged


@final
class InSyncHoldsCommitted(Checker):
    """Every member of the controller's ISR holds all committed records (R5). This fails before any record is lost.

    A member may lack records that its disk has lost, because no other node can know that at once. Where a flush is
    promised it may not.
    """

    name = "in-sync-replicas"

    def judges(self) -> Mapping[type, Judge]:
        return {HighWatermark: self._on_high_watermark, IsrChanged: self._on_isr_changed}

    def _on_high_watermark(self, partition: PartitionGhost, sighting: HighWatermark) -> str | None:
        new_end, old_end = sighting.high_watermark, partition.truth.end
        if not sighting.is_leader or new_end <= old_end or partition.is_deposed(sighting.epoch):
            return None
        exposed = partition.image(sighting.broker).chain.between(old_end, new_end)
        for member in partition.isr:
            image = partition.image(member)
            if image.chain.between(old_end, new_end) == exposed:
                continue
            if not all(self._has_held(partition, image, mark, sighting.epoch) for mark in exposed):
                return (
                    f"{partition.name}: leader {sighting.broker} of epoch {sighting.epoch} committed up to {new_end}; "
                    f"in-sync broker {member} holds up to {image.chain.end} and not all of it"
                )
        return None

    def _has_held(self, partition: PartitionGhost, image: Image, mark: Mark, epoch: int) -> bool:
        """Whether the member held the batch, or could not: a member that joined later never saw a batch lost before."""
        if image.chain.at(mark.base_offset) == mark or partition.is_lost(mark, epoch):
            return True
        if mark.next_offset <= image.chain.start:
            return True
        return mark in image.lost and not partition.keeps_synced

    def _may_lack(self, partition: PartitionGhost, image: Image, mark: Mark) -> bool:
        """Whether a joining member may lack a batch: if its disk lost it, and it has no role since (KIP-903)."""
        return mark in image.lost and not image.has_role and not partition.keeps_synced

    def _on_isr_changed(self, partition: PartitionGhost, sighting: IsrChanged) -> str | None:
        truth = partition.truth
        for member in sighting.isr:
            if member not in partition.isr:
                image = partition.image(member)
                held = partition.held_end(image)
                missing = truth.between(held, truth.end)
                # What leaders have deleted no log has, and that of an empty disk does not begin there yet.
                missing = [mark for mark in missing if mark.next_offset > partition.leader_log_start]
                if missing and not all(self._may_lack(partition, image, mark) for mark in missing):
                    return (
                        f"{partition.name}: broker {member} joined the ISR with the committed records up to "
                        f"{held} only; committed are those below {truth.end}"
                    )
        return None
