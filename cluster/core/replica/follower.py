"""The state of a replica while it follows, in one leader epoch."""

from __future__ import annotations

from enum import Enum
from typing import final


class FetchState(Enum):
    """Whether a follower may fetch."""

    FETCHING = "fetching"
    # The log is cut in slices before the first fetch in the leader epoch.
    TRUNCATING = "truncating"
    # The follower's leader epoch is over; only newer metadata helps (FET-10).
    FENCED = "fenced"
    # The log refused what the leader sent.
    FAILED = "failed"


@final
class Follower:
    """One follower's leader, and whether it may fetch. Each leader epoch makes a new one."""

    def __init__(self, *, leader_id: int, leader_epoch: int) -> None:
        # With NO_LEADER there is nothing to fetch, and the log stays (ROL-4).
        self.leader_id = leader_id
        self.leader_epoch = leader_epoch
        self.state = FetchState.FETCHING
        self.delayed_until_ms = 0

    def is_ready(self, now_ms: int) -> bool:
        return self.state is FetchState.FETCHING and now_ms >= self.delayed_until_ms
