"""The starts of a consumer that are no known offset: they are looked up at the leader.

Kafka: KafkaConsumer.offsetsForTimes; the last `count` offsets are librdkafka's RD_KAFKA_OFFSET_TAIL.
"""

from __future__ import annotations

from dataclasses import dataclass

from cluster.core.client.config import OffsetReset
from cluster.core.messages import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP


@dataclass(frozen=True, slots=True)
class AtTime:
    """The first record whose timestamp is at or after `timestamp_ms`, or the end. Raises ValueError below 0."""

    timestamp_ms: int

    def __post_init__(self) -> None:
        if self.timestamp_ms < 0:
            raise ValueError(f"timestamp {self.timestamp_ms} ms: expected 0 or more")


@dataclass(frozen=True, slots=True)
class BeforeEnd:
    """The offset `count` below the end, but not below the log start. Raises ValueError for a count below 0.

    Where offsets are missing, as after compaction, fewer than `count` records follow.
    """

    count: int

    def __post_init__(self) -> None:
        if self.count < 0:
            raise ValueError(f"{self.count} offsets before the end: expected 0 or more")


@dataclass(frozen=True, slots=True)
class AtLeast:
    """The offset, or the log start where that is higher: what is left to look up once the end is known."""

    offset: int


LookedUp = OffsetReset | AtTime | BeforeEnd | AtLeast


def reason_of(start: LookedUp) -> str:
    """Returns the `reason` of the PositionReset that a start leads to."""
    match start:
        case OffsetReset():
            return start.value
        case AtTime():
            return "timestamp"
        case BeforeEnd() | AtLeast():
            return "before_end"


def asked_timestamp(start: LookedUp) -> int:
    """Returns the `timestamp` of the ListOffsets request that looks `start` up."""
    match start:
        case OffsetReset.EARLIEST | AtLeast():
            return EARLIEST_TIMESTAMP
        case AtTime():
            return start.timestamp_ms
        case _:
            return LATEST_TIMESTAMP


def next_step(start: LookedUp, answered_offset: int) -> int | LookedUp:
    """Returns the offset to begin at, or what must be looked up next; -1 answers that no record is that late."""
    match start:
        case AtTime() if answered_offset < 0:
            return OffsetReset.LATEST
        case BeforeEnd():
            # The end itself cannot be below the log start.
            return AtLeast(answered_offset - start.count) if start.count > 0 else answered_offset
        case AtLeast():
            return max(start.offset, answered_offset)
        case _:
            return answered_offset
