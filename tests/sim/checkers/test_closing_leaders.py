"""A broker that closes its logs has forgotten what it waited for: nothing that it leads is due any more."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from cluster.core.effects import RunJob
from cluster.core.events import TimerFired
from cluster.core.replica.isr_changes import LAG_TIMER
from sim.checkers.base import Jury
from sim.checkers.ghost import Ghost
from sim.witness.leaders import LeaderWitness


class Core:
    """A broker of which a test counts how often it is looked at."""

    def __init__(self) -> None:
        self.looks = 0
        self.image = None
        self.manager = SimpleNamespace(fetches=None)

    def replicas(self) -> dict[object, object]:
        """Returns nothing that is led."""
        self.looks += 1
        return {}


def node(life_number: int = 1) -> Any:
    return SimpleNamespace(node_id=1, life_number=life_number, clock=SimpleNamespace(now_ms=lambda: 0))


def test_nothing_is_judged_from_the_job_on_that_closes_the_logs() -> None:
    jury = Jury(Ghost(), [], now_us=lambda: 0, on_violation=lambda violation: None)
    leaders, core = LeaderWitness(jury), Core()
    timer: list[Any] = [TimerFired(key=LAG_TIMER)]
    seen: Any = core
    leaders.on_step(node(), seen, timer, [])
    assert core.looks == 1
    closing = RunJob(job=1, kind="shutdown", work=lambda: None)
    leaders.on_step(node(), seen, timer, [closing])
    leaders.on_step(node(), seen, timer, [])
    assert core.looks == 1
    leaders.on_end(1)
    leaders.on_step(node(3), seen, timer, [])
    assert core.looks == 2
