"""Each checker has a hand-made sequence that must pass and one that must fail it."""

from __future__ import annotations

import pytest

from sim.checkers.base import Jury, Violation
from sim.checkers.chain import Chain, Mark
from sim.checkers.ghost import Ghost
from sim.checkers.registry import all_checkers
from sim.checkers.sightings import (
    Accepted,
    Acknowledged,
    Appended,
    BecameFollower,
    BecameLeader,
    Created,
    DeletedSegment,
    Described,
    Died,
    Elected,
    EpochsSeen,
    Fetched,
    HighWatermark,
    IsrChanged,
    Loaded,
    LogStarted,
    OffsetLookedUp,
    PartitionState,
    Recorded,
    Served,
    Settled,
    Sighting,
    StoppedCleanly,
    Truncated,
    WaitedFor,
    Waits,
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


GOOD: dict[str, list[Sighting]] = {
    "a crash loses what is at the recovery point and after it": [
        *QUIET,
        Died(2, P, True, marks(0, 3), recovery_point=3),
    ],
    "a process cuts its log in the step in which it ends": [
        *QUIET,
        Died(2, P, False, marks(0, 3), recovery_point=5),
    ],
    "the recovery point is above a log that was cut, and the crash loses nothing": [
        *QUIET,
        Appended(2, P, 0, marks(5, 7)),
        Truncated(2, P, 5, 0),
        Died(2, P, False, marks(0, 5), recovery_point=7),
    ],
    "a disk that lied about its syncs loses records below the recovery point": [
        *QUIET,
        Died(2, P, True, marks(0, 3), 0, "the disk lied", recovery_point=5),
    ],
    "a broker stops in order, its machine loses power, and all is there": [
        *QUIET,
        StoppedCleanly(2, P),
        Died(2, P, True, marks(0, 5), recovery_point=5),
        Loaded(2, P, marks(0, 5), ""),
        Died(2, P, True, marks(0, 2), recovery_point=2),
    ],
    "the disk of a broker that stopped in order is replaced": [
        *QUIET,
        StoppedCleanly(2, P),
        Died(2, P, True, (), 0, "the disk was replaced"),
        Loaded(2, P, (), ""),
    ],
    "the log starts inside the batch that holds the high watermark": [
        *QUIET,
        Appended(1, P, 0, (mark(5, count=4),)),
        HighWatermark(1, P, 0, 6, False, 7),
    ],
    "a broker takes a role again after its restart": [
        *QUIET,
        Died(2, P, False, marks(0, 5)),
        Loaded(2, P, marks(0, 5), ""),
        BecameFollower(2, P, 0, 1),
    ],
    "a commit that a member's retention has deleted there": [
        Created(P, 2, False),
        *QUIET[1:],
        *[Appended(broker, P, 0, marks(5, 7)) for broker in (1, 3)],
        Elected(P, 3, 1, (3,), False, True),
        # Broker 1 is put off by an unclean election that it does not know of yet.
        HighWatermark(1, P, 0, 7, True),
        LogStarted(1, P, 6),
        BecameLeader(3, P, 1, 7),
        BecameFollower(1, P, 1, 3),
        IsrChanged(P, (1, 3)),
        HighWatermark(3, P, 1, 7, True),
    ],
    "quiet": QUIET,
    "a follower with other records below the start of its leader's log": [
        *QUIET,
        led(1, 5),
        Elected(P, 2, 1, (2,), True),
        BecameLeader(2, P, 1, 5),
        led(2, 5, 1),
        HighWatermark(2, P, 1, 6, True),
        LogStarted(2, P, 6),
        led(2, 6, 1),
        BecameFollower(1, P, 1, 2),
        Appended(1, P, 1, (mark(6, 1),)),
    ],
    "a log that was cut inside a batch, where its leader's log begins, and goes on there": [
        *CUT_INSIDE_A_BATCH,
        LogStarted(2, P, 7),
        Appended(3, P, 1, (mark(7, 1),)),
        Died(3, P, False, (*marks(0, 5), mark(7, 1))),
        Loaded(3, P, (*marks(0, 5), mark(7, 1)), ""),
    ],
    "a high watermark at the end of a log that was cut inside a batch": [
        *CUT_INSIDE_A_BATCH,
        HighWatermark(3, P, 1, 7, False, 7),
    ],
    "an epoch cache that begins at a log start, which a crash has taken back": [
        *QUIET,
        LogStarted(2, P, 3),
        EpochsSeen(1, P, ((0, 3),)),
    ],
    "an epoch cache without an epoch that ended before a log start, which a cut has taken back": [
        *QUIET,
        LogStarted(2, P, 5),
        EpochsSeen(1, P, ()),
    ],
    "an answer that waited for another partition, with what was committed before its epoch ended": [
        *QUIET,
        Elected(P, 2, 1, (1, 2, 3), True),
        BecameFollower(1, P, 1, 2),
        Acknowledged(1, P, 4, 4, -1, (), 0),
    ],
    "a late leader commits what the disks of all electable replicas have lost": [*FETCHED_AND_LOST, *LATE],
    "a late leader commits what was lost and is replaced": [*LED_ON, *LATE],
    "the new leader commits after the late one": [*FETCHED_AND_LOST, *LATE, *LED_ON[len(FETCHED_AND_LOST) :]],
    "a late leader commits what was lost, and it is brought back uncleanly": [
        *FETCHED_AND_LOST,
        Elected(P, 3, 2, (3,), False),
        BecameLeader(3, P, 2, 7),
        HighWatermark(3, P, 2, 7, True),
        Served(3, P, 7, (mark(5), mark(6))),
    ],
    "fail-over": [
        *QUIET,
        Appended(1, P, 0, marks(5, 7)),
        Died(1, P, False, marks(0, 7)),
        Elected(P, 2, 1, (2, 3), True),
        BecameLeader(2, P, 1, 5),
        BecameFollower(3, P, 1, 2),
        Appended(2, P, 1, marks(5, 6, 1)),
        Appended(3, P, 1, marks(5, 6, 1)),
        HighWatermark(2, P, 1, 6, True),
        Served(2, P, 6, marks(5, 6, 1)),
        Loaded(1, P, marks(0, 7), ""),
        BecameFollower(1, P, 1, 2),
        Truncated(1, P, 5, 1),
        Appended(1, P, 1, marks(5, 6, 1)),
        EpochsSeen(1, P, ((0, 0), (1, 5))),
        IsrChanged(P, (2, 3, 1)),
    ],
    "an election from the ISR": [
        Recorded(P, None, FIRST, ALL, False),
        Recorded(P, FIRST, FAILED_OVER, ALL, False),
        Settled(P, FAILED_OVER, (2, 3)),
    ],
    "an unclean election that the topic allows": [
        Recorded(P, SHRUNK, PartitionState(ALL, (3,), 3, 1, 2), (3,), True),
    ],
    "a last member that stays though it is fenced": [
        Recorded(P, FIRST, FIRST._replace(isr=(1,), partition_epoch=1), ALL, False),
        Recorded(P, FIRST._replace(isr=(1,)), PartitionState(ALL, (1,), -1, 1, 2), (2, 3), False),
        Settled(P, PartitionState(ALL, (1,), -1, 1, 2), (2, 3)),
    ],
    "a proposal that builds on the present state": [SHRINK],
    "a proposal that changes nothing": [
        SHRINK._replace(members=((1, 5), (2, 6), (3, 7)), result=FIRST, stated=(1, 0, ALL))
    ],
    "a description of an older state": [Described(2, P, 9, (ALL, ALL, 1, 0), FIRST)],
    "a leader that waits for a joiner that is not in the ISR yet": [
        *QUIET,
        IsrChanged(P, (1, 2)),
        WaitedFor(1, P, 0, ALL),
    ],
    "a replaced leader that waits for its own ISR": [
        *QUIET,
        Elected(P, 2, 1, ALL, True),
        WaitedFor(1, P, 0, (1, 2)),
    ],
    "a follower copies what its leader appended": [
        *QUIET[:4],
        led(1, 0),
        led(1, 1),
        Appended(2, P, 0, marks(0, 2)),
    ],
    "a leader whose epoch cache has its epoch": [
        *QUIET,
        Elected(P, 2, 1, ALL, True),
        BecameLeader(2, P, 1, 5),
        EpochsSeen(2, P, ((0, 0), (1, 5)), leads=1),
    ],
    "a fetch in one epoch": [*QUIET, Fetched(1, P, 2, 0, 0)],
    "a follower that is out of the ISR may truncate below the truth": [
        *QUIET,
        IsrChanged(P, (1, 2)),
        Truncated(3, P, 2, 0),
    ],
    "a late leader whom another has replaced": [
        *QUIET,
        Elected(P, 2, 1, (1, 2, 3), True),
        Elected(P, 3, 2, (1, 2, 3), True),
        BecameLeader(3, P, 2, 5),
        Appended(3, P, 2, marks(5, 6, 2)),
        Appended(1, P, 2, marks(5, 6, 2)),
        Appended(2, P, 2, marks(5, 6, 2)),
        HighWatermark(3, P, 2, 6, True),
    ],
    "all disks lose their tail": [
        *QUIET,
        *(Died(broker, P, True, marks(0, 3)) for broker in (1, 2, 3)),
        *(Loaded(broker, P, marks(0, 3), "") for broker in (1, 2, 3)),
        Elected(P, 2, 1, (2,), True),
        BecameLeader(2, P, 1, 3),
        Appended(2, P, 1, marks(3, 4, 1)),
        HighWatermark(2, P, 1, 4, True),
    ],
    "a joiner whose disk loses its tail while its proposal is on its way": [
        *REJOINING,
        IsrChanged(P, (1, 2, 3)),
    ],
    "an unclean election": [
        *QUIET,
        Truncated(3, P, 5, 0),
        IsrChanged(P, (1, 2)),
        Truncated(3, P, 3, 0),
        Elected(P, 3, 1, (3,), False),
        BecameLeader(3, P, 1, 3),
    ],
    "a leader that leads on after an unclean election": [
        *QUIET,
        IsrChanged(P, (1,)),
        Elected(P, 3, 1, (3,), False),
        BecameLeader(3, P, 1, 5),
        Appended(3, P, 1, (mark(5, 1),)),
        HighWatermark(3, P, 1, 6, True),
        Appended(1, P, 0, marks(5, 7)),
        HighWatermark(1, P, 0, 7, True),
        Acknowledged(1, P, 6, 6, -1, ()),
        Served(1, P, 7, (mark(5), mark(6))),
        BecameFollower(1, P, 1, 3),
        Truncated(1, P, 5, 1),
        Appended(1, P, 1, (mark(5, 1),)),
        HighWatermark(1, P, 1, 6, False),
    ],
    "an unclean election where a flush was promised": [
        Created(P, 1, True),
        *(each._replace(durable_on=(1, 2)) if isinstance(each, Acknowledged) else each for each in QUIET[1:]),
        IsrChanged(P, (1, 2)),
        Truncated(3, P, 3, 0),
        Elected(P, 3, 1, (3,), False),
        BecameLeader(3, P, 1, 3),
        Appended(3, P, 1, marks(3, 4, 1)),
        HighWatermark(3, P, 1, 4, True),
    ],
}

BAD: dict[str, tuple[str, list[Sighting]]] = {
    "a crash loses a record below the recovery point": (
        "recovery-point",
        [*QUIET, Died(2, P, True, marks(0, 3), recovery_point=4)],
    ),
    "a record is missing after an orderly stop": (
        "clean-stop",
        [*QUIET, StoppedCleanly(2, P), Loaded(2, P, marks(0, 4), "")],
    ),
    "a power loss after an orderly stop loses a record": (
        "clean-stop",
        [*QUIET, StoppedCleanly(2, P), Died(2, P, True, marks(0, 4))],
    ),
    "the log starts above the high watermark": ("mark-order", [*QUIET, HighWatermark(1, P, 0, 5, True, 6)]),
    "a broker takes a role of an earlier epoch after its restart": (
        "epochs-rise",
        [
            *QUIET,
            Elected(P, 3, 1, (2, 3), True),
            BecameFollower(2, P, 1, 3),
            Died(2, P, False, marks(0, 5)),
            Loaded(2, P, marks(0, 5), ""),
            BecameFollower(2, P, 0, 1),
        ],
    ),
    "a follower appends a batch of a later epoch than its role's": (
        "epochs-rise",
        [*QUIET, Elected(P, 3, 1, (2, 3), True), Appended(2, P, 0, marks(5, 6, 1))],
    ),
    "an unclean election that the topic forbids": (
        "elections",
        [Recorded(P, SHRUNK, PartitionState(ALL, (3,), 3, 1, 2), (3,), False)],
    ),
    "an election of a broker that is not active": (
        "elections",
        [Recorded(P, FIRST, FAILED_OVER, (1, 3), False)],
    ),
    "an election of a broker that cannot read the partition": (
        "elections",
        [Recorded(P, FIRST, FAILED_OVER, ALL, False, (2,))],
    ),
    "a latest offset that is not the end of what is committed": (
        "offset-answers",
        [*QUIET, OffsetLookedUp(1, P, -1, 6)],
    ),
    "a leader that was fenced and still leads": ("elections", [Settled(P, FIRST, (2, 3))]),
    "an ISR with a broker that has no replica": (
        "isr-members",
        [Recorded(P, FIRST, FIRST._replace(isr=(1, 4)), (1, 2, 3, 4), False)],
    ),
    "an ISR with a broker twice": (
        "isr-members",
        [Recorded(P, FIRST, FIRST._replace(isr=(1, 2, 2)), ALL, False)],
    ),
    "an ISR without the leader": (
        "isr-members",
        [Recorded(P, FIRST, FIRST._replace(isr=(2, 3)), ALL, False)],
    ),
    "a joiner that is fenced": (
        "isr-members",
        [Recorded(P, SHRUNK, SHRUNK._replace(isr=ALL, partition_epoch=2), (1, 2), False)],
    ),
    "a member that was fenced and stays": ("isr-members", [Settled(P, FIRST, (1, 2))]),
    "a leader that does not wait for a member": (
        "isr-members",
        [*QUIET, WaitedFor(1, P, 0, (1, 2))],
    ),
    "a proposal that builds on an older state": (
        "partition-changes",
        [SHRINK._replace(result=SHRUNK._replace(partition_epoch=2))],
    ),
    "a proposal of a broker that does not lead": (
        "partition-changes",
        [SHRINK._replace(broker=2, broker_epoch=6)],
    ),
    "a proposal of an older leader epoch": (
        "partition-changes",
        [SHRINK._replace(base=FIRST._replace(leader_epoch=1))],
    ),
    "a proposal that is not in the log": ("partition-changes", [SHRINK._replace(result=None)]),
    "an answer that differs from the log": ("partition-changes", [SHRINK._replace(stated=(1, 0, ALL))]),
    "a log that differs from the proposal": (
        "partition-changes",
        [SHRINK._replace(result=SHRUNK._replace(isr=(1, 3)), stated=(1, 0, (1, 3)))],
    ),
    "a member in an earlier life": (
        "partition-changes",
        [SHRINK._replace(members=((1, 5), (2, 3)))],
    ),
    "a sender in an earlier life": ("partition-changes", [SHRINK._replace(broker_epoch=2)]),
    "a description that is not in the log": (
        "partition-changes",
        [Described(2, P, 9, (ALL, ALL, 1, 0), SHRUNK)],
    ),
    "a follower that appends what clients send": ("roles", [*QUIET[:5], led(2, 0)]),
    "a leader that appends under another epoch": (
        "roles",
        [*QUIET[:5], Appended(1, P, 0, (mark(0, 1),), True)],
    ),
    "a leader that commits after it has become a follower": (
        "roles",
        [*QUIET, Elected(P, 2, 1, ALL, True), BecameFollower(1, P, 1, 2), HighWatermark(1, P, 0, 5, True)],
    ),
    "an answer after the end of its epoch": (
        "roles",
        [
            *QUIET,
            led(1, 5),
            Elected(P, 2, 1, ALL, True),
            BecameFollower(1, P, 1, 2),
            Acknowledged(1, P, 5, 5, -1, (), 0),
        ],
    ),
    "a follower of a broker that was not elected": ("roles", [*QUIET, BecameFollower(3, P, 0, 2)]),
    "a follower that copies another batch": (
        "log-matching",
        [*QUIET[:5], led(1, 0), Appended(2, P, 0, (mark(0, crc=9),))],
    ),
    "a follower that copies after another batch": (
        "log-matching",
        [*QUIET[:5], led(1, 0), led(1, 1), Appended(2, P, 0, (mark(0, crc=9), mark(1)))],
    ),
    "two appends of one epoch at an offset": (
        "log-matching",
        [*QUIET[:5], led(1, 0), Truncated(1, P, 0, 0), led(1, 0, crc=9)],
    ),
    "a commit by too few replicas": (
        "min-in-sync",
        [
            Created(P, 2, False),
            *QUIET[1:],
            IsrChanged(P, (1,)),
            Appended(1, P, 0, (mark(5),)),
            HighWatermark(1, P, 0, 6, True),
        ],
    ),
    "two leaders of one epoch": ("one-leader", [*QUIET, BecameLeader(2, P, 0, 5)]),
    "a leader that nobody elected": ("one-leader", [*QUIET, BecameLeader(2, P, 7, 5)]),
    "a batch of an epoch without a leader": ("one-leader", [*QUIET, Appended(2, P, 3, marks(5, 6, 3))]),
    "a high watermark that falls": ("high-watermark", [*QUIET, HighWatermark(1, P, 0, 4, True)]),
    "a high watermark above the log": ("high-watermark", [*QUIET, HighWatermark(2, P, 0, 6, False)]),
    "another batch below the high watermark": (
        "committed-prefix",
        [
            *QUIET,
            Appended(1, P, 0, (mark(5),)),
            Appended(2, P, 0, (mark(5),)),
            Appended(3, P, 0, (mark(5, crc=99),)),
            IsrChanged(P, (1, 2)),
            HighWatermark(1, P, 0, 6, True),
            HighWatermark(3, P, 0, 6, False),
        ],
    ),
    "a follower that exposes what no leader committed": (
        "committed-prefix",
        [*QUIET, Appended(3, P, 0, (mark(5),)), HighWatermark(3, P, 0, 6, False)],
    ),
    "a leader without a committed record": (
        "leader-completeness",
        [
            *QUIET,
            IsrChanged(P, (1, 3)),
            Truncated(2, P, 4, 0),
            Elected(P, 2, 1, (2, 3), True),
            BecameLeader(2, P, 1, 4),
        ],
    ),
    "a commit that an in-sync replica lacks": (
        "in-sync-replicas",
        [
            *QUIET,
            Appended(1, P, 0, (mark(5),)),
            Appended(2, P, 0, (mark(5),)),
            HighWatermark(1, P, 0, 6, True),
        ],
    ),
    "a joiner that lacks a commit": (
        "in-sync-replicas",
        [*QUIET, IsrChanged(P, (1, 2)), Truncated(3, P, 4, 0), IsrChanged(P, (1, 2, 3))],
    ),
    "a joiner of a new life that lacks what its disk has lost (KIP-903)": (
        "in-sync-replicas",
        [*REJOINING, BecameFollower(3, P, 0, 1), IsrChanged(P, (1, 2, 3))],
    ),
    "a joiner that lacks more than its disk has lost": (
        "in-sync-replicas",
        [*REJOINING[:-2], Truncated(3, P, 4, 0), *REJOINING[-2:], IsrChanged(P, (1, 2, 3))],
    ),
    "a joiner that lacks what a flush should have kept": (
        "in-sync-replicas",
        [Created(P, 2, True), *REJOINING[1:9], *REJOINING[10:], IsrChanged(P, (1, 2, 3))],
    ),
    "an answer before the commit": (
        "acknowledged-committed",
        [*QUIET, Appended(1, P, 0, (mark(5),)), Acknowledged(1, P, 5, 5, -1, ())],
    ),
    "an answer that one disk alone keeps": (
        "acknowledged-durable",
        [Created(P, 2, True), *QUIET[1:9], Acknowledged(1, P, 4, 4, -1, (1,))],
    ),
    "a hole in the offsets": ("log-shape", [*QUIET, Appended(1, P, 0, (mark(6),))]),
    "a hole after a cut that is no log's start": (
        "log-shape",
        [*CUT_INSIDE_A_BATCH, Appended(3, P, 1, (mark(7, 1),))],
    ),
    "a high watermark above the end of a log that was cut inside a batch": (
        "high-watermark",
        [*CUT_INSIDE_A_BATCH, HighWatermark(3, P, 1, 8, False, 7)],
    ),
    "a high watermark at a cut from which a restart has taken the log's end back": (
        "high-watermark",
        [*CUT_INSIDE_A_BATCH, Loaded(3, P, marks(0, 5), ""), HighWatermark(3, P, 1, 7, False)],
    ),
    "a hole after a cut from which a restart has taken the log's end back": (
        "log-shape",
        [
            *CUT_INSIDE_A_BATCH,
            LogStarted(2, P, 7),
            Loaded(3, P, marks(0, 5), ""),
            Appended(3, P, 1, (mark(7, 1),)),
        ],
    ),
    "an offset twice": ("log-shape", [*QUIET, Appended(1, P, 0, (mark(4),))]),
    "an epoch that falls": (
        "log-shape",
        [*QUIET, Elected(P, 2, 1, (1, 2, 3), True), Appended(2, P, 1, (mark(5, 1), mark(6, 0)))],
    ),
    "a batch with fewer records than offsets": (
        "log-shape",
        [*QUIET, Appended(1, P, 0, (Mark(5, 8, 0, 1, 2),))],
    ),
    "an epoch cache that begins an epoch elsewhere": ("log-shape", [*QUIET, EpochsSeen(1, P, ((0, 2),))]),
    "a leader whose epoch cache lacks its epoch": (
        "log-shape",
        [*QUIET, Elected(P, 2, 1, ALL, True), BecameLeader(2, P, 1, 5), EpochsSeen(2, P, ((0, 0),), leads=1)],
    ),
    "an epoch cache beyond the log": ("log-shape", [*QUIET, EpochsSeen(1, P, ((0, 0), (1, 9)))]),
    "an in-sync replica that cuts below the truth": ("truncation", [*QUIET, Truncated(2, P, 3, 0)]),
    "a read above the high watermark": (
        "served-above-high-watermark",
        [*QUIET, Served(1, P, 4, marks(4, 5))],
    ),
    "a read of what was never committed": (
        "served-above-high-watermark",
        [*QUIET, Served(1, P, 9, (mark(4, crc=5),))],
    ),
    "an answer to a follower of another epoch": (
        "fencing",
        [*QUIET, Fetched(1, P, 2, 0, 0), Fetched(1, P, 2, 0, 1)],
    ),
    "an append that waits after its leader epoch": (
        "waits-in-vain",
        [*QUIET, Waits(1, P, 0, 5, ((0, 5),)), Waits(1, P, -1, 5, ((0, 5),))],
    ),
    "an append that waits in a later epoch of its leader": (
        "waits-in-vain",
        [*QUIET, Waits(1, P, 2, 5, ((0, 5), (2, 6)))],
    ),
    "an append that waits for what is committed": (
        "waits-in-vain",
        [*QUIET, Waits(1, P, 0, 5, ((0, 4), (0, 5)))],
    ),
    "a recovery that keeps damage": ("recovery", [*QUIET, Loaded(1, P, marks(0, 5), "a header is cut")]),
    "a recovery that cuts sound batches": (
        "recovery",
        [*QUIET, Died(1, P, False, marks(0, 5)), Loaded(1, P, marks(0, 4), "")],
    ),
    "retention that deletes uncommitted records": (
        "retention",
        [*QUIET, Appended(1, P, 0, marks(5, 7)), LogStarted(1, P, 6, (DeletedSegment(6, 99, 0),))],
    ),
    "acknowledged records that a flush should have kept": (
        "leader-completeness",
        [
            Created(P, 2, True),
            *QUIET[1:9],
            Acknowledged(1, P, 4, 4, -1, (1, 2, 3)),
            *(Died(broker, P, True, marks(0, 3)) for broker in (1, 2, 3)),
            Elected(P, 2, 1, (2,), True),
            BecameLeader(2, P, 1, 3),
        ],
    ),
    "a late leader commits what its replaced follower never held": (
        "in-sync-replicas",
        [*FETCHED_AND_LOST, Appended(1, P, 0, marks(7, 8)), HighWatermark(1, P, 0, 8, True)],
    ),
    "a late leader commits what nobody else held, where another record is": (
        "committed-prefix",
        [*LED_ON, Appended(1, P, 0, marks(7, 8)), HighWatermark(1, P, 0, 8, True)],
    ),
    "a late leader commits what was lost, beside one that holds it": (
        "in-sync-replicas",
        [
            *QUIET,
            *appended_everywhere(5, 7),
            Died(2, P, True, marks(0, 6)),
            Elected(P, 3, 1, (3,), True),
            BecameLeader(3, P, 1, 7),
            Truncated(3, P, 6, 1),
            HighWatermark(1, P, 0, 7, True),
        ],
    ),
    "a late leader commits what a flush should have kept": (
        "served-above-high-watermark",
        [Created(P, 2, True), *LED_ON[1:9], *LED_ON[10:], *LATE],
    ),
    "a commit that the disk of an in-sync replica lost before it was flushed": (
        "in-sync-replicas",
        [
            Created(P, 2, True),
            *QUIET[1:9],
            Appended(1, P, 0, marks(5, 6)),
            Appended(2, P, 0, marks(5, 6)),
            IsrChanged(P, (1, 2)),
            Died(2, P, True, marks(0, 5)),
            HighWatermark(1, P, 0, 6, True),
        ],
    ),
    "another batch below the high watermark, of a partition that has lost records before": (
        "committed-prefix",
        [
            *GOOD["all disks lose their tail"],
            Appended(1, P, 1, (mark(3, 1, crc=9),)),
            HighWatermark(1, P, 1, 4, False),
        ],
    ),
    "an in-sync replica loses its tail and is elected beside one that held it": (
        "leader-completeness",
        [*QUIET, Died(2, P, True, marks(0, 3)), Elected(P, 2, 1, (1, 2, 3), True), BecameLeader(2, P, 1, 3)],
    ),
}


@pytest.mark.parametrize("name", GOOD)
def test_sequence_that_must_pass(name: str) -> None:
    assert jury_of(*GOOD[name]).violations == []


@pytest.mark.parametrize("name", BAD)
def test_sequence_that_must_fail(name: str) -> None:
    checker, sightings = BAD[name]
    assert checker in broken(*sightings)


def test_every_checker_has_a_sequence_that_fails_it() -> None:
    assert {checker.name for checker in all_checkers(Ghost())} == {checker for checker, _ in BAD.values()}


def test_a_loss_on_every_in_sync_disk_is_excused_and_reported() -> None:
    jury = jury_of(*GOOD["all disks lose their tail"])
    assert [(excuse.start, excuse.end) for excuse in jury.ghost.excuses] == [(3, 5)]


@pytest.mark.parametrize("sightings", [[*FETCHED_AND_LOST, *LATE], [*LED_ON, *LATE]])
def test_a_late_commit_of_batches_that_every_electable_disk_lost_is_excused_and_never_true(
    sightings: list[Sighting],
) -> None:
    ghost = jury_of(*sightings).ghost
    assert [(excuse.start, excuse.end) for excuse in ghost.excuses] == [(6, 7)]
    assert mark(6) not in ghost.partition(P).truth.marks


def test_a_late_commit_of_batches_that_survive_is_true() -> None:
    ghost = jury_of(*FETCHED_AND_LOST, HighWatermark(1, P, 0, 7, True)).ghost
    assert ghost.partition(P).truth.end == 6


def test_loss_is_not_excused_while_one_electable_replica_holds_it() -> None:
    jury = jury_of(*QUIET, Died(1, P, True, marks(0, 3)), Died(2, P, True, marks(0, 3)))
    assert jury.ghost.excuses == []


def test_a_forbidden_unclean_election_excuses_nothing() -> None:
    cut = [*QUIET, IsrChanged(P, (1, 2)), Truncated(3, P, 3, 0)]
    for is_allowed, excused in ((True, [(3, 5)]), (False, [])):
        jury = jury_of(*cut, Elected(P, 3, 1, (3,), False, is_allowed), BecameLeader(3, P, 1, 3))
        assert [(excuse.start, excuse.end) for excuse in jury.ghost.excuses] == excused
        assert [found.checker for found in jury.violations] == ([] if is_allowed else ["leader-completeness"])


def test_truncation_by_the_protocol_excuses_nothing() -> None:
    jury = jury_of(*QUIET, *(Truncated(broker, P, 3, 0) for broker in (1, 2, 3)), IsrChanged(P, (1,)))
    assert jury.ghost.excuses == []


def test_chain_truncation_drops_the_batch_that_holds_the_offset() -> None:
    chain = Chain([mark(0, count=3), mark(3, count=3)])
    assert chain.truncate_to(4) == [mark(3, count=3)]
    assert chain.end == 3


@pytest.mark.parametrize("length", [5, 700, 2_600])
def test_long_chains_agree_up_to_the_first_difference_and_are_cut_there(length: int) -> None:
    mine, other = (
        Chain(marks(0, 2_610)),
        Chain([*marks(0, length), mark(length, crc=1), *marks(length + 1, 2_610)]),
    )
    assert mine.agreed_end(other) == other.agreed_end(mine) == length
    assert mine.agreed_end(other, since=3) == length
    late = Chain(marks(3, 2_610), 3)
    assert late.agreed_end(other) == length
    assert mine.between(length - 2, length) == [*marks(length - 2, length)]
    assert mine.at(length) == mark(length) != other.at(length)
    assert other.truncate_to(length) == [mark(length, crc=1), *marks(length + 1, 2_610)]
    assert mine.agreed_end(other) == other.end == length
    assert tuple(other.marks) == marks(0, length)
    assert mine.begin_at(length) == [*marks(0, length)]
    assert tuple(mine.marks) == marks(length, 2_610)


def test_chain_agreement_ends_at_the_first_difference() -> None:
    mine, other = Chain(marks(0, 9)), Chain([*marks(0, 6), mark(6, crc=1), *marks(7, 9)])
    assert mine.agreed_end(other) == 6
    assert mine.agreed_end(Chain()) == 0
    assert mine.agreed_end(Chain(marks(0, 20))) == 9
