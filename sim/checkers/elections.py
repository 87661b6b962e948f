from __future__ import annotations

from collections.abc import Mapping
from typing import final

from sim.checkers.base import Checker, Judge
from sim.checkers.ghost import PartitionGhost
from sim.checkers.sightings import Recorded, Settled


@final
class ElectedByRule(Checker):
    """A leader comes from the ISR, unless the topic allows unclean elections (E2).

    It is always an active broker, and one that can read its log as far as the controller knows (ELE-2).
    """

    name = "elections"

    def judges(self) -> Mapping[type, Judge]:
        return {Recorded: self._on_recorded, Settled: self._on_settled}

    def _on_recorded(self, partition: PartitionGhost, sighting: Recorded) -> str | None:
        before, after = sighting.before, sighting.after
        if after.leader < 0 or (before is not None and before.leader_epoch == after.leader_epoch):
            return None
        who = f"{partition.name}: broker {after.leader} was elected for epoch {after.leader_epoch}"
        if after.leader not in sighting.active:
            return f"{who}; active are {list(sighting.active)}"
        if after.leader in sighting.offline:
            return f"{who}, and has told the controller that it cannot read the partition"
        if before is not None and after.leader not in before.isr and not sighting.allows_unclean:
            return f"{who} from outside the ISR {list(before.isr)}; the topic allows no unclean election"
        return None

    def _on_settled(self, partition: PartitionGhost, sighting: Settled) -> str | None:
        leader = sighting.state.leader
        if leader >= 0 and leader not in sighting.active:
            return f"{partition.name}: broker {leader} still leads; active are {list(sighting.active)}"
        return None
