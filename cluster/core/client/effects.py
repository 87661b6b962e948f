"""What the client cores tell their user, beside the effects that their shell carries out."""

from __future__ import annotations

from dataclasses import dataclass, field

from cluster.core.effects import Effect
from cluster.core.errors import ErrorCode
from cluster.core.messages import DescribeReplicasResponse, MetadataResponse, ResponseBody, TopicPartition
from storage.batch.record import Record


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivered:
    """The end of one `send`, exactly one a ticket; in order of sending within a partition.

    With an error the record is not in the log, unless `is_unknown`: then it was sent, and may be there or
    appear. `offset` is -1 with acks=0 and where a duplicate was acknowledged whose offset the leader no
    longer knows.
    """

    ticket: int
    # With partition -1 none was chosen.
    topic_partition: TopicPartition
    offset: int = -1
    timestamp_ms: int = -1
    error: ErrorCode = ErrorCode.NONE
    message: str = ""
    is_unknown: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Flushed:
    """All that was sent before the `flush` with this ticket has been delivered or has failed."""

    ticket: int


ProducerEffect = Effect | Delivered | Flushed


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """Records from the position on, all below `high_watermark`; the position is `next_offset` now."""

    topic_partition: TopicPartition
    records: tuple[Record, ...] = field(repr=False)
    high_watermark: int
    next_offset: int
    leader_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PositionReset:
    """The position was looked up (`reason`: earliest, latest, out_of_range) and is `offset` now."""

    topic_partition: TopicPartition
    offset: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Truncated:
    """The log that was read is not the leader's any more: that one ends, for its epoch, at `to_offset` (KIP-320).

    What was fetched from `to_offset` on, up to `from_offset` (exclusive), no longer counts; reading goes on
    there.
    """

    topic_partition: TopicPartition
    from_offset: int
    to_offset: int
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PositionLost:
    """Reading of the partition has ended: out of range without a reset policy, or refused for good."""

    topic_partition: TopicPartition
    offset: int
    error: ErrorCode


@dataclass(frozen=True, slots=True, kw_only=True)
class EndOfPartition:
    """The position reached the high watermark; told once for each time that it does."""

    topic_partition: TopicPartition
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicMissing:
    """A subscribed topic does not exist, or cannot; asked for again and again, told once."""

    topic: str
    error: ErrorCode


ConsumerEffect = Effect | Fetched | PositionReset | Truncated | PositionLost | EndOfPartition | TopicMissing


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """The end of one call; `body` is None where no node answered in time."""

    ticket: int
    body: ResponseBody | None
    error: ErrorCode = ErrorCode.NONE
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """Metadata, and what each broker that answered holds."""

    ticket: int
    metadata: MetadataResponse | None
    replicas: tuple[DescribeReplicasResponse, ...] = ()
    error: ErrorCode = ErrorCode.NONE
    message: str = ""


AdminEffect = Effect | Answered | Described
