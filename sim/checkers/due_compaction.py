"""Judges whether a broker's cleaner begins a round where a log is dirty enough, and of what it makes one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, final

from cluster.core.broker.broker import Broker
from cluster.core.broker.maintenance import CLEANER_TIMER
from cluster.core.effects import Observe, RunJob
from cluster.core.events import Event, TimerFired
from cluster.core.messages import TopicPartition
from cluster.core.replica.replica import Replica
from sim.checkers.base import Jury, Life
from storage.config import LONG_MAX
from storage.directory.cleaners import key_of
from storage.log import PartitionLog


@final
class _Begun(NamedTuple):
    """A round that runs: its log, when it began, and the offset (exclusive) up to which it may clean."""

    log: PartitionLog
    at_ms: int
    most: int


@final
class DueCompaction:
    """When its timer goes off, the cleaner begins a round if any log is due for one (CL4, CL5).

    Judged are the whole dirty segments that are committed, not active and older than min.compaction.lag.ms: they are
    due if they are a larger share of all that may be cleaned than min.cleanable.dirty.ratio, or one of them begins with
    a batch that is older than max.compaction.lag.ms. A round ends where they end, or before (CL1, CL2).
    """

    name = "compaction-due"
    range_name = "compaction-range"

    def __init__(self, jury: Jury) -> None:
        self._jury = jury
        self._begun: dict[Life, _Begun] = {}
        # By broker: the round that has ended in its last step of this kind. The next may have begun since.
        self._ended: dict[int, _Begun] = {}

    def began_ms(self, broker: int, log: PartitionLog) -> int | None:
        """Returns when the round began that has ended on a broker's log in this step; None if nobody saw it."""
        ended = self._ended.pop(broker, None)
        return ended.at_ms if ended is not None and ended.log is log else None

    def on_unseen(self, life: Life) -> None:
        """Receives that a broker takes steps that nobody judges: the next round may begin in one of them."""
        self._begun.pop(life, None)

    def on_step(
        self, life: Life, core: Broker, now_ms: int, events: Iterable[Event], effects: Iterable[object]
    ) -> None:
        """Judge the logs of a broker after a step, if its cleaner has looked for one, or has ended a round."""
        is_timer = any(type(event) is TimerFired and event.key == CLEANER_TIMER for event in events)
        running = core.maintenance.round_under_way
        begun = self._begun.get(life)
        if not is_timer and running is None and begun is None:
            return
        is_told = False
        for effect in effects:
            if type(effect) is Observe and effect.kind.startswith("log."):
                # A round that ends in its first step, or fails, is told. So are segments that were deleted after the
                # look: without them more is dirty.
                is_told = True
                if effect.kind == "log.compacted":
                    self._judge_range(core, begun, dict(effect.fields))
                    if begun is not None:
                        self._ended[life[0]] = begun
                    begun = None
            is_told = is_told or type(effect) is RunJob
        if running is None:
            self._begun.pop(life, None)
        elif begun is None or (begun.log, begun.at_ms) != running:
            self._begun[life] = _Begun(*running, _cleanable_end(core, running[0], now_ms))
        if not is_timer or is_told:
            return
        for name, replica in core.replicas().items():
            if why := _why_due(core, replica, now_ms):
                self._jury.report(
                    self.name, f"{name}: broker {core.node_id} begins no round of compaction; {why}"
                )

    def _judge_range(self, core: Broker, begun: _Begun | None, fields: dict[str, int | str]) -> None:
        topic, _, number = str(fields["topic_partition"]).rpartition("-")
        replica = core.replicas().get(TopicPartition(topic, int(number)))
        end = int(fields["end_offset"])
        if replica is None or begun is None or begun.log is not replica.log:
            return
        if end > begun.most:
            what = f"broker {core.node_id} compacts its log up to {end}, and might up to {begun.most}"
            self._jury.report(self.range_name, f"{replica.name}: {what}")


def _first_dirty(core: Broker, log: PartitionLog) -> int:
    checkpoints = core.maintenance.cleaner_of(log).checkpoints
    return max(checkpoints.get(key_of(log), 0), log.log_start_offset)


def _cleanable_end(core: Broker, log: PartitionLog, now_ms: int) -> int:
    """Returns the end (exclusive) of the whole segments that a round may clean which begins now; where none is dirty,
    the first dirty offset.

    The cleaner has read the times of these segments: to ask for them costs no call of the disk.
    """
    first_dirty, lag_ms = _first_dirty(core, log), log.config.min_compaction_lag_ms
    end = first_dirty
    for segment, following in log.local.segments.oldest():
        if following is None or following.base_offset > log.high_watermark:
            break
        is_dirty = segment.base_offset >= first_dirty
        if is_dirty and lag_ms > 0 and segment.kept_until_ms > now_ms - lag_ms:
            break
        end = max(end, following.base_offset)
    return end


def _why_due(core: Broker, replica: Replica, now_ms: int) -> str:
    """Returns why a round of the log is due; empty if none is, and for a log that is not judged."""
    log, config = replica.log, replica.log.config
    if log.online.reason is not None or not config.is_compacted:
        return ""
    if key_of(log) in core.maintenance.cleaner_of(log).uncleanable:
        return ""
    first_dirty, end = _first_dirty(core, log), _cleanable_end(core, log, now_ms)
    clean = dirty = 0
    first_ms: int | None = None
    for segment in log.local.segments.values(0, end):
        if segment.base_offset < first_dirty:
            clean += segment.size_bytes
            continue
        dirty += segment.size_bytes
        if config.max_compaction_lag_ms < LONG_MAX and (began_ms := segment.first_batch_timestamp):
            first_ms = began_ms if first_ms is None else min(first_ms, began_ms)
    ratio = dirty / (clean + dirty) if dirty else 0.0
    if ratio > config.min_cleanable_dirty_ratio:
        least = config.min_cleanable_dirty_ratio
        return f"{ratio:.2f} of its bytes are dirty, min.cleanable.dirty.ratio is {least}"
    age_ms = 0 if first_ms is None else now_ms - first_ms
    if dirty and 0 < config.max_compaction_lag_ms < age_ms:
        return f"a dirty segment is {age_ms} ms old, max.compaction.lag.ms is {config.max_compaction_lag_ms}"
    return ""
