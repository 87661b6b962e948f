"""Judges whether a broker's pass over its logs deletes the segments that are too old, too many, or given up."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, final

from cluster.core.broker.broker import Broker
from cluster.core.broker.maintenance import CLEANER_TIMER, RETENTION_TIMER
from cluster.core.effects import Observe, RunJob, SetTimer
from cluster.core.events import Event, TimerFired
from cluster.core.messages import TopicPartition
from sim.checkers.base import Jury, Life
from storage.config import LogConfig
from storage.directory.cleaners import key_of
from storage.log import PartitionLog


@final
class _Begun(NamedTuple):
    """A log as it was when a pass of several steps began; one that is cut in its midst is forgotten."""

    log: PartitionLog
    config: LogConfig
    # The least since then: a follower takes over that of a new leader, which may know less.
    high_watermark: int
    log_start_offset: int
    # The first offset of the active segment, and its bytes.
    active_offset: int
    active_bytes: int


@final
class _Pass(NamedTuple):
    """A pass that goes on in another step: when it began, by the clock of its broker, and the logs of then."""

    at_ms: int
    logs: dict[TopicPartition, _Begun]


@final
class DueRetention:
    """The oldest segment of a log is not due after a pass (RT2, RT4, RT5, RT6, RT8).

    Due is a committed segment below the log start offset; with `delete` in cleanup.policy also one without which
    retention.bytes are left, and one whose last record is older than retention.ms. Of a pass of several steps is
    judged what was due when it began: what becomes due in its midst waits for the next. Compacted logs are shortened by
    the cleaner (CL6): as its timer finds nothing to compact, if one step has room for all that is due.
    """

    name = "retention-due"

    def __init__(self, jury: Jury) -> None:
        self._jury = jury
        self._midway: dict[Life, _Pass] = {}
        # The lives of which steps were not shown: a pass may have begun in one of them.
        self._unseen: dict[Life, None] = {}

    def on_unseen(self, life: Life) -> None:
        """Receives that a step of a broker is not judged: the end of a pass that began in it looks like a whole one."""
        self._unseen[life] = None

    def on_truncated(self, life: Life, topic_partition: TopicPartition) -> None:
        """Receives that a log was cut: of its segments, none may be as it was."""
        if (begun := self._midway.get(life)) is not None:
            begun.logs.pop(topic_partition, None)

    def on_step(
        self, life: Life, core: Broker, now_ms: int, events: Iterable[Event], effects: Iterable[object]
    ) -> None:
        """Judge the logs of a broker after a step, if it was a pass."""
        timers = [event.key for event in events if type(event) is TimerFired]
        if CLEANER_TIMER in timers:
            self._look_at_compacted(core, now_ms, effects)
        if RETENTION_TIMER not in timers:
            return
        is_unseen = life in self._unseen
        begun = self._midway.pop(life, None)
        goes_on = any(
            type(effect) is SetTimer and effect.key == RETENTION_TIMER and effect.at_ms <= now_ms + 1
            for effect in effects
        )
        if is_unseen:
            if not goes_on:
                del self._unseen[life]
            return
        is_cleaning = core.config.log_cleaner_enable
        logs = {
            name: each.log for name, each in core.replicas().items() if _is_judged(each.log, not is_cleaning)
        }
        if begun is not None:
            begun = _Pass(begun.at_ms, {name: _lowered(each) for name, each in begun.logs.items()})
        if goes_on:
            self._midway[life] = begun or _Pass(now_ms, {name: _begun(log) for name, log in logs.items()})
            return
        for name, log in logs.items():
            since = None if begun is None else begun.logs.get(name)
            if begun is None:
                why = _why_due(_begun(log), now_ms, with_active=True)
            elif since is not None and since.log is log and since.config is log.config:
                why = _why_due(since, begun.at_ms)
            else:
                continue
            if why:
                self._report(core, name, why)

    def _report(self, core: Broker, name: TopicPartition, why: str) -> None:
        self._jury.report(self.name, f"{name}: broker {core.node_id} keeps its oldest segment; {why}")

    def _look_at_compacted(self, core: Broker, now_ms: int, effects: Iterable[object]) -> None:
        """Judge the compacted logs after a step of the cleaner's timer, unless it has begun a round."""
        deleted = 0
        for effect in effects:
            if type(effect) is RunJob and effect.kind == "compact":
                return
            if type(effect) is Observe and effect.kind == "log.segments_deleted":
                deleted += int(dict(effect.fields)["segments"])
        if deleted >= core.config.steps.segments:
            return
        for name, replica in core.replicas().items():
            log = replica.log
            if not log.config.is_compacted or not _is_judged(log, True):
                continue
            is_left_out = key_of(log) in core.maintenance.cleaner_of(log).uncleanable
            if not is_left_out and (why := _why_due(_begun(log), now_ms, with_active=True)):
                self._report(core, name, why)


def _is_judged(log: PartitionLog, are_compacted_judged: bool) -> bool:
    return log.online.reason is None and (are_compacted_judged or not log.config.is_compacted)


def _begun(log: PartitionLog) -> _Begun:
    active = log.local.segments.active
    return _Begun(
        log, log.config, log.high_watermark, log.log_start_offset, active.base_offset, active.size_bytes
    )


def _lowered(begun: _Begun) -> _Begun:
    """Returns the log with the least high watermark that it has had in the pass so far."""
    return begun._replace(high_watermark=min(begun.high_watermark, begun.log.high_watermark))


def _why_due(begun: _Begun, at_ms: int, *, with_active: bool = False) -> str:
    """Returns why the oldest segment of a log was to be deleted at that time; empty if it was not.

    It may be the active one, if that is judged too and has records: the log rolls before it goes (RT8).
    """
    local, config = begun.log.local, begun.config
    oldest, following = next(local.segments.oldest())
    if following is None and (not with_active or oldest.size_bytes == 0):
        return ""
    end = local.log_end_offset if following is None else following.base_offset
    if end > begun.high_watermark or (following is not None and end > begun.active_offset):
        return ""
    # The last segment stays where the log begins at its end (RT7).
    if following is not None and end <= begun.log_start_offset:
        return f"it ends at {end}, the log start offset is {begun.log_start_offset}"
    if "delete" not in config.cleanup_policies:
        return ""
    left_bytes = _bytes_of(begun) - oldest.size_bytes
    if 0 <= config.retention_bytes <= left_bytes:
        return f"without it {left_bytes} bytes are left, retention.bytes is {config.retention_bytes}"
    # The pass has read the time of this segment: to ask for it costs no call of the disk.
    age_ms = at_ms - oldest.kept_until_ms
    if 0 <= config.retention_ms < age_ms:
        return f"its last record is {age_ms} ms old, retention.ms is {config.retention_ms}"
    return ""


def _bytes_of(begun: _Begun) -> int:
    """Returns how many bytes are left of those that the log had when the pass began."""
    segments = begun.log.local.segments
    active = segments.active
    if active.base_offset == begun.active_offset:
        return segments.size_bytes - active.size_bytes + min(active.size_bytes, begun.active_bytes)
    sealed = sum(each.size_bytes for each, _ in segments.oldest() if each.base_offset < begun.active_offset)
    return sealed + begun.active_bytes
