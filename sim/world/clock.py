"""The clock of a node. All clocks of a run agree."""

from __future__ import annotations

from typing import final

from sim.world.time import ORIGIN_MS, World


@final
class Clock:
    """Converts between virtual time (microseconds since the run began) and a node's milliseconds."""

    __slots__ = ("_world",)

    def __init__(self, world: World) -> None:
        self._world = world

    def now_ms(self) -> int:
        return self._world.now_ms

    def delay_us(self, at_ms: int) -> int:
        """Returns the time until this clock shows `at_ms`; 0 if it shows that time or a later one."""
        return max(0, (at_ms - ORIGIN_MS) * 1000 - self._world.now_us)
