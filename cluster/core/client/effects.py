"""The notices that a client core sends to its user, beside the effects that its shell carries out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from cluster.core.effects import Effect
from cluster.core.errors import ErrorCode
from cluster.core.messages import DescribeReplicasResponse, MetadataResponse, ResponseBody, TopicPartition
from storage.batch import TimestampType
from storage.batch.record import Record
from storage.values import quickly_made


@quickly_made
@dataclass(frozen=True, slots=True, kw_only=True)
class Delivered:
    """The outcome of one `send`: exactly one for each ticket, in order of sending within a partition.

    With an error the record is not in the log, unless `is_unknown`: then it was sent, and may be in the log now
    or later. `offset` is -1 with acks=0, and where the leader acknowledged a duplicate whose offset it no longer knows.
    """

    ticket: int
    # Partition -1 means that none was chosen.
    topic_partition: TopicPartition
    offset: int = -1
    timestamp_ms: int = -1
    error: ErrorCode = ErrorCode.NONE
    message: str = ""
    is_unknown: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Flushed:
    """The end of the `flush` with this ticket: all records sent before it were delivered or have failed."""

    ticket: int


ProducerEffect = Effect | Delivered | Flushed


class FetchedBatch(NamedTuple):
    """What the records of one batch share; `record_count` counts those that were returned, in their order."""

    record_count: int
    leader_epoch: int
    timestamp_type: TimestampType


@quickly_made
@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """Records from the position on, all below `high_watermark` (exclusive); `next_offset` is the new position.

    `batches` says which of the records were in one batch.
    """

    topic_partition: TopicPartition
    records: tuple[Record, ...] = field(repr=False)
    high_watermark: int
    next_offset: int
    leader_epoch: int
    batches: tuple[FetchedBatch, ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class PositionReset:
    """A new position, `offset`, that was looked up.

    `reason` is earliest, latest, timestamp, before_end or out_of_range.
    """

    topic_partition: TopicPartition
    offset: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Truncated:
    """Notice that records already read were truncated: the leader's log has `epoch` only up to `to_offset` (KIP-320).

    The records from `to_offset` up to `from_offset` (exclusive) are no longer in the log. Reading continues at
    `to_offset`.
    """

    topic_partition: TopicPartition
    from_offset: int
    to_offset: int
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PositionLost:
    """The end of reading a partition: its offset is out of range without a reset policy, or the error is permanent."""

    topic_partition: TopicPartition
    offset: int
    error: ErrorCode


@quickly_made
@dataclass(frozen=True, slots=True, kw_only=True)
class EndOfPartition:
    """Notice that the position reached the high watermark: one for each time that it does."""

    topic_partition: TopicPartition
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicMissing:
    """Notice that a subscribed topic has no metadata, and why: one for each new error, while asking continues."""

    topic: str
    error: ErrorCode


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionDeleted:
    """The end of reading a partition that its topic has no more: the topic was created again with fewer of them."""

    topic_partition: TopicPartition


ConsumerEffect = (
    Effect
    | Fetched
    | PositionReset
    | Truncated
    | PositionLost
    | EndOfPartition
    | TopicMissing
    | PartitionDeleted
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """The outcome of one call; `body` is None where no node answered in time."""

    ticket: int
    body: ResponseBody | None
    error: ErrorCode = ErrorCode.NONE
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """Metadata and the replicas of each broker that answered; with an error `metadata` is None."""

    ticket: int
    metadata: MetadataResponse | None
    replicas: tuple[DescribeReplicasResponse, ...] = ()
    error: ErrorCode = ErrorCode.NONE
    message: str = ""


AdminEffect = Effect | Answered | Described
