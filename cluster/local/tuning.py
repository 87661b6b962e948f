"""Settings of a node's process: malloc's thresholds and uvloop, where the machine has them; short collections."""

from __future__ import annotations

import asyncio
import ctypes
import ctypes.util
import gc
from collections.abc import Callable
from typing import Final, Literal, final

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


# The count of what is frozen takes as long as a small collection.
_COLLECTIONS_A_COUNT: Final = 32
_OLDEST_GENERATION: Final = 2


@final
class ShortCollections:
    """Full garbage collections that walk only what was made since the last one; what survives one is frozen.

    A full collection stops the whole process. Of a broker with 200,000 producers it takes 60 to 80 ms, and 3 ms so.
    Reference counts free frozen objects as before. Only those that refer to each other in a circle stay, until twice as
    many objects are frozen as the last complete collection left: then the next one is complete.
    """

    def __init__(self, *, collections_a_count: int = _COLLECTIONS_A_COUNT) -> None:
        assert collections_a_count > 0, collections_a_count
        self._collections_a_count = collections_a_count
        self._collections = self._most_frozen = 0
        self._is_complete_due = False

    def begin(self) -> None:
        """Collect and freeze what the process has loaded; to be called once, at the end of its start."""
        assert self._on_collection not in gc.callbacks, "begun twice"
        gc.collect()
        gc.freeze()
        self._most_frozen = 2 * gc.get_freeze_count()
        gc.callbacks.append(self._on_collection)

    def end(self) -> None:
        """Let collections be as they were before `begin`."""
        gc.callbacks.remove(self._on_collection)
        gc.unfreeze()

    def _on_collection(self, phase: Literal["start", "stop"], info: dict[str, int]) -> None:
        if info["generation"] < _OLDEST_GENERATION:
            return
        if phase == "start":
            if self._is_complete_due:
                gc.unfreeze()
            return
        gc.freeze()
        self._collections += 1
        if self._is_complete_due:
            self._is_complete_due = False
            self._most_frozen = 2 * gc.get_freeze_count()
        elif self._collections % self._collections_a_count == 0:
            self._is_complete_due = gc.get_freeze_count() > self._most_frozen
