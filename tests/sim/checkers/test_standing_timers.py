"""Periodic work goes on for as long as a broker lives."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from cluster.core.broker.lifecycle import REGISTER_TIMER
from cluster.core.broker.maintenance import RETENTION_TIMER
from cluster.core.broker.metadata_observer import RETRY_TIMER as METADATA_RETRY_TIMER
from cluster.core.config import BrokerConfig
from cluster.core.effects import SetTimer
from cluster.core.replica.isr_changes import LAG_TIMER, RETRY_TIMER
from sim.checkers.base import Jury
from sim.checkers.ghost import Ghost
from sim.checkers.standing_timers import BOUND_US, STANDING, StandingTimers


@dataclass
class Clockwork:
    """A node with the timers of a test."""

    name: str = "broker-1"
    life_number: int = 1
    pending_timers: set[str] = field(default_factory=lambda: {RETENTION_TIMER, "fetch.expiry"})
    is_at_leisure: bool = True


def judged(node: Clockwork, *changes: dict[str, object]) -> list[str]:
    """Return what is found wrong by looks at the node, half of the bound apart, each after one of the changes."""
    jury = Jury(Ghost(), [], now_us=lambda: 0, on_violation=lambda violation: None)
    timers = StandingTimers(jury)
    for number, change in enumerate(({}, *changes)):
        for name, value in change.items():
            setattr(node, name, value)
        timers.look([node], number * BOUND_US // 2)
    return [violation.checker for violation in jury.violations]


def test_a_timer_that_is_not_set_again_is_reported_once() -> None:
    gone: dict[str, object] = {"pending_timers": set()}
    assert judged(Clockwork(), gone, {}) == []
    assert judged(Clockwork(), gone, {}, {}, {}, {}, {}) == ["standing-timers"]


def test_a_timer_may_be_missing_while_a_job_runs_and_a_new_process_has_its_own() -> None:
    gone: dict[str, object] = {"pending_timers": set()}
    assert judged(Clockwork(), gone | {"is_at_leisure": False}, {}, {}, {}) == []
    assert judged(Clockwork(), gone, {}, {"life_number": 3}, {}, {}, {}) == []


def test_a_cluster_at_rest_has_all_its_timers() -> None:
    def found(**after: object) -> list[str]:
        jury = Jury(Ghost(), [], now_us=lambda: 0, on_violation=lambda violation: None)
        timers, node = StandingTimers(jury), Clockwork()
        # Where rounds follow each other fast, no look sees the timer.
        effects = [SetTimer(key=RETENTION_TIMER, at_ms=5)]
        timers.on_step((node.name, node.life_number), 0, effects, BrokerConfig(node_id=1))
        for name, value in after.items():
            setattr(node, name, value)
        timers.look_at_rest([node])
        return [violation.checker for violation in jury.violations]

    assert found() == []
    assert found(pending_timers=set()) == ["standing-timers"]
    # A job may set it as it ends, and another life has not set it yet.
    assert found(pending_timers=set(), is_at_leisure=False) == []
    assert found(pending_timers=set(), life_number=2) == []


def test_what_is_set_for_a_while_only_may_end() -> None:
    assert judged(Clockwork(), {"pending_timers": {RETENTION_TIMER}}, {}, {}, {}) == []


@pytest.mark.parametrize("key", sorted(STANDING))
def test_isr2_a_timer_is_set_no_further_ahead_than_its_setting_says(key: str) -> None:
    config = BrokerConfig(node_id=1, log_flush_scheduler_interval_ms=700)
    most_ms = STANDING[key](config)
    assert key != LAG_TIMER or most_ms == config.replica_lag_time_max_ms // 2
    found = []
    for ahead_ms in (most_ms, most_ms + 1):
        jury = Jury(Ghost(), [], now_us=lambda: 0, on_violation=lambda violation: None)
        effects = [SetTimer(key="another", at_ms=1 << 60), SetTimer(key=key, at_ms=5 + ahead_ms)]
        StandingTimers(jury).on_step(("broker-1", 1), 5, effects, config)
        found.append([violation.checker for violation in jury.violations])
    assert found == [[], ["standing-timers"]]


@pytest.mark.parametrize("key", [METADATA_RETRY_TIMER, REGISTER_TIMER, f"{RETRY_TIMER}t-0"])
@pytest.mark.parametrize("ahead_ms", [99, 100])
def test_what_has_failed_is_tried_again_after_the_back_off(key: str, ahead_ms: int) -> None:
    jury = Jury(Ghost(), [], now_us=lambda: 0, on_violation=lambda violation: None)
    config = BrokerConfig(node_id=1, retry_backoff_ms=100)
    StandingTimers(jury).on_step(("broker-1", 1), 5, [SetTimer(key=key, at_ms=5 + ahead_ms)], config)
    assert [violation.checker for violation in jury.violations] == ["hasty-brokers"] * (ahead_ms < 100)
