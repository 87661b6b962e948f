"""Fetches for whose offsets a search takes more than a step (PRO-8, RD1), in runs of the simulator."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from cluster.core.messages import FetchRequest
from cluster.core.replica.fetch import FetchHandler
from sim.run import RunResult, Verdict, run_scenario
from sim.scenario.loading import parse_scenario

# The index has no entry, so a search passes all that is before its offset. Waits are longer than what a run forgives.
SCENARIO = """
scenario: long-searches
duration: 5s
cluster: {settings: {replica.fetch.wait.max.ms: 400}}
topics: {t: {partitions: 2, replicas: 3, config: {min.insync.replicas: 2, index.interval.bytes: 1000000}}}
producers: [{topic: t, rate: 60/s}]
consumers: [{topic: t}]
buggify: {points: [short-searches]}
steps:
  - {at: 1500ms, kill: follower(t/0), down: 1s}
  - {at: 3s, kill: leader(t/1), down: 1s}
"""

Read = Callable[[int], None]


def run(seed: int = 1) -> RunResult:
    return run_scenario(parse_scenario(SCENARIO), seed)


def checkers_of(results: list[RunResult]) -> set[str]:
    return {each.checker for result in results for each in result.violations}


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_pro8_searches_that_go_on_in_later_steps_hold(seed: int) -> None:
    result = run(seed)
    assert result.verdict is Verdict.HELD, result.violations


def test_pro8_a_waiting_fetch_that_is_left_alone_with_its_search_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    go_on = FetchHandler._go_on

    def leaves(self: FetchHandler, call: int, request: FetchRequest, read: Read) -> None:
        if not (call in self._followers or call in self._consumers):
            go_on(self, call, request, read)

    monkeypatch.setattr(FetchHandler, "_go_on", leaves)
    assert "fetch-waits" in checkers_of([run(seed) for seed in range(3)])


def test_led6_a_fetch_that_is_lost_with_its_search_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    go_on = FetchHandler._go_on

    def loses(self: FetchHandler, call: int, request: FetchRequest, read: Read) -> None:
        if call in self._followers or call in self._consumers:
            go_on(self, call, request, read)

    monkeypatch.setattr(FetchHandler, "_go_on", loses)
    assert "follower-progress" in checkers_of([run(seed) for seed in range(3)])


def test_pro8_a_waiting_fetch_at_which_nobody_looks_after_its_search_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(FetchHandler, "_look_on", lambda *parts: None)
    assert "fetch-waits" in checkers_of([run(seed) for seed in range(3)])
