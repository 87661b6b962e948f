"""What a replica is while it follows, all of one leader epoch."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import final


class FetchState(Enum):
    FETCHING = "fetching"
    FENCED = "fenced"  # our leader epoch is over; only newer metadata helps (FET-10)
    FAILED = "failed"  # storage refused what the leader sent


@final
class Follower:
    def __init__(self, *, leader_id: int, leader_epoch: int) -> None:
        self.leader_id = leader_id  # NO_LEADER: nothing to fetch, the log stays (ROL-4)
        self.leader_epoch = leader_epoch
        self.state = FetchState.FETCHING
        self.delayed_until_ms = 0

    def is_ready(self, now_ms: int) -> bool:
        return self.state is FetchState.FETCHING and now_ms >= self.delayed_until_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a fetch in flight said about one partition; the answer is to this and to nothing else (FET-4)."""

    fetch_offset: int
    leader_epoch: int
