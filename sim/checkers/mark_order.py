from __future__ import annotations

from collections.abc import Mapping
from typing import final

from sim.checkers.base import Checker, Judge
from sim.checkers.ghost import PartitionGhost
from sim.checkers.sightings import HighWatermark


@final
class MarksInOrder(Checker):
    """A replica's log start is at most its high watermark, except inside the batch that holds the latter (R4)."""

    name = "mark-order"

    def judges(self) -> Mapping[type, Judge]:
        return {HighWatermark: self._on_high_watermark}

    def _on_high_watermark(self, partition: PartitionGhost, sighting: HighWatermark) -> str | None:
        start, high_watermark = sighting.log_start_offset, sighting.high_watermark
        if 0 <= start <= high_watermark:
            return None
        holder = partition.image(sighting.broker).chain.covering(high_watermark)
        if holder is not None and 0 <= start < holder.next_offset:
            return None
        who = f"{partition.name}: broker {sighting.broker}"
        return f"{who} has high watermark {high_watermark}; its log starts at {start}"
