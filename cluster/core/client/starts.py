"""The starts of a consumer that are no known offset: they are looked up at the leader.

Kafka: KafkaConsumer.offsetsForTimes; the last `count` offsets are librdkafka's RD_KAFKA_OFFSET_TAIL.
"""

from __future__ import annotations

from dataclasses import dataclass

from cluster.core.client.config import OffsetReset
from cluster.core.messages import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from storage.config import LONG_MAX


def _check(name: str, number: object) -> None:
    if not isinstance(number, int) or isinstance(number, bool):
        raise TypeError(f"{name}: expected an int, got {number!r}")
    if not 0 <= number <= LONG_MAX:
        raise ValueError(f"{name}: expected 0 to {LONG_MAX}, got {number}")


@dataclass(frozen=True, slots=True)
class AtTime:
    """The first record whose timestamp is at or after `timestamp_ms`, or the end.

    Raises TypeError for what is no int, ValueError below 0 and above what a record can have.
    """

    timestamp_ms: int

    def __post_init__(self) -> None:
        _check("timestamp_ms", self.timestamp_ms)


@dataclass(frozen=True, slots=True)
class BeforeEnd:
    """The offset `count` below the end, but not below the log start. Raises what `AtTime` raises.

    Where offsets are missing, as after compaction, fewer than `count` records follow.
    """

    count: int

    def __post_init__(self) -> None:
        _check("count", self.count)


@dataclass(frozen=True, slots=True)
class AtLeast:
    """The offset, or the log start where that is higher: what is left to look up once the end is known."""

    offset: int


@dataclass(frozen=True, slots=True)
class FirstSince:
    """The first record at or after `timestamp_ms`, or `end_offset`: what is left to look up once the end is known.

    An end that is looked up afterwards would be behind records that came meanwhile, and are as late as that.
    """

    timestamp_ms: int
    end_offset: int


LookedUp = OffsetReset | AtTime | BeforeEnd | AtLeast | FirstSince


def reason_of(start: LookedUp) -> str:
    """Returns the `reason` of the PositionReset that a start leads to."""
    match start:
        case OffsetReset():
            return start.value
        case AtTime() | FirstSince():
            return "timestamp"
        case BeforeEnd() | AtLeast():
            return "before_end"


def asked_timestamp(start: LookedUp) -> int:
    """Returns the `timestamp` of the ListOffsets request that looks `start` up."""
    match start:
        case OffsetReset.EARLIEST | AtLeast():
            return EARLIEST_TIMESTAMP
        case FirstSince():
            return start.timestamp_ms
        case _:
            return LATEST_TIMESTAMP


def next_step(start: LookedUp, answered_offset: int) -> int | LookedUp:
    """Returns the offset to begin at, or what must be looked up next; -1 answers that no record is that late."""
    match start:
        case AtTime():
            return FirstSince(start.timestamp_ms, answered_offset)
        case FirstSince() if answered_offset < 0:
            return start.end_offset
        case BeforeEnd():
            # The end itself cannot be below the log start.
            return AtLeast(answered_offset - start.count) if start.count > 0 else answered_offset
        case AtLeast():
            return max(start.offset, answered_offset)
        case _:
            return answered_offset
