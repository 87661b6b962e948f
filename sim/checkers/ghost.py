"""The ghost: state that no node sees, namely every replica's log, what was truly committed, and what may be lost.

The truth is all that a legitimate leader ever exposed below its high watermark. A committed record is *excused* (Kafka
does not promise to keep it) once every replica that may be elected, that is every in-sync one, lacks it because its
disk lost it, or once a leader is elected uncleanly in a topic that allows this. A replica that lacks it for another
reason excuses nothing.

A record may be lost before it is exposed. A leader that does not know yet that it was replaced still counts fetches
that were on their way to it, although the followers that sent them may have lost the records from their disks since.
So `lost` remembers batches that were lost in this way, whether they were exposed or not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, final

from sim.checkers.chain import Chain, Mark
from sim.checkers.epoch_cache import wrong_start
from sim.checkers.sightings import (
    Acknowledged,
    Appended,
    BecameFollower,
    BecameLeader,
    Created,
    Died,
    Elected,
    EpochsSeen,
    HighWatermark,
    IsrChanged,
    Loaded,
    LogStarted,
    Sighting,
    StartMoved,
    Truncated,
)

# What is wrong with a disk on which bits have faded.
ROTTEN = "holds bytes that have changed on its disk"
# What is wrong with one that puts writes in other places, perhaps on what the same step has written.
ASTRAY = "holds a write on its disk that belongs elsewhere"
UNSYNCED = "every in-sync replica lost it with its un-synced writes"


# The end of an excuse for all records from its start on.
NO_END = 1 << 63


class Excuse(NamedTuple):
    """Permission to lose the records in [start, end), which were committed, and the reason."""

    partition: str
    start: int
    end: int
    reason: str


@final
class Image:
    """One replica's log, as the checkers believe it to be."""

    __slots__ = (
        "cache_damage",
        "chain",
        "cut_end",
        "damage",
        "greatest_end",
        "has_role",
        "leads",
        "log_start",
        "lost",
        "lost_from",
    )

    def __init__(self) -> None:
        self.chain = Chain()
        # The greatest offset (exclusive) at which the log has ended.
        self.greatest_end = 0
        # Where the log ends after a cut inside a batch, which dropped all of that batch; 0 after any other cut.
        self.cut_end = 0
        # The log's start in the memory of the broker: what is before it is to be deleted, and nobody can read it.
        self.log_start = 0
        # Whether the replica has a role since its broker's last start: then the controller knows of that start.
        self.has_role = False
        # Whether it leads as far as it knows.
        self.leads = False
        # The batches that its disk lost and that it does not hold again.
        self.lost: dict[Mark, None] = {}
        # The offset from which its disk lost records; None once it has caught up.
        self.lost_from: int | None = None
        # Why its disk lost what was synced too; empty if it did not, or has caught up since.
        self.damage = ""
        # Why its disk may have lost a part of the epoch cache, or a segment with others after it; empty if it did not,
        # or if the cache was whole since.
        self.cache_damage = ""

    def reached(self, *ends: int) -> None:
        """Note how far the log goes now, or went: what a process appends in its last step is told to nobody."""
        self.greatest_end = max(self.greatest_end, self.chain.end, *ends)

    def caught_up(self) -> None:
        """Note that the replica holds again what its disk lost."""
        self.lost_from, self.damage = None, ""

    def agreed_end(self, truth: Chain) -> int:
        """Returns the offset (exclusive) up to which the replica holds what was committed."""
        return self.chain.agreed_end(truth, self.log_start)


@final
class PartitionGhost:
    """The hidden state of one partition: its replicas' logs, its truth, and its leaders by epoch."""

    __slots__ = (
        "acked_end",
        "begun_epoch",
        "damages",
        "elected",
        "elected_end",
        "epoch",
        "excused",
        "flush_promised",
        "greatest_start",
        "images",
        "isr",
        "leader",
        "leader_log_start",
        "log_start",
        "log_starts",
        "lost",
        "min_isr",
        "name",
        "retention_bytes",
        "retention_ms",
        "truth",
        "unclean_epochs",
        "unjudged",
    )  # fmt: skip

    def __init__(self, name: str) -> None:
        self.name = name
        self.min_isr = 1
        self.flush_promised = False
        self.retention_ms: int | None = None
        self.retention_bytes: int | None = None
        # The greatest offset at which a log has begun.
        self.log_start = 0
        # That, also where a disk has damaged the log that begins there.
        self.greatest_start = 0
        # Every offset at which a log has begun, but 0.
        self.log_starts: dict[int, None] = {}
        # The greatest offset at which a leader's log has begun. Consumers were sent there.
        self.leader_log_start = 0
        self.images: dict[int, Image] = {}
        self.truth = Chain()
        # The in-sync set as the controller has committed it.
        self.isr: tuple[int, ...] = ()
        self.leader = -1
        self.epoch = -1
        # The latest epoch in which a broker has begun to lead.
        self.begun_epoch = -1
        # The elected leader, by epoch.
        self.elected: dict[int, int] = {}
        # The end of the truth (exclusive) when the leader of an epoch was elected, by epoch.
        self.elected_end: dict[int, int] = {}
        self.unclean_epochs: list[int] = []
        self.excused: dict[Mark, None] = {}
        # The batches that the disks of all in-sync replicas lost, with the last epoch in which that was so.
        self.lost: dict[Mark, int] = {}
        # The end (exclusive) of the records acknowledged to acks=all.
        self.acked_end = 0
        # Why the partition is judged no further; empty as long as it is.
        self.unjudged = ""
        # What disks have done to its logs, also after that.
        self.damages: dict[str, None] = {}

    def image(self, broker: int) -> Image:
        """Returns the log of a broker's replica, which is empty at first."""
        image = self.images.get(broker)
        if image is None:
            image = self.images[broker] = Image()
        return image

    def held_end(self, image: Image) -> int:
        """Returns the offset (exclusive) up to which a replica holds what was committed."""
        start = self.compared_since(image)
        # A cut inside a batch drops all of it, and the log goes on at the cut.
        return start if start >= image.chain.end else image.chain.agreed_end(self.truth, start)

    def compared_since(self, image: Image) -> int:
        """Returns the offset from which on a replica's log is compared: the greatest start of a log that it reaches.

        No leader compares what is before its start, so a follower may keep what differs there.
        """
        end = max(image.chain.end, image.cut_end)
        return max(image.log_start, *(each for each in self.log_starts if each <= end), 0)

    def may_forget(self, before: int, offset: int) -> bool:
        """Whether the leader that appends at `offset` may not know the producer of the record at `before` any more.

        A start reads no record below the log start into the state of producers (UnifiedLog.rebuildProducerState), and
        the first batch of an unknown producer is taken with any sequence (KIP-360).
        """
        return any(before < start <= offset for start in self.log_starts)

    @property
    def keeps_synced(self) -> bool:
        """Whether a follower's fetch reports only what its disk keeps: a flush is promised, and no disk lied."""
        return self.flush_promised and not any(image.damage for image in self.images.values())

    def is_deposed(self, epoch: int) -> bool:
        """Whether an unclean election came after that epoch: records that its leader still commits may be lost."""
        return bool(self.unclean_epochs) and epoch < self.unclean_epochs[-1]

    def has_not_heard(self, broker: int, epoch: int) -> bool:
        """Whether the broker was elected uncleanly, alone, and still acts in that earlier epoch."""
        if not self.is_deposed(epoch) or self.isr != (broker,):
            return False
        elected_in = self.unclean_epochs[-1]
        return self.elected.get(elected_in) == broker and self.begun_epoch < elected_in

    def is_lost(self, mark: Mark, epoch: int) -> bool:
        """Whether all replicas that could be elected after `epoch` have lost the batch.

        If the leader of `epoch` still commits it, it is lost.
        """
        return self.lost.get(mark, -1) > epoch

    def may_be_lost(self, mark: Mark, epoch: int) -> bool:
        """Whether the batch may be lost without a bug, although the leader of `epoch` has committed it."""
        return mark in self.excused or self.is_lost(mark, epoch)


@final
class Ghost:
    """The hidden state of all partitions; `apply` updates it with each sighting, after the checkers have judged it."""

    def __init__(self) -> None:
        self.partitions: dict[str, PartitionGhost] = {}
        # By partition whose topic was deleted: the name of the state that it has now.
        self._present: dict[str, str] = {}
        self.excuses: list[Excuse] = []
        self._updates: dict[type, Callable[..., None]] = {
            Created: self._on_created,
            Elected: self._on_elected,
            IsrChanged: self._on_isr_changed,
            BecameLeader: self._on_role,
            BecameFollower: self._on_role,
            Appended: self._on_appended,
            Truncated: self._on_truncated,
            HighWatermark: self._on_high_watermark,
            Acknowledged: self._on_acknowledged,
            Died: self._on_died,
            Loaded: self._on_loaded,
            LogStarted: self._on_log_started,
            StartMoved: self._on_start_moved,
            EpochsSeen: self._on_epochs_seen,
        }

    def partition(self, name: str) -> PartitionGhost:
        """Returns the state of the partition `topic-number`, which is empty at first.

        After `begin_again` it is that of the newest topic of the name, and is called `topic-number~life`.
        """
        key = self._present.get(name, name) if self._present else name
        partition = self.partitions.get(key)
        if partition is None:
            partition = self.partitions[key] = PartitionGhost(key)
        return partition

    def begin_again(self, name: str) -> None:
        """Forget the partition of a deleted topic: none of its promises binds the next topic of that name."""
        old = self.partition(name)
        life = int(old.name.rpartition("~")[2]) if "~" in old.name else 1
        self._present[name] = f"{name}~{life + 1}"
        assert self.partition(name) is not old, name

    def give_up(self, partition: PartitionGhost, sighting: Sighting) -> bool:
        """Stop judging a partition of which a replica goes on with a damaged log. Returns whether it is judged no more.

        A disk that loses what was synced may leave a hole below the recovery point, which no start looks at, or a
        clean mark beside an epoch cache that lacks epochs, by which replicas find where they differ. So no broker can
        know of it, and whatever the replica says or hands on from then on proves nothing.
        """
        if isinstance(sighting, Loaded | EpochsSeen) and not partition.unjudged:
            self._look_for_damage(partition, sighting)
        if partition.unjudged:
            self._excuse_all_by(partition, sighting)
        if partition.unjudged and isinstance(sighting, Elected | IsrChanged):
            partition.isr = sighting.isr
            if isinstance(sighting, Elected):
                partition.leader, partition.epoch = sighting.leader, sighting.epoch
        return bool(partition.unjudged)

    def _excuse_all_by(self, partition: PartitionGhost, sighting: Sighting) -> None:
        """Excuse all records of a partition that is judged no more, if what happens may have lost any of them."""
        why = ""
        if isinstance(sighting, Died) and sighting.damage:
            # What this disk held is not known any more: it may have been the only one with any of the records.
            why = sighting.damage
        elif isinstance(sighting, Elected) and sighting.is_allowed and not sighting.clean:
            # Nor is it known where the log of the new leader ends.
            why = f"unclean election of broker {sighting.leader}"
        if why:
            self.excuses.append(Excuse(partition.name, 0, NO_END, f"{partition.unjudged}; then {why}"))

    def give_up_at_once(self, partition: PartitionGhost, broker: int, damage: str) -> None:
        """Stop judging a partition because a broker's disk holds something else than what was synced.

        No broker looks at what it has synced before somebody asks for it.
        """
        image = partition.image(broker)
        image.damage = image.cache_damage = damage
        partition.damages[damage] = None
        self.stop_judging(partition, 0, f"broker {broker} {damage}")

    def was_given_up(self, name: str, damages: Sequence[str]) -> bool:
        """Whether the partition, or that of an earlier topic of its name, has such damage.

        It need not be the first damage, for which the partition is judged no further.
        """
        lives = [each for each in self.partitions.values() if each.name.partition("~")[0] == name]
        return any(
            damage in each.damages or each.unjudged.endswith(damage) for each in lives for damage in damages
        )

    def stop_judging(self, partition: PartitionGhost, since: int, why: str) -> None:
        """Judge the partition no further, and excuse its records from `since` on; nothing happens the second time."""
        if not partition.unjudged:
            partition.unjudged = why
            self.excuses.append(Excuse(partition.name, since, NO_END, why))

    def excuse_all(self, name: str) -> None:
        """Excuse all records of a partition that is judged no further, for a log of which nobody knows what was in it.

        Nothing happens to one that is judged.
        """
        partition = self.partition(name)
        if partition.unjudged:
            self.excuses.append(Excuse(partition.name, 0, NO_END, partition.unjudged))

    def _look_for_damage(self, partition: PartitionGhost, sighting: Loaded | EpochsSeen) -> None:
        """Give the partition up if the disk has damaged what the broker has loaded, and no start could notice it."""
        image, since, why = partition.image(sighting.broker), None, ""
        if isinstance(sighting, EpochsSeen):
            wrong = wrong_start(image.chain, sighting, partition.log_start) if image.cache_damage else None
            if wrong is not None:
                since, why = wrong.base_offset, f"lacks epochs in its cache: {image.cache_damage}"
        elif sighting.unsound and (damage := image.damage or image.cache_damage):
            since, why = image.lost_from or 0, f"has a hole in its log: {damage}"
        elif image.cache_damage:
            since, why = _hole(sighting.start, sighting.marks), f"has a hole in its log: {image.cache_damage}"
        if since is not None:
            self.stop_judging(partition, since, f"broker {sighting.broker} {why}")

    def apply(self, partition: PartitionGhost, sighting: Sighting) -> None:
        """Update the partition, which is that of the sighting."""
        update = self._updates.get(type(sighting))
        if update is not None:
            update(partition, sighting)

    def _on_created(self, partition: PartitionGhost, sighting: Created) -> None:
        partition.min_isr, partition.flush_promised = sighting.min_isr, sighting.flush_promised
        partition.retention_ms, partition.retention_bytes = sighting.retention_ms, sighting.retention_bytes

    def _on_elected(self, partition: PartitionGhost, sighting: Elected) -> None:
        truth_end = partition.truth.end
        partition.isr, partition.leader, partition.epoch = sighting.isr, sighting.leader, sighting.epoch
        if sighting.leader >= 0:
            partition.elected[sighting.epoch] = sighting.leader
        if sighting.clean:
            self._reconsider(partition)
        elif sighting.is_allowed:
            assert sighting.leader >= 0, sighting
            partition.unclean_epochs.append(sighting.epoch)
            held = partition.image(sighting.leader).agreed_end(partition.truth)
            self._excuse(partition, held, f"unclean election of broker {sighting.leader}")
        # An election excuses records or leaves them; it commits none.
        assert partition.truth.end <= truth_end, (partition.name, partition.truth.end, truth_end)
        partition.elected_end[sighting.epoch] = partition.truth.end

    def _on_isr_changed(self, partition: PartitionGhost, sighting: IsrChanged) -> None:
        partition.isr = sighting.isr
        self._reconsider(partition)

    def _on_role(self, partition: PartitionGhost, sighting: BecameLeader | BecameFollower) -> None:
        image = partition.image(sighting.broker)
        image.has_role, image.leads = True, isinstance(sighting, BecameLeader)
        if isinstance(sighting, BecameLeader):
            partition.begun_epoch = max(partition.begun_epoch, sighting.epoch)
            start = max(image.log_start, image.chain.start)
            partition.leader_log_start = max(partition.leader_log_start, start)

    def _on_appended(self, partition: PartitionGhost, sighting: Appended) -> None:
        image = partition.image(sighting.broker)
        image.chain.extend(sighting.marks)
        image.reached()
        if image.lost:
            for mark in sighting.marks:
                image.lost.pop(mark, None)
        if image.lost_from is not None and image.chain.end >= partition.truth.end:
            image.caught_up()

    def _on_truncated(self, partition: PartitionGhost, sighting: Truncated) -> None:
        image, to_offset = partition.image(sighting.broker), sighting.to_offset
        dropped = image.chain.truncate_to(to_offset)
        is_inside = bool(dropped) and dropped[0].base_offset < to_offset
        image.cut_end = to_offset if is_inside else 0
        if partition.has_not_heard(sighting.broker, sighting.epoch):
            reason = f"broker {sighting.broker} cut its log before it heard of its unclean election"
            self._excuse(partition, image.agreed_end(partition.truth), reason)

    def _on_high_watermark(self, partition: PartitionGhost, sighting: HighWatermark) -> None:
        partition.image(sighting.broker).log_start = sighting.log_start_offset
        if sighting.is_leader:
            partition.leader_log_start = max(partition.leader_log_start, sighting.log_start_offset)
        if partition.elected.get(sighting.epoch) != sighting.broker:
            return
        truth, chain = partition.truth, partition.image(sighting.broker).chain
        if partition.is_deposed(sighting.epoch):
            agreed_end = partition.image(sighting.broker).agreed_end(truth)
            exposed = chain.between(agreed_end, sighting.high_watermark)
            reason = f"broker {sighting.broker} led on after an unclean election had put it off"
            self._excuse_exposed(partition, exposed, reason)
        elif partition.lost and partition.epoch > sighting.epoch:
            self._on_late_high_watermark(partition, chain, sighting)
        elif sighting.high_watermark > truth.end:
            truth.extend(chain.between(truth.end, sighting.high_watermark))

    def _on_late_high_watermark(
        self, partition: PartitionGhost, chain: Chain, sighting: HighWatermark
    ) -> None:
        """Add to the truth what a replaced leader commits, up to the first batch that no electable replica has."""
        agreed_end = partition.image(sighting.broker).agreed_end(partition.truth)
        exposed = chain.between(agreed_end, sighting.high_watermark)
        lost = [mark for mark in exposed if partition.is_lost(mark, sighting.epoch)]
        if agreed_end == partition.truth.end:
            partition.truth.extend(exposed[: exposed.index(lost[0])] if lost else exposed)
        reason = f"broker {sighting.broker} led on after every in-sync replica had lost it with its un-synced writes"
        self._excuse_exposed(partition, lost, reason)

    def _excuse_exposed(self, partition: PartitionGhost, exposed: list[Mark], reason: str) -> None:
        fresh = [mark for mark in exposed if mark not in partition.excused]
        if fresh:
            partition.excused.update(dict.fromkeys(fresh))
            start, end = fresh[0].base_offset, fresh[-1].next_offset
            self.excuses.append(Excuse(partition.name, start, end, reason))

    def _on_acknowledged(self, partition: PartitionGhost, sighting: Acknowledged) -> None:
        if sighting.acks == -1 and sighting.last_offset >= partition.acked_end:
            partition.acked_end = sighting.last_offset + 1

    def _on_died(self, partition: PartitionGhost, sighting: Died) -> None:
        image = partition.image(sighting.broker)
        image.has_role, image.leads, image.log_start = False, False, 0
        image.cache_damage = sighting.damage or image.cache_damage
        before, image.chain = image.chain, Chain(sighting.marks, sighting.start)
        image.reached(sighting.removed_end, sighting.held_end or 0)
        if image.chain.end < before.end:
            held = image.chain.end
            image.lost_from = held if image.lost_from is None else min(held, image.lost_from)
            dropped = before.truncate_to(held)
            assert dropped or before.start >= held, (partition.name, sighting.broker, held)
            image.lost.update(dict.fromkeys(dropped))
            image.damage = sighting.damage or image.damage
            self._reconsider(partition)
        if sighting.damage:
            # A disk that lied may have brought back, too, what a cut had taken.
            self._note_holes(partition, image, before, sighting.damage)

    def _note_holes(self, partition: PartitionGhost, image: Image, before: Chain, damage: str) -> None:
        """Note what is missing before the end of a log: a disk that lied may lose any of its pages."""
        held = before.between(max(before.start, image.chain.start), before.end)
        missing = [mark for mark in held if image.chain.at(mark.base_offset) != mark]
        if missing:
            first = missing[0].base_offset
            image.lost_from = first if image.lost_from is None else min(first, image.lost_from)
            image.lost.update(dict.fromkeys(missing))
            image.damage = damage
            self._reconsider(partition)

    def _on_loaded(self, partition: PartitionGhost, sighting: Loaded) -> None:
        image = partition.image(sighting.broker)
        image.chain, image.cut_end = Chain(sighting.marks, sighting.start), 0
        image.reached(sighting.removed_end)
        partition.greatest_start = max(partition.greatest_start, sighting.start)
        if sighting.start > 0 and not image.damage and not image.cache_damage:
            # The last step of the life before may have deleted segments, of which nobody was told.
            self._note_start(partition, sighting.start)

    def _on_epochs_seen(self, partition: PartitionGhost, sighting: EpochsSeen) -> None:
        partition.image(sighting.broker).cache_damage = ""

    def _on_log_started(self, partition: PartitionGhost, sighting: LogStarted) -> None:
        image = partition.image(sighting.broker)
        for mark in image.chain.begin_at(sighting.start):
            image.lost.pop(mark, None)
        if image.lost_from is not None and image.chain.end >= partition.truth.end:
            image.caught_up()
        self._note_start(partition, sighting.start)
        if image.leads:
            partition.leader_log_start = max(partition.leader_log_start, sighting.start)

    def _on_start_moved(self, partition: PartitionGhost, sighting: StartMoved) -> None:
        self._note_start(partition, sighting.start)

    def _note_start(self, partition: PartitionGhost, start: int) -> None:
        """Note an offset at which a log begins."""
        partition.log_start = max(partition.log_start, start)
        partition.greatest_start = max(partition.greatest_start, start)
        partition.log_starts[start] = None

    def _reconsider(self, partition: PartitionGhost) -> None:
        """Excuse the records that no electable replica holds, if the disks of all of them lost them."""
        self._note_lost(partition)
        best, damage = -1, ""
        for broker in partition.isr:
            image = partition.image(broker)
            held = image.agreed_end(partition.truth)
            if held >= partition.truth.end or image.lost_from is None or held < image.lost_from:
                return
            best, damage = max(best, held), damage or image.damage
        if best < 0:
            return
        # A flush came before each acknowledgement: nothing acknowledged may be lost, unless a disk lied or was lost.
        if partition.flush_promised and not damage:
            best = max(best, partition.acked_end)
        reason = f"every in-sync replica lost it: {damage}" if damage else UNSYNCED
        self._excuse(partition, best, reason)

    def _note_lost(self, partition: PartitionGhost) -> None:
        """Remember the batches that the disks of all in-sync replicas lost.

        This is skipped where a flush is promised: a follower's fetch then reports only records that its disk keeps.
        """
        if partition.isr and not partition.keeps_synced:
            first, *others = [partition.image(broker).lost for broker in partition.isr]
            for mark in first:
                if all(mark in lost for lost in others):
                    partition.lost[mark] = partition.epoch

    def _excuse(self, partition: PartitionGhost, start: int, reason: str) -> None:
        end = partition.truth.end
        if start < end:
            dropped = partition.truth.truncate_to(start)
            assert dropped, (partition.name, start, end)
            for mark in dropped:
                partition.excused[mark] = None
            assert partition.truth.end <= start, (partition.name, partition.truth.end, start)
            # Who takes over late need not hold what a leader of a later epoch commits in the place of what is lost.
            for epoch, elected_end in partition.elected_end.items():
                partition.elected_end[epoch] = min(elected_end, partition.truth.end)
            self.excuses.append(Excuse(partition.name, start, end, reason))


def _hole(start: int, marks: Sequence[Mark]) -> int | None:
    """Returns the first offset from `start` on that no batch holds although a later one is there, None without any."""
    end = start
    for mark in marks:
        if mark.base_offset > end:
            return end
        end = mark.next_offset
    return None
