"""How a command ends from outside: any signal for it does what Ctrl-C does, and no child outlives its parent."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

# Loaded before anything is forked, so that no child has to.
if sys.platform == "linux":
    import ctypes

PR_SET_PDEATHSIG = 1
Handler = Callable[[int, FrameType | None], None]


def _interrupt(number: int, frame: FrameType | None) -> None:
    # A shell without job control lets its background jobs ignore Ctrl-C.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        raise KeyboardInterrupt
    signal.raise_signal(signal.SIGINT)


@contextmanager
def terminated_like_interrupted(interrupt: Handler = _interrupt) -> Iterator[None]:
    """Let SIGTERM and SIGHUP do what Ctrl-C does within this block. One that is ignored, as by nohup, stays so.

    `interrupt` handles them. For the main thread only.
    """
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    heard = [number for number, handler in before.items() if handler is not signal.SIG_IGN]
    for number in heard:
        signal.signal(number, interrupt)
    try:
        yield
    finally:
        for number in heard:
            signal.signal(number, before[number])


def die_with(parent: int) -> None:
    """Let this process be killed when its parent ends, however it does; ends at once if it has. Linux only."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
