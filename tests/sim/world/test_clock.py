"""Clocks that are off, drift and are set: the time of a process never falls."""

from __future__ import annotations

from sim.world.clock import Clock
from sim.world.time import ORIGIN_MS, World
from storage.draws import Draws

SECOND = 1_000_000


def test_a_clock_is_off_and_drifts() -> None:
    world = World(Draws(1))
    ahead, slow = Clock(world, offset_us=250_000), Clock(world, drift_ppm=-100_000)
    assert (ahead.now_ms(), slow.now_ms()) == (ORIGIN_MS + 250, ORIGIN_MS)
    world.run_to(10 * SECOND)
    assert (ahead.now_ms(), slow.now_ms()) == (ORIGIN_MS + 10_250, ORIGIN_MS + 9_000)


def test_a_step_back_is_seen_by_the_next_life_only() -> None:
    world = World(Draws(1))
    clock = Clock(world)
    world.run_to(10 * SECOND)
    clock.step(-3 * SECOND)
    assert (clock.now_ms(), clock.wall_ms()) == (ORIGIN_MS + 10_000, ORIGIN_MS + 7_000)
    world.run_to(11 * SECOND)
    # The process keeps its pace, so its timers come in time.
    assert clock.now_ms() == ORIGIN_MS + 11_000
    clock.begin_life()
    assert clock.now_ms() == ORIGIN_MS + 8_000


def test_a_step_ahead_is_seen_at_once_as_far_as_it_passes_the_process() -> None:
    world = World(Draws(1))
    clock = Clock(world)
    clock.step(5 * SECOND)
    assert clock.now_ms() == ORIGIN_MS + 5_000
    clock.step(-2 * SECOND)
    clock.step(1 * SECOND)
    assert (clock.now_ms(), clock.wall_ms()) == (ORIGIN_MS + 5_000, ORIGIN_MS + 4_000)
    clock.step(3 * SECOND)
    assert clock.now_ms() == clock.wall_ms() == ORIGIN_MS + 7_000


def test_the_time_of_a_process_never_falls_whatever_happens_to_its_clock() -> None:
    world = World(Draws(1))
    clock = Clock(world, offset_us=-7, drift_ppm=333)
    last = clock.now_ms()
    for number in range(1, 200):
        world.run_to(number * 7_919)
        clock.step((number * 104_729 % 2_000_003) - 1_000_000)
        assert clock.now_ms() >= last, number
        last = clock.now_ms()


def test_a_delay_ends_when_the_clock_has_reached_the_time_and_not_before() -> None:
    for drift_ppm in (0, 1, -1, 99_991, -99_991):
        world = World(Draws(1))
        clock = Clock(world, offset_us=123_456, drift_ppm=drift_ppm)
        clock.step(-50_000)
        at_ms = ORIGIN_MS + 4_321
        delay_us = clock.delay_us(at_ms)
        world.run_to(delay_us - 1)
        assert clock.now_ms() == at_ms - 1
        world.run_to(delay_us)
        assert clock.now_ms() == at_ms and clock.delay_us(at_ms) == 0


def test_a_clock_that_stood_still_goes_on_with_the_right_time_or_behind() -> None:
    world = World(Draws(1))
    right, behind = Clock(world), Clock(world, drift_ppm=100_000)
    world.run_to(10 * SECOND)
    for clock in (right, behind):
        clock.freeze()
    world.run_to(14 * SECOND)
    assert (right.now_ms(), behind.now_ms()) == (ORIGIN_MS + 10_000, ORIGIN_MS + 11_000)
    # The delay counts from the moment when the clock stopped.
    assert right.delay_us(ORIGIN_MS + 12_000) == 2 * SECOND
    assert (right.thaw(catches_up=True), behind.thaw(catches_up=False)) == (0, 4 * SECOND)
    assert (right.now_ms(), behind.now_ms()) == (ORIGIN_MS + 14_000, ORIGIN_MS + 11_000)
    world.run_to(15 * SECOND)
    assert (right.now_ms(), behind.now_ms()) == (ORIGIN_MS + 15_000, ORIGIN_MS + 12_100)


def test_a_clock_that_stands_still_can_be_set_and_seen_by_a_new_life() -> None:
    world = World(Draws(1))
    clock = Clock(world)
    world.run_to(10 * SECOND)
    clock.freeze()
    world.run_to(12 * SECOND)
    clock.step(-3 * SECOND)
    assert (clock.now_ms(), clock.wall_ms()) == (ORIGIN_MS + 10_000, ORIGIN_MS + 7_000)
    clock.begin_life()
    assert clock.thaw(catches_up=True) == 0
    assert clock.now_ms() == ORIGIN_MS + 9_000
