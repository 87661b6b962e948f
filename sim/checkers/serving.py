from __future__ import annotations

from collections.abc import Mapping
from typing import final

from sim.checkers.base import Checker, Judge
from sim.checkers.ghost import PartitionGhost
from sim.checkers.sightings import Served


@final
class NoneAboveHighWatermark(Checker):
    """A consumer gets only records below the high watermark of its answer, and only committed ones (D5)."""

    name = "served-above-high-watermark"

    def judges(self) -> Mapping[type, Judge]:
        return {Served: self._on_served}

    def _on_served(self, partition: PartitionGhost, sighting: Served) -> str | None:
        truth = partition.truth
        for mark in sighting.marks:
            if mark.next_offset > sighting.high_watermark:
                what = f"offset {mark.next_offset - 1} at high watermark {sighting.high_watermark}"
            elif truth.at(mark.base_offset) != mark and mark not in partition.excused:
                what = f"offset {mark.base_offset} of epoch {mark.epoch}, which was never committed"
            else:
                continue
            return f"{partition.name}: broker {sighting.broker} served a consumer {what}"
        return None
