from __future__ import annotations

from collections.abc import Mapping
from typing import final

from sim.checkers.base import Checker, Judge
from sim.checkers.ghost import Ghost, PartitionGhost
from sim.checkers.sightings import Appended, BecameFollower, BecameLeader


@final
class EpochsOfRolesRise(Checker):
    """A replica's leader epoch never goes back, also over restarts, and its log gets no batch of a later one (R2)."""

    name = "epochs-rise"

    def __init__(self, ghost: Ghost) -> None:
        super().__init__(ghost)
        # The epoch of the latest role, by partition and broker.
        self._epochs: dict[tuple[str, int], int] = {}

    def judges(self) -> Mapping[type, Judge]:
        return {BecameLeader: self._on_role, BecameFollower: self._on_role, Appended: self._on_appended}

    def _on_role(self, partition: PartitionGhost, sighting: BecameLeader | BecameFollower) -> str | None:
        key = (partition.name, sighting.broker)
        before = self._epochs.get(key, -1)
        self._epochs[key] = max(before, sighting.epoch)
        if sighting.epoch < before:
            return (
                f"{partition.name}: broker {sighting.broker} took a role of epoch {sighting.epoch} after one of epoch "
                f"{before}"
            )
        return None

    def _on_appended(self, partition: PartitionGhost, sighting: Appended) -> str | None:
        for mark in sighting.marks:
            if mark.epoch > sighting.epoch:
                return (
                    f"{partition.name}: broker {sighting.broker} in epoch {sighting.epoch} appended offset "
                    f"{mark.base_offset} of the later epoch {mark.epoch}"
                )
        return None
