"""The leader's view of one follower, moved only by fetches that passed every check (LED-6).

Kafka: Replica, ReplicaState.
"""

from __future__ import annotations

from typing import final

from storage.segment.place import UNKNOWN_OFFSET, LogOffsetMetadata

UNKNOWN_BROKER_EPOCH = -1
# Before all time, simulated time too, which begins at 0.
NEVER_MS = -(1 << 62)


@final
class FollowerProgress:
    """Everything is of one leader epoch: a new one begins with a new view (ISR-8)."""

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
        # Its fetch offset: all below is in its log (LED-8).
        self.log_end = UNKNOWN_OFFSET
        # -1 until it has fetched in this leader epoch.
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
        """ISR-1: caught up now, or as of its previous fetch, or no news. The end may go down (LED-7)."""
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
        """The controller took it out of the ISR, so it is caught up again only with its next fetch, if one comes."""
        self.last_caught_up_ms = NEVER_MS

    def is_caught_up(self, leader_end_offset: int, now_ms: int, lag_time_max_ms: int) -> bool:
        """At the leader's end, or was within the lag time (ISR-2)."""
        is_at_end = self.log_end_offset == leader_end_offset
        return is_at_end or now_ms - self.last_caught_up_ms <= lag_time_max_ms
