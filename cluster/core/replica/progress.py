"""What a leader knows of one follower, from fetches that passed every check (LED-6).

Kafka: Replica, ReplicaState.
"""

from __future__ import annotations

from typing import final

from storage.segment.place import UNKNOWN_OFFSET, LogOffsetMetadata

UNKNOWN_BROKER_EPOCH = -1
# Earlier than any time, even simulated time, which begins at 0.
NEVER_MS = -(1 << 62)


@final
class FollowerProgress:
    """The progress of one follower in one leader epoch; each leader epoch begins with a new one (ISR-8)."""

    __slots__ = (
        "broker_epoch",
        "broker_id",
        "last_caught_up_ms",
        "last_fetch_leader_end_offset",
        "last_fetch_ms",
        "log_end",
        "log_end_offset",
        "log_start_offset",
    )

    def __init__(self, broker_id: int, *, last_caught_up_ms: int) -> None:
        self.broker_id = broker_id
        # The follower's fetch offset: all below is in the follower's log (LED-8).
        self.log_end = UNKNOWN_OFFSET
        # The same offset; -1 until the follower has fetched in this leader epoch.
        self.log_end_offset = UNKNOWN_OFFSET.offset
        self.log_start_offset = -1
        self.last_fetch_ms = NEVER_MS
        self.last_fetch_leader_end_offset = 0
        self.last_caught_up_ms = last_caught_up_ms
        # The epoch in the fetch that moved `log_end` (KIP-903).
        self.broker_epoch = UNKNOWN_BROKER_EPOCH

    def reached(
        self,
        log_end: LogOffsetMetadata,
        *,
        log_start_offset: int,
        leader_end_offset: int,
        broker_epoch: int,
        now_ms: int,
    ) -> None:
        """Notes a fetch at `log_end`: the follower is caught up now, or was at its previous fetch, or neither (ISR-1).

        `leader_end_offset` is the leader's log end. The follower's end may go down (LED-7).
        """
        assert 0 <= log_end.offset, log_end
        assert log_end.offset <= leader_end_offset, (log_end, leader_end_offset)
        if log_end.offset >= leader_end_offset:
            self.last_caught_up_ms = max(self.last_caught_up_ms, now_ms)
        elif log_end.offset >= self.last_fetch_leader_end_offset:
            self.last_caught_up_ms = max(self.last_caught_up_ms, self.last_fetch_ms)
        self.log_end, self.log_end_offset = log_end, log_end.offset
        self.log_start_offset = log_start_offset
        self.last_fetch_ms = now_ms
        self.last_fetch_leader_end_offset = leader_end_offset
        self.broker_epoch = broker_epoch

    def left(self) -> None:
        """Notes that the controller removed the follower from the ISR: only another fetch makes it caught up again."""
        self.last_caught_up_ms = NEVER_MS

    def is_caught_up(self, leader_end_offset: int, now_ms: int, lag_time_max_ms: int) -> bool:
        """Returns whether the follower is at the leader's end, or was so within the lag time (ISR-2)."""
        is_at_end = self.log_end_offset == leader_end_offset
        return is_at_end or now_ms - self.last_caught_up_ms <= lag_time_max_ms
