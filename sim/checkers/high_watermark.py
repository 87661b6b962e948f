from __future__ import annotations

from collections.abc import Mapping
from typing import final

from sim.checkers.base import Checker, Judge
from sim.checkers.ghost import Ghost, PartitionGhost
from sim.checkers.sightings import HighWatermark


@final
class HighWatermarkMonotone(Checker):
    """Within one leader epoch a leader's high watermark only rises, and no replica's is above the end of its log."""

    name = "high-watermark"

    def __init__(self, ghost: Ghost) -> None:
        super().__init__(ghost)
        self._last: dict[tuple[str, int, int], int] = {}

    def judges(self) -> Mapping[type, Judge]:
        return {HighWatermark: self._on_high_watermark}

    def _on_high_watermark(self, partition: PartitionGhost, sighting: HighWatermark) -> str | None:
        broker, high_watermark = sighting.broker, sighting.high_watermark
        image = partition.image(broker)
        end = max(image.chain.end, image.cut_end)
        if high_watermark > end:
            return f"{partition.name}: broker {broker} has high watermark {high_watermark}; its log ends at {end}"
        if sighting.is_leader:
            key = (partition.name, broker, sighting.epoch)
            before = self._last.get(key, 0)
            self._last[key] = high_watermark
            if high_watermark < before:
                return (
                    f"{partition.name}: the high watermark of leader {broker} fell from {before} to {high_watermark} "
                    f"within epoch {sighting.epoch}"
                )
        return None
