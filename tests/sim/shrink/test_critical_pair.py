"""The critical pair: the two neighbouring events in whose order it lies whether a run fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import pytest

from sim.bundled import find_scenario
from sim.run import run_scenario
from sim.shrink.critical_pair import CriticalPair, Order, Ordered, Reordered, find_pair
from sim.shrink.data import read_data, scenario_of
from sim.shrink.reordering import Swap
from sim.shrink.search import Failing
from sim.shrink.trial import Outcome

EVENTS = 1_000
# The events that have a neighbour.
EVENTS_OF_PAIRS = range(5, EVENTS, 10)


def swap(event: int) -> Swap:
    return Swap(event=event, at_us=event, first="one", second="other")


def orders_by(holds: Callable[[set[int]], bool]) -> Callable[[Sequence[Order | None]], Iterator[Ordered]]:
    """Returns a runner that costs nothing: a run holds by a rule over the events that changed places."""

    def run_orders(orders: Sequence[Order | None]) -> Iterator[Ordered]:
        for order in orders:
            taken = [event for event in EVENTS_OF_PAIRS if order is None or order.takes(event)]
            changed = set() if order is None else set(taken)
            yield Ordered(fails=not holds(changed), swaps=tuple(map(swap, taken)))

    return run_orders


@pytest.mark.parametrize(("near", "nearest"), [(EVENTS, 915), (700, 795), (0, None)])
def test_the_nearest_pair_that_decides_alone_is_found(near: int, nearest: int | None) -> None:
    pair = find_pair(EVENTS, near, orders_by(lambda changed: bool(changed & {795, 915})))
    assert pair is not None and pair.is_alone == (nearest is not None)
    assert pair.pair.event == (nearest or pair.pair.event) and pair.pair.event in (795, 915)


def test_pairs_with_a_fault_are_tried_before_all_others() -> None:
    def run_orders(orders: Sequence[Order | None]) -> Iterator[Ordered]:
        for ordered in orders_by(lambda changed: bool(changed & {5, 995}))(orders):
            yield replace(
                ordered, swaps=tuple(replace(each, has_fault=each.event == 5) for each in ordered.swaps)
            )

    pair = find_pair(EVENTS, EVENTS, run_orders)
    assert pair is not None and pair.is_alone and pair.pair.event == 5


def test_a_pair_that_is_far_from_the_failure_is_found_by_bisection() -> None:
    # The first one that variant 1 takes.
    event = next(event for event in EVENTS_OF_PAIRS if Order(start=0, end=EVENTS, variant=1).takes(event))
    assert find_pair(EVENTS, EVENTS, orders_by(lambda changed: event in changed)) == CriticalPair(
        pair=swap(event), is_alone=False
    )


def test_of_pairs_that_decide_together_the_first_one_is_critical() -> None:
    taken = [event for event in EVENTS_OF_PAIRS if Order(start=0, end=EVENTS, variant=1).takes(event)]
    both = {taken[3], taken[-2]}
    assert find_pair(EVENTS, EVENTS, orders_by(lambda changed: both <= changed)) == CriticalPair(
        pair=swap(taken[3]), is_alone=False
    )


def test_a_failure_that_comes_in_every_order_has_no_critical_pair() -> None:
    assert find_pair(EVENTS, EVENTS, orders_by(lambda changed: False)) is None


@pytest.mark.slow
def test_a_run_in_its_own_order_is_the_same_and_two_events_that_change_places_make_another() -> None:
    name, bug = "kip-101-lost-record", "truncation-generation-1"
    whole = run_scenario(name, 1, bug=bug, stops_early=True)
    outcome = Outcome(signature="truncation: x", events=whole.events)
    failing = Failing(data=read_data(find_scenario(name)), seed=1, outcome=outcome)
    own = Reordered(failing=failing, bug=bug, orders=[None]).run(0)
    assert own["trace_hash"] == whole.trace_hash
    middle = own["swaps"][len(own["swaps"]) // 2]
    order = Order(start=middle["event"], end=middle["event"] + 1)
    rows = [Reordered(failing=failing, bug=bug, orders=[order]).run(0) for _ in range(2)]
    assert rows[0]["swaps"] == [middle]
    assert rows[0]["trace_hash"] == rows[1]["trace_hash"] != whole.trace_hash


@pytest.mark.slow
def test_a_commit_just_before_the_leader_dies_is_one_half_of_the_pair_and_the_kill_the_other() -> None:
    data = read_data(find_scenario("kip-101-lost-record"))
    # The leader dies at a time, whatever it has acknowledged by then.
    data["producers"][0]["rate"] = "30/s"
    data["steps"][0] = {"at": "2500ms", "kill": "leader(t/0)"}
    scenario = scenario_of(data)
    assert scenario is not None
    bug = "truncation-generation-1"
    whole = run_scenario(scenario, 1, bug=bug, stops_early=True)
    outcome = Outcome(signature="truncation: x", events=whole.events)
    failing = Failing(data=data, seed=1, outcome=outcome)

    def run_orders(orders: Sequence[Order | None]) -> Iterator[Ordered]:
        work = Reordered(failing=failing, bug=bug, orders=orders)
        for row in map(work.run, range(len(orders))):
            yield Ordered(fails=bool(row["violations"]), swaps=tuple(Swap(**each) for each in row["swaps"]))

    pair = find_pair(whole.events, whole.events, run_orders)
    assert pair is not None and pair.is_alone and pair.pair.has_fault
    assert pair.pair.first.startswith("Fetch request") and pair.pair.second == "the step kill leader(t/0)"
