from __future__ import annotations

from collections.abc import Mapping
from typing import final

from sim.checkers.base import Checker, Judge
from sim.checkers.ghost import PartitionGhost
from sim.checkers.sightings import Accepted, Described


@final
class ChangesBuildOnState(Checker):
    """A proposal changes the very state that it names, by the broker that leads there (CTL-1, I3).

    The sender and all members are in the life that the proposal names (I4, E5), the answer says what is in the metadata
    log (C3), and so does every answer about metadata (C1).
    """

    name = "partition-changes"

    def judges(self) -> Mapping[type, Judge]:
        return {Accepted: self._on_accepted, Described: self._on_described}

    def _on_accepted(self, partition: PartitionGhost, sighting: Accepted) -> str | None:
        base, result = sighting.base, sighting.result
        proposed = tuple(sorted(member for member, _ in sighting.members))
        who = f"{partition.name}: the proposal {list(proposed)} of broker {sighting.broker}"
        if base is None or result is None:
            return f"{who} was accepted; the log has no such state"
        if (result.leader, result.leader_epoch, result.isr) != sighting.stated:
            return f"{who} was answered with {sighting.stated}; the log has {result}"
        if (base.leader, base.leader_epoch) != (sighting.broker, sighting.leader_epoch):
            return (
                f"{who} in epoch {sighting.leader_epoch} was accepted; "
                f"broker {base.leader} led in epoch {base.leader_epoch}"
            )
        if tuple(sorted(result.isr)) != proposed:
            return f"{who} was accepted; the log has the ISR {list(result.isr)}"
        distance = result.partition_epoch - base.partition_epoch
        if distance == 0:
            return None
        if distance != 1:
            return f"{who} builds on partition epoch {base.partition_epoch} and made {result.partition_epoch}"
        return self._other_life(who, sighting)

    def _other_life(self, who: str, sighting: Accepted) -> str | None:
        """Returns what is wrong with the broker epochs that the proposal names."""
        lived = dict(sighting.broker_epochs)
        for broker, epoch in ((sighting.broker, sighting.broker_epoch), *sighting.members):
            if lived.get(broker, -1) != epoch:
                return f"{who} names broker {broker} in epoch {epoch}; it lived in {lived.get(broker, -1)}"
        return None

    def _on_described(self, partition: PartitionGhost, sighting: Described) -> str | None:
        state = sighting.recorded
        recorded = None if state is None else (state.replicas, state.isr, state.leader, state.leader_epoch)
        if recorded != sighting.said:
            return (
                f"{partition.name}: node {sighting.node} describes it as {sighting.said} at metadata offset "
                f"{sighting.offset}; the log has {recorded}"
            )
        return None
