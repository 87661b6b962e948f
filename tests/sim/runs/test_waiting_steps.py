"""Steps whose target does not exist when they are due, and steps whose conditions never hold."""

from __future__ import annotations

from sim.run import RunResult, Verdict, run_scenario
from sim.scenario.loading import parse_scenario

HEAD = """\
scenario: waiting-steps
duration: 4s
cluster: {brokers: 2}
topics:
  t: {replicas: 1}
producers:
  - {topic: t, rate: 20/s}
steps:
  - {at: 2500ms, kill: leader(t/0), as: A}
"""
NONE = "its target did not exist"


def run(steps: str) -> RunResult:
    return run_scenario(parse_scenario(HEAD + steps), 1)


def times(result: RunResult, words: str) -> list[str]:
    """Return the times of the lines of the story that have these words."""
    return [line.split()[0] for line in result.story if words in line]


def test_a_step_with_its_own_time_does_not_wait_for_a_step_without_a_target() -> None:
    result = run("  - {at: 2600ms, pause: leader(t/0), for: 50ms}\n  - {at: 2800ms, restart: A}\n")
    assert result.verdict is Verdict.HELD, (result.violations, result.starved_because)
    assert times(result, "start broker") == ["2.800"]
    (paused,) = times(result, "pause")
    assert "2.800" <= paused < "3.500" and not result.never_struck


def test_a_step_that_never_had_a_target_is_counted_and_the_run_counts() -> None:
    result = run("  - {at: 2600ms, pause: leader(t/0), for: 50ms}\n  - {at: 2800ms, kill: broker 1}\n")
    assert result.verdict is Verdict.HELD, (result.violations, result.starved_because)
    assert f"pause leader(t/0): {NONE}" in result.never_struck


def test_a_step_looks_for_its_target_within_its_limit_and_the_step_after_it_goes_on_then() -> None:
    steps = "  - {at: 2600ms, pause: leader(t/0), for: 50ms, within: 200ms}\n  - {at: +100ms, restart: A}\n"
    result = run(steps)
    assert result.verdict is Verdict.HELD, (result.violations, result.starved_because)
    assert times(result, f"step 2 gave up: pause leader(t/0): {NONE}") == ["2.800"]
    assert times(result, "start broker") == ["2.900"]
    assert result.never_struck == (f"pause leader(t/0): {NONE}",)


def test_steps_that_count_from_a_step_without_a_target_never_come_and_the_run_proves_nothing() -> None:
    result = run("  - {at: 2600ms, pause: leader(t/0), for: 50ms}\n  - {at: +100ms, restart: A}\n")
    assert result.verdict is Verdict.STARVED
    assert result.starved_because == "step 3 of 3 never struck"


def test_steps_after_a_condition_that_never_held_go_on_and_the_run_proves_nothing() -> None:
    result = run("  - {when: isr(t/0) > 1, within: 300ms, kill: broker 2}\n  - {at: 3s, restart: A}\n")
    assert times(result, "step 2 gave up waiting for isr(t/0) > 1") == ["2.800"]
    assert times(result, "start broker") == ["3.000"]
    assert (result.verdict, result.starved_because) == (Verdict.STARVED, "step 2 of 3 never struck")


def test_a_run_of_which_no_step_struck_proves_nothing() -> None:
    scenario = parse_scenario(HEAD.replace("{replicas: 1}", "{replicas: 1, exists: false}"))
    result = run_scenario(scenario, 1)
    assert (result.verdict, result.starved_because) == (Verdict.STARVED, "step 1 of 1 never struck")
    assert result.never_struck == (f"kill leader(t/0): {NONE}",)
