from __future__ import annotations

from collections.abc import Mapping
from typing import final

from sim.checkers.base import Checker, Judge
from sim.checkers.ghost import PartitionGhost
from sim.checkers.sightings import BecameLeader


@final
class LeaderCompleteness(Checker):
    """A leader that was elected cleanly holds every committed record."""

    name = "leader-completeness"

    def judges(self) -> Mapping[type, Judge]:
        return {BecameLeader: self._on_became_leader}

    def _on_became_leader(self, partition: PartitionGhost, sighting: BecameLeader) -> str | None:
        if sighting.epoch in partition.unclean_epochs:
            return None
        required = partition.truth.end
        # A leader that takes over late, after another was elected, needs only what was committed at its election.
        if sighting.epoch != max(partition.elected, default=-1):
            required = min(required, partition.elected_end.get(sighting.epoch, required))
        held = partition.image(sighting.broker).agreed_end(partition.truth)
        if held < required:
            return (
                f"{partition.name}: leader {sighting.broker} of epoch {sighting.epoch} holds the committed "
                f"records up to {held} only; committed are those below {required}"
            )
        return None
