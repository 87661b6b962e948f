"""An event loop on a thread of its own: what the blocking clients run their asyncio ones on."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError
from typing import Any, TypeVar, final

from cluster.shell.forks import SPAWN, check_process

T = TypeVar("T")


@final
class LoopThread:
    """A running event loop for one client, on a daemon thread: a program that forgets `close` still ends.

    The constructor raises RuntimeError in a process that was forked from one with a client.
    """

    def __init__(self, owner: str) -> None:
        check_process(owner)
        self._owner = owner
        self._loop = asyncio.new_event_loop()
        self._is_closed = False
        # A fork copies the client, but not its thread.
        self._process_id = os.getpid()
        # Guards the stop: a call is passed to the loop before it or not at all. A signal's handler may come in between.
        self._closing = threading.RLock()
        self._thread = threading.Thread(target=self._serve, name=owner, daemon=True)
        self._thread.start()

    @property
    def is_own_thread(self) -> bool:
        """Whether the caller runs on the loop's thread, as a future's callback does."""
        return threading.current_thread() is self._thread

    @property
    def is_closed(self) -> bool:
        """Whether no call is taken any more; True in a fork, where nothing is left to close."""
        return self._is_closed or self._process_id != os.getpid()

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Runs a coroutine on the loop; returns its result or raises its error.

        An interruption of the caller, such as KeyboardInterrupt, cancels the coroutine. Raises RuntimeError once the
        client is closed, and in a callback of the client, which would wait for itself.
        """
        try:
            with self._closing:
                self.check_caller()
                future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        except RuntimeError:
            coroutine.close()
            raise
        try:
            return future.result()
        except CancelledError as error:
            # Only the end of the loop cancels a call that its caller still waits for.
            raise RuntimeError(f"the {self._owner} is closed") from error
        except BaseException:
            future.cancel()
            raise

    def soon(self, callback: Callable[[], None]) -> None:
        """Calls `callback` on the loop's thread. Raises RuntimeError once the client is closed."""
        with self._closing:
            self.check_open()
            self._loop.call_soon_threadsafe(callback)

    def check_open(self) -> None:
        """Raises RuntimeError once the client is closed, and in a fork, where its thread does not run."""
        if self._process_id != os.getpid():
            raise RuntimeError(f"the {self._owner} was made before a fork: {SPAWN}")
        if self._is_closed:
            raise RuntimeError(f"the {self._owner} is closed")

    def check_caller(self) -> None:
        """Raises RuntimeError where the caller must not wait for the loop."""
        self.check_open()
        if self.is_own_thread:
            raise RuntimeError(f"called from a callback of this {self._owner}: it would wait for itself")

    def end(self, last: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Runs the client's last coroutine, then stops the loop and waits for its thread; later calls do nothing.

        Several threads may end a client: each returns once it has ended. Raises RuntimeError in a callback.
        """
        if self.is_closed:
            return
        # Before anything is stopped: a refused call leaves the client as it was.
        if self.is_own_thread:
            self.check_caller()
        try:
            self.call(last())
        except RuntimeError:
            # Unless another thread was first.
            if not self._is_closed:
                raise
        finally:
            self._close()

    def _close(self) -> None:
        with self._closing:
            if not self._is_closed:
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
