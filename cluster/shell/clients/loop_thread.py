"""An event loop on a thread of its own: what the blocking clients run their asyncio ones on."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar, final

T = TypeVar("T")


@final
class LoopThread:
    """A running event loop for one client, on a daemon thread: a program that forgets `close` still ends."""

    def __init__(self, owner: str) -> None:
        self._owner = owner
        self._loop = asyncio.new_event_loop()
        self._is_closed = False
        self._closing = threading.Lock()
        self._thread = threading.Thread(target=self._serve, name=owner, daemon=True)
        self._thread.start()

    @property
    def is_own_thread(self) -> bool:
        """Whether the caller runs on the loop's thread, as a future's callback does."""
        return threading.current_thread() is self._thread

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Runs a coroutine on the loop; returns its result or raises its error.

        An interruption of the caller, such as KeyboardInterrupt, cancels the coroutine. Raises RuntimeError once the
        client is closed, and in a callback of the client, which would wait for itself.
        """
        try:
            self.check_caller()
        except RuntimeError:
            coroutine.close()
            raise
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def soon(self, callback: Callable[[], None]) -> None:
        """Calls `callback` on the loop's thread. Raises RuntimeError once the client is closed."""
        if self._is_closed:
            raise RuntimeError(f"the {self._owner} is closed")
        self._loop.call_soon_threadsafe(callback)

    def check_caller(self) -> None:
        """Raises RuntimeError where the caller must not wait for the loop."""
        if self._is_closed:
            raise RuntimeError(f"the {self._owner} is closed")
        if self.is_own_thread:
            raise RuntimeError(f"called from a callback of this {self._owner}: it would wait for itself")

    def close(self) -> None:
        """Stops the loop and waits for its thread; later calls do nothing."""
        with self._closing:
            if self._is_closed:
                return
            self._is_closed = True
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        assert self._loop.is_closed(), self._owner

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        left = asyncio.all_tasks(self._loop)
        for task in left:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()
