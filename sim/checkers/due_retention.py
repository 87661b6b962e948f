"""Judges whether a broker's pass over its logs deletes the segments that are too old, too many, or given up."""

from __future__ import annotations

from collections.abc import Iterable
from typing import final

from cluster.core.broker.broker import Broker
from cluster.core.broker.maintenance import RETENTION_TIMER
from cluster.core.effects import SetTimer
from cluster.core.events import Event, TimerFired
from sim.checkers.base import Jury
from storage.log import PartitionLog


@final
class DueRetention:
    """The oldest segment of a log that is not compacted is not due after a pass (RT2, RT4, RT5, RT6).

    Due is a committed segment below the log start offset; with `delete` in cleanup.policy also one without which
    retention.bytes are left, and one whose last record is older than retention.ms. A pass of one step is judged, as
    nearly all are: what becomes due in the midst of a long one waits for the next.
    """

    name = "retention-due"

    def __init__(self, jury: Jury) -> None:
        self._jury = jury
        # The brokers whose pass goes on in another step.
        self._midway: set[str] = set()

    def on_step(
        self, node: str, core: Broker, now_ms: int, events: Iterable[Event], effects: Iterable[object]
    ) -> None:
        """Judge the logs of a broker after a step, if it was a pass."""
        if not any(type(event) is TimerFired and event.key == RETENTION_TIMER for event in events):
            return
        was_midway = node in self._midway
        self._midway.discard(node)
        for effect in effects:
            if type(effect) is SetTimer and effect.key == RETENTION_TIMER and effect.at_ms <= now_ms + 1:
                self._midway.add(node)
        if was_midway or node in self._midway:
            return
        for name, replica in core.replicas().items():
            log = replica.log
            if log.online.reason is None and not log.config.is_compacted and (why := _why_due(log, now_ms)):
                self._jury.report(self.name, f"{name}: broker {core.node_id} keeps its oldest segment; {why}")


def _why_due(log: PartitionLog, now_ms: int) -> str:
    """Returns why the oldest segment is to be deleted; empty if it is not."""
    segments, config = log.local.segments, log.config
    if len(segments) < 2:
        return ""
    (oldest, following), *_ = segments.oldest()
    assert following is not None, log.local.directory
    end = following.base_offset
    if end > log.high_watermark:
        return ""
    if end <= log.log_start_offset:
        return f"it ends at {end}, the log start offset is {log.log_start_offset}"
    if "delete" not in config.cleanup_policies:
        return ""
    left_bytes = segments.size_bytes - oldest.size_bytes
    if 0 <= config.retention_bytes <= left_bytes:
        return f"without it {left_bytes} bytes are left, retention.bytes is {config.retention_bytes}"
    # The pass has read the time of this segment: to ask for it costs no call of the disk.
    age_ms = now_ms - oldest.kept_until_ms
    if 0 <= config.retention_ms < age_ms:
        return f"its last record is {age_ms} ms old, retention.ms is {config.retention_ms}"
    return ""
