"""Appends whose checks take longer than a step may: the checks run as jobs, a slice each, and the append follows them.

A batch of two kilobytes may unpack to millions of records. While one is checked, all that comes for its partition waits
behind it, so that batches are appended in the order in which they came (PRO-6); other partitions go on. What has waited
longer than its sender allows is refused: checks for senders that have left would only make all others late too.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import final

from cluster.core.messages import TopicPartition
from cluster.core.outbox import Outbox
from cluster.core.replica.outcomes import OnDone, Outcome
from storage.errors import StorageError
from storage.validation.sliced import SlicedValidation

# The most sets that are checked at a time, in turns: each holds what its codec needs to unpack it.
MAX_AT_ONCE = 4
# The most bytes that wait; no request is larger. No other limit holds for all of them: a request with acks=0 has no
# place at its connection, and what a sender has left behind is appended all the same.
MAX_WAITING_BYTES = 128 << 20


@final
class SlicedAppend:
    """An append that waits for its own checks, or behind one that does. `number` is negative."""

    __slots__ = (
        "acks",
        "arrived_ms",
        "deadline_ms",
        "failure",
        "leader_epoch",
        "number",
        "on_done",
        "parked",
        "records",
        "topic_id",
        "topic_partition",
        "validation",
    )

    def __init__(
        self,
        topic_partition: TopicPartition,
        records: bytes,
        *,
        arrived_ms: int,
        deadline_ms: int,
        acks: int,
        topic_id: str,
        leader_epoch: int | None,
        on_done: OnDone,
    ) -> None:
        self.topic_partition, self.records = topic_partition, records
        self.arrived_ms, self.deadline_ms = arrived_ms, deadline_ms
        self.acks, self.topic_id, self.leader_epoch = acks, topic_id, leader_epoch
        self.on_done = on_done
        self.number = 0
        # The number under which it waits for replication, once it is appended.
        self.parked: int | None = None
        # Its checks, once they have begun, and what they have raised.
        self.validation: SlicedValidation | None = None
        self.failure: StorageError | None = None

    def is_late(self, now_ms: int) -> bool:
        """Whether its time was over before its checks began: its sender has left, or soon will."""
        return self.validation is None and now_ms > self.deadline_ms

    def advance(self) -> None:
        """Does the next slice of the checks; a set that is refused is no failure of the job."""
        assert self.validation is not None, self.topic_partition
        try:
            self.validation.advance()
        except StorageError as error:
            self.failure = error


# Begins the checks of an append; returns None if it is to be refused without them.
Begin = Callable[[SlicedAppend], SlicedValidation | None]
# Appends, or decides the outcome. Returns False if the append has to be checked in slices first.
Finish = Callable[[int, SlicedAppend], bool]


@final
class SlicedAppends:
    """The appends that wait, in order for each partition; the first of each is checked, a few partitions in turns."""

    def __init__(self, outbox: Outbox, begin: Begin, finish: Finish) -> None:
        self._outbox, self._begin, self._finish = outbox, begin, finish
        # What waits by partition, never empty.
        self.queues: dict[TopicPartition, deque[SlicedAppend]] = {}
        # The partitions whose first append is checked, that of the next slice first; then those that wait for a turn.
        self._turns: deque[TopicPartition] = deque()
        self._line: deque[TopicPartition] = deque()
        self._is_running = False
        self._last_number = 0
        self.waiting_bytes = 0
        # Those whose outcome nobody was told yet, by number.
        self._untold: dict[int, SlicedAppend] = {}

    def has_room_for(self, size_bytes: int) -> bool:
        """Whether a set of so many bytes may wait."""
        return self.waiting_bytes + size_bytes <= MAX_WAITING_BYTES

    def add(self, now_ms: int, append: SlicedAppend) -> int:
        """Puts the append behind those of its partition. Returns its number."""
        assert self.has_room_for(len(append.records)), (self.waiting_bytes, len(append.records))
        self.waiting_bytes += len(append.records)
        self._last_number -= 1
        append.number = self._last_number
        self._untold[append.number] = append
        queue = self.queues.get(append.topic_partition)
        if queue is None:
            self.queues[append.topic_partition] = deque((append,))
            self._line.append(append.topic_partition)
            self._go_on(now_ms)
        else:
            queue.append(append)
        assert append.number < 0, append.number
        return append.number

    def tell(self, append: SlicedAppend, now_ms: int, outcome: Outcome) -> None:
        """Passes on the outcome of an append, unless its caller has left."""
        if self._untold.pop(append.number, None) is not None:
            append.on_done(now_ms, outcome)

    def forget(self, number: int) -> int | None:
        """Drops the caller of an append, which comes all the same. Returns its number where it is parked, if it is."""
        append = self._untold.pop(number, None)
        return None if append is None else append.parked

    def take_all(self) -> list[SlicedAppend]:
        """Takes out all that waits, in the order of arrival; a slice that runs has no consequence."""
        waiting = sorted((each for queue in self.queues.values() for each in queue), key=_arrival)
        self.queues.clear()
        self._turns.clear()
        self._line.clear()
        self.waiting_bytes = 0
        return waiting

    def _go_on(self, now_ms: int) -> None:
        """Runs the next slice, if none runs; begins the checks of those whose turn has come."""
        while self._line and len(self._turns) < MAX_AT_ONCE:
            topic_partition = self._line.popleft()
            first = self.queues[topic_partition][0]
            first.validation = None if first.is_late(now_ms) else self._begin(first)
            if first.validation is None:
                self._end_first(now_ms, topic_partition)
            else:
                self._turns.append(topic_partition)
        if self._turns and not self._is_running:
            self._is_running = True
            first = self.queues[self._turns[0]][0]
            self._outbox.run_job("validate", first.advance, partial(self._on_slice, first))

    def _on_slice(self, first: SlicedAppend, now_ms: int, error: Exception | None) -> None:
        assert self._is_running, first.topic_partition
        self._is_running = False
        if error is not None:
            raise error
        if not self._turns:
            # All were taken out while the slice ran.
            return
        topic_partition = self._turns.popleft()
        assert self.queues[topic_partition][0] is first, topic_partition
        assert first.validation is not None, topic_partition
        if first.validation.is_done:
            self._end_first(now_ms, topic_partition)
        else:
            self._turns.append(topic_partition)
        self._go_on(now_ms)

    def _end_first(self, now_ms: int, topic_partition: TopicPartition) -> None:
        """Ends the first append of the partition, then those behind it, up to one that has to be checked in slices."""
        queue = self.queues[topic_partition]
        while queue and self._finish(now_ms, queue[0]):
            self.waiting_bytes -= len(queue.popleft().records)
        assert self.waiting_bytes >= 0, (topic_partition, self.waiting_bytes)
        if queue:
            assert queue[0].validation is None, topic_partition
            self._line.append(topic_partition)
        else:
            del self.queues[topic_partition]


def _arrival(append: SlicedAppend) -> int:
    return -append.number
