"""Virtual time: the order of events, and where a run stops."""

from __future__ import annotations

import gc
from collections.abc import Generator

import pytest
from simpy.events import Event, Timeout

from sim.world.streams import EXPONENTIAL, Stream
from sim.world.time import Actor, Endless, World, without_garbage_collection
from storage.draws import Draws


def order_of(seed: int, names: str) -> str:
    world = World(Draws(seed))
    seen: list[str] = []
    for name in names:
        world.after(Actor(world.draws, name), 10, seen.append, name)
    world.run_to(20)
    return "".join(seen)


def test_events_of_one_instant_are_ordered_by_the_seed() -> None:
    orders = {order_of(seed, "abcdefgh") for seed in range(20)}
    assert len(orders) > 15
    # The order does not follow from which came first.
    assert order_of(3, "abcdefgh") == order_of(3, "hgfedcba")


def test_taking_an_actor_away_leaves_the_order_of_the_others() -> None:
    for seed in range(20):
        assert order_of(seed, "abcdefgh").replace("d", "") == order_of(seed, "abcefgh")


def test_one_actor_keeps_its_own_order_within_an_instant() -> None:
    world = World(Draws(1))
    seen: list[int] = []
    actor = Actor(world.draws, "a")
    for number in range(10):
        world.after(actor, 5, seen.append, number)
    world.run_to(6)
    assert seen == list(range(10))


def test_run_to_stops_before_its_end_and_time_is_an_integer() -> None:
    world = World(Draws(1))
    seen: list[int] = []
    world.after(Actor(world.draws, "a"), 10, seen.append, 1)
    world.run_to(10)
    assert (seen, world.now_us, world.events) == ([], 10, 0)
    world.run_to(11)
    assert (seen, world.now_us, world.events) == ([1], 11, 1)


def test_time_that_stands_still_is_an_error_and_busy_seconds_are_none() -> None:
    world = World(Draws(1))
    world.most_a_second = 1_000
    actor = Actor(world.draws, "a")

    def again(delay_us: int) -> None:
        world.after(actor, delay_us, again, delay_us)

    again(1_100)
    world.run_to(5_000_000)
    assert world.events > 4_000
    again(0)
    with pytest.raises(Endless, match="more than 1000 events a second at "):
        world.run_to(6_000_000)


def test_simpy_processes_run_in_the_same_world() -> None:
    world = World(Draws(1))
    seen: list[int] = []

    def process() -> Generator[Event, None, None]:
        yield Timeout(world, 7)
        seen.append(world.now_us)

    world.process(process())
    world.run_to(100)
    assert seen == [7]
    with pytest.raises(AssertionError, match="integer"):
        Timeout(world, 0.5)


def test_a_run_collects_no_garbage() -> None:
    with without_garbage_collection():
        assert not gc.isenabled()
    assert gc.isenabled()


def test_streams_are_independent_and_repeat() -> None:
    draws = Draws(7)
    one, again, other = Stream(draws, "a", "x"), Stream(draws, "a", "x"), Stream(draws, "a", "y")
    first = [one.bits() for _ in range(5)]
    assert first == [again.bits() for _ in range(5)]
    assert not set(first) & {other.bits() for _ in range(5)}


def test_exponential_draws_have_their_mean() -> None:
    assert abs(sum(EXPONENTIAL) / len(EXPONENTIAL) / (1 << 16) - 1) < 0.01
    stream = Stream(Draws(1), "e")
    drawn = [stream.exponential(800) for _ in range(4_000)]
    assert 740 < sum(drawn) / len(drawn) < 860
    assert max(drawn) < 8 * 800
