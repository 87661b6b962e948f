from __future__ import annotations

from collections.abc import Mapping
from typing import final

from sim.checkers.base import Checker, Judge
from sim.checkers.chain import Chain
from sim.checkers.epoch_cache import wrong_start
from sim.checkers.ghost import Ghost, PartitionGhost
from sim.checkers.sightings import Appended, EpochsSeen, Loaded, Truncated


@final
class LogShape(Checker):
    """Offsets strictly increase and are dense, epochs never decrease, and the epoch cache agrees with the log.

    A leader's cache has the start of its epoch before anything is appended (EPC-5). Dense means that each batch begins
    where the last one ended: the checkers see logs as they were before compaction.

    A log that is cut inside a batch loses the whole batch and goes on at the cut (RT9). That leaves a hole. It is
    right only where nobody reads: a leader without records below its log start lets a follower cut there. Below the
    leader's log start what a log had before and what the checkers know of there may be of two histories.
    """

    name = "log-shape"

    def __init__(self, ghost: Ghost) -> None:
        super().__init__(ghost)
        # The offsets inside batches at which a replica's log was cut, by partition and broker.
        self._cuts: dict[tuple[str, int], list[int]] = {}

    def judges(self) -> Mapping[type, Judge]:
        judges: dict[type, Judge] = {Appended: self._on_appended, Truncated: self._on_truncated}
        return {**judges, Loaded: self._on_loaded, EpochsSeen: self._on_epochs_seen}

    def _on_appended(self, partition: PartitionGhost, sighting: Appended) -> str | None:
        chain = partition.image(sighting.broker).chain
        epoch = -1 if chain.last is None else chain.last.epoch
        return self._judge(partition, sighting, chain.end, epoch)

    def _on_truncated(self, partition: PartitionGhost, sighting: Truncated) -> None:
        key, cut = (partition.name, sighting.broker), sighting.to_offset
        kept = [each for each in self._cuts.get(key, ()) if each < cut]
        # Also a cut inside such a hole leaves one.
        chain = partition.image(sighting.broker).chain
        if chain.end_below(cut) < cut <= chain.end:
            kept.append(cut)
        self._cuts[key] = kept

    def _on_loaded(self, partition: PartitionGhost, sighting: Loaded) -> str | None:
        # A log that ended at a cut ends after its last batch once it is loaded.
        begun = [mark.base_offset for mark in sighting.marks]
        key = (partition.name, sighting.broker)
        self._cuts[key] = [each for each in self._cuts.get(key, ()) if each in begun]
        return self._judge(partition, sighting, sighting.start, -1)

    def _goes_on_at_cut(
        self, partition: PartitionGhost, sighting: Appended | Loaded, base_offset: int
    ) -> bool:
        """Whether the log was cut at that offset, where a leader's log began or before."""
        most = max(partition.log_start, partition.leader_log_start)
        return base_offset <= most and base_offset in self._cuts.get((partition.name, sighting.broker), ())

    def _judge(
        self, partition: PartitionGhost, sighting: Appended | Loaded, end: int, epoch: int
    ) -> str | None:
        for mark in sighting.marks:
            what = ""
            if mark.base_offset != end and not self._goes_on_at_cut(partition, sighting, mark.base_offset):
                what = f"the log ended at {end}"
            elif mark.epoch < epoch and mark.next_offset > partition.leader_log_start:
                what = f"epoch {mark.epoch} follows epoch {epoch}"
            elif not mark.is_dense:
                what = f"{mark.record_count} records for offsets up to {mark.next_offset}"
            if what:
                return (
                    f"{partition.name}: broker {sighting.broker}, batch at offset {mark.base_offset}: {what}"
                )
            end, epoch = mark.next_offset, mark.epoch
        return None

    def _on_epochs_seen(self, partition: PartitionGhost, sighting: EpochsSeen) -> str | None:
        chain: Chain = partition.image(sighting.broker).chain
        if (wrong := wrong_start(chain, sighting, partition.log_start)) is not None:
            cached = "no offset" if wrong.cached is None else wrong.cached
            return (
                f"{partition.name}: broker {sighting.broker}: epoch {wrong.epoch} begins at {wrong.base_offset} in the "
                f"log and at {cached} in the epoch cache"
            )
        if sighting.leads >= 0 and sighting.leads not in dict(sighting.starts):
            return (
                f"{partition.name}: broker {sighting.broker} leads in epoch {sighting.leads}; its epoch cache has no "
                f"start of it"
            )
        if sighting.starts and sighting.starts[-1][1] > chain.end:
            return (
                f"{partition.name}: broker {sighting.broker}: the epoch cache begins epoch {sighting.starts[-1][0]} at "
                f"{sighting.starts[-1][1]}, above the end of the log, {chain.end}"
            )
        return None
