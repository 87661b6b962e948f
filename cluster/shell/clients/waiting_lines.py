"""Lines of senders that wait for room in a producer's buffer: who has waited longest is first, and only it is woken.

Without a line a large record would find the room taken again and again by small ones. Kafka: BufferPool.
"""

from __future__ import annotations

import asyncio
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import final


@final
class TaskLine:
    """A line of the tasks of one loop."""

    def __init__(self) -> None:
        # The bytes for which each one waits.
        self._turns: OrderedDict[asyncio.Event, int] = OrderedDict()

    @property
    def is_empty(self) -> bool:
        return not self._turns

    @contextmanager
    def turn(self, size_bytes: int) -> Iterator[asyncio.Event]:
        """Puts the caller at the end of the line for the block; yields what is set where it shall look again.

        However the block ends, the next in the line is woken.
        """
        turn = asyncio.Event()
        self._turns[turn] = size_bytes
        try:
            yield turn
        finally:
            was_first = self.is_first(turn)
            del self._turns[turn]
            if was_first:
                self.wake()

    def is_first(self, turn: asyncio.Event) -> bool:
        assert turn in self._turns, len(self._turns)
        return next(iter(self._turns)) is turn

    def wake(self, room_bytes: int = 0) -> None:
        """Lets the first one look again whether there is room, and with it as many of the next as it may be enough for.

        They go in one turn of the loop then, and not in one each.
        """
        for turn, size_bytes in self._turns.items():
            turn.set()
            room_bytes -= size_bytes
            if room_bytes <= 0:
                return

    def wake_all(self) -> None:
        """Lets all of them look again: there will be no room any more."""
        for turn in self._turns:
            turn.set()


@final
class _Turn:
    """The place of one thread in a line. `held` is locked by the thread for as long as it waits."""

    __slots__ = ("held", "room", "thread_id")

    def __init__(self, lock: threading.RLock) -> None:
        self.held = threading.Lock()
        self.room = threading.Condition(lock)
        self.thread_id = threading.get_ident()


@final
class ThreadLine:
    """A line of threads. Each method is called with `lock` held, which the constructor gets; `wait` frees it meanwhile.

    Ctrl-C may strike a thread anywhere, also as it leaves the line. So it does not have to take itself out: a turn that
    no thread holds any more is nobody's, and is dropped when it is first.
    """

    def __init__(self, lock: threading.RLock) -> None:
        self._lock = lock
        self._turns: deque[_Turn] = deque()

    @property
    def is_empty(self) -> bool:
        return self._first() is None

    def wait(self, is_over: Callable[[], bool], timeout_s: float) -> bool:
        """Waits in the line until the caller is first and `is_over`; returns False where that takes above `timeout_s`.

        `is_over` is called each time when the first one is woken.
        """
        turn = _Turn(self._lock)
        try:
            with turn.held:
                self._join(turn)
                return turn.room.wait_for(lambda: self._first() is turn and is_over(), timeout_s)
        finally:
            self.wake_first()

    def wake_first(self) -> None:
        """Lets the first one look again whether there is room."""
        if (first := self._first()) is not None:
            first.room.notify()

    def _join(self, turn: _Turn) -> None:
        # The handler of a signal that struck this thread in its own wait: there, nobody goes before it has.
        if any(other.thread_id == turn.thread_id and other.held.locked() for other in self._turns):
            self._turns.appendleft(turn)
        else:
            self._turns.append(turn)

    def _first(self) -> _Turn | None:
        while self._turns:
            if (first := self._turns[0]).held.locked():
                return first
            # By itself: the handler of a signal may have dropped it meanwhile.
            with suppress(ValueError):
                self._turns.remove(first)
        return None
