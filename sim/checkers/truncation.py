from __future__ import annotations

from collections.abc import Mapping
from typing import final

from sim.checkers.base import Checker, Judge
from sim.checkers.ghost import PartitionGhost
from sim.checkers.sightings import Truncated


@final
class NoCutBelowTruth(Checker):
    """No member of the ISR and no cleanly elected leader truncates committed records (D2).

    Who was elected uncleanly may cut what it is to lead with, by the word of a leader before, until it hears of that.
    Only dropping the committed record itself breaks the rule, not dropping another one at its offset: the disk of such
    a member had lost the committed record before.
    """

    name = "truncation"

    def judges(self) -> Mapping[type, Judge]:
        return {Truncated: self._on_truncated}

    def _on_truncated(self, partition: PartitionGhost, sighting: Truncated) -> str | None:
        if sighting.broker not in partition.isr and sighting.broker != partition.leader:
            return None
        if partition.unclean_epochs and partition.unclean_epochs[-1] == sighting.epoch:
            return None
        if partition.has_not_heard(sighting.broker, sighting.epoch):
            return None
        truth = partition.truth
        chain = partition.image(sighting.broker).chain
        for mark in chain.between(sighting.to_offset, truth.end):
            if truth.at(mark.base_offset) == mark:
                return (
                    f"{partition.name}: broker {sighting.broker}, in the ISR {list(partition.isr)}, truncated to "
                    f"{sighting.to_offset} in epoch {sighting.epoch} and dropped the committed offset "
                    f"{mark.base_offset} of epoch {mark.epoch}"
                )
        return None
