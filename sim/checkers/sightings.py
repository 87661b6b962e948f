"""Sightings: the events that the checkers judge, as plain values, so that a test can write a sequence by hand.

A partition is written `topic-partition`, a broker is its number. The witness (`sim/witness/witness.py`) makes
sightings from `Observe` effects, from answers on the wire and from the bytes on the simulated disks.
"""

from __future__ import annotations

from typing import NamedTuple

from sim.checkers.chain import Mark

# Pairs of an epoch and its start offset, ascending.
EpochStarts = tuple[tuple[int, int], ...]


class Created(NamedTuple):
    """A partition that the scenario creates, with the promises of its topic."""

    partition: str
    min_isr: int
    # Whether `flush.messages` is 1.
    flush_promised: bool
    # What retention must leave at least: records of the last milliseconds, bytes. -1: all; None: what it finds is not
    # known, because compaction takes some.
    retention_ms: int | None = None
    retention_bytes: int | None = None


class PartitionState(NamedTuple):
    """A partition as the records of the metadata log add up; `leader` is -1 when no broker may lead."""

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int
    partition_epoch: int


class Recorded(NamedTuple):
    """A record of the metadata log about a partition, with the state that it makes.

    `before` is None for a new partition. `active` are the brokers that are registered, unfenced and not shutting down
    at this record.
    """

    partition: str
    before: PartitionState | None
    after: PartitionState
    active: tuple[int, ...]
    # Whether the topic's configs allow a leader from outside the ISR at this record.
    allows_unclean: bool
    # The brokers that have told the controller that they cannot read the partition.
    offline: tuple[int, ...] = ()
    # Whether any broker may have told the controller that it cannot read something, also since the decision.
    may_be_offline: bool = False


class Settled(NamedTuple):
    """A partition after all records of one decision, with the brokers that are active then."""

    partition: str
    state: PartitionState
    active: tuple[int, ...]
    # As in `Recorded`.
    allows_unclean: bool = False
    may_be_offline: bool = False
    # The brokers that have ever named this partition, of this very topic, as one that they cannot read.
    named_by: tuple[int, ...] = ()


class Accepted(NamedTuple):
    """The controller's consent to the ISR that a leader proposed, with what the metadata log says about it.

    `members` are pairs of a broker and the broker epoch that the proposal names for it.
    """

    partition: str
    broker: int
    broker_epoch: int
    leader_epoch: int
    members: tuple[tuple[int, int], ...]
    # The states under the partition epochs that the request and the answer name; None if the log has none there.
    base: PartitionState | None
    result: PartitionState | None
    # The epoch in which each broker lived at the record that made `result`.
    broker_epochs: tuple[tuple[int, int], ...]
    # The leader, its epoch and the ISR that the answer states.
    stated: tuple[int, int, tuple[int, ...]]


class Described(NamedTuple):
    """What a node's answer about metadata says of a partition, and what the log has below the answer's offset."""

    node: int
    partition: str
    offset: int
    # Replicas, ISR, leader and leader epoch.
    said: tuple[tuple[int, ...], tuple[int, ...], int, int]
    recorded: PartitionState | None


class Elected(NamedTuple):
    """The controller's election of a leader; `leader` is -1 when no broker may lead.

    `clean` says whether the leader was in the ISR before. A clean election excuses no loss, and neither does one that
    is not allowed.
    """

    partition: str
    leader: int
    epoch: int
    isr: tuple[int, ...]
    clean: bool
    is_allowed: bool = True


class IsrChanged(NamedTuple):
    """A new in-sync set, committed by the controller."""

    partition: str
    isr: tuple[int, ...]


class BecameLeader(NamedTuple):
    """A broker that begins to lead the partition in `epoch`."""

    broker: int
    partition: str
    epoch: int
    log_end_offset: int


class BecameFollower(NamedTuple):
    """A broker that begins to follow `leader` in `epoch`."""

    broker: int
    partition: str
    epoch: int
    leader: int


class Appended(NamedTuple):
    """Batches that a broker has appended to its log while in `epoch`."""

    broker: int
    partition: str
    epoch: int
    marks: tuple[Mark, ...]
    # Whether clients produced them, and not a leader's log.
    is_leader: bool = False


class Truncated(NamedTuple):
    """A broker's truncation of its log, which now ends at `to_offset` (exclusive) or before."""

    broker: int
    partition: str
    to_offset: int
    epoch: int


class HighWatermark(NamedTuple):
    """A new high watermark (exclusive) of a broker's replica."""

    broker: int
    partition: str
    epoch: int
    high_watermark: int
    is_leader: bool
    log_start_offset: int = 0


class WaitedFor(NamedTuple):
    """The replicas that a leader's high watermark waits for, which is its maximal ISR."""

    broker: int
    partition: str
    epoch: int
    isr: tuple[int, ...]


class EpochsSeen(NamedTuple):
    """The epoch cache of a replica, at a moment when its log is as the checkers last saw it."""

    broker: int
    partition: str
    starts: EpochStarts
    # The log's first offset, as the replica has it in memory.
    log_start_offset: int = 0
    # The epoch that the replica leads; -1 if it leads none.
    leads: int = -1


class Acknowledged(NamedTuple):
    """A positive answer to a producer, as it is sent."""

    broker: int
    partition: str
    base_offset: int
    last_offset: int
    acks: int
    # The brokers whose disks would keep the records through a power loss; known only where a flush is promised.
    durable_on: tuple[int, ...]
    # The leader epoch that the answer names; -1 if it is not known.
    epoch: int = -1


class Waits(NamedTuple):
    """The appends to a partition that still wait for acks=all at a broker, after its role or high watermark moved."""

    broker: int
    partition: str
    # -1 if the broker does not lead.
    leads_epoch: int
    high_watermark: int
    # The leader epoch and the last offset of each.
    appends: tuple[tuple[int, int], ...]


class FetchesWait(NamedTuple):
    """The fetches of a partition that wait at a broker after its role has changed: the leader epoch of each."""

    broker: int
    partition: str
    # The leader epoch in which the broker leads or follows now.
    epoch: int
    epochs: tuple[int, ...]


class Served(NamedTuple):
    """Batches sent to a consumer, with the high watermark that the answer states."""

    broker: int
    partition: str
    high_watermark: int
    marks: tuple[Mark, ...]


class OffsetLookedUp(NamedTuple):
    """A broker's answer to the question which offset a partition has at a time, as ListOffsets asks it.

    `timestamp` is the request's: -1 for the latest offset, -2 for the earliest. `offset` is -1 for none.
    """

    broker: int
    partition: str
    timestamp: int
    offset: int
    # The timestamp of the record that the answer names.
    found_ms: int = -1
    # The end of what was committed when the request came: the answer may be as old.
    committed_before: int = 0
    # Whether `found` is known: the first record of the broker's log that is as late, with its timestamp.
    is_readable: bool = False
    found: tuple[int, int] | None = None
    # The leader epoch that the request names, -1 for none, and the one of the broker's role.
    asked_epoch: int = -1
    epoch: int = -1
    # The leader epoch of the offset, as the answer names it: -1 for none, None where it was not seen.
    found_epoch: int | None = None
    # Whether the leader has committed nothing of its own epoch yet, so that its predecessor may have served more.
    is_behind: bool = False
    # The start of the broker's log in its memory, which is judged on its own; None if it is not known.
    log_start: int | None = None


class LookUpPutOff(NamedTuple):
    """A leader's answer that it does not know its committed end yet, which it knew when it was asked in this epoch."""

    broker: int
    partition: str
    epoch: int


class Fetched(NamedTuple):
    """A fetch that a leader answered without an error: `asked_epoch` is the request's, `epoch` the leader's."""

    broker: int
    partition: str
    # A consumer has the number -1.
    replica: int
    asked_epoch: int
    epoch: int


class DivergenceJudged(NamedTuple):
    """A leader's answer to a fetch that names the epoch of what was read last, with the epochs that the leader knows.

    `told` is the epoch and the end offset where the answer says that the logs part; None if it does not say so.
    """

    broker: int
    partition: str
    fetch_offset: int
    last_fetched_epoch: int
    told: tuple[int, int] | None
    starts: EpochStarts
    log_end_offset: int


class OutOfRange(NamedTuple):
    """A leader's refusal of a fetch as out of range, with the marks that it states and the epochs that it knows."""

    broker: int
    partition: str
    fetch_offset: int
    # -1 if the fetch names none.
    last_fetched_epoch: int
    log_start_offset: int
    log_end_offset: int
    starts: EpochStarts


class Died(NamedTuple):
    """The end of a broker's process by a crash or a power loss; `marks` is the sound prefix that its disk now holds."""

    broker: int
    partition: str
    lost_power: bool
    marks: tuple[Mark, ...]
    # The base offset of the first segment.
    start: int = 0
    # Why the disk lost more than what was not synced; empty if it did not.
    damage: str = ""
    # The recovery point in the checkpoint that the disk has now; -1 if there is none.
    recovery_point: int = -1
    # Compaction had removed all records from the end of `marks` up to here (exclusive); 0 if none.
    removed_end: int = 0
    # The end (exclusive) of the log in the page cache that a power loss took: what the process had left.
    held_end: int | None = None
    # The greatest offset that the checkpoints have of the log; -1 if they have none, or if there is no log.
    checkpointed: int = -1
    # The base offset of the last segment: without a batch of its own the log ends there, perhaps after a gap.
    last_base: int = 0


class Checkpointed(NamedTuple):
    """The greatest offset that a broker's checkpoints have of an empty log that gets a role; -1 if they have none."""

    broker: int
    partition: str
    offset: int


class FlushNoted(NamedTuple):
    """The end (exclusive) up to which a running follower takes its log as flushed, as it fetches on.

    `loses_from` is the base offset of the first batch that a power loss may take now; -1 if there is none.
    """

    broker: int
    partition: str
    recovery_point: int
    loses_from: int


class AppendedAfterCut(NamedTuple):
    """The first append of a running broker after cuts of its log, of which the lowest was to `cut`.

    `checkpoint` is the recovery point of the log in the checkpoint then, `flushed` the one that the broker counts on.
    `may_regrow` says whether a power loss may bring back what was cut off.
    """

    broker: int
    partition: str
    cut: int
    checkpoint: int
    flushed: int
    may_regrow: bool = False


class MarksKept(NamedTuple):
    """The marks that the checkpoints have of a log whose marks a cut has lowered, and the greatest that they may have.

    Shown at the first append after the cut, and each time that a job has written the checkpoints since.
    """

    broker: int
    partition: str
    high_watermark: int
    log_start: int
    most_high_watermark: int
    most_log_start: int


class StoppedCleanly(NamedTuple):
    """The end of a broker's process by an orderly stop, which it has marked beside the log.

    `may_lose` is a file of the log that a power loss may take, or bytes of it, after that; empty if there is none.
    """

    broker: int
    partition: str
    may_lose: str = ""


class Loaded(NamedTuple):
    """The start of a broker's process, which has recovered its log.

    `unsound` says what is wrong with the bytes after `marks`; it is empty if nothing is. `removed_end` as in `Died`.
    """

    broker: int
    partition: str
    marks: tuple[Mark, ...]
    unsound: str
    start: int = 0
    removed_end: int = 0


class DeletedSegment(NamedTuple):
    """A segment that a broker deleted: its end (exclusive), its newest record's age, and the log's size after it.

    The age is in milliseconds, on the broker's clock.
    """

    end: int
    age_ms: int
    left_bytes: int


class LogStarted(NamedTuple):
    """A broker's log that begins at `start` now, because the segments in `deleted` were deleted, oldest first.

    `deleted` is empty where a follower dropped all it had, to begin where its leader's log begins.
    """

    broker: int
    partition: str
    start: int
    deleted: tuple[DeletedSegment, ...] = ()


class StartMoved(NamedTuple):
    """A broker whose process has died inside the step that moved the start of a log up to `start`.

    Its files may begin before that, and its leader epochs there.
    """

    broker: int
    partition: str
    start: int


Sighting = (
    Created
    | StartMoved
    | Recorded
    | Settled
    | Accepted
    | Described
    | Elected
    | IsrChanged
    | BecameLeader
    | BecameFollower
    | Appended
    | Truncated
    | HighWatermark
    | WaitedFor
    | EpochsSeen
    | Acknowledged
    | Waits
    | FetchesWait
    | Served
    | LookUpPutOff
    | OffsetLookedUp
    | Fetched
    | DivergenceJudged
    | OutOfRange
    | Died
    | Checkpointed
    | FlushNoted
    | AppendedAfterCut
    | MarksKept
    | StoppedCleanly
    | Loaded
    | LogStarted
)
