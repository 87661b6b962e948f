"""What makes a process of ours faster, where the machine has it: malloc's thresholds and uvloop."""

from __future__ import annotations

import asyncio
import ctypes
import ctypes.util
from collections.abc import Callable

_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD = -1, -2, -3


def keep_freed_memory() -> bool:
    """Takes large messages from the heap, not from a mapping each, whose page faults cost most.

    Measured: messages of 1 MiB three to four times cheaper. Freed memory stays with the process. Only glibc has
    the call; returns whether it took.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return False
    settings = ((_M_MMAP_THRESHOLD, 1 << 30), (_M_TRIM_THRESHOLD, (1 << 31) - 1), (_M_TOP_PAD, 64 << 20))
    return all([mallopt(name, value) == 1 for name, value in settings])


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    """uvloop's where it is installed (extra `fast`): 7 to 17 % more batches a second."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory
