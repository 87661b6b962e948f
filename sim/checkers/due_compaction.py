"""Judges whether a broker's cleaner begins a round where a log is dirty enough."""

from __future__ import annotations

from collections.abc import Iterable
from typing import final

from cluster.core.broker.broker import Broker
from cluster.core.broker.maintenance import CLEANER_TIMER
from cluster.core.effects import Observe, RunJob
from cluster.core.events import Event, TimerFired
from cluster.core.replica.replica import Replica
from sim.checkers.base import Jury
from storage.directory.cleaners import key_of


@final
class DueCompaction:
    """When its timer goes off, the cleaner begins a round if any log is due for one (CL4).

    Judged are logs without a min.compaction.lag.ms whose whole dirty segments alone, without what is not committed and
    without the active one, are a larger share than min.cleanable.dirty.ratio.
    """

    name = "compaction-due"

    def __init__(self, jury: Jury) -> None:
        self._jury = jury

    def on_step(self, node: str, core: Broker, events: Iterable[Event], effects: Iterable[object]) -> None:
        """Judge the logs of a broker after a step, if it was one of the cleaner's timer that has begun no round."""
        if not any(type(event) is TimerFired and event.key == CLEANER_TIMER for event in events):
            return
        for effect in effects:
            # A round that ends in its first step, or fails, is told.
            if type(effect) is RunJob or (type(effect) is Observe and effect.kind.startswith("log.")):
                return
        for name, replica in core.replicas().items():
            ratio = _dirty_ratio(core, replica)
            least = replica.log.config.min_cleanable_dirty_ratio
            if ratio > least:
                what = f"{ratio:.2f} of its bytes are dirty, min.cleanable.dirty.ratio is {least}"
                self._jury.report(self.name, f"{name}: {node} begins no round of compaction; {what}")


def _dirty_ratio(core: Broker, replica: Replica) -> float:
    """Returns the share of whole dirty segments in what may be cleaned; 0 for a log that is not judged."""
    log = replica.log
    if log.online.reason is not None or not log.config.is_compacted or log.config.min_compaction_lag_ms > 0:
        return 0.0
    cleaner, key = core.maintenance.cleaner_of(log), key_of(log)
    if key in cleaner.uncleanable:
        return 0.0
    first_dirty = max(cleaner.checkpoints.get(key, 0), log.log_start_offset)
    clean = dirty = 0
    for segment, following in log.local.segments.oldest():
        if following is None or following.base_offset > log.high_watermark:
            break
        if segment.base_offset >= first_dirty:
            dirty += segment.size_bytes
        else:
            clean += segment.size_bytes
    return dirty / (clean + dirty) if dirty else 0.0
