"""Judges what brokers answer about offsets: where a log begins, where its committed part ends, where a time begins."""

from __future__ import annotations

from collections.abc import Mapping
from typing import final

from cluster.core.messages import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from sim.checkers.base import Checker, Judge
from sim.checkers.ghost import PartitionGhost
from sim.checkers.sightings import LookUpPutOff, OffsetLookedUp


@final
class OffsetAnswersAreTrue(Checker):
    """A broker names places in its log as they are (CON-5, KIP-207).

    The earliest offset is where a log begins, not below the start of its own. The latest offset of the leader is the
    end of what is committed: not below what another leader has served. A time begins at the first record that is as
    late, if that is committed. Before it has committed up to the start of its epoch, a leader says neither where its
    committed part ends nor that no record is as late; after that it puts nobody off. The epoch of an offset is that of
    the record there. Of a partition that may lose committed records only the places in the broker's own log are judged.
    """

    name = "offset-answers"

    def judges(self) -> Mapping[type, Judge]:
        return {OffsetLookedUp: self._on_looked_up, LookUpPutOff: self._on_put_off}

    def _on_looked_up(self, partition: PartitionGhost, sighting: OffsetLookedUp) -> str | None:
        if sighting.timestamp == EARLIEST_TIMESTAMP:
            what = self._wrong_start(partition, sighting)
        elif sighting.timestamp == LATEST_TIMESTAMP:
            what = self._wrong_end(partition, sighting)
        else:
            what = self._wrong_time(partition, sighting)
        what = what or self._too_early(sighting) or self._wrong_epoch(partition, sighting)
        return f"{partition.name}: broker {sighting.broker} {what}" if what else None

    def _on_put_off(self, partition: PartitionGhost, sighting: LookUpPutOff) -> str | None:
        image = partition.image(sighting.broker)
        # Where the disk has changed what the log knows of epochs, it may say another start of this one.
        if image.damage or image.cache_damage:
            return None
        return (
            f"{partition.name}: broker {sighting.broker} said that it does not know its committed end yet; in its "
            f"epoch {sighting.epoch} it has committed up to the start of this epoch"
        )

    def _wrong_start(self, partition: PartitionGhost, sighting: OffsetLookedUp) -> str:
        start = partition.image(sighting.broker).log_start
        if sighting.offset < start:
            return f"named {sighting.offset} as its earliest offset; its log begins at {start}"
        # The answer may come of the step that has deleted what is before it.
        if sighting.log_start is not None and sighting.offset > max(
            sighting.log_start, partition.greatest_start
        ):
            most = max(sighting.log_start, partition.greatest_start)
            return (
                f"named {sighting.offset} as its earliest offset; no log of the partition begins after {most}"
            )
        return ""

    def _wrong_end(self, partition: PartitionGhost, sighting: OffsetLookedUp) -> str:
        ends = self._committed_ends(partition, sighting)
        if ends is not None and not ends[0] <= sighting.offset <= ends[1]:
            return f"named {sighting.offset} as its latest offset; committed are those below {ends[1]}"
        return ""

    def _wrong_time(self, partition: PartitionGhost, sighting: OffsetLookedUp) -> str:
        found, ends = sighting.found, self._committed_ends(partition, sighting)
        told = None if sighting.offset < 0 else (sighting.offset, sighting.found_ms)
        asked = f"was asked for {sighting.timestamp} ms"
        if told is not None and sighting.is_readable and told != found:
            return f"{asked} and named {told}; the first record as late is {found}"
        if ends is None:
            return ""
        if told is not None and told[0] >= ends[1]:
            return f"{asked} and named {told}; committed are those below {ends[1]}"
        if told is None and found is not None and found[0] < ends[0]:
            return f"{asked} and named nothing; the first record as late is {found}"
        return ""

    def _too_early(self, sighting: OffsetLookedUp) -> str:
        of_end = sighting.timestamp == LATEST_TIMESTAMP or (sighting.timestamp >= 0 and sighting.offset < 0)
        if sighting.is_behind and of_end:
            named = "its committed end" if sighting.timestamp < 0 else "no record as late"
            return f"named {named} before it has committed up to the start of its leader epoch"
        return ""

    def _wrong_epoch(self, partition: PartitionGhost, sighting: OffsetLookedUp) -> str:
        """Returns what is wrong with the epoch that the answer names: by it a consumer finds a cut later (KIP-320).

        At the end of a leader's log that is its own. Where batches were deleted or cut away, nothing is judged. Of the
        start and the end of a log the epoch may be unknown: after a crash a log may begin earlier than its epochs.
        """
        if sighting.found_epoch is None or sighting.offset < 0 or partition.epoch != sighting.epoch:
            return ""
        if sighting.found_epoch < 0 and sighting.timestamp < 0:
            return ""
        chain = partition.image(sighting.broker).chain
        mark = chain.covering(sighting.offset)
        if mark is None and sighting.offset != chain.end:
            return ""
        epoch = sighting.epoch if mark is None else mark.epoch
        if sighting.found_epoch == epoch:
            return ""
        return f"named epoch {sighting.found_epoch} for offset {sighting.offset}, which is of epoch {epoch}"

    def _committed_ends(self, partition: PartitionGhost, sighting: OffsetLookedUp) -> tuple[int, int] | None:
        """Returns the end of what was committed when the request came, and now; None if the broker need not know it.

        The leader handles several requests in one step: what it answers first may be older than the step's end.
        """
        is_leader = partition.leader == sighting.broker and partition.begun_epoch == partition.epoch
        may_lose = bool(partition.excused or partition.unclean_epochs or partition.lost)
        if not is_leader or may_lose:
            return None
        return min(sighting.committed_before, partition.truth.end), partition.truth.end
