"""Virtual time: SimPy's environment on integer microseconds, equal times ordered by a number drawn from the seed.

SimPy alone runs the events of one instant in the order in which they were scheduled, so all seeds would have the same
order. Here the order is keyed by the actor that schedules and by the instant: without one of its faults, a scenario
orders all other ties in the same way.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from heapq import heappop, heappush
from typing import Any, ClassVar, TypeVar, final

from simpy import Environment
from simpy.events import NORMAL, Event, EventPriority

from storage.draws import Draws

# Every node's clock shows this when the run begins.
ORIGIN_MS = 1_700_000_000_000
_MASK = (1 << 64) - 1
# The most events of a simulated second, a hundred times those of a busy cluster.
MOST_A_SECOND = 1_000_000


class Endless(Exception):
    """Virtual time that stands still, or nearly so: events schedule events for the same moment without end."""


@final
class Actor:
    """A node, link or client that schedules events; its key orders them among the events of the same instant."""

    __slots__ = ("key", "name")

    def __init__(self, draws: Draws, name: str) -> None:
        self.name = name
        self.key = draws.bits("tie", name)


T = TypeVar("T")
# The instant, SimPy's priority, the tie, the action and its argument. No two ties are equal.
Entry = tuple[int, int, int, Callable[[Any], None], Any]


@final
class World(Environment):
    """Virtual time in microseconds: `after` schedules, `run_to` runs. `events` counts the events that have run.

    `now_us` is the present time, which only `run_to` changes. What `after` schedules is no event of SimPy's, which
    would cost more than a short action; events of SimPy's run among them. `is_running` while `run_to` runs them.
    """

    # The world that was made last in this process: whoever watches over the process looks whether it goes on.
    latest: ClassVar[World | None] = None

    def __init__(self, draws: Draws) -> None:
        super().__init__(initial_time=0)
        self.draws = draws
        self.events = self.now_us = 0
        self.is_running = False
        World.latest = self
        self._serial = 0
        self._tie_seed = draws.bits("ties")
        self._entries: list[Entry] = []
        self.most_a_second = MOST_A_SECOND

    @property
    def now_ms(self) -> int:
        """The time that every node's clock shows."""
        return ORIGIN_MS + self.now_us // 1000

    def draw_ties_again(self, bits: int) -> None:
        """Order the ties of what is scheduled from now on in another way, which depends on `bits`."""
        self._tie_seed ^= bits

    def schedule(self, event: Event, priority: EventPriority = NORMAL, delay: float = 0) -> None:
        """Schedule a process or timeout of SimPy; such events of one instant run in the order of scheduling."""
        assert type(delay) is int, f"virtual time is an integer count of microseconds, not {delay!r}"
        self._push(self.now_us + delay, priority, 0, self._run_event, event)

    def _run_event(self, event: Event) -> None:
        """Let SimPy run an event of its own."""
        self._now = self.now_us
        heappush(self._queue, (self._now, NORMAL, 0, event))
        self.step()
        assert not self._queue, (self.now_us, len(self._queue))

    def after(self, actor: Actor, delay_us: int, action: Callable[[T], None], argument: T) -> None:
        """Call `action(argument)` in `delay_us`. The call cannot be cancelled: the action must check for itself."""
        assert delay_us >= 0, delay_us
        self._push(self.now_us + delay_us, NORMAL, actor.key, action, argument)

    def _push(self, at: int, priority: int, key: int, action: Callable[[T], None], argument: T) -> None:
        # The tie is keyed by the actor and the instant.
        tie = (self._tie_seed ^ key ^ (at * 0x9E3779B97F4A7C15)) & _MASK
        tie = ((tie ^ (tie >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        self._serial += 1
        heappush(self._entries, (at, priority, (tie >> 8 << 40) | self._serial, action, argument))

    def run_to(self, end_us: int, is_over: Callable[[], bool] | None = None) -> None:
        """Run all events before `end_us`, then set the time to `end_us`; stops early once `is_over` returns True.

        Raises Endless after `most_a_second` events for each second, begun ones included.
        """
        assert self.now_us <= end_us, (self.now_us, end_us)
        entries = self._entries
        seconds = 1 + (end_us - self.now_us) // 1_000_000
        most_events = self.events + seconds * self.most_a_second
        self.is_running = True
        while entries and entries[0][0] < end_us:
            self.now_us, _, _, action, argument = heappop(entries)
            action(argument)
            self.events += 1
            if self.events >= most_events:
                most = f"more than {self.most_a_second} events a second"
                raise Endless(f"the run has no end: {most} at {self.now_us / 1e6:.6f} s")
            if is_over is not None and is_over():
                break
        else:
            self.now_us = end_us
        self.is_running = False
        assert self.now_us <= end_us, (self.now_us, end_us)


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
