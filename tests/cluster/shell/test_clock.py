"""The time of a real process: it follows the wall clock ahead, never falls, and leaves timers to the loop's clock."""

from __future__ import annotations

import asyncio
import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.shell.runtime import Clock, Timers

NOON_S = 1_800_000_000.0
HOUR_S = 3600.0


class Machine:
    """Both clocks of a machine, as a test sets them."""

    def __init__(self) -> None:
        self.loop_s, self.wall_s = 500.0, NOON_S

    def pass_time(self, seconds: float) -> None:
        self.loop_s += seconds
        self.wall_s += seconds

    def clock(self) -> Clock:
        return Clock(lambda: self.loop_s, lambda: self.wall_s)


def test_time_passes_with_the_wall_clock() -> None:
    machine = Machine()
    clock = machine.clock()
    assert clock.now_ms() == NOON_S * 1000
    machine.pass_time(1.5)
    assert clock.now_ms() == NOON_S * 1000 + 1500


def test_a_wall_clock_that_is_set_ahead_is_followed() -> None:
    machine = Machine()
    clock = machine.clock()
    machine.wall_s += 2 * HOUR_S
    assert clock.now_ms() == (NOON_S + 2 * HOUR_S) * 1000
    machine.pass_time(0.25)
    assert clock.now_ms() == (NOON_S + 2 * HOUR_S) * 1000 + 250


def test_time_goes_on_at_its_own_pace_while_the_wall_clock_is_behind() -> None:
    machine = Machine()
    clock = machine.clock()
    machine.wall_s -= HOUR_S
    assert clock.now_ms() == NOON_S * 1000
    machine.pass_time(2)
    assert clock.now_ms() == NOON_S * 1000 + 2000
    # It is still behind, and then ahead of the process.
    machine.wall_s += HOUR_S / 2
    assert clock.now_ms() == NOON_S * 1000 + 2000
    machine.wall_s += HOUR_S
    assert clock.now_ms() == (NOON_S + HOUR_S / 2) * 1000 + 2000


def test_each_step_back_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    machine = Machine()
    clock = machine.clock()
    with caplog.at_level(logging.WARNING, logger="cluster.shell.runtime"):
        machine.wall_s -= 0.5
        clock.now_ms()
        assert caplog.messages == []
        for back_s in (2, 60):
            machine.wall_s -= back_s
            for _ in range(3):
                machine.pass_time(0.1)
                clock.now_ms()
        # The step ahead is none back, and what it took back is news again.
        machine.wall_s += 60
        clock.now_ms()
        machine.wall_s -= 60
        clock.now_ms()
    assert [text.rpartition("behind_ms=")[2] for text in caplog.messages] == ["2500", "62500", "62500"]


def test_a_process_that_stood_still_between_two_clocks_logs_no_step(caplog: pytest.LogCaptureFixture) -> None:
    machine = Machine()
    pauses_s = iter([0.0, 5.0])

    def loop_s() -> float:
        machine.pass_time(next(pauses_s, 0.0))
        return machine.loop_s

    clock = Clock(loop_s, lambda: machine.wall_s)
    now_ms = clock.now_ms()
    assert now_ms == NOON_S * 1000 + 5000
    assert clock.now_ms() == now_ms
    assert caplog.messages == []


@given(st.lists(st.tuples(st.floats(0, 100), st.floats(-1e5, 1e5))))
def test_time_never_falls_and_is_never_behind_the_wall_clock(steps: list[tuple[float, float]]) -> None:
    machine = Machine()
    clock = machine.clock()
    before_ms = clock.now_ms()
    for passed_s, set_by_s in steps:
        machine.pass_time(passed_s)
        machine.wall_s += set_by_s
        now_ms = clock.now_ms()
        assert now_ms >= before_ms
        assert now_ms >= int(machine.wall_s * 1000) - 1
        before_ms = now_ms


@pytest.mark.parametrize("step_s", [2 * HOUR_S, -2 * HOUR_S])
def test_a_timer_that_was_set_before_a_step_fires_once_and_at_its_time(step_s: float) -> None:
    async def main() -> None:
        fired: list[tuple[str, int]] = []
        loop, shift_s = asyncio.get_running_loop(), [0.0]
        clock = Clock(loop.time, lambda: NOON_S + loop.time() + shift_s[0])
        last = loop.create_future()

        def fire(key: str) -> None:
            fired.append((key, clock.now_ms()))
            if key == "after":
                last.set_result(None)
            else:
                timers.set("after", clock.now_ms() + 1)

        timers = Timers(clock, fire)
        at_ms = clock.now_ms() + 5
        timers.set("before", at_ms)
        shift_s[0] = step_s
        set_ms = clock.now_ms()
        await asyncio.wait_for(last, 10)
        assert [key for key, _ in fired] == ["before", "after"]
        first_ms, second_ms = fired[0][1], fired[1][1]
        # The loop's clock counts the five milliseconds, whatever the wall clock shows.
        assert first_ms >= max(at_ms, set_ms)
        assert second_ms > first_ms

    asyncio.run(main())
