"""Virtual time: SimPy's environment on integer microseconds, equal times ordered by a number drawn from the seed.

SimPy alone runs the events of one instant in the order in which they were scheduled, so all seeds would have the same
order. Here the order is keyed by the actor that schedules and by the instant: without one of its faults, a scenario
orders all other ties in the same way.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from heapq import heappush
from typing import TypeVar, final

from simpy import Environment
from simpy.events import NORMAL, Event, EventPriority

from storage.draws import Draws

# Every node's clock shows this when the run begins.
ORIGIN_MS = 1_700_000_000_000
_MASK = (1 << 64) - 1


@final
class Actor:
    """A node, link or client that schedules events; its key orders them among the events of the same instant."""

    __slots__ = ("key", "name")

    def __init__(self, draws: Draws, name: str) -> None:
        self.name = name
        self.key = draws.bits("tie", name)


T = TypeVar("T")


@final
class Occurrence(Event):
    """An event that calls `action(argument)`, without a SimPy process."""

    def __init__(self, world: World, action: Callable[[T], None], argument: T) -> None:
        self.env = world
        self.callbacks = _FIRE
        self._ok = True
        self._call: tuple[Callable[..., None], object] = (action, argument)


def _fire(event: Event) -> None:
    assert type(event) is Occurrence, event
    action, argument = event._call
    action(argument)


# One list serves all events: SimPy takes it from an event and never changes it.
_FIRE: list[Callable[[Event], None]] = [_fire]


@final
class World(Environment):
    """Virtual time in microseconds: `after` schedules, `run_to` runs. `events` counts the events that have run."""

    def __init__(self, draws: Draws) -> None:
        super().__init__(initial_time=0)
        self.draws = draws
        self.events = 0
        self._serial = 0
        self._tie_seed = draws.bits("ties")

    @property
    def now_us(self) -> int:
        # SimPy's time may be a float; here only whole numbers are ever added to it.
        return self._now  # type: ignore[return-value]

    @property
    def now_ms(self) -> int:
        """The time that every node's clock shows."""
        return ORIGIN_MS + self.now_us // 1000

    def schedule(self, event: Event, priority: EventPriority = NORMAL, delay: float = 0) -> None:
        """Schedule a process or timeout of SimPy; such events of one instant run in the order of scheduling."""
        assert type(delay) is int, f"virtual time is an integer count of microseconds, not {delay!r}"
        self._push(event, priority, self.now_us + delay, 0)

    def after(self, actor: Actor, delay_us: int, action: Callable[[T], None], argument: T) -> None:
        """Call `action(argument)` in `delay_us`. The call cannot be cancelled: the action must check for itself."""
        assert delay_us >= 0, delay_us
        self._push(Occurrence(self, action, argument), NORMAL, self.now_us + delay_us, actor.key)

    def _push(self, event: Event, priority: EventPriority, at: int, key: int) -> None:
        # The tie is keyed by the actor and the instant.
        tie = (self._tie_seed ^ key ^ (at * 0x9E3779B97F4A7C15)) & _MASK
        tie = ((tie ^ (tie >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        self._serial += 1
        heappush(self._queue, (at, priority, (tie >> 8 << 40) | self._serial, event))

    def run_to(self, end_us: int, is_over: Callable[[], bool] | None = None) -> None:
        """Run all events before `end_us`, then set the time to `end_us`; stops early once `is_over` returns True."""
        assert self._now <= end_us, (self._now, end_us)
        queue, step = self._queue, self.step
        count = 0
        while queue and queue[0][0] < end_us:
            step()
            count += 1
            if is_over is not None and is_over():
                break
        else:
            self._now = end_us
        assert self._now <= end_us, (self._now, end_us)
        self.events += count


@contextmanager
def without_garbage_collection() -> Iterator[None]:
    """Switch garbage collection off during the block: its moments depend on the interpreter's past, not on the seed."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
