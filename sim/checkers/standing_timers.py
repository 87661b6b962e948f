"""The timers by which a broker works at intervals: each that it has set once is set again, for as long as it lives."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Protocol, final

from cluster.core.broker.lifecycle import FIRST_LEAVE_DELAY_MS, HEARTBEAT_TIMER, REGISTER_TIMER
from cluster.core.broker.logs import HIGH_WATERMARK_TIMER, RECOVERY_POINT_TIMER
from cluster.core.broker.maintenance import CLEANER_TIMER, PRODUCERS_TIMER, RETENTION_TIMER
from cluster.core.broker.metadata_observer import RETRY_TIMER as METADATA_RETRY_TIMER
from cluster.core.config import BrokerConfig
from cluster.core.effects import SetTimer
from cluster.core.replica.flushes import FLUSH_TIMER
from cluster.core.replica.isr_changes import LAG_TIMER
from cluster.core.replica.isr_changes import RETRY_TIMER as PROPOSAL_RETRY_TIMER
from sim.checkers.base import Jury

# How far ahead each of them is set at most, in milliseconds.
STANDING: Mapping[str, Callable[[BrokerConfig], int]] = {
    HIGH_WATERMARK_TIMER: lambda config: config.replica_high_watermark_checkpoint_interval_ms,
    RECOVERY_POINT_TIMER: lambda config: config.log_flush_offset_checkpoint_interval_ms,
    CLEANER_TIMER: lambda config: config.log_cleaner_backoff_ms,
    PRODUCERS_TIMER: lambda config: max(
        config.log_initial_task_delay_ms, config.producer_id_expiration_check_interval_ms
    ),
    RETENTION_TIMER: lambda config: max(
        config.log_initial_task_delay_ms, config.log_retention_check_interval_ms
    ),
    FLUSH_TIMER: lambda config: config.log_flush_scheduler_interval_ms,
    # The members are looked at twice within the lag time (ISR-2).
    LAG_TIMER: lambda config: max(1, config.replica_lag_time_max_ms // 2),
}
# Those that are set for a while only, too.
_MOST: Mapping[str, Callable[[BrokerConfig], int]] = {
    **STANDING,
    # A broker that stops waits for the first answer to its wish.
    HEARTBEAT_TIMER: lambda config: max(config.broker_heartbeat_interval_ms, FIRST_LEAVE_DELAY_MS),
}
# How far ahead what has failed is set again at least; the keys of some go on with a partition.
_LEAST: Mapping[str, Callable[[BrokerConfig], int]] = {
    METADATA_RETRY_TIMER: lambda config: config.retry_backoff_ms,
    REGISTER_TIMER: lambda config: config.retry_backoff_ms,
    PROPOSAL_RETRY_TIMER: lambda config: config.retry_backoff_ms,
}
# How long such a timer may be missing while its broker acts and no job runs.
BOUND_US = 1_000_000


class Ticking(Protocol):
    """A node as this checker sees it."""

    name: str
    life_number: int

    @property
    def pending_timers(self) -> Collection[str]: ...

    @property
    def is_at_leisure(self) -> bool: ...


@final
class StandingTimers:
    """Judges whether periodic work goes on: checkpoints, retention, cleaning, flushes, the look at who lags.

    A broker that has lost such a timer serves on, and only its logs grow, or its next recovery is long. The timer is
    missing while a job does the work; a broker with a job, or with events that wait, is not judged. A timer is set no
    further ahead than its setting says, and what has failed is tried again after the back-off.
    """

    name = "standing-timers"
    haste_name = "hasty-brokers"

    def __init__(self, jury: Jury) -> None:
        self._jury = jury
        # The timers that each life has had, and since when it lacks those that are missing.
        self._seen: dict[tuple[str, int], set[str]] = {}
        self._missing_us: dict[tuple[str, int, str], int] = {}

    def on_step(
        self, life: tuple[str, int], now_ms: int, effects: Iterable[object], config: BrokerConfig
    ) -> None:
        """Judge the timers that a broker's core has set in a step of its life, at the time of its clock."""
        for effect in effects:
            if type(effect) is SetTimer:
                self._judge(life[0], effect.key, effect.at_ms - now_ms, config)
                if effect.key in STANDING:
                    self._seen.setdefault(life, set()).add(effect.key)

    def _judge(self, node: str, key: str, ahead_ms: int, config: BrokerConfig) -> None:
        most = _MOST.get(key)
        if most is not None and ahead_ms > most(config):
            self._jury.report(
                self.name, f"{node} sets its timer {key} {ahead_ms} ms ahead; {most(config)} are set"
            )
        kind, colon, _ = key.partition(":")
        least = _LEAST.get(kind + colon)
        if least is not None and ahead_ms < least(config):
            what = f"tries again in {ahead_ms} ms, by its timer {key}; its back-off is {least(config)}"
            self._jury.report(self.haste_name, f"{node} {what}")

    def look_at_rest(self, nodes: Iterable[Ticking]) -> None:
        """Look at the timers of a cluster that is at rest: without a job or an event nothing will set one again."""
        for node in nodes:
            for key in sorted(self._seen.get((node.name, node.life_number), ())):
                if key not in node.pending_timers and node.is_at_leisure:
                    self._jury.report(self.name, f"{node.name} has not set its timer {key} again")

    def look(self, nodes: Iterable[Ticking], now_us: int) -> None:
        """Look at the timers of all nodes; to be called at intervals."""
        for node in nodes:
            life, pending = (node.name, node.life_number), node.pending_timers
            seen = self._seen.setdefault(life, set())
            seen.update(key for key in STANDING if key in pending)
            for key in sorted(seen):
                if key in pending or not node.is_at_leisure:
                    self._missing_us.pop((*life, key), None)
                elif now_us - self._missing_us.setdefault((*life, key), now_us) >= BOUND_US:
                    self._jury.report(self.name, f"{node.name} has not set its timer {key} again")
                    seen.remove(key)
