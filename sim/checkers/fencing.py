from __future__ import annotations

from collections.abc import Mapping
from typing import final

from sim.checkers.base import Checker, Judge
from sim.checkers.ghost import PartitionGhost
from sim.checkers.sightings import Fetched


@final
class OneEpochOnBothSides(Checker):
    """A leader answers and counts a fetch only if it names the leader's own epoch (LED-1, KIP-320)."""

    name = "fencing"

    def judges(self) -> Mapping[type, Judge]:
        return {Fetched: self._on_fetched}

    def _on_fetched(self, partition: PartitionGhost, sighting: Fetched) -> str | None:
        if sighting.asked_epoch == sighting.epoch:
            return None
        who = f"broker {sighting.replica}" if sighting.replica >= 0 else "a consumer"
        return (
            f"{partition.name}: leader {sighting.broker} of epoch {sighting.epoch} answered {who}, which lives in "
            f"epoch {sighting.asked_epoch}"
        )
