from __future__ import annotations

from collections.abc import Mapping
from typing import final

from sim.checkers.base import Checker, Judge
from sim.checkers.ghost import PartitionGhost
from sim.checkers.sightings import Fetched, OffsetLookedUp


@final
class OneEpochOnBothSides(Checker):
    """A leader answers a fetch, and counts it, only if it names the leader's own epoch (LED-1, KIP-320).

    It looks up an offset only for who names that epoch or none: another leader of the past may have had others.
    """

    name = "fencing"

    def judges(self) -> Mapping[type, Judge]:
        return {Fetched: self._on_fetched, OffsetLookedUp: self._on_looked_up}

    def _on_fetched(self, partition: PartitionGhost, sighting: Fetched) -> str | None:
        if sighting.asked_epoch == sighting.epoch:
            return None
        who = f"broker {sighting.replica}" if sighting.replica >= 0 else "a consumer"
        return (
            f"{partition.name}: leader {sighting.broker} of epoch {sighting.epoch} answered {who}, which lives in "
            f"epoch {sighting.asked_epoch}"
        )

    def _on_looked_up(self, partition: PartitionGhost, sighting: OffsetLookedUp) -> str | None:
        if sighting.asked_epoch in (-1, sighting.epoch):
            return None
        return (
            f"{partition.name}: broker {sighting.broker} of epoch {sighting.epoch} looked up an offset for a client "
            f"that lives in epoch {sighting.asked_epoch}"
        )
