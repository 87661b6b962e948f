"""The descriptors that the files and maps of segments hold, and the limit that closes those not used for long.

A segment's file is opened when it is used. Beyond the limit the descriptor that was not used for longest is closed, and
the next use opens the file again, by its name. A call that uses a descriptor keeps it open until it returns.

A file with bytes that no sync has covered is synced first: a kernel that fails to write them later reports that only to
a descriptor that is open, or to the next one while the file is still in memory. If that sync fails the descriptor stays
open, and the next sync of the file raises the error: so it is the file's own log that goes offline, not the log that
needed the room.

"Not used for longest" is known to one bit a handle, which each use sets: the oldest handle whose bit is not set is
given up, and a handle whose bit is set loses the bit and counts as the newest.
"""

from __future__ import annotations

import errno
from _thread import allocate_lock
from collections import OrderedDict
from typing import Final, Protocol, final

# The error numbers that say that the process, or the machine, has no descriptor left.
OUT_OF_HANDLES: Final = frozenset({errno.EMFILE, errno.ENFILE})
# So many idle handles with bytes to sync are passed over in the search for one that needs no sync.
MOST_PASSED_OVER: Final = 64
# So many handles are given up at once when the system refuses a descriptor: the next files will need some, too.
SHED_AT_ONCE: Final = 16
NO_LIMIT: Final = 1 << 62


def is_out_of_handles(error: BaseException) -> bool:
    """Whether `error` says that a file could not be opened for want of a descriptor; no disk has failed then."""
    return isinstance(error, OSError) and error.errno in OUT_OF_HANDLES


class Handle(Protocol):
    """What holds one descriptor that can be closed until its next use."""

    # Set by each use, cleared by the pool.
    is_used: bool

    @property
    def is_unsynced(self) -> bool:
        """Whether there are bytes to sync before the descriptor is closed."""

    def give_up(self) -> bool:
        """Close the descriptor, after a sync if there are bytes to sync. Returns False if it must stay open."""


@final
class HandlePool:
    """The handles of one process that hold a descriptor, oldest first; at most `limit`, apart from those that must stay
    open. Any thread may call it.
    """

    __slots__ = ("_held", "_lock", "limit")

    def __init__(self, limit: int = NO_LIMIT) -> None:
        assert limit > 0, limit
        self.limit = limit
        # A plain dict would walk over all the places of removed handles to find the oldest.
        self._held: OrderedDict[Handle, None] = OrderedDict()
        self._lock = allocate_lock()

    def __len__(self) -> int:
        return len(self._held)

    def __contains__(self, handle: object) -> bool:
        return handle in self._held

    def add(self, handle: Handle) -> None:
        """Count `handle`, which holds a descriptor now; beyond the limit others are closed."""
        with self._lock:
            self._held[handle] = None
        if len(self._held) > self.limit:
            self.make_room(len(self._held) - self.limit, handle)

    def remove(self, handle: Handle) -> None:
        """Count `handle` no more, because it holds no descriptor."""
        with self._lock:
            self._held.pop(handle, None)

    def make_room(self, count: int = SHED_AT_ONCE, newest: Handle | None = None) -> int:
        """Give up as many as `count` handles, but not `newest`. Returns how many were given up.

        Handles without bytes to sync go first, unless many others are older.
        """
        assert count > 0, count
        given_up, unsynced = 0, list[Handle]()
        for _ in range(2 * len(self._held)):
            handle = self._next_oldest()
            if handle is None or given_up == count or len(unsynced) == MOST_PASSED_OVER:
                break
            if handle is newest:
                continue
            if handle.is_used:
                handle.is_used = False
            elif handle.is_unsynced:
                unsynced.append(handle)
            else:
                given_up += self._gave_up(handle)
        for handle in unsynced:
            if given_up == count:
                break
            given_up += self._gave_up(handle)
        assert given_up <= count, (given_up, count)
        return given_up

    def _next_oldest(self) -> Handle | None:
        """Returns the oldest handle, which counts as the newest from now on; None without any."""
        with self._lock:
            handle = next(iter(self._held), None)
            if handle is not None:
                self._held.move_to_end(handle)
            return handle

    def _gave_up(self, handle: Handle) -> bool:
        """Let `handle` give its descriptor up. Returns whether it did."""
        # A handle may be met twice in one search, and another thread may have closed it.
        if handle not in self._held:
            return False
        # Removed first: another thread may use it, and add it again, as soon as it has given up.
        self.remove(handle)
        if handle.give_up():
            return True
        with self._lock:
            self._held[handle] = None
        return False
