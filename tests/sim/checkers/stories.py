"""What checkers are shown by hand: marks, and the beginnings that many sequences share."""

from __future__ import annotations

from sim.checkers.base import Jury, Violation
from sim.checkers.chain import Mark
from sim.checkers.ghost import Ghost
from sim.checkers.registry import all_checkers
from sim.checkers.sightings import (
    Accepted,
    Acknowledged,
    Appended,
    BecameFollower,
    BecameLeader,
    Created,
    Died,
    Elected,
    HighWatermark,
    IsrChanged,
    Loaded,
    PartitionState,
    Served,
    Sighting,
    Truncated,
)

P = "t-0"


def mark(base_offset: int, epoch: int = 0, count: int = 1, crc: int | None = None) -> Mark:
    """A batch whose content follows from its offset and epoch unless `crc` says otherwise."""
    value = crc if crc is not None else base_offset * 1000 + epoch
    return Mark(base_offset, base_offset + count, epoch, value, count)


def marks(start: int, end: int, epoch: int = 0) -> tuple[Mark, ...]:
    return tuple(mark(offset, epoch) for offset in range(start, end))


def jury_of(*sightings: Sighting) -> Jury:
    told: list[Violation] = []
    jury = Jury(ghost := Ghost(), all_checkers(ghost), now_us=lambda: 0, on_violation=told.append)
    for sighting in sightings:
        jury.see(sighting)
    return jury


def broken(*sightings: Sighting) -> list[str]:
    return [violation.checker for violation in jury_of(*sightings).violations]


def appended_everywhere(start: int, end: int, epoch: int = 0) -> list[Sighting]:
    return [Appended(broker, P, epoch, marks(start, end, epoch)) for broker in (1, 2, 3)]


# Broker 1 leads epoch 0. Offsets 0 to 4 are on all three brokers and committed.
QUIET: list[Sighting] = [
    Created(P, 1, False),
    Elected(P, 1, 0, (1, 2, 3), True),
    BecameLeader(1, P, 0, 0),
    BecameFollower(2, P, 0, 1),
    BecameFollower(3, P, 0, 1),
    *appended_everywhere(0, 5),
    HighWatermark(1, P, 0, 5, True),
    Acknowledged(1, P, 4, 4, -1, ()),
    HighWatermark(2, P, 0, 5, False),
    HighWatermark(3, P, 0, 5, False),
]

# Brokers 2 and 3 have fetched up to 7. Broker 1 does not know it yet when it is replaced by 2, whose disk
# loses its tail.
FETCHED_AND_LOST: list[Sighting] = [
    *QUIET,
    *appended_everywhere(5, 7),
    IsrChanged(P, (1, 2)),
    Died(2, P, True, marks(0, 6)),
    Loaded(2, P, marks(0, 6), ""),
    Elected(P, 2, 1, (2,), True),
    BecameLeader(2, P, 1, 6),
]
# Meanwhile the new leader has committed other records at the lost offsets.
LED_ON: list[Sighting] = [
    *FETCHED_AND_LOST,
    Appended(2, P, 1, marks(6, 9, 1)),
    HighWatermark(2, P, 1, 9, True),
]
# The old leader wakes and counts the fetches that were on their way to it.
LATE: list[Sighting] = [
    HighWatermark(1, P, 0, 7, True),
    Acknowledged(1, P, 6, 6, -1, ()),
    Served(1, P, 7, (mark(5), mark(6))),
    HighWatermark(3, P, 0, 7, False),
]

# Broker 3 has left, come back and caught up, so it is proposed. Before the controller answers, its disk loses
# its tail.
REJOINING: list[Sighting] = [
    *QUIET,
    IsrChanged(P, (1, 2)),
    Died(3, P, True, marks(0, 3)),
    Loaded(3, P, marks(0, 3), ""),
]

# Broker 1 has led on with records that broker 2 never had. That one leads now, and has committed another record.
REPLACED: list[Sighting] = [
    *QUIET,
    Appended(1, P, 0, marks(5, 7), True),
    Elected(P, 2, 1, (2,), True),
    BecameLeader(2, P, 1, 5),
    Appended(2, P, 1, marks(5, 6, 1), True),
    HighWatermark(2, P, 1, 6, True),
]
# It has died, has been back, and leads again. Broker 1 is told to cut its log at 6, where the log of broker 2 ends.
CUT_TOO_LATE: list[Sighting] = [
    Elected(P, 2, 2, (2,), True),
    BecameLeader(2, P, 2, 6),
    BecameFollower(1, P, 2, 2),
    Truncated(1, P, 6, 2),
]

# Broker 3 alone has a batch of 5 to 9. Broker 2, which leads now, has other records there, and lets it cut at 7.
CUT_INSIDE_A_BATCH: list[Sighting] = [
    *QUIET,
    Appended(3, P, 0, (mark(5, count=4),)),
    Elected(P, 2, 1, (2,), True),
    BecameLeader(2, P, 1, 5),
    Appended(2, P, 1, marks(5, 8, 1), True),
    HighWatermark(2, P, 1, 8, True),
    Truncated(3, P, 7, 1),
]

ALL = (1, 2, 3)
# Broker 1 leads epoch 0; then broker 3 has left the ISR.
FIRST = PartitionState(ALL, ALL, 1, 0, 0)
SHRUNK = FIRST._replace(isr=(1, 2), partition_epoch=1)
# Broker 2 leads after broker 1 was fenced.
FAILED_OVER = PartitionState(ALL, (2, 3), 2, 1, 1)
LIVES = ((1, 5), (2, 6), (3, 7))
SHRINK = Accepted(P, 1, 5, 0, ((1, 5), (2, 6)), FIRST, SHRUNK, LIVES, (1, 0, (1, 2)))


def led(broker: int, base_offset: int, epoch: int = 0, crc: int | None = None) -> Appended:
    """One batch that a leader appended for a client."""
    return Appended(broker, P, epoch, (mark(base_offset, epoch, crc=crc),), True)
