"""Timers of a machine whose clock stands still: none fires, and none is early or lost afterwards."""

from __future__ import annotations

import pytest

from sim.hosts.timers import Timers
from sim.world.time import Actor, World
from storage.draws import Draws

SECOND = 1_000_000


def held_at_two() -> tuple[World, Timers, list[tuple[str, int]]]:
    """Returns timers due at 1, 3 and 9 s whose clock has stopped at 2 s, in a world at 4 s, and what has fired."""
    world = World(Draws(1))
    fired: list[tuple[str, int]] = []
    timers = Timers(world, Actor(world.draws, "a"), lambda key: fired.append((key, world.now_us // 1_000)))
    for key, at_s in (("one", 1), ("three", 3), ("nine", 9)):
        timers.set(key, at_s * SECOND)
    world.run_to(2 * SECOND)
    timers.hold(world.now_us)
    world.run_to(4 * SECOND)
    return world, timers, fired


def test_no_timer_fires_while_the_clock_stands_still() -> None:
    _, _, fired = held_at_two()
    assert fired == [("one", 1_000)]


@pytest.mark.parametrize(
    ("behind_s", "expected"),
    [
        (0, [("one", 1_000), ("late", 4_000), ("three", 4_000), ("nine", 9_000)]),
        (2, [("one", 1_000), ("late", 4_500), ("three", 5_000), ("nine", 11_000)]),
    ],
)
def test_each_timer_fires_when_the_clock_that_goes_on_shows_its_time(
    behind_s: int, expected: list[tuple[str, int]]
) -> None:
    world, timers, fired = held_at_two()
    # The clock shows 2 s: this one is due when it shows 2.5 s.
    timers.set("late", SECOND // 2)
    timers.set("gone", SECOND)
    timers.cancel("gone")
    timers.release(behind_s * SECOND)
    world.run_to(20 * SECOND)
    assert sorted(fired, key=lambda each: (each[1], each[0])) == expected
