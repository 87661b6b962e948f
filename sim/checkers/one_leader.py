from __future__ import annotations

from collections.abc import Mapping
from typing import final

from sim.checkers.base import Checker, Judge
from sim.checkers.ghost import Ghost, PartitionGhost
from sim.checkers.sightings import Appended, BecameLeader, Elected


@final
class OneLeader(Checker):
    """A partition has at most one leader in each leader epoch, and it is the one that the controller elected (E1)."""

    name = "one-leader"

    def __init__(self, ghost: Ghost) -> None:
        super().__init__(ghost)
        self._leaders: dict[tuple[str, int], int] = {}

    def judges(self) -> Mapping[type, Judge]:
        return {Elected: self._on_elected, BecameLeader: self._on_became_leader, Appended: self._on_appended}

    def _claim(self, partition: str, epoch: int, broker: int) -> str | None:
        holder = self._leaders.setdefault((partition, epoch), broker)
        if holder != broker:
            return f"{partition}: brokers {holder} and {broker} both lead epoch {epoch}"
        return None

    def _on_elected(self, partition: PartitionGhost, sighting: Elected) -> str | None:
        return None if sighting.leader < 0 else self._claim(partition.name, sighting.epoch, sighting.leader)

    def _on_became_leader(self, partition: PartitionGhost, sighting: BecameLeader) -> str | None:
        if (broken := self._claim(partition.name, sighting.epoch, sighting.broker)) is not None:
            return broken
        if partition.elected.get(sighting.epoch) != sighting.broker:
            return f"{partition.name}: broker {sighting.broker} leads epoch {sighting.epoch} without being elected"
        return None

    def _on_appended(self, partition: PartitionGhost, sighting: Appended) -> str | None:
        """Check that the batch has the epoch of a leader that was elected."""
        for mark in sighting.marks:
            if mark.epoch not in partition.elected:
                return (
                    f"{partition.name}: broker {sighting.broker} holds offset {mark.base_offset} under epoch "
                    f"{mark.epoch}, which nobody was elected for"
                )
        return None
