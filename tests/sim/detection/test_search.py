"""The search for a bug: what counts as found, what it costs, and when it ends."""

from __future__ import annotations

from collections import deque

import pytest

from sim.cpu_limit import MOST_CPU_S
from sim.detection.runner import search_all
from sim.detection.search import Probe, Row, Search

HELD: Row = {"verdict": "held", "cpu_s": 1.0}
VIOLATED: Row = {"verdict": "violated", "violations": [{"checker": "roles", "what": "x"}], "cpu_s": 1.0}
BROKEN: Row = {"verdict": "error", "error": "AssertionError: (1, 2) (in leader.py, f)", "cpu_s": 1.0}
ENDED: Row = {"verdict": "error", "error": "the process of this run ended with signal 24"}


def search(budget_s: float = 10, start: int = 0) -> Search:
    return Search(bug="b", start=start, base=7, budget_s=budget_s)


def run(looking: Search, *rows: Row) -> list[Probe]:
    """Feed the rows one after the other; returns the runs that the search asked for."""
    probes = []
    for row in rows:
        probes.append(looking.next_probe())
        looking.add(probes[-1], row)
    return probes


def test_a_violation_counts_when_the_clean_run_of_its_seed_holds() -> None:
    looking = search()
    probes = run(looking, HELD, VIOLATED, HELD)
    first = looking.first_seed
    assert [(probe.bug, probe.seed) for probe in probes] == [
        ("b", first),
        ("b", first + 1),
        (None, first + 1),
    ]
    assert looking.is_over and looking.is_found
    assert (looking.seeds, looking.seed, looking.checker, looking.cpu_s) == (2, first + 1, "roles", 3.0)


@pytest.mark.parametrize("clean", [VIOLATED, BROKEN])
def test_a_violation_that_the_clean_build_shows_too_is_a_false_alarm(clean: Row) -> None:
    looking = search(budget_s=30)
    run(looking, VIOLATED, clean)
    assert not looking.is_found and looking.false_alarms == 1
    assert looking.next_probe() == Probe(bug="b", seed=looking.first_seed + 1, limit_s=30 - looking.cpu_s)


def test_a_clean_run_may_take_as_long_as_any() -> None:
    looking = search(budget_s=2)
    probes = run(looking, VIOLATED, HELD | {"cpu_s": 50.0})
    assert [probe.limit_s for probe in probes] == [2, MOST_CPU_S]
    assert looking.is_found


def test_a_violation_whose_clean_run_was_ended_is_undecided() -> None:
    looking = search(budget_s=300)
    run(looking, VIOLATED, ENDED)
    assert not looking.is_over and (looking.false_alarms, looking.undecided) == (0, 1)
    run(looking, VIOLATED, HELD)
    assert looking.is_found and looking.seed == looking.first_seed + 1
    assert (looking.as_row()["false_alarms"], looking.as_row()["undecided"]) == (0, 1)


def test_a_broken_assert_of_the_product_counts() -> None:
    looking = search()
    run(looking, BROKEN, HELD)
    assert looking.checker == "AssertionError" and looking.is_found


def test_a_search_ends_when_its_budget_is_spent() -> None:
    looking = search(budget_s=2)
    run(looking, HELD, HELD)
    assert looking.is_over and not looking.is_found
    assert looking.as_row()["verdict"] == "missed"


def test_what_is_found_after_the_budget_is_not_found() -> None:
    looking = search(budget_s=0.5)
    run(looking, VIOLATED)
    assert looking.is_over and not looking.is_found


def test_a_run_that_was_ended_finds_nothing_and_costs_its_limit() -> None:
    looking = search(budget_s=5)
    run(looking, HELD, ENDED)
    assert looking.is_over and not looking.is_found
    assert looking.cpu_s == 5


def test_each_start_of_each_bug_has_seeds_of_its_own_and_repeats_them() -> None:
    first = {search(start=start).first_seed for start in range(9)}
    assert len(first) == 9
    assert first == {search(start=start).first_seed for start in range(9)}
    assert Search(bug="c", start=0, base=7, budget_s=1).first_seed not in first
    assert Search(bug="b", start=0, base=8, budget_s=1).first_seed not in first


class FakeRunner:
    """Answers runs in turn, the last begun first; `most` is how many were under way at once."""

    def __init__(self, rows: dict[int, list[Row]]) -> None:
        self._rows = {start: deque(each) for start, each in rows.items()}
        self._begun: list[tuple[Search, Probe]] = []
        self.most = 0

    def begin(self, search: Search) -> None:
        self._begun.append((search, search.next_probe()))
        self.most = max(self.most, len(self._begun))

    def ended(self) -> list[tuple[Search, Probe, Row]]:
        search, probe = self._begun.pop()
        return [(search, probe, self._rows[search.start].popleft())]


def test_searches_run_side_by_side_and_each_ends_by_itself() -> None:
    searches = [search(start=start, budget_s=3) for start in range(3)]
    runner = FakeRunner({0: [HELD, HELD, HELD], 1: [VIOLATED, HELD], 2: [HELD, VIOLATED, HELD]})
    over = list(search_all(searches, runner, jobs=2))
    assert sorted(each.start for each in over) == [0, 1, 2]
    assert [each.is_found for each in searches] == [False, True, True]
    assert runner.most == 2
