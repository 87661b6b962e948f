"""The six counterexamples: each holds as it is, fails with its mistake, and needs every one of its steps to fail."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from sim.bugs import bugs
from sim.bundled import find_scenario
from sim.run import Verdict, run_scenario
from sim.scenario.loading import load_scenario
from sim.scenario.model import Scenario
from sim.shrink.data import apply, deleted, read_data, scenario_of

# The mistake of each counterexample, and the checkers that see it: the rule that breaks, and the damage.
MISTAKES: Mapping[str, tuple[str, set[str]]] = {
    "kip-101-lost-record": ("truncation-generation-1", {"truncation", "history"}),
    "kip-101-divergence": ("truncation-generation-1", {"log-matching", "replicas-agree"}),
    "kip-279-fast-fail-over": ("truncation-generation-2", {"log-matching", "replicas-agree"}),
    "kip-320-stale-fetch": ("truncation-generation-3", {"fencing", "log-matching", "committed-prefix"}),
    "late-acknowledgement": ("append-outlives-leadership", {"roles", "history"}),
    "re-elected-leader": ("without-is-same-leader-epoch", {"roles", "no-failure"}),
}
# The generations of the truncation protocol with which a scenario fails; the product, generation 4, fails none.
FAILS_WITH: Mapping[str, set[int]] = {
    "kip-101-lost-record": {1},
    "kip-101-divergence": {1},
    "kip-279-fast-fail-over": {1, 2},
    "kip-320-stale-fetch": {1, 2, 3},
}
SEEDS = (0, 1, 7, 4242)


def checkers(scenario: Scenario, seed: int, bug: str | None) -> set[str]:
    return {found.checker for found in run_scenario(scenario, seed, bug=bug).violations}


def loaded(name: str) -> Scenario:
    return load_scenario(find_scenario(name))


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", MISTAKES)
def test_a_counterexample_holds_as_it_is_and_shows_the_damage_with_its_mistake(name: str, seed: int) -> None:
    bug, expected = MISTAKES[name]
    result = run_scenario(loaded(name), seed)
    assert (result.verdict, result.never_struck) == (Verdict.HELD, ()), (
        result.violations,
        result.starved_because,
    )
    assert expected <= checkers(loaded(name), seed, bug)


@pytest.mark.slow
@pytest.mark.parametrize("name", FAILS_WITH)
def test_each_generation_of_the_truncation_protocol_mends_one_more_counterexample(name: str) -> None:
    failed = {
        generation
        for generation in (1, 2, 3)
        if checkers(loaded(name), 1, f"truncation-generation-{generation}")
    }
    assert failed == FAILS_WITH[name]


@pytest.mark.slow
@pytest.mark.parametrize("name", MISTAKES)
def test_without_any_one_of_its_steps_a_counterexample_does_not_fail_for_sure(name: str) -> None:
    bug, expected = MISTAKES[name]
    data = read_data(find_scenario(name))
    for index, step in enumerate(data["steps"]):
        # Where later steps use the name of a step, it cannot be left out.
        less = scenario_of(apply(data, [deleted("steps", index)]))
        if less is not None:
            assert any(not expected <= checkers(less, seed, bug) for seed in SEEDS), (index, step)


def test_the_catalogue_names_a_scenario_for_each_generation() -> None:
    for generation in (1, 2, 3):
        bug = bugs()[f"truncation-generation-{generation}"]
        assert generation in FAILS_WITH[bug.found_by]
