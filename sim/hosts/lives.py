"""The lives of a simulated client: it may be killed or stopped, and starts again with an empty memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import final

from cluster.core.events import Event
from sim.hosts.shell import Shell
from sim.world.packets import NEVER_US, Packet


@final
class Departed:
    """The core of a client that has left: it learns nothing, and asks for nothing."""

    def step(self, now_ms: int, event: Event) -> Sequence[object]:
        return ()


# How long an orderly stop waits until the nodes have read what expects no reply, as that of a real client does.
FINISH_US = 2_000_000


class ClientShell(Shell):
    """A client's process. Its name and its history stay, all that its core knew ends with a life."""

    # The number of lives so far.
    starts = 0
    is_stopping = False
    # When a life that stops waits no longer for nodes that have not read all.
    _finish_by_us = NEVER_US
    _when_stopped: Callable[[], None] | None = None

    @property
    def is_up(self) -> bool:
        return self.core is not None

    def begin(self) -> None:
        """Start the process, for the first time or again."""
        assert self.core is None, f"{self.name} began twice"
        assert self.life_number % 2 == 0, (self.name, self.life_number)
        self.life_number += 1
        self.starts += 1
        self.is_stopping = self.paused = False
        self.clock.begin_life()
        if self.starts > 1:
            self.trace.fields(self.world.now_us, self.name, "start", (("life", self.starts),))
        if self.points is not None and self.points.is_refused():
            self._dialer.refuse(self.addresses[0])
        self._live()

    def start(self) -> None:
        """Start again after `crash` or `stop`."""
        assert self.starts > 0, f"{self.name} was never up"
        self.begin()

    def crash(self) -> None:
        """End the process as `kill -9` does: it learns nothing any more."""
        self._end("crash")

    def stop(self, then: Callable[[], None] | None = None) -> None:
        """Ask for an orderly stop; `then` is called after it, and replaces the `then` of an earlier call."""
        if then is not None:
            self._when_stopped = then
        if self.core is not None and not self.is_stopping:
            self.is_stopping = True
            self.world.after(self.actor, 0, self._try_to_stop, self.life_number)

    def _try_to_stop(self, life_number: int) -> None:
        """End the life if nothing is left to do; the client calls this again when something was done."""
        if life_number != self.life_number or not self._may_stop():
            return
        assert self.is_stopping, self.name
        if not self._has_finished():
            return
        self._end("stop")
        when_stopped, self._when_stopped = self._when_stopped, None
        if when_stopped is not None:
            when_stopped()

    def _has_finished(self) -> bool:
        """Whether the nodes have read all calls that expect no reply (acks=0), or had FINISH_US to do it."""
        if not self._dialer.finish():
            return True
        if self._finish_by_us == NEVER_US:
            self._finish_by_us = self.world.now_us + FINISH_US
            self.world.after(self.actor, FINISH_US, self._try_to_stop, self.life_number)
        return self.world.now_us >= self._finish_by_us

    def _read(self, packet: Packet) -> None:
        super()._read(packet)
        if self._finish_by_us != NEVER_US:
            # It may be news of a stream for whose end the stop waits.
            self._try_to_stop(self.life_number)

    def leave(self) -> None:
        """Take the core away, and close the sending side of each stream: what is in flight is still answered.

        The life cannot go on after that; it has not ended either.
        """
        assert self.core is not None, self.name
        assert not self.paused, self.name
        self._timers.end()
        self.core = Departed()
        self._dialer.finish(every=True)

    @property
    def has_streams(self) -> bool:
        """Whether a stream is open of a client that leaves: its node has still to answer."""
        return self._dialer.finish(every=True)

    def resume(self) -> None:
        super().resume()
        if self.is_stopping:
            self.world.after(self.actor, 0, self._try_to_stop, self.life_number)

    def _end(self, how: str) -> None:
        assert self.life_number % 2 == 1, (self.name, self.life_number)
        self.trace.fields(self.world.now_us, self.name, "end", (("how", how),))
        self._forget_all(is_orderly=how == "stop")
        self.core = None
        self.life_number += 1
        self.paused = self.is_stopping = False
        self._finish_by_us = NEVER_US
        self._forget(was_killed=how != "stop")
        self._reset_orphans()

    def _live(self) -> None:
        """Make a core and let it work."""
        raise NotImplementedError

    def _may_stop(self) -> bool:
        """Whether an orderly stop has nothing to wait for any more."""
        return not self.paused

    def _forget_all(self, *, is_orderly: bool) -> None:
        """Note in the history what this life will never know."""
        raise NotImplementedError
