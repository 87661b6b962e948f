from __future__ import annotations

from collections.abc import Mapping
from typing import final

from sim.checkers.base import Checker, Judge
from sim.checkers.ghost import PartitionGhost
from sim.checkers.sightings import FetchesWait, Waits


@final
class NoneWaitsInVain(Checker):
    """No append or fetch waits after its leader epoch, nor an append after what it waits for (PRO-1, PRO-5, PRO-8)."""

    name = "waits-in-vain"

    def judges(self) -> Mapping[type, Judge]:
        return {Waits: self._on_waits, FetchesWait: self._on_fetches_wait}

    def _on_waits(self, partition: PartitionGhost, sighting: Waits) -> str | None:
        for epoch, last_offset in sighting.appends:
            if epoch != sighting.leads_epoch:
                now = "follows" if sighting.leads_epoch < 0 else f"leads epoch {sighting.leads_epoch}"
                what = f"of epoch {epoch} waits, and the broker {now}"
            elif last_offset < sighting.high_watermark:
                what = f"of offset {last_offset} waits at high watermark {sighting.high_watermark}"
            else:
                continue
            return f"{partition.name}: at broker {sighting.broker} an append {what}"
        return None

    def _on_fetches_wait(self, partition: PartitionGhost, sighting: FetchesWait) -> str | None:
        for epoch in sighting.epochs:
            if epoch != sighting.epoch:
                what = f"a fetch of epoch {epoch} waits, and the broker is in epoch {sighting.epoch}"
                return f"{partition.name}: at broker {sighting.broker} {what}"
        return None
