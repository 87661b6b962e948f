"""The place where requests wait: numbered, found by the partitions that they watch, ended by a deadline at the latest.

Kafka: DelayedOperationPurgatory.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from typing import Generic, TypeVar, final

from cluster.core.messages import TopicPartition
from cluster.core.outbox import Outbox

Operation = TypeVar("Operation")


@final
class Purgatory(Generic[Operation]):
    """Holds operations until they are taken or their deadline has passed. Its timer is set to the earliest deadline.

    The deadlines of operations that were taken are cleared away once they outnumber those that wait by more than
    `spare`.
    """

    def __init__(
        self, outbox: Outbox, timer_key: str, expire: Callable[[int, Operation], None], *, spare: int
    ) -> None:
        self._spare = spare
        self._outbox = outbox
        self._timer_key = timer_key
        # Is called with `now_ms` and an operation, which has been taken out.
        self._expire = expire
        self._next_number = 0
        self._parked: dict[int, tuple[Operation, tuple[TopicPartition, ...]]] = {}
        self._watchers: dict[TopicPartition, dict[int, Operation]] = {}
        # A heap of (deadline, number); it may hold those of operations that were taken.
        self._deadlines: list[tuple[int, int]] = []
        self._armed_ms: int | None = None

    def __len__(self) -> int:
        return len(self._parked)

    @property
    def deadlines_held(self) -> int:
        """How many deadlines the heap holds, with those of operations that were taken."""
        return len(self._deadlines)

    @property
    def armed_ms(self) -> int | None:
        """When its timer fires; None while none is set."""
        return self._armed_ms

    @property
    def first_deadline_ms(self) -> int | None:
        """The earliest deadline of what waits, of all that are held; None where nothing waits."""
        held = [deadline_ms for deadline_ms, number in self._deadlines if number in self._parked]
        return min(held, default=None)

    def park(self, operation: Operation, watched: Iterable[TopicPartition], deadline_ms: int) -> int:
        """Holds `operation` until it is taken, or until `deadline_ms`; it is found by the `watched` partitions.

        Returns its number.
        """
        self._next_number += 1
        number = self._next_number
        watched = tuple(watched)
        assert watched, (number, deadline_ms)
        self._parked[number] = (operation, watched)
        for topic_partition in watched:
            self._watchers.setdefault(topic_partition, {})[number] = operation
        heapq.heappush(self._deadlines, (deadline_ms, number))
        self._arm()
        assert self._armed_ms is not None, (number, deadline_ms)
        assert self._armed_ms <= deadline_ms, (self._armed_ms, deadline_ms)
        return number

    def watching(self, topic_partition: TopicPartition) -> list[tuple[int, Operation]]:
        """Returns (number, operation) of all that watch the partition, in order of arrival."""
        watchers = self._watchers.get(topic_partition)
        return [] if watchers is None else list(watchers.items())

    def watched(self) -> list[TopicPartition]:
        """Returns the partitions that are watched by what waits, in the order in which the first of each arrived."""
        return list(self._watchers)

    def operations(self) -> list[Operation]:
        """Returns all that wait, in order of arrival."""
        return [operation for operation, _ in self._parked.values()]

    def numbers(self) -> list[int]:
        return list(self._parked)

    def take(self, number: int) -> Operation | None:
        """Takes the operation out and returns it; None if it was taken before."""
        entry = self._parked.pop(number, None)
        if entry is None:
            return None
        operation, watched = entry
        for topic_partition in watched:
            numbers = self._watchers.get(topic_partition)
            if numbers is not None:
                numbers.pop(number, None)
                if not numbers:
                    del self._watchers[topic_partition]
        if len(self._deadlines) > 2 * len(self._parked) + self._spare:
            self._clear_deadlines()
        return operation

    def _clear_deadlines(self) -> None:
        """Removes the deadlines of operations that were taken: each costs this once, whatever its deadline is."""
        parked = self._parked
        self._deadlines = [entry for entry in self._deadlines if entry[1] in parked]
        heapq.heapify(self._deadlines)
        assert len(self._deadlines) <= len(parked), (len(self._deadlines), len(parked))

    def _arm(self) -> None:
        while self._deadlines and self._deadlines[0][1] not in self._parked:
            heapq.heappop(self._deadlines)
        if not self._deadlines:
            return
        first_ms = self._deadlines[0][0]
        if self._armed_ms is None or first_ms < self._armed_ms:
            self._armed_ms = first_ms
            self._outbox.set_timer(self._timer_key, first_ms, self._on_time)

    def _on_time(self, now_ms: int) -> None:
        assert self._armed_ms is not None, now_ms
        self._armed_ms = None
        while self._deadlines and self._deadlines[0][0] <= now_ms:
            operation = self.take(heapq.heappop(self._deadlines)[1])
            if operation is not None:
                self._expire(now_ms, operation)
        self._arm()
        # Each that waits has a deadline to come, and the first of them a timer.
        assert len(self._parked) <= len(self._deadlines), (len(self._parked), len(self._deadlines))
        assert self._is_armed() or not self._deadlines, self._deadlines[:1]

    def _is_armed(self) -> bool:
        return self._armed_ms is not None
