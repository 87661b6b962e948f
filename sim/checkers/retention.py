from __future__ import annotations

from collections.abc import Mapping
from typing import final

from sim.checkers.base import Checker, Judge
from sim.checkers.ghost import PartitionGhost
from sim.checkers.sightings import LogStarted


@final
class RetentionDeletesWhatItMay(Checker):
    """Retention deletes committed records only, and only those that are too old or too many (RT2, RT5, RT6).

    Age counts on the clock of the broker that deletes. A segment that ends where the log of another broker began, or
    before, may be deleted too: a follower takes over the start of its leader's log, whatever it holds below it. The
    same job of the follower may delete segments after that for their age.
    """

    name = "retention"

    def judges(self) -> Mapping[type, Judge]:
        return {LogStarted: self._on_log_started}

    def _on_log_started(self, partition: PartitionGhost, sighting: LogStarted) -> str | None:
        who = f"{partition.name}: the log of broker {sighting.broker} begins at {sighting.start} now"
        is_taken_over = sighting.start <= partition.leader_log_start
        is_committed = sighting.start <= partition.truth.end
        if not is_committed and not is_taken_over and not self._is_excused(partition, sighting):
            return f"{who}; committed are the records below {partition.truth.end}"
        limit_ms, limit_bytes = partition.retention_ms, partition.retention_bytes
        if limit_ms is None or limit_bytes is None:
            return None
        for end, age_ms, left_bytes in sighting.deleted:
            began_elsewhere = end <= partition.log_start
            is_old = 0 <= limit_ms < age_ms
            is_excess = 0 <= limit_bytes <= left_bytes
            if not began_elsewhere and not is_old and not is_excess:
                return (
                    f"{who}: a deleted segment that ended at {end} had a record {age_ms} ms old, and {left_bytes} "
                    f"bytes after it; retention.ms is {limit_ms}, retention.bytes {limit_bytes}"
                )
        return None

    def _is_excused(self, partition: PartitionGhost, sighting: LogStarted) -> bool:
        """Whether what was deleted beyond the truth may be lost anyway, after an unclean election for example."""
        chain = partition.image(sighting.broker).chain
        if sighting.start <= chain.start:
            # Two deletions of one step: the first was judged by all that is gone.
            return True
        end = partition.truth.end
        beyond = chain.between(end, sighting.start)
        # The truth may end within a batch of this log, as another history has a shorter one there.
        across = chain.covering(end)
        if across is not None and across.base_offset < end:
            beyond.append(across)
        return bool(beyond) and all(mark in partition.excused for mark in beyond)
