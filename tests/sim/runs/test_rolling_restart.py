"""The step that restarts brokers one after the other: whom it waits for, and how long."""

from __future__ import annotations

import pytest

from sim.run import RunResult, Verdict, run_scenario
from sim.scenario.loading import ScenarioError, parse_scenario

HEAD = """\
scenario: rolling
duration: 12s
topics:
  t: {partitions: 2, replicas: 3, config: {min.insync.replicas: 2}}
producers:
  - {topic: t, rate: 20/s, acks: all}
steps:
"""


def run(steps: str, head: str = HEAD, seed: int = 1) -> RunResult:
    result = run_scenario(parse_scenario(head + steps), seed)
    assert result.verdict is Verdict.HELD, (result.violations, result.starved_because)
    return result


def times_of(result: RunResult, *parts: str) -> list[float]:
    """Return the times, in seconds, of the story's lines with these parts."""
    return [float(line.split()[0]) for line in result.story if all(part in line for part in parts)]


def test_each_broker_is_stopped_once_the_one_before_is_in_sync_again() -> None:
    result = run("  - {at: 2s, rolling_restart: all, down: 300ms}\n")
    stops = [times_of(result, f"stop, in order, broker-{number}") for number in (1, 2, 3)]
    assert [len(each) for each in stops] == [1, 1, 1] and stops == sorted(stops)
    for number, (stopped,) in zip((1, 2), stops[1:], strict=True):
        joined = times_of(result, "t-1: in sync are", f"{number}")
        assert any(stops[number - 1][0] < at <= stopped for at in joined), (number, joined, stopped)
    assert len(times_of(result, "no broker is left to restart")) == 1
    assert result.operations["ok"] == sum(result.operations.values()) > 100


def test_the_next_one_waits_no_longer_than_its_patience() -> None:
    steps = "  - {at: 2s, rolling_restart: all, down: 1s, patience: 400ms}\n"
    result = run(steps)
    assert times_of(result, "broker-1 is not in sync again after 0.4 s") == [2.4]
    assert times_of(result, "stop, in order, broker-2") == [2.4]


def test_one_that_is_down_already_is_waited_for_and_not_stopped() -> None:
    steps = "  - {at: 2s, kill: broker 2}\n  - {at: 2500ms, rolling_restart: all, down: 1ms, patience: 2s}\n"
    result = run(steps)
    assert times_of(result, "stop, in order, broker-2: it is down already")
    assert times_of(result, "broker-2 is not in sync again") and times_of(result, "stop, in order, broker-3")


def test_the_end_of_all_faults_ends_it() -> None:
    head = HEAD.replace("duration: 12s", "duration: 4s")
    result = run("  - {at: 3s, rolling_restart: all, down: 5s}\n", head)
    assert not times_of(result, "stop, in order, broker-2")
    assert times_of(result, "start broker-1 again") == [4.0]


@pytest.mark.parametrize(
    ("step", "words"),
    [
        ("rolling_restart: controller", "the controller is no broker"),
        ("rolling_restart: producer 1", "producer 1 is a client"),
        ("rolling_restart: all, for: 1s", "unknown key 'for'"),
    ],
)
def test_a_bad_step_is_refused_with_its_line(step: str, words: str) -> None:
    with pytest.raises(ScenarioError) as refused:
        parse_scenario(f"{HEAD}  - {{at: 2s, {step}}}\n", "bad.yaml")
    assert str(refused.value).startswith("bad.yaml:8: ") and words in str(refused.value)
