from __future__ import annotations

from collections.abc import Mapping
from typing import final

from sim.checkers.base import Checker, Judge
from sim.checkers.ghost import Ghost, PartitionGhost
from sim.checkers.sightings import (
    Acknowledged,
    Appended,
    BecameFollower,
    BecameLeader,
    Died,
    HighWatermark,
)


@final
class RolesBindTheirEpoch(Checker):
    """Only the leader of an epoch appends what clients send, commits and acknowledges in it, while it leads (R7, E4).

    What it committed in its epoch it may acknowledge later: the answer may wait for other partitions of the request. So
    may what it appended with acks=1: where a flush is promised, the answer waits for that of each partition. And so may
    what was committed before its epoch began, which a retry asks for again. A follower follows the leader that was
    elected for its epoch (E1).
    """

    name = "roles"

    def __init__(self, ghost: Ghost) -> None:
        super().__init__(ghost)
        # By partition and broker: the epoch that it leads; -1 if it follows.
        self._leads: dict[tuple[str, int], int] = {}
        # By partition, broker and epoch: the high watermark that the broker reached as its leader, at least the end of
        # what was committed when it began to lead.
        self._committed: dict[tuple[str, int, int], int] = {}
        # By the same: the end (exclusive) of what the broker appended as its leader.
        self._appended: dict[tuple[str, int, int], int] = {}

    def judges(self) -> Mapping[type, Judge]:
        """Returns the methods that follow the roles, and those that judge what a broker does in one."""
        return {
            BecameLeader: self._on_became_leader,
            BecameFollower: self._on_became_follower,
            Appended: self._on_appended,
            HighWatermark: self._on_high_watermark,
            Acknowledged: self._on_acknowledged,
            Died: self._on_died,
        }

    def _on_became_leader(self, partition: PartitionGhost, sighting: BecameLeader) -> None:
        self._leads[partition.name, sighting.broker] = sighting.epoch
        self._committed[partition.name, sighting.broker, sighting.epoch] = partition.truth.end

    def _on_became_follower(self, partition: PartitionGhost, sighting: BecameFollower) -> str | None:
        self._leads[partition.name, sighting.broker] = -1
        elected = partition.elected.get(sighting.epoch, -1)
        if elected != sighting.leader:
            return (
                f"{partition.name}: broker {sighting.broker} follows {sighting.leader} in epoch {sighting.epoch}; "
                f"elected was {elected}"
            )
        return None

    def _on_died(self, partition: PartitionGhost, sighting: Died) -> None:
        self._leads.pop((partition.name, sighting.broker), None)

    def _judge(self, partition: PartitionGhost, broker: int, epoch: int, what: str) -> str | None:
        leads = self._leads.get((partition.name, broker))
        # A broker whose roles were never seen is not compared.
        if leads is None or leads == epoch:
            return None
        role = f"leads in epoch {leads}" if leads >= 0 else "follows"
        return f"{partition.name}: broker {broker} {what} in epoch {epoch}; it {role}"

    def _on_appended(self, partition: PartitionGhost, sighting: Appended) -> str | None:
        if not sighting.is_leader:
            return None
        for mark in sighting.marks:
            if mark.epoch != sighting.epoch:
                epochs = ", ".join(map(str, sorted({each.epoch for each in sighting.marks})))
                return f"{partition.name}: leader {sighting.broker} of epoch {sighting.epoch} appended in {epochs}"
            self._appended[partition.name, sighting.broker, sighting.epoch] = mark.next_offset
        return self._judge(partition, sighting.broker, sighting.epoch, "appended what clients sent")

    def _on_high_watermark(self, partition: PartitionGhost, sighting: HighWatermark) -> str | None:
        if not sighting.is_leader:
            return None
        key = partition.name, sighting.broker, sighting.epoch
        self._committed[key] = max(self._committed.get(key, 0), sighting.high_watermark)
        return self._judge(partition, sighting.broker, sighting.epoch, "raised the high watermark")

    def _on_acknowledged(self, partition: PartitionGhost, sighting: Acknowledged) -> str | None:
        key = partition.name, sighting.broker, sighting.epoch
        safe_end = (self._appended if sighting.acks == 1 else self._committed).get(key, 0)
        if sighting.epoch < 0 or sighting.last_offset < safe_end:
            return None
        return self._judge(
            partition, sighting.broker, sighting.epoch, f"acknowledged offset {sighting.last_offset}"
        )
