"""State machines of the store: how long they run in the slow sweep and in every run."""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

SWEEP = settings(
    max_examples=150,
    stateful_step_count=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


def assert_machine_holds(machine: type[RuleBasedStateMachine], examples: int, steps: int = 12) -> None:
    """Run the machine, short enough for every run. Its own invariants and rules assert."""
    short = settings(SWEEP, max_examples=examples, stateful_step_count=steps)
    run_state_machine_as_test(machine, settings=short)
