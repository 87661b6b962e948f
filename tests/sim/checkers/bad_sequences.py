"""Sequences of sightings that a checker must fail, by what is wrong in them: the checker, and what it is shown."""

from __future__ import annotations

from sim.checkers.chain import Mark
from sim.checkers.sightings import (
    Acknowledged,
    Appended,
    AppendedAfterCut,
    BecameFollower,
    BecameLeader,
    Checkpointed,
    Created,
    DeletedSegment,
    Described,
    Died,
    DivergenceJudged,
    Elected,
    EpochsSeen,
    Fetched,
    FetchesWait,
    FlushNoted,
    HighWatermark,
    IsrChanged,
    Loaded,
    LogStarted,
    LookUpPutOff,
    MarksKept,
    OffsetLookedUp,
    OutOfRange,
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
from tests.sim.checkers.good_sequences import GOOD
from tests.sim.checkers.stories import (
    ALL,
    CUT_INSIDE_A_BATCH,
    CUT_TOO_LATE,
    FAILED_OVER,
    FETCHED_AND_LOST,
    FIRST,
    LATE,
    LED_ON,
    QUIET,
    REJOINING,
    REPLACED,
    SHRINK,
    SHRUNK,
    P,
    appended_everywhere,
    led,
    mark,
    marks,
)

BAD: dict[str, tuple[str, list[Sighting]]] = {
    "a follower takes as flushed what its disk may lose": (
        "flushed-durable",
        [*QUIET, FlushNoted(2, P, 5, 4)],
    ),
    "a crash loses a record below the recovery point": (
        "recovery-point",
        [*QUIET, Died(2, P, True, marks(0, 3), recovery_point=4)],
    ),
    "a process cuts its log, and a power loss takes more than that": (
        "recovery-point",
        [*QUIET, Died(2, P, True, marks(0, 3), recovery_point=5, held_end=4)],
    ),
    "a log is appended to after a cut that its checkpoint does not know": (
        "recovery-point",
        [*QUIET, AppendedAfterCut(2, P, 3, 4, 3)],
    ),
    "a log is appended to in the place of what a power loss may bring back": (
        "durable-cuts",
        [*QUIET, AppendedAfterCut(2, P, 3, 3, 3, may_regrow=True)],
    ),
    "a broker stops in order while a power loss may take a snapshot of producers": (
        "clean-stop",
        [*QUIET, StoppedCleanly(2, P, "00000000000000000005.snapshot")],
    ),
    "a log was cut and goes on, and a checkpoint has the high watermark of before": (
        "checkpoint-offsets",
        [*QUIET, MarksKept(2, P, 5, 0, 3, 0)],
    ),
    "a log was cut and goes on, and a checkpoint has the log start of before": (
        "checkpoint-offsets",
        [*QUIET, MarksKept(2, P, 3, 2, 3, 1)],
    ),
    "a process ends with a checkpoint beyond all that its log has had": (
        "checkpoint-offsets",
        [*QUIET, Died(2, P, False, marks(0, 5), checkpointed=6)],
    ),
    "a new log begins with the checkpoint of one that had its name": (
        "checkpoint-offsets",
        [*QUIET[:5], Checkpointed(2, P, 6)],
    ),
    "a crash loses more than what compaction had removed": (
        "recovery-point",
        [*QUIET, Died(2, P, True, (), recovery_point=4, removed_end=3)],
    ),
    "more than what compaction had removed is missing after an orderly stop": (
        "clean-stop",
        [*QUIET, StoppedCleanly(2, P), Loaded(2, P, (), "", removed_end=3)],
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
    "a leader that is replaced although it is in sync and active": (
        "elections",
        [
            Recorded(P, FIRST, FIRST._replace(leader=2, leader_epoch=1), ALL, False),
            Settled(P, FIRST._replace(leader=2, leader_epoch=1), ALL),
        ],
    ),
    "a leader that is not the first of the assignment": (
        "elections",
        [
            Recorded(P, FIRST, FAILED_OVER._replace(leader=3), ALL, False),
            Settled(P, FAILED_OVER._replace(leader=3), (2, 3)),
        ],
    ),
    "a latest offset that is not the end of what is committed": (
        "offset-answers",
        [*QUIET, OffsetLookedUp(1, P, -1, 6)],
    ),
    "rt1 an earliest offset at which no log of the partition has begun": (
        "offset-answers",
        [*QUIET, OffsetLookedUp(1, P, -2, 3, log_start=0)],
    ),
    "kip207 a leader that has committed nothing of its epoch knows of no record that is as late": (
        "offset-answers",
        [*QUIET, OffsetLookedUp(1, P, 7, -1, is_behind=True)],
    ),
    "con5 a leader that knows its committed end says that it does not know it yet": (
        "offset-answers",
        [*QUIET, LookUpPutOff(1, P, 0)],
    ),
    "an unclean leader although a member is active": (
        "elections",
        [
            Recorded(P, SHRUNK, PartitionState(ALL, (3,), 3, 1, 2), (2, 3), True),
            Settled(P, PartitionState(ALL, (3,), 3, 1, 2), (2, 3), True),
        ],
    ),
    "an unclean leader that is not the first of the assignment": (
        "elections",
        [
            Recorded(P, FIRST._replace(isr=(1,)), PartitionState(ALL, (3,), 3, 1, 2), (2, 3), True),
            Settled(P, PartitionState(ALL, (3,), 3, 1, 2), (2, 3), True),
        ],
    ),
    "a leader that was fenced and still leads": ("elections", [Settled(P, FIRST, (2, 3))]),
    "a leader that loses its place and its membership although it is active": (
        "elections",
        [
            Recorded(P, FIRST, FAILED_OVER, ALL, False, may_be_offline=True),
            Settled(P, FAILED_OVER, ALL, False, True),
        ],
    ),
    "nobody who leads although one in sync is active": (
        "elections",
        [Settled(P, PartitionState(ALL, (1, 2), -1, 1, 2), (2, 3))],
    ),
    "nobody who leads although one is active and the topic allows it": (
        "elections",
        [Settled(P, PartitionState(ALL, (1,), -1, 1, 2), (2, 3), True)],
    ),
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
    "a broker that joins the ISR and cannot read the partition": (
        "isr-members",
        [Recorded(P, SHRUNK, SHRUNK._replace(isr=ALL, partition_epoch=2), ALL, False, (3,))],
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
    "an answer to acks=1 for what another leader appended": (
        "roles",
        [
            *QUIET,
            Elected(P, 2, 1, ALL, True),
            BecameFollower(1, P, 1, 2),
            Acknowledged(1, P, 5, 5, 1, (), 0),
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
    "a joiner that differs from its leader where both logs have records": (
        "in-sync-replicas",
        [
            *REPLACED,
            Died(2, P, False, (*marks(0, 5), *marks(5, 6, 1))),
            Loaded(2, P, (*marks(0, 5), *marks(5, 6, 1)), ""),
            *CUT_TOO_LATE,
            IsrChanged(P, (1, 2)),
        ],
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
    "who follows one that was elected uncleanly, leads after it, and cuts by the word of the leader before": (
        "truncation",
        [
            *QUIET,
            Elected(P, 3, 2, (3,), False),
            BecameLeader(3, P, 2, 5),
            BecameFollower(2, P, 2, 3),
            Appended(3, P, 2, marks(5, 8, 2)),
            Appended(2, P, 2, marks(5, 8, 2)),
            IsrChanged(P, (3, 2)),
            HighWatermark(3, P, 2, 8, True),
            Elected(P, 2, 3, (2,), True),
            Truncated(2, P, 3, 1),
        ],
    ),
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
    "a fetch that waits after its leader epoch": (
        "waits-in-vain",
        [*QUIET, FetchesWait(1, P, 0, (0, 0)), FetchesWait(1, P, 1, (1, 0))],
    ),
    "a fetch that is refused as out of range, of an offset that the leader has": (
        "divergence-answers",
        [*QUIET, OutOfRange(1, P, 4, 1, 0, 5, ((0, 0), (2, 5)))],
    ),
    "a fetch of an epoch that its leader lacks, and no word of it": (
        "divergence-answers",
        [*QUIET, DivergenceJudged(1, P, 4, 1, None, ((0, 0), (2, 5)), 9)],
    ),
    "a fetch beyond the end of its epoch, and no word of it": (
        "divergence-answers",
        [*QUIET, DivergenceJudged(1, P, 6, 0, None, ((0, 0), (2, 5)), 9)],
    ),
    "a fetch of an epoch that is yet to come, and no word of it": (
        "divergence-answers",
        [*QUIET, DivergenceJudged(1, P, 6, 3, None, ((0, 0), (2, 5)), 9)],
    ),
    "logs that are said to part elsewhere": (
        "divergence-answers",
        [*QUIET, DivergenceJudged(1, P, 6, 1, (0, 4), ((0, 0), (2, 5)), 9)],
    ),
    "logs that are said to part and do not": (
        "divergence-answers",
        [*QUIET, DivergenceJudged(1, P, 5, 0, (0, 5), ((0, 0), (2, 5)), 9)],
    ),
    "a recovery that keeps damage": ("recovery", [*QUIET, Loaded(1, P, marks(0, 5), "a header is cut")]),
    "a recovery that cuts sound batches": (
        "recovery",
        [*QUIET, Died(1, P, False, marks(0, 5)), Loaded(1, P, marks(0, 4), "")],
    ),
    "rt4 a segment of a log that is only compacted is deleted": (
        "retention",
        [Created(P, 2, False, -1, -1), *QUIET[1:], LogStarted(1, P, 3, (DeletedSegment(3, 10**9, 0),))],
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
