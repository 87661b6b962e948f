from __future__ import annotations

from collections.abc import Mapping
from typing import final

from sim.checkers.base import Checker, Judge
from sim.checkers.ghost import PartitionGhost
from sim.checkers.sightings import HighWatermark, IsrChanged


@final
class InSyncHoldsCommitted(Checker):
    """R5: every member of the controller's ISR holds what is committed. It fires before any record is lost.

    A member whose disk lost un-synced data is exempt until it has caught up: nobody can know at once.
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
            if image.lost_from is None and image.chain.between(old_end, new_end) != exposed:
                return (
                    f"{partition.name}: leader {sighting.broker} of epoch {sighting.epoch} committed up to {new_end}; "
                    f"in-sync broker {member} holds up to {image.chain.end} and not all of it"
                )
        return None

    def _on_isr_changed(self, partition: PartitionGhost, sighting: IsrChanged) -> str | None:
        truth = partition.truth
        for member in sighting.isr:
            if member not in partition.isr:
                held = partition.image(member).chain.agreed_end(truth)
                if held < truth.end:
                    return (
                        f"{partition.name}: broker {member} joined the ISR with the committed records up to "
                        f"{held} only; committed are those below {truth.end}"
                    )
        return None
