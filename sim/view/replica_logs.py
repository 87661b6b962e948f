"""What a trace says about the replicas' logs: which leader epochs they hold, up to where, and what is committed.

A trace has no records, so a log is the sum of what its replica reports: appends, truncations, its log end when it takes
a role. A leader's records are of its epoch. A follower's are of the epochs that the leader's log has at those offsets.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple, final

# The epoch of records of which the trace says only that they are there.
UNKNOWN_EPOCH = -1


class Op(IntEnum):
    """A change of a log; the page knows these numbers."""

    # The log now ends at the offset (exclusive), and what is new is of the epoch.
    EXTEND = 0
    # The log now ends at the offset.
    CUT = 1
    # The log now starts at the offset; it is empty if it ended before.
    START = 2


class Run(NamedTuple):
    """Records of one epoch that follow each other, up to `end` (exclusive)."""

    end: int
    epoch: int


@final
class ReplicaLog:
    """One replica's log, with every change that led to it; `index` counts the events of the page."""

    def __init__(self) -> None:
        self.start = 0
        self.runs: list[Run] = []
        # Four numbers a change: the event's index, the `Op`, the offset, the epoch.
        self.changes: list[int] = []
        # Two numbers a change: the event's index and the high watermark.
        self.high_watermarks: list[int] = []

    @property
    def end(self) -> int:
        """The log end offset (exclusive)."""
        return self.runs[-1].end if self.runs else self.start

    def extend(self, index: int, end: int, epoch: int) -> None:
        """Let the log end at `end`, which is above its end now; what is new is of `epoch`."""
        assert end > self.end, (end, self.end)
        self.changes += (index, Op.EXTEND, end, epoch)
        if self.runs and self.runs[-1].epoch == epoch:
            self.runs.pop()
        self.runs.append(Run(end, epoch))

    def cut(self, index: int, end: int) -> None:
        """Drop everything from `end` on; nothing changes if the log ends there."""
        if end >= self.end:
            return
        self.changes += (index, Op.CUT, end, UNKNOWN_EPOCH)
        while self.runs and self.runs[-1].end > end:
            epoch = self.runs.pop().epoch
            before = self.runs[-1].end if self.runs else self.start
            if before < end:
                self.runs.append(Run(end, epoch))
        assert self.end == max(self.start, end), (self.end, end)

    def start_at(self, index: int, start: int) -> None:
        """Drop everything below `start`, which may be the whole log."""
        if start == self.start:
            return
        self.changes += (index, Op.START, start, UNKNOWN_EPOCH)
        self.runs = [run for run in self.runs if run.end > start]
        self.start = start
        assert self.end >= start, (self.end, start)

    def clear(self, index: int) -> None:
        self.cut(index, self.start)
        self.start_at(index, 0)

    def pieces(self, first: int, end: int) -> list[Run]:
        """Returns the runs from `first` to `end` (exclusive), cut to fit; what the log lacks is left out."""
        found = []
        for run in self.runs:
            if first < run.end and first < end:
                first = min(run.end, end)
                found.append(Run(first, run.epoch))
        return found


@final
class PartitionLogs:
    """The logs of one partition by broker, and which of them leads in which epoch."""

    def __init__(self) -> None:
        self.replicas: dict[str, ReplicaLog] = {}
        self._leaders: dict[int, str] = {}

    def replica(self, broker: str) -> ReplicaLog:
        return self.replicas.setdefault(broker, ReplicaLog())

    def became_leader(self, index: int, broker: str, epoch: int, log_end_offset: int) -> None:
        self._leaders[epoch] = broker
        self._end_is(index, broker, epoch, log_end_offset)

    def became_follower(self, index: int, broker: str, epoch: int, log_end_offset: int) -> None:
        self._end_is(index, broker, epoch, log_end_offset)

    def _end_is(self, index: int, broker: str, epoch: int, log_end_offset: int) -> None:
        """Believe a replica that states its log end: a crash may have taken records, or kept some nobody reported."""
        log = self.replica(broker)
        log.cut(index, log_end_offset)
        self._copy(index, broker, epoch, log_end_offset, otherwise=UNKNOWN_EPOCH)

    def appended(
        self, index: int, broker: str, epoch: int, first_offset: int, end: int, *, is_leader: bool
    ) -> None:
        """Take in an append of `first_offset` to `end` (exclusive)."""
        log = self.replica(broker)
        log.cut(index, first_offset)
        if not log.runs and log.start < first_offset:
            log.start_at(index, first_offset)
        if is_leader:
            self._leaders.setdefault(epoch, broker)
            if log.end < end:
                log.extend(index, end, epoch)
        else:
            self._copy(index, broker, epoch, end, otherwise=epoch)

    def _copy(self, index: int, broker: str, epoch: int, end: int, *, otherwise: int) -> None:
        """Extend a log to `end` with the epochs of the leader's log; what that one lacks is of epoch `otherwise`."""
        log, leader = self.replica(broker), self._leaders.get(epoch)
        if leader is not None and leader != broker:
            for piece in self.replica(leader).pieces(log.end, end):
                log.extend(index, piece.end, piece.epoch)
        if log.end < end:
            log.extend(index, end, otherwise)

    def truncated(self, index: int, broker: str, to_offset: int) -> None:
        """Take in a truncation; one above the log's end begins the log again there."""
        log = self.replica(broker)
        if to_offset > log.end or to_offset < log.start:
            log.start_at(index, to_offset)
        log.cut(index, to_offset)

    def high_watermark(self, index: int, broker: str, offset: int) -> None:
        self.replica(broker).high_watermarks += (index, offset)
