"""The timers by which a broker works at intervals: each that it has set once is set again, for as long as it lives."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Protocol, final

from cluster.core.broker.logs import HIGH_WATERMARK_TIMER, RECOVERY_POINT_TIMER
from cluster.core.broker.maintenance import CLEANER_TIMER, PRODUCERS_TIMER, RETENTION_TIMER
from cluster.core.replica.flushes import FLUSH_TIMER
from cluster.core.replica.isr_changes import LAG_TIMER
from sim.checkers.base import Jury

STANDING = frozenset(
    {
        HIGH_WATERMARK_TIMER, RECOVERY_POINT_TIMER, CLEANER_TIMER, PRODUCERS_TIMER, RETENTION_TIMER, FLUSH_TIMER,
        LAG_TIMER,
    }
)  # fmt: skip
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
    missing while a job does the work; a broker with a job, or with events that wait, is not judged.
    """

    name = "standing-timers"

    def __init__(self, jury: Jury) -> None:
        self._jury = jury
        # The timers that each life has had, and since when it lacks those that are missing.
        self._seen: dict[tuple[str, int], set[str]] = {}
        self._missing_us: dict[tuple[str, int, str], int] = {}

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
