"""Judges whether a broker flushes its logs when flush.messages or flush.ms says so."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, final

from cluster.core.messages import TopicPartition
from cluster.core.replica.replica import Replica
from sim.checkers.base import Jury, Life
from storage.config import LONG_MAX, LogConfig


@final
class _Seen(NamedTuple):
    """A log with records that are not flushed, as it was at a look."""

    config: LogConfig
    recovery_point: int
    log_end: int
    # When a flush ended last, which a roll may have overtaken: the recovery point is the same after it then.
    flushed_ms: int
    # The latest time of the broker's clock at the first look at which `recovery_point` was that.
    since_ms: int


@final
class DueFlushes:
    """A log with as many un-synced records as flush.messages, or the same ones for flush.ms, is being flushed (FL1).

    That counts from an append under these properties on. flush.ms is judged when the timer that looks at it has gone
    off. That a flush makes durable what it says is judged elsewhere.
    """

    name = "flush-due"

    def __init__(self, jury: Jury) -> None:
        self._jury = jury
        self._looks: dict[tuple[Life, TopicPartition], _Seen] = {}
        # The latest time that the clock of a broker has shown: it may be set back, and the last flush be of before.
        self._latest_ms: dict[Life, int] = {}

    def look(
        self, life: Life, replicas: Mapping[TopicPartition, Replica], now_ms: int, *, is_timer: bool
    ) -> None:
        """Judge the logs of a broker after a step; `is_timer` says whether it was that of the timer of flush.ms."""
        self._latest_ms[life] = max(now_ms, self._latest_ms.get(life, now_ms))
        for topic_partition, replica in replicas.items():
            config = replica.log.local.config
            if config.flush_messages == LONG_MAX and config.flush_ms == LONG_MAX:
                continue
            if replica.log.online.reason is None and (
                why := self._why_due(life, replica, now_ms, is_timer=is_timer)
            ):
                self._jury.report(
                    self.name, f"{topic_partition}: broker {life[0]} does not flush its log; {why}"
                )

    def _why_due(self, life: Life, replica: Replica, now_ms: int, *, is_timer: bool) -> str:
        local, key = replica.log.local, (life, replica.topic_partition)
        before, config = self._looks.get(key), local.config
        end, point = local.log_end_offset, local.recovery_point
        is_same = before is not None and (before.config, before.recovery_point, before.flushed_ms) == (
            config, point, replica.flushed_ms
        )  # fmt: skip
        since_ms = before.since_ms if before is not None and is_same else self._latest_ms[life]
        if point >= end:
            self._looks.pop(key, None)
            return ""
        self._looks[key] = _Seen(config, point, end, replica.flushed_ms, since_ms)
        if replica.is_flushing or before is None or before.config is not config:
            return ""
        if end > before.log_end and end - point >= config.flush_messages:
            return f"{end - point} records are not on its disk, flush.messages is {config.flush_messages}"
        if is_timer and is_same and before.log_end <= end and now_ms - since_ms >= config.flush_ms:
            return (
                f"offset {point} is not on its disk for {now_ms - since_ms} ms, flush.ms is {config.flush_ms}"
            )
        return ""
