"""Ends a run that has no end: one that has used far more processor time than any run needs."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

# What a drawn seed may use. Most need one or two seconds.
MOST_CPU_S = 120.0
# The interval at which the limit strikes again if the first stroke came to nothing.
_AGAIN_S = 1.0


class Hung(BaseException):
    """A run that has used up its processor time. It is no Exception: a core that raised one would only be killed."""


@contextmanager
def cpu_limit(most_s: float) -> Iterator[None]:
    """Raise Hung in the block once this process has used `most_s` seconds of processor time in it.

    For the main thread only. A call that never returns from C is not ended.
    """
    assert most_s > 0, most_s

    def strike(number: int, frame: FrameType | None) -> None:
        where = f", in {Path(frame.f_code.co_filename).name}, {frame.f_code.co_name}" if frame else ""
        raise Hung(f"hung: no end after {most_s:g} s of processor time{where}")

    before = signal.signal(signal.SIGPROF, strike)
    try:
        signal.setitimer(signal.ITIMER_PROF, most_s, _AGAIN_S)
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
