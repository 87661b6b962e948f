from __future__ import annotations

from collections.abc import Mapping
from typing import final

from sim.checkers.base import Checker, Judge
from sim.checkers.chain import Mark
from sim.checkers.ghost import Ghost, PartitionGhost
from sim.checkers.sightings import Appended

# A batch of a leader, and the batch before it in the leader's log; None at the start of the log.
Origin = tuple[Mark, Mark | None]
# An epoch and a base offset.
Key = tuple[int, int]
# What is committed is forgotten whenever so many batches of a partition are known, and twice as many as were left.
_MOST_KNOWN = 256


@final
class LogMatching(Checker):
    """What a follower appends is a batch that the leader of its epoch appended, after the same batch (R1, R8).

    So two logs that share a batch are equal up to it. This fails before anything is committed. What is committed is
    compared with the truth, so that it need not be remembered here too. Compacted logs, whose batches are reduced, are
    judged by `compaction`.
    """

    name = "log-matching"

    def __init__(self, ghost: Ghost) -> None:
        super().__init__(ghost)
        # By partition; what is committed may be left out.
        self._origins: dict[str, dict[Key, Origin]] = {}
        self._limits: dict[str, int] = {}

    def judges(self) -> Mapping[type, Judge]:
        return {Appended: self._on_appended}

    def _on_appended(self, partition: PartitionGhost, sighting: Appended) -> str | None:
        before = partition.image(sighting.broker).chain.last
        found: str | None = None
        origins = self._origins.setdefault(partition.name, {})
        for mark in sighting.marks:
            key = (mark.epoch, mark.base_offset)
            origin = origins.get(key) or self._committed(partition, mark)
            if sighting.is_leader and origin is None:
                origins[key] = (mark, before)
            elif origin is not None and found is None:
                found = self._differs(partition, sighting, mark, before, origin)
            before = mark
        if len(origins) >= self._limits.get(partition.name, _MOST_KNOWN):
            self._forget(partition, origins)
            self._limits[partition.name] = max(_MOST_KNOWN, 2 * len(origins))
        return found

    def _committed(self, partition: PartitionGhost, mark: Mark) -> Origin | None:
        """Returns the committed batch of the same epoch at the same offset, and the one before it, if there is one."""
        committed = partition.truth.at(mark.base_offset)
        if committed is None or committed.epoch != mark.epoch:
            return None
        return committed, partition.truth.covering(mark.base_offset - 1)

    def _forget(self, partition: PartitionGhost, origins: dict[Key, Origin]) -> None:
        """Forget what the truth has too; what is not committed stays, however much that is."""
        settled = [key for key, (mark, _) in origins.items() if partition.truth.at(mark.base_offset) == mark]
        for key in settled:
            del origins[key]
        assert all(key not in origins for key in settled), len(settled)

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
