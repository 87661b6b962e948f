"""Says what a stop waits for, to whoever waits: at once to a terminal, in a pipe only where it takes long."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import final

# What ends sooner than this is not worth a line in a pipe.
PATIENCE_S = 2.0
Say = Callable[[str], None]


@final
class Waits:
    """Says a line after `patience_s`, unless by then the next line replaces it or the wait is over."""

    def __init__(self, say: Say, patience_s: float) -> None:
        self._say = say
        self._patience_s = patience_s
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, what: str) -> None:
        """Notes what is waited for from now on; what was waited for before is over."""
        # Without words `ManyWaits` would not tell it to those who join later.
        assert what, self._patience_s
        self.end()
        if self._patience_s <= 0:
            self._say(f"waiting for {what}")
            return
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._patience_s, self._say, f"waiting for {what}")

    def end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def patience(*, is_terminal: bool) -> float:
    """Returns the seconds before a wait is said."""
    return 0.0 if is_terminal else PATIENCE_S


@final
class ManyWaits:
    """The waits of everybody who wants to know what a stop waits for; more may join while it lasts."""

    def __init__(self) -> None:
        self._waits: list[Waits] = []
        self._what = ""

    def join(self, waits: Waits) -> None:
        self._waits.append(waits)
        if self._what:
            waits.begin(self._what)

    def begin(self, what: str) -> None:
        self._what = what
        for waits in self._waits:
            waits.begin(what)

    def end(self) -> None:
        self._what = ""
        for waits in self._waits:
            waits.end()
