"""Runs a failing scenario once more, with its world changed from outside."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from sim.bugs import install
from sim.run import Run
from sim.shrink.data import scenario_of
from sim.shrink.search import Failing
from sim.world.time import World, without_garbage_collection

_SPARE_EVENTS = 2_000


def run_changed(
    failing: Failing, bug: str | None, change: Callable[[World], AbstractContextManager[None]]
) -> dict[str, Any]:
    """Run the scenario to its first violation, inside of what `change` makes of its world.

    Returns what `replog sim run --json` prints. A run of more than twice the events of the failing one is cut off.
    """
    scenario = scenario_of(failing.data)
    assert scenario is not None, failing.data
    planted: AbstractContextManager[None] = install(bug) if bug is not None else nullcontext()
    with planted, without_garbage_collection():
        most_events = 2 * failing.outcome.events + _SPARE_EVENTS
        run = Run(scenario, failing.seed, stops_early=True, most_events=most_events)
        with change(run.world):
            return run.go("").as_json()
