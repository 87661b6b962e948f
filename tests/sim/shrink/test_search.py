"""The search keeps what fails alike, passes over what cannot be run, and ends with its budget."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path

import pytest

from sim.scenario.loading import load_scenario
from sim.shrink.data import Data, apply, deleted, read_data, scenario_of
from sim.shrink.events import steps
from sim.shrink.passes import PASSES
from sim.shrink.search import NUISANCE_SEEDS, shrink
from tests.places import ROOT
from tests.sim.shrink.fake_runs import SIGNATURE, search_of

LARGE: Data = {
    "scenario": "large",
    "duration": "12s",
    "cluster": {"brokers": 5, "directories": 2, "settings": {"broker.session.timeout.ms": 2000}},
    "network": {"loss": "3%", "latency": "1ms"},
    "topics": {
        "t": {"partitions": 4, "replicas": 3, "config": {"min.insync.replicas": 2}},
        "u": {"partitions": 1, "replicas": 5},
    },
    "producers": [{"topic": "t", "clients": 3, "rate": "80/s", "acks": 1}, {"topic": "u", "size": "2KiB"}],
    "consumers": [{"topic": "t", "clients": 2}],
    "steps": [
        {"at": "3127ms", "kill": "broker 4", "down": "2s", "as": "First"},
        {"at": "+200ms", "isolate": "First"},
        {"when": "after-ack(t/3) >= 60", "power": "leader(t/3)", "keep": "torn", "within": "2s"},
        {"at": "6s", "pause": "leader(u/0)", "for": "1700ms"},
    ],
}


def verbs(data: Data) -> list[str]:
    scenario = scenario_of(data)
    assert scenario is not None, data
    return [step.verb for step in scenario.steps]


def test_a_failure_that_needs_nothing_ends_with_the_smallest_scenario() -> None:
    search = search_of(deepcopy(LARGE), lambda data, seed: SIGNATURE)
    assert shrink(search, PASSES)
    best = search.best.data
    assert len(best["topics"]) == 1 and best["cluster"] == {"brokers": 1}
    assert best["steps"] == best["producers"] == best["consumers"] == []


@pytest.mark.parametrize("needed", [{"power"}, {"kill", "isolate"}, {"kill", "pause"}])
def test_the_steps_that_a_failure_needs_stay_and_all_others_go(needed: set[str]) -> None:
    search = search_of(deepcopy(LARGE), lambda data, seed: SIGNATURE if needed <= set(verbs(data)) else "")
    search.take_away(steps(search.best))
    assert set(verbs(search.best.data)) == needed


def test_a_run_that_fails_in_another_way_is_not_kept() -> None:
    def rule(data: Data, seed: int) -> str:
        return SIGNATURE if len(data["steps"]) == 4 else "calls: answered again"

    search = search_of(deepcopy(LARGE), rule)
    search.take_away(steps(search.best))
    assert len(search.best.data["steps"]) == 4


def test_a_run_that_fails_in_a_way_of_the_same_family_is_kept() -> None:
    search = search_of(deepcopy(LARGE), lambda data, seed: "history: VALUE is lost")
    search.take_away(steps(search.best))
    assert search.best.data["steps"] == []


def test_a_smaller_scenario_may_fail_with_another_seed_instead() -> None:
    def rule(data: Data, seed: int) -> str:
        return SIGNATURE if seed == (9 if len(data["steps"]) < 3 else 7) else ""

    search = search_of(deepcopy(LARGE), rule)
    assert shrink(search, PASSES)
    assert search.best.seed == 9 and search.best.data["steps"] == []


def test_other_seeds_are_the_first_ones_after_the_seed() -> None:
    seeds = set()

    def rule(data: Data, seed: int) -> str:
        seeds.add(seed)
        return ""

    shrink(search_of(deepcopy(LARGE), rule), PASSES)
    assert seeds == set(range(7, 7 + NUISANCE_SEEDS + 1))


def test_no_trial_is_run_twice() -> None:
    search = search_of(deepcopy(LARGE), lambda data, seed: SIGNATURE if "power" in verbs(data) else "")
    shrink(search, PASSES)
    runner = search._runner
    ran = [(repr(sorted(trial.data.items())), trial.seed) for trial in getattr(runner, "trials")]  # noqa: B009
    assert len(ran) == len(set(ran)) == search.count


def test_a_spent_budget_leaves_the_best_so_far() -> None:
    search = search_of(deepcopy(LARGE), lambda data, seed: SIGNATURE, most_trials=3)
    assert shrink(search, PASSES)
    assert search.count == 3 and search.best.data != LARGE


def test_ctrl_c_leaves_the_best_so_far() -> None:
    def rule(data: Data, seed: int) -> str:
        if "producers" in data and len(data["producers"]) < 2:
            raise KeyboardInterrupt
        return SIGNATURE

    search = search_of(deepcopy(LARGE), rule)
    assert not shrink(search, PASSES)
    assert len(search.best.data["producers"]) == 2 and len(search.best.data["topics"]) < 3


@pytest.mark.slow
@pytest.mark.parametrize("path", sorted((ROOT / "scenarios").glob("*.yaml")), ids=lambda path: path.stem)
def test_every_bundled_scenario_can_be_shrunk_to_candidates_that_run(path: Path) -> None:
    data = read_data(path)
    assert scenario_of(data) == load_scenario(path)
    search = search_of(data, lambda smaller, seed: SIGNATURE if len(smaller["steps"]) == count else "")
    count = len(data["steps"])
    assert shrink(search, PASSES)
    assert len(search.best.data["steps"]) == count and scenario_of(search.best.data) is not None


def test_edits_count_places_as_they_were_before_all_of_them() -> None:
    left = apply(LARGE, [deleted("steps", 0), deleted("steps", 2), deleted("steps", 0, "as")])
    assert [list(step)[1] for step in left["steps"]] == ["isolate", "pause"]
    assert len(LARGE["steps"]) == 4
