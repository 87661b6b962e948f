"""Judges what a leader says about divergence, by the epochs that it knows itself (LED-4, KIP-320, KIP-595)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import final

from sim.checkers.base import Checker, Judge
from sim.checkers.ghost import PartitionGhost
from sim.checkers.sightings import DivergenceJudged, OutOfRange


@final
class DivergenceIsTold(Checker):
    """A leader tells whoever fetches where the logs part, if and only if they do.

    They part where its log lacks the last epoch that was read, or ends that epoch below the fetch offset. The leader
    may have appended since it answered, and retention may have deleted its oldest epochs. So an answer is not judged by
    an end that can still grow, nor by epochs before the first one that is left. Out of range is only what its log has
    not, or what was read in an epoch above all that it knows.
    """

    name = "divergence-answers"

    def judges(self) -> Mapping[type, Judge]:
        return {DivergenceJudged: self._on_judged, OutOfRange: self._on_out_of_range}

    def _on_judged(self, partition: PartitionGhost, sighting: DivergenceJudged) -> str | None:
        found, end_offset = _end_of(sighting)
        asked = f"offset {sighting.fetch_offset} after epoch {sighting.last_fetched_epoch}"
        who = f"{partition.name}: leader {sighting.broker} was asked for {asked}"
        has_parted = found < sighting.last_fetched_epoch or end_offset < sighting.fetch_offset
        if sighting.told is None:
            has_told = "and told of no divergence"
            return (
                f"{who} {has_told}; it has epoch {found} up to {end_offset} (excl.)" if has_parted else None
            )
        if sighting.last_fetched_epoch < sighting.starts[0][0]:
            return None
        can_grow = found == sighting.starts[-1][0]
        epoch, told_end = sighting.told
        is_right = told_end <= end_offset if can_grow else told_end == end_offset and has_parted
        if epoch == found and is_right:
            return None
        return (
            f"{who} and named epoch {epoch} up to {told_end}; it has epoch {found} up to {end_offset} (excl.)"
        )

    def _on_out_of_range(self, partition: PartitionGhost, sighting: OutOfRange) -> str | None:
        offset, epoch = sighting.fetch_offset, sighting.last_fetched_epoch
        is_unknown = epoch >= 0 and (not sighting.starts or epoch > sighting.starts[-1][0])
        first, end = sighting.log_start_offset, sighting.log_end_offset
        if is_unknown or not first <= offset <= end:
            return None
        return (
            f"{partition.name}: leader {sighting.broker} refused offset {offset} after epoch {epoch} as out of range; "
            f"it has offsets {first} to {end} (excl.)"
        )


def _end_of(sighting: DivergenceJudged) -> tuple[int, int]:
    """Returns the greatest epoch that the leader knows of those up to the one read last, and its end (exclusive).

    An epoch before all that it knows ends where the first of them begins; above the latest one there is none: -1.
    """
    asked, starts = sighting.last_fetched_epoch, sighting.starts
    assert starts, sighting
    if asked > starts[-1][0]:
        return -1, -1
    older = [epoch for epoch, _ in starts if epoch <= asked]
    newer = [start for epoch, start in starts if epoch > asked]
    return (older[-1] if older else asked), (newer[0] if newer else sighting.log_end_offset)
