"""Ends a run that has no end: one that has used far more processor time than any run needs, or a single event has."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from sim.world.time import World

# What a drawn seed may use. Most need one or two seconds.
MOST_CPU_S = 120.0
# What one event may use. No step of a core takes a tenth of a second.
MOST_EVENT_CPU_S = 12
# The interval of the looks, and that at which the limit strikes again if the first stroke came to nothing.
_LOOK_S = 1.0


class Hung(BaseException):
    """A run that has used up its processor time. It is no Exception: a core that raised one would only be killed."""


@contextmanager
def cpu_limit(most_s: float, most_event_s: float = MOST_EVENT_CPU_S) -> Iterator[None]:
    """Raise Hung in the block once this process has used `most_s` seconds of processor time in it, or `most_event_s`
    while one event of a world ran.

    For the main thread only. A call that never returns from C is not ended.
    """
    assert most_s > 0, most_s
    assert most_event_s > 0, most_event_s
    look_s = min(_LOOK_S, most_s, most_event_s)
    used_s = event_s = 0.0
    seen: tuple[World | None, int] = (None, 0)

    def look(number: int, frame: FrameType | None) -> None:
        nonlocal used_s, event_s, seen
        world = World.latest
        events = (world, 0 if world is None else world.events)
        is_same = world is not None and world.is_running and events == seen
        used_s, event_s, seen = used_s + look_s, event_s + look_s if is_same else 0.0, events
        where = f", in {Path(frame.f_code.co_filename).name}, {frame.f_code.co_name}" if frame else ""
        if event_s >= most_event_s:
            raise Hung(f"hung: no end of one event after {most_event_s:g} s of processor time{where}")
        if used_s >= most_s:
            raise Hung(f"hung: no end after {most_s:g} s of processor time{where}")

    before = signal.signal(signal.SIGPROF, look)
    try:
        signal.setitimer(signal.ITIMER_PROF, look_s, look_s)
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
