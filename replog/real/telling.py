"""The time and the story of a run on processes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import final

from sim.story import Story


@final
class RunClock:
    """Microseconds since the clients of a run began; 0 before."""

    def __init__(self) -> None:
        # Of the loop's clock, which is the machine's monotonic clock.
        self.began_us: int | None = None

    def begin(self) -> None:
        assert self.began_us is None, self.began_us
        self.began_us = _loop_us()

    @property
    def now_us(self) -> int:
        return 0 if self.began_us is None else _loop_us() - self.began_us


def _loop_us() -> int:
    return int(asyncio.get_running_loop().time() * 1e6)


@final
class Teller:
    """Adds lines to the story, and passes each on at once: a run takes as long as its scenario says."""

    def __init__(self, clock: RunClock, on_line: Callable[[str], None]) -> None:
        self._clock, self._on_line, self._story = clock, on_line, Story()

    def note(self, who: str, what: str) -> None:
        """Add a line about a node or client."""
        self._story.tell(self._clock.now_us, who, what)
        self._on_line(self._story.lines[-1])

    def tell(self, what: str) -> None:
        """Add a line about the run as a whole."""
        self.note("", what)

    @property
    def lines(self) -> tuple[str, ...]:
        return tuple(self._story.lines)
