"""A pass over all replicas in slices: what one step does is bounded, however many replicas and segments there are."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import final

from cluster.core.messages import TopicPartition
from cluster.core.outbox import Outbox
from cluster.core.replica.context import ReplicaContext
from cluster.core.replica.replica import Replica

# Works on a replica at a time, for about as many units as there is room for. Returns the units that it took, and
# whether to visit the replica again because there may be more to do.
Visit = Callable[[Replica, int, int], tuple[int, bool]]


@final
class Pass:
    """Visits all replicas on a timer, every `interval_ms`, in the order of their names.

    A step visits replicas until `room` units of work are done. For the others, and for a replica whose work was cut
    off, the timer goes off one millisecond later: other steps come between. A replica that has gone meanwhile is left
    out, a new one waits for the next pass.
    """

    def __init__(
        self, context: ReplicaContext, timer: str, visit: Visit, *, interval_ms: int, room: int
    ) -> None:
        assert room > 0, room
        assert interval_ms > 0, interval_ms
        self._context, self._timer, self._visit = context, timer, visit
        self._outbox: Outbox = context.outbox
        self._interval_ms, self._room = interval_ms, room
        self._left: deque[TopicPartition] = deque()
        self._began_ms = 0

    def arm(self, at_ms: int) -> None:
        """Set the timer of the first pass."""
        self._outbox.set_timer(self._timer, at_ms, self._on_timer)

    def _on_timer(self, now_ms: int) -> None:
        if not self._left:
            self._began_ms = now_ms
            self._left.extend(sorted(self._context.replicas))
        self._visit_some(now_ms)
        next_ms = now_ms + 1 if self._left else self._began_ms + self._interval_ms
        self.arm(max(next_ms, now_ms + 1))

    def _visit_some(self, now_ms: int) -> None:
        room = self._room
        while self._left and room > 0:
            replica = self._context.replicas.get(self._left[0])
            taken, goes_on = (1, False) if replica is None else self._visit(replica, now_ms, room)
            assert taken > 0, (self._left[0], taken)
            room -= taken
            if goes_on:
                break
            self._left.popleft()
