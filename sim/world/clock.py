"""The clocks of a run: each machine's clock may be off, drift, be set or stand still; a process's time never falls."""

from __future__ import annotations

from typing import final

from sim.world.time import ORIGIN_MS, World

_MILLION = 1_000_000


@final
class Clock:
    """The clock of one machine, and the time of the process on it, in milliseconds since the Unix epoch.

    The wall clock is `offset_us` ahead of the world when the run begins, and gains `drift_ppm` microseconds a second.
    As in the shell of the real world, the time of a process never falls: when the wall clock is set back, the process
    goes on at its own pace, and only its next life sees the lower time. When it is set ahead, a process sees it. While
    it stands still, no time passes for the process either. The time of the process moves in steps of `grain_ms`.
    """

    __slots__ = (
        "_drift_ppm",
        "_grain_ms",
        "_lead_us",
        "_set_at_us",
        "_wall_us",
        "_world",
        "frozen_us",
        "thawed_us",
    )

    def __init__(self, world: World, *, offset_us: int = 0, drift_ppm: int = 0, grain_ms: int = 1) -> None:
        assert grain_ms > 0, grain_ms
        assert -_MILLION < drift_ppm < _MILLION, drift_ppm
        self._world, self._drift_ppm = world, drift_ppm
        self._grain_ms = grain_ms
        # The wall clock, in microseconds since the beginning of the run, at the moment when it was set.
        self._set_at_us = world.now_us
        self._wall_us = world.now_us + offset_us
        # How far the process is ahead of the wall clock.
        self._lead_us = 0
        # Since when it stands still, None if it does not; and when it went on last, both in the time of the world.
        self.frozen_us: int | None = None
        self.thawed_us = 0

    def now_ms(self) -> int:
        """Returns the time of the process, which never falls within a life."""
        # This is `_wall`, written out to save the call: each step asks several times.
        ran_until_us = self._world.now_us if self.frozen_us is None else self.frozen_us
        passed_us = ran_until_us - self._set_at_us
        wall_us = self._wall_us + passed_us + passed_us * self._drift_ppm // _MILLION
        now_ms = ORIGIN_MS + (wall_us + self._lead_us) // 1000
        return now_ms - now_ms % self._grain_ms

    def wall_ms(self) -> int:
        """Returns the time that the machine writes beside its files."""
        return ORIGIN_MS + self._wall(0) // 1000

    def begin_life(self) -> None:
        """Let a new process begin with the time of the wall clock."""
        self._lead_us = 0

    def step(self, by_us: int) -> None:
        """Set the wall clock ahead, or back if `by_us` is negative."""
        before_ms = self.now_ms()
        ran_until_us = self._world.now_us if self.frozen_us is None else self.frozen_us
        self._wall_us, self._set_at_us = self._wall(0) + by_us, ran_until_us
        self._lead_us = max(0, self._lead_us - by_us)
        assert self.now_ms() >= before_ms, (self.now_ms(), before_ms)

    def freeze(self) -> None:
        """Let it stand still from now on; does nothing if it does already."""
        if self.frozen_us is None:
            self.frozen_us = self._world.now_us

    def thaw(self, *, catches_up: bool) -> int:
        """Let it go on, with the right time, or behind by the time that it stood. Returns how far it is behind."""
        assert self.frozen_us is not None, "the clock runs"
        now_us, before_ms = self._world.now_us, self.now_ms()
        behind_us = 0 if catches_up else now_us - self.frozen_us
        self._wall_us = self._wall(0)
        self._set_at_us, self.frozen_us, self.thawed_us = self.frozen_us + behind_us, None, now_us
        assert self.now_ms() >= before_ms, (self.now_ms(), before_ms)
        return behind_us

    def delay_us(self, at_ms: int) -> int:
        """Returns the time until the process's clock shows `at_ms`; 0 if it shows that time or a later one.

        While the clock stands still, this counts from the moment when it stopped.
        """
        at_ms += -at_ms % self._grain_ms
        target_us = (at_ms - ORIGIN_MS) * 1000 - self._lead_us
        left_us = target_us - self._wall(0)
        if left_us <= 0:
            return 0
        delay_us = left_us * _MILLION // (_MILLION + self._drift_ppm)
        # The division rounds; the clock must have reached the time for certain.
        while self._wall(delay_us) < target_us:
            delay_us += 1
        return delay_us

    def _wall(self, in_us: int) -> int:
        """Returns the wall clock in `in_us`, in microseconds since the beginning of the run."""
        ran_until_us = self._world.now_us if self.frozen_us is None else self.frozen_us
        passed_us = ran_until_us + in_us - self._set_at_us
        return self._wall_us + passed_us + passed_us * self._drift_ppm // _MILLION
