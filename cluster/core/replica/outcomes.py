"""The outcome of an append to a partition that is led here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from cluster.core.errors import ErrorCode
from cluster.core.messages import TopicPartition
from storage.values import quickly_made


@quickly_made
@dataclass(frozen=True, slots=True, kw_only=True)
class Appended:
    """Records that are in the log of the leader, at offsets `base_offset` to `last_offset`, both inclusive."""

    topic_partition: TopicPartition
    base_offset: int
    last_offset: int
    log_append_time_ms: int
    log_start_offset: int
    leader_id: int
    leader_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NotCommitted:
    """The reason why records are not known to be as safe as was asked."""

    topic_partition: TopicPartition
    error: ErrorCode
    detail: str
    # Whether the records may be in the log all the same, where they may stay or be lost; else nothing was appended.
    is_in_doubt: bool


Outcome = Appended | NotCommitted
# Takes `now_ms` and the outcome.
OnDone = Callable[[int, Outcome], None]
