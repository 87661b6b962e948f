"""Runs with buggify points: every point fires somewhere, and every rule holds where it does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest

from sim.buggify.points import POINTS
from sim.run import RunResult, Verdict, run_scenario
from sim.scenario.loading import ScenarioError, parse_scenario
from sim.scenario.model import Scenario

# All that points may meet: elections, orderly stops, lives that end, a new topic, compaction, retention, snapshots.
SCENARIO = """
scenario: buggified
duration: 9s
cluster:
  settings: {log.initial.task.delay.ms: 500, log.cleaner.backoff.ms: 300, producer.id.block.size: 1,
    replica.high.watermark.checkpoint.interval.ms: 100}
  jobs: {checkpoint: 300ms}
topics:
  t: {partitions: 2, replicas: 3, config: {min.insync.replicas: 2, segment.bytes: 4096}}
  u: {partitions: 1, replicas: 2, config: {cleanup.policy: compact}}
producers:
  - {topic: t, rate: 60/s, clients: 2}
  - {topic: u, rate: 30/s, acks: 1, idempotent: false, keys: 5}
consumers: [{topic: t}, {topic: u}]
steps:
  - {at: 2500ms, kill: leader(t/0), down: 500ms}
  - {at: 4s, stop: leader(t/1), down: 200ms}
  - {at: 5s, kill: controller, down: 300ms}
  - {at: 6s, power: follower(t/0), keep: all, down: 300ms}
  - {at: 7s, kill: producer 1, down: 100ms}
  - {at: 7500ms, kill: leader(u/0), down: 100ms}
"""
# The chances by port: settings are drawn once in a life.
PORTS = {
    "steps": 30, "jobs": 30, "disk": 30, "clock": 60, "network": 30, "messages": 30, "strays": 30,
    "clients": 30, "settings": 60,
}  # fmt: skip


def scenario(points: Sequence[str], chance: int | None = None) -> Scenario:
    """Returns the scenario with these points on."""
    plain = parse_scenario(SCENARIO)
    return plain.model_copy(
        update={"buggify": plain.buggify.model_copy(update={"points": list(points), "chance": chance})}
    )


def points_at(port: str) -> list[str]:
    return [point.name for point in POINTS.values() if point.port == port]


def run(points: Sequence[str], seed: int = 1, chance: int | None = None) -> RunResult:
    return run_scenario(scenario(points, chance), seed)


@pytest.mark.slow
@pytest.mark.parametrize("port", PORTS)
def test_every_point_fires_and_the_run_holds(port: str) -> None:
    points, fired = points_at(port), Counter[str]()
    for seed in range(8):
        result = run(points, seed, chance=PORTS[port])
        assert result.verdict is Verdict.HELD, (seed, result.violations, result.starved_because)
        fired.update(result.buggify)
        if all(fired[name] for name in points):
            break
    assert [name for name in points if not fired[name]] == []


def test_every_port_has_points() -> None:
    assert sorted({point.port for point in POINTS.values()}) == sorted(PORTS)
    assert len(POINTS) >= 40


@pytest.mark.slow
def test_points_that_never_fire_leave_the_trace_as_it_is() -> None:
    without, asleep = run_scenario(parse_scenario(SCENARIO), 3), run(list(POINTS), 3, chance=0)
    assert sum(asleep.buggify.values()) == 0
    assert asleep.trace_hash == without.trace_hash


@pytest.mark.slow
def test_a_seed_with_points_is_one_run() -> None:
    first, second = run(list(POINTS), 4), run(list(POINTS), 4)
    assert sum(first.buggify.values()) > 0
    assert (first.trace_hash, first.buggify) == (second.trace_hash, second.buggify)


@pytest.mark.slow
def test_the_result_says_how_often_each_point_fired_that_was_on() -> None:
    result = run(["timer-late", "write-back"])
    assert list(result.buggify) == ["timer-late", "write-back"]
    assert all(count > 0 for count in result.buggify.values())
    assert result.as_json()["buggify"] == result.buggify


def test_an_unknown_point_is_refused_with_its_line() -> None:
    text = SCENARIO.replace("topics:\n", "buggify: {points: [timer-late, timer-lat]}\ntopics:\n", 1)
    with pytest.raises(
        ScenarioError, match=r"yaml:8: unknown buggify point 'timer-lat': the nearest is timer-late$"
    ):
        parse_scenario(text)
    with pytest.raises(ScenarioError, match=r"yaml:8: unknown buggify point '7': known are timer-late, "):
        parse_scenario(text.replace("timer-lat]", "'7']"))
