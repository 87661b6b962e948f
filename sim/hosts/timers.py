"""The timers of a core and of its connections, during one life of a shell.

The world cannot cancel an occurrence, so one that comes after the end of the life, or too early, must do nothing.
While the clock of the machine stands still, no timer fires.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import final

from sim.world.time import Actor, World


@final
class Timers:
    """Timers by key; setting a key again replaces its timer. `fire` is called with the key when its time has come."""

    __slots__ = ("_actor", "_alarms", "_fire", "_held_us", "_instants", "_world")

    def __init__(self, world: World, actor: Actor, fire: Callable[[str], None]) -> None:
        self._world, self._actor, self._fire = world, actor, fire
        self._instants: dict[str, int] = {}
        # The time of the first occurrence that will check the timer, by key.
        self._alarms: dict[str, int] = {}
        # When the clock stopped; None while it runs.
        self._held_us: int | None = None

    def set(self, key: str, delay_us: int) -> None:
        """Let `fire` be called with `key` in `delay_us`, instead of any earlier setting of that key.

        While timers are held, the delay counts from the moment when the clock stopped.
        """
        assert delay_us >= 0, (key, delay_us)
        if self._held_us is not None:
            self._instants[key] = self._held_us + delay_us
            return
        at_us = self._world.now_us + delay_us
        self._instants[key] = at_us
        alarm_us = self._alarms.get(key)
        # An earlier alarm checks again when it rings.
        if alarm_us is None or alarm_us > at_us:
            self._alarms[key] = at_us
            self._world.after(self._actor, delay_us, self._ring, (key, at_us))
        assert self._alarms[key] <= at_us, (key, self._alarms[key], at_us)

    def hold(self, since_us: int) -> None:
        """Fire nothing until `release`, because the clock stands still since then."""
        self._held_us = since_us

    def release(self, behind_us: int) -> None:
        """Go on; the clock is behind by that much, so each timer is that much later. Those overdue fire now."""
        assert self._held_us is not None, "timers are not held"
        self._held_us, now_us = None, self._world.now_us
        for key, at_us in list(self._instants.items()):
            self.set(key, max(0, at_us + behind_us - now_us))

    def cancel(self, key: str) -> None:
        """Drop the timer, if there is one of that key."""
        self._instants.pop(key, None)

    @property
    def pending(self) -> Collection[str]:
        """The keys of the timers that are set."""
        return self._instants.keys()

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
        if at_us is None or self._held_us is not None:
            return
        assert at_us >= alarm_us, (key, at_us, alarm_us)
        if at_us > alarm_us:
            self._alarms[key] = at_us
            self._world.after(self._actor, at_us - alarm_us, self._ring, (key, at_us))
        else:
            del self._instants[key]
            self._fire(key)
