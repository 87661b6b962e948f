from __future__ import annotations

from collections.abc import Mapping
from typing import final

from sim.checkers.base import Checker, Judge
from sim.checkers.chain import Mark
from sim.checkers.ghost import Ghost, PartitionGhost
from sim.checkers.sightings import Appended

# A batch of a leader, and the batch before it in the leader's log; None at the start of the log.
Origin = tuple[Mark, Mark | None]


@final
class LogMatching(Checker):
    """What a follower appends is a batch that the leader of its epoch appended, after the same batch (R1, R8).

    So two logs that share a batch are equal up to it. This fails before anything is committed. Compacted logs, whose
    batches are reduced, are judged by `compaction`.
    """

    name = "log-matching"

    def __init__(self, ghost: Ghost) -> None:
        super().__init__(ghost)
        self._origins: dict[tuple[str, int, int], Origin] = {}

    def judges(self) -> Mapping[type, Judge]:
        return {Appended: self._on_appended}

    def _on_appended(self, partition: PartitionGhost, sighting: Appended) -> str | None:
        held = partition.image(sighting.broker).chain.marks
        before = held[-1] if held else None
        found: str | None = None
        for mark in sighting.marks:
            key = (partition.name, mark.epoch, mark.base_offset)
            origin = self._origins.get(key)
            if sighting.is_leader and origin is None:
                self._origins[key] = (mark, before)
            elif origin is not None and found is None:
                found = self._differs(partition, sighting, mark, before, origin)
            before = mark
        return found

    def _differs(
        self, partition: PartitionGhost, sighting: Appended, mark: Mark, before: Mark | None, origin: Origin
    ) -> str | None:
        if origin[0] == mark and before == origin[1]:
            return None
        who = f"{partition.name}: broker {sighting.broker} appended offset {mark.base_offset} of epoch {mark.epoch}"
        if origin[0] != mark:
            return f"{who} with crc {mark.crc:08x}; its leader's has crc {origin[0].crc:08x}"
        if before is None or origin[1] is None:
            # A log may begin later than the leader's, where the leader has deleted its first records.
            return None
        # Nobody compares or reads records below the log start; a follower may have others there until it deletes them.
        if before.next_offset > partition.log_start:
            return (
                f"{who} after offset {before.base_offset} of epoch {before.epoch}; in the leader's log it follows "
                f"offset {origin[1].base_offset} of epoch {origin[1].epoch}"
            )
        return None
