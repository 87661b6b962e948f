"""Settings that make a node's process faster, where the machine has them: malloc's thresholds and uvloop."""

from __future__ import annotations

import asyncio
import ctypes
import ctypes.util
from collections.abc import Callable

_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD = -1, -2, -3


def keep_freed_memory() -> bool:
    """Lets malloc take large messages from the heap instead of a new mapping each, whose page faults cost most.

    Measured: messages of 1 MiB take a third to a quarter of the time. Freed memory stays with the process. Returns
    whether the settings were accepted; only glibc has them.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return False
    settings = ((_M_MMAP_THRESHOLD, 1 << 30), (_M_TRIM_THRESHOLD, (1 << 31) - 1), (_M_TOP_PAD, 64 << 20))
    return all([mallopt(name, value) == 1 for name, value in settings])


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    """Returns uvloop's factory if it is installed (extra `fast`), which brings 7 to 17 % more batches a second."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory
