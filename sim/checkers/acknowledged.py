from __future__ import annotations

from collections.abc import Mapping
from typing import final

from sim.checkers.base import Checker, Judge
from sim.checkers.ghost import PartitionGhost
from sim.checkers.sightings import Acknowledged


@final
class AcknowledgedIsCommitted(Checker):
    """An answer to acks=all is sent only after the high watermark has passed the last record (PRO-1)."""

    name = "acknowledged-committed"

    def judges(self) -> Mapping[type, Judge]:
        return {Acknowledged: self._on_acknowledged}

    def _on_acknowledged(self, partition: PartitionGhost, sighting: Acknowledged) -> str | None:
        if sighting.acks == -1 and sighting.last_offset >= partition.truth.end:
            excused_end = max((mark.next_offset for mark in partition.excused), default=0)
            if sighting.last_offset >= excused_end:
                return (
                    f"{partition.name}: broker {sighting.broker} acknowledged offset "
                    f"{sighting.last_offset} to acks=all; "
                    f"committed are those below {partition.truth.end}"
                )
        return None


@final
class AcknowledgedIsDurable(Checker):
    """A record acknowledged to acks=all with flush.messages=1 is durable on at least min.insync.replicas disks.

    A disk counts too that was replaced, or lost what it had synced, after its broker had reported the record.
    """

    name = "acknowledged-durable"

    def judges(self) -> Mapping[type, Judge]:
        return {Acknowledged: self._on_acknowledged}

    def _on_acknowledged(self, partition: PartitionGhost, sighting: Acknowledged) -> str | None:
        if not partition.flush_promised or sighting.acks != -1:
            return None
        durable_on = [*sighting.durable_on, *self._damaged(partition, sighting)]
        if len(durable_on) < partition.min_isr:
            return (
                f"{partition.name}: offset {sighting.last_offset} was acknowledged with flush.messages=1 and is "
                f"durable on the disks of {durable_on}; min.insync.replicas is {partition.min_isr}"
            )
        return None

    def _damaged(self, partition: PartitionGhost, sighting: Acknowledged) -> list[int]:
        """Returns the brokers that have had the last record, on disks that lost it although it was synced."""
        mark = partition.image(sighting.broker).chain.covering(sighting.last_offset)
        return [
            broker
            for broker, image in partition.images.items()
            if broker not in sighting.durable_on and image.damage and mark in image.lost
        ]
