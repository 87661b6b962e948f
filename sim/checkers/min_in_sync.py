from __future__ import annotations

from collections.abc import Mapping
from typing import final

from sim.checkers.base import Checker, Judge
from sim.checkers.chain import Mark
from sim.checkers.ghost import PartitionGhost
from sim.checkers.sightings import HighWatermark


@final
class EnoughInSync(Checker):
    """What is committed is on min.insync.replicas replicas at least, the leader among them (H2, KAFKA-15583).

    A replica whose disk has lost it meanwhile counts, unless a flush was promised and every disk keeps what it synced.
    So does one whose retention has deleted it: after an unclean election the truth may end below a replica's log start.
    Where the disks of all in-sync replicas have lost what a late leader commits, nobody knows who held it: others may
    have cut it to follow the next leader.
    """

    name = "min-in-sync"

    def judges(self) -> Mapping[type, Judge]:
        return {HighWatermark: self._on_high_watermark}

    def _on_high_watermark(self, partition: PartitionGhost, sighting: HighWatermark) -> str | None:
        new_end, old_end = sighting.high_watermark, partition.truth.end
        if not sighting.is_leader or new_end <= old_end or partition.is_deposed(sighting.epoch):
            return None
        exposed = partition.image(sighting.broker).chain.between(old_end, new_end)
        holders = [
            broker
            for broker, image in partition.images.items()
            if image.chain.between(old_end, new_end) == exposed
            or all(self._has_held(partition, broker, mark, sighting.epoch) for mark in exposed)
        ]
        if exposed and len(holders) < partition.min_isr:
            return (
                f"{partition.name}: leader {sighting.broker} of epoch {sighting.epoch} committed up to {new_end}; only "
                f"{sorted(holders)} hold it, min.insync.replicas is {partition.min_isr}"
            )
        return None

    def _has_held(self, partition: PartitionGhost, broker: int, mark: Mark, epoch: int) -> bool:
        if partition.is_lost(mark, epoch):
            return True
        image = partition.image(broker)
        is_held = image.chain.at(mark.base_offset) == mark or mark.next_offset <= image.chain.start
        return is_held or (mark in image.lost and not partition.keeps_synced)
