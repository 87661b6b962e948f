from __future__ import annotations

from collections.abc import Mapping
from typing import final

from sim.checkers.base import Checker, Judge
from sim.checkers.chain import Chain
from sim.checkers.ghost import Ghost, PartitionGhost
from sim.checkers.sightings import Appended, Died, Loaded


@final
class RecoveryKeepsSoundPrefix(Checker):
    """A recovered log is sound to its end (ST1) and holds at least the sound prefix that the disk still had (ST3)."""

    name = "recovery"

    def __init__(self, ghost: Ghost) -> None:
        super().__init__(ghost)
        self._left: dict[tuple[str, int], Chain] = {}

    def judges(self) -> Mapping[type, Judge]:
        return {Died: self._on_died, Loaded: self._on_loaded, Appended: self._on_appended}

    def _on_died(self, partition: PartitionGhost, sighting: Died) -> None:
        self._left[partition.name, sighting.broker] = Chain(sighting.marks, sighting.start)

    def _on_appended(self, partition: PartitionGhost, sighting: Appended) -> None:
        self._left.pop((partition.name, sighting.broker), None)

    def _on_loaded(self, partition: PartitionGhost, sighting: Loaded) -> str | None:
        who = f"{partition.name}: broker {sighting.broker} recovered its log"
        if sighting.unsound:
            return f"{who} and kept damage: {sighting.unsound}"
        left = self._left.pop((partition.name, sighting.broker), None)
        if left is not None:
            kept = Chain(sighting.marks, sighting.start).agreed_end(left)
            if kept < left.end:
                return f"{who} to {kept}; the disk had sound batches up to {left.end}"
        return None
