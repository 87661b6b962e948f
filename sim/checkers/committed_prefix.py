from __future__ import annotations

from collections.abc import Mapping
from typing import final

from sim.checkers.base import Checker, Judge
from sim.checkers.ghost import Ghost, PartitionGhost
from sim.checkers.sightings import Died, HighWatermark, Loaded, Truncated


@final
class CommittedPrefix(Checker):
    """Below its high watermark every replica's log is equal to the partition's one committed log.

    Batches are compared by offset, epoch and CRC.
    """

    name = "committed-prefix"

    def __init__(self, ghost: Ghost) -> None:
        super().__init__(ghost)
        # The offset (exclusive) up to which a replica's log was compared.
        self._compared: dict[tuple[str, int], int] = {}

    def judges(self) -> Mapping[type, Judge]:
        """Returns the methods that judge high watermarks, and those that note from where to compare again."""
        return {
            HighWatermark: self._on_high_watermark,
            Truncated: self._on_truncated,
            Died: self._on_new_life,
            Loaded: self._on_new_life,
        }

    def _on_truncated(self, partition: PartitionGhost, sighting: Truncated) -> None:
        key = (partition.name, sighting.broker)
        self._compared[key] = min(self._compared.get(key, 0), sighting.to_offset)

    def _on_new_life(self, partition: PartitionGhost, sighting: Died | Loaded) -> None:
        self._compared.pop((partition.name, sighting.broker), None)

    def _on_high_watermark(self, partition: PartitionGhost, sighting: HighWatermark) -> str | None:
        key = (partition.name, sighting.broker)
        compared, high_watermark = self._compared.get(key, 0), sighting.high_watermark
        if high_watermark <= compared:
            return None
        self._compared[key] = high_watermark
        chain = partition.image(sighting.broker).chain
        # What retention has deleted is compared no more, and no leader compares what is before the start of its log.
        compared = max(compared, chain.start, sighting.log_start_offset)
        if partition.leader_log_start <= high_watermark:
            compared = max(compared, partition.leader_log_start)
        mine = chain.between(compared, high_watermark)
        truth = partition.truth.between(compared, high_watermark)
        if mine == truth:
            return None
        strange = [mark for mark in mine if partition.truth.at(mark.base_offset) != mark]
        wrong = [mark for mark in strange if not partition.may_be_lost(mark, sighting.epoch)]
        if strange and not wrong:
            return None
        is_leader = partition.elected.get(sighting.epoch) == sighting.broker
        is_more = bool(wrong) and all(mark.base_offset >= partition.truth.end for mark in wrong)
        if is_leader and (is_more or partition.is_deposed(sighting.epoch)):
            # The leader exposes more than was committed so far: the ghost takes it as truth, or excuses it.
            return None
        offset = (
            wrong[0].base_offset if wrong else chain.agreed_end(partition.truth, sighting.log_start_offset)
        )
        return self._difference(partition, sighting, offset)

    def _difference(self, partition: PartitionGhost, sighting: HighWatermark, offset: int) -> str | None:
        chain, truth = partition.image(sighting.broker).chain, partition.truth
        mine, committed = chain.covering(offset), truth.covering(offset)
        if offset >= sighting.high_watermark or (mine is not None and mine in partition.excused):
            return None
        who = f"{partition.name}: broker {sighting.broker} at high watermark {sighting.high_watermark}"
        if committed is None:
            return f"{who}: nothing was committed from offset {offset} on"
        if mine is None:
            return f"{who} lacks offset {offset}, committed in epoch {committed.epoch}"
        return (
            f"{who} holds offset {offset} of epoch {mine.epoch} (crc {mine.crc:08x}); "
            f"committed is that of epoch {committed.epoch} (crc {committed.crc:08x})"
        )
