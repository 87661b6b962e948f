from __future__ import annotations

from collections.abc import Mapping
from typing import final

from sim.checkers.base import Checker, Judge
from sim.checkers.ghost import PartitionGhost
from sim.checkers.sightings import Recorded, Settled, WaitedFor


@final
class IsrOfActiveReplicas(Checker):
    """The ISR has only replicas, each once, and the leader (I1); who joins is active, and who is fenced leaves (I4).

    Nor does a broker join that has told the controller that it cannot read the partition (KIP-858). The last member
    stays, whatever becomes of it. A leader's high watermark waits for the whole ISR (I2).
    """

    name = "isr-members"

    def judges(self) -> Mapping[type, Judge]:
        return {Recorded: self._on_recorded, Settled: self._on_settled, WaitedFor: self._on_waited_for}

    def _on_recorded(self, partition: PartitionGhost, sighting: Recorded) -> str | None:
        before, after = sighting.before, sighting.after
        who = f"{partition.name}: the ISR {list(after.isr)} of partition epoch {after.partition_epoch}"
        if not after.isr or len(set(after.isr)) < len(after.isr):
            return f"{who} is empty or names a broker twice"
        strangers = [member for member in after.isr if member not in after.replicas]
        if strangers:
            return f"{who} has broker {strangers[0]}; the replicas are {list(after.replicas)}"
        if after.leader >= 0 and after.leader not in after.isr:
            return f"{who} lacks the leader, broker {after.leader}"
        joined = [member for member in after.isr if before is None or member not in before.isr]
        inactive = [member for member in joined if member not in sighting.active]
        if inactive:
            return f"{who} admits broker {inactive[0]}; active are {list(sighting.active)}"
        unreadable = [member for member in joined if member in sighting.offline and before is not None]
        if unreadable:
            return f"{who} admits broker {unreadable[0]}, which has told that it cannot read the partition"
        return None

    def _on_settled(self, partition: PartitionGhost, sighting: Settled) -> str | None:
        isr = sighting.state.isr
        inactive = [member for member in isr if member not in sighting.active]
        if len(isr) > 1 and inactive:
            return f"{partition.name}: broker {inactive[0]} is not active and stays in the ISR {list(isr)}"
        return None

    def _on_waited_for(self, partition: PartitionGhost, sighting: WaitedFor) -> str | None:
        # Another leader was elected: this one does not know the present ISR.
        if partition.epoch != sighting.epoch:
            return None
        ignored = [member for member in partition.isr if member not in sighting.isr]
        if ignored:
            return (
                f"{partition.name}: leader {sighting.broker} of epoch {sighting.epoch} waits for "
                f"{list(sighting.isr)}; broker {ignored[0]} is in the ISR {list(partition.isr)}"
            )
        return None
