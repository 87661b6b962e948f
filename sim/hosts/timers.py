"""The timers of a core and the deadlines of its requests, during one life of a shell.

The world cannot cancel an occurrence, so one that comes after the end of the life, or too early, must do nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import final

from cluster.core.events import TransportError
from sim.world.network import Exchange
from sim.world.time import Actor, World


@final
class Timers:
    """Timers by key; setting a key again replaces its timer. `fire` is called with the key when its time has come."""

    __slots__ = ("_actor", "_alarms", "_fire", "_instants", "_world")

    def __init__(self, world: World, actor: Actor, fire: Callable[[str], None]) -> None:
        self._world, self._actor, self._fire = world, actor, fire
        self._instants: dict[str, int] = {}
        # The time of the first occurrence that will check the timer, by key.
        self._alarms: dict[str, int] = {}

    def set(self, key: str, delay_us: int) -> None:
        """Let `fire` be called with `key` in `delay_us`, instead of any earlier setting of that key."""
        assert delay_us >= 0, (key, delay_us)
        at_us = self._world.now_us + delay_us
        self._instants[key] = at_us
        alarm_us = self._alarms.get(key)
        # An earlier alarm checks again when it rings.
        if alarm_us is None or alarm_us > at_us:
            self._alarms[key] = at_us
            self._world.after(self._actor, delay_us, self._ring, (key, at_us))
        assert self._alarms[key] <= at_us, (key, self._alarms[key], at_us)

    def cancel(self, key: str) -> None:
        """Drop the timer, if there is one of that key."""
        self._instants.pop(key, None)

    def end(self) -> None:
        """Drop all timers, because the life is over."""
        self._instants.clear()
        self._alarms.clear()

    def _ring(self, alarm: tuple[str, int]) -> None:
        key, alarm_us = alarm
        if self._alarms.get(key) != alarm_us:
            return
        assert self._world.now_us == alarm_us, (key, self._world.now_us, alarm_us)
        del self._alarms[key]
        at_us = self._instants.get(key)
        if at_us is None:
            return
        assert at_us >= alarm_us, (key, at_us, alarm_us)
        if at_us > alarm_us:
            self._alarms[key] = at_us
            self._world.after(self._actor, at_us - alarm_us, self._ring, (key, at_us))
        else:
            del self._instants[key]
            self._fire(key)


@final
class Deadlines:
    """Ends each exchange without an answer at its deadline, with a `TransportError`."""

    __slots__ = ("_actor", "_has_ended", "_is_watching", "_queues", "_world")

    def __init__(self, world: World, actor: Actor) -> None:
        self._world, self._actor = world, actor
        # Exchanges with their deadlines, one queue per timeout, so that each queue is in order of deadlines.
        self._queues: dict[int, deque[tuple[int, Exchange]]] = {}
        # Whether an occurrence will check the queue of a timeout.
        self._is_watching: dict[int, bool] = {}
        self._has_ended = False

    def watch(self, exchange: Exchange, timeout_ms: int) -> None:
        """End `exchange` in `timeout_ms`, unless it is over by then."""
        assert not exchange.is_over, exchange.call
        queue = self._queues.get(timeout_ms)
        if queue is None:
            queue = self._queues[timeout_ms] = deque()
        queue.append((self._world.now_us + timeout_ms * 1000, exchange))
        assert queue[0][0] <= queue[-1][0], (timeout_ms, queue[0][0], queue[-1][0])
        if not self._is_watching.get(timeout_ms):
            self._is_watching[timeout_ms] = True
            self._world.after(self._actor, timeout_ms * 1000, self._expire, timeout_ms)

    def end(self) -> None:
        """Stop watching; the exchanges stay as they are, because the life is over."""
        self._has_ended = True
        self._queues.clear()

    def _expire(self, timeout_ms: int) -> None:
        if self._has_ended:
            return
        assert self._is_watching[timeout_ms], timeout_ms
        queue, now_us = self._queues[timeout_ms], self._world.now_us
        while queue and (queue[0][1].is_over or queue[0][0] <= now_us):
            queue.popleft()[1].finish(TransportError(reason="timed out"))
            # The sender's reaction may end its life.
            if self._has_ended:
                return
        self._is_watching[timeout_ms] = bool(queue)
        if queue:
            self._world.after(self._actor, queue[0][0] - now_us, self._expire, timeout_ms)
