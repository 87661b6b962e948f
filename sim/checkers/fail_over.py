"""Judges how long a partition stays without a leader although one of its in-sync replicas could lead (rule L1)."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from typing import final

from sim.checkers.ghost import PartitionGhost

# What a decision of the controller, and the way to a broker, may take beyond the time-outs.
BOUND_US = 1_000_000
_NONE: Mapping[str, Mapping[int, int]] = {}
_NOBODY: Mapping[str, tuple[int, ...]] = {}
# Later than any time: a process that was not heard yet.
UNHEARD_US = 1 << 62


@final
class Pulse:
    """The heartbeats of one broker that the controller has answered, without an error."""

    __slots__ = ("last_us", "metadata_offset", "since_us")

    def __init__(self, now_us: int) -> None:
        # The first of the heartbeats that followed each other without a gap, and the last one.
        self.since_us = self.last_us = now_us
        # The next offset of the metadata log that the broker will read, as it has said.
        self.metadata_offset = -1


@final
class FailOver:
    """Four deadlines for each partition; `look` judges them at any interval.

    A leader that the controller has not heard for the session time-out and a second is replaced, if an in-sync replica
    could lead all the while. Without a leader, one is elected within a second from when an in-sync replica could lead.
    Where the topic allows unclean elections, any replica will do.
    A leader that has read its election begins to lead within a second. A broker that has told the controller that it
    cannot read the partition neither leads it nor is in sync a second later, unless it is the last one (KIP-858).

    A replica can lead while its broker is active, and the controller hears its heartbeats, and its disk is sound. The
    controller decides while it runs: what is overdue when it starts, goes on after a pause, or has waited long for a
    flush, has its full time again.
    No other knowledge of faults plays a part: a cut, or a broker's pause or crash, is a missing heartbeat.
    """

    name = "fail-over"

    def __init__(self, *, session_timeout_us: int, heartbeat_us: int) -> None:
        self._overdue_us = session_timeout_us + BOUND_US
        # Two heartbeats may be late or lost on the way.
        self._gap_us = 5 * heartbeat_us // 2
        self._pulses: dict[int, Pulse] = {}
        # By broker: the epoch of its last heartbeat, and the last one of a process that has ended.
        self._epochs: dict[int, int] = {}
        self._ended_epochs: dict[int, int] = {}
        # When the controller got the last heartbeat of each broker's present life, answered or not.
        self._taken_us: dict[int, int] = {}
        # Pairs of a broker and a partition that its disks do not give it.
        self._offline: set[tuple[int, str]] = set()
        # Until when each broker was short of descriptors.
        self._short_us: dict[int, int] = {}
        # Since when the topic of each partition allows unclean elections.
        self._allowed_us: dict[str, int] = {}
        # By partition: its leader and epoch, and since when that is so.
        self._led: dict[str, tuple[int, int, int]] = {}
        self._told: set[tuple[str, int]] = set()

    def on_heartbeat(self, broker: int, broker_epoch: int, metadata_offset: int, now_us: int) -> None:
        """Notes a heartbeat that the controller has answered; one of an earlier process may be late."""
        if broker_epoch <= self._ended_epochs.get(broker, -1):
            return
        self._epochs[broker] = broker_epoch
        pulse = self._pulses.get(broker)
        if pulse is None or pulse.since_us == UNHEARD_US or now_us - pulse.last_us > self._gap_us:
            pulse = self._pulses[broker] = Pulse(now_us)
        pulse.last_us, pulse.metadata_offset = now_us, metadata_offset

    def on_taken(self, broker: int, now_us: int) -> None:
        """Notes a heartbeat that the controller got: the session goes on, also if the answer is never sent (BRK-9)."""
        self._taken_us[broker] = now_us

    def on_refused(self, broker: int) -> None:
        """Notes that a heartbeat of the broker was refused, which is no sign of life."""
        self._taken_us.pop(broker, None)

    def on_short(self, broker: int) -> None:
        """Notes that the broker lacks descriptors, or has not caught up yet since it did: it may lead later."""
        self._short_us[broker] = UNHEARD_US

    def on_served(self, broker: int, now_us: int) -> None:
        """Notes that the broker lacks no descriptors any more."""
        if self._short_us.get(broker) == UNHEARD_US:
            self._short_us[broker] = now_us

    def on_offline(self, broker: int, partition: str) -> None:
        self._offline.add((broker, partition))

    def on_broker_started(self, broker: int) -> None:
        """Notes a new process: what was heard of the one before says nothing about it or its disks."""
        pulse = self._pulses.get(broker)
        if pulse is not None:
            pulse.since_us = UNHEARD_US
            self._ended_epochs[broker] = self._epochs[broker]
        self._offline = {each for each in self._offline if each[0] != broker}
        self._short_us.pop(broker, None)

    def look(
        self,
        partitions: Mapping[str, PartitionGhost],
        elected_at: Mapping[str, int],
        active: Container[int],
        now_us: int,
        *,
        controller_since_us: int | None,
        unreadable: Mapping[str, Mapping[int, int]] = _NONE,
        unclean: Mapping[str, tuple[int, ...]] = _NOBODY,
    ) -> Iterator[str]:
        """Yields what is overdue, once for each leader epoch.

        `partitions` are those that exist, by name; `elected_at` has the offsets of their last elections in the metadata
        log; `active` are the brokers that may lead; since `controller_since_us` the controller's process runs without a
        pause, and without a flush that takes long, None if it does not. `unreadable` has by partition the brokers that
        have told the controller that they cannot read it, and since when. `unclean` has the replicas of each partition
        whose topic allows unclean elections.
        """
        self._allowed_us = {name: self._allowed_us.get(name, now_us) for name in unclean}
        # Without a controller nobody is elected, and what was elected is judged later.
        decides_since_us = now_us if controller_since_us is None else controller_since_us
        for name, partition in partitions.items():
            leader, epoch, since_us = self._led.get(name, (-1, -2, now_us))
            if (leader, epoch) != (partition.leader, partition.epoch):
                leader, epoch, since_us = partition.leader, partition.epoch, now_us
                self._led[name] = (leader, epoch, since_us)
            if epoch < 0 or (name, epoch) in self._told:
                continue
            others = unclean.get(name, ())
            what = self._undecided(name, partition, others, since_us, decides_since_us, active, now_us)
            what = what or self._idle(name, partition, since_us, elected_at.get(name, -1), now_us)
            what = what or _kept(partition, unreadable.get(name, {}), decides_since_us, now_us)
            if what:
                self._told.add((name, epoch))
                yield f"{partition.name}: {what}"

    def _undecided(
        self,
        name: str,
        partition: PartitionGhost,
        others: tuple[int, ...],
        since_us: int,
        decides_since_us: int,
        active: Container[int],
        now_us: int,
    ) -> str:
        """Returns which election is overdue, if any: the controller could have decided since `decides_since_us`.

        `others` are the replicas that may be elected uncleanly.
        """
        leader, epoch = partition.leader, partition.epoch
        wait_us = BOUND_US if leader < 0 else self._overdue_us
        is_clean = now_us - self._allowed_us.get(name, now_us) <= wait_us
        able = [
            member
            for member in (partition.isr if is_clean else others)
            if member != leader and member in active and self._can_lead(member, name, wait_us, now_us)
        ]
        if not able or now_us - decides_since_us <= wait_us:
            return ""
        who = f"{'in-sync ' if able[0] in partition.isr else ''}broker {able[0]}"
        if leader < 0:
            if now_us - since_us > wait_us:
                return f"no leader since {since_us / 1e6:g} s, although {who} could lead"
            return ""
        silent_us = now_us - max(since_us, self._heard_us(leader))
        if silent_us > wait_us:
            return (
                f"broker {leader} leads in epoch {epoch} and was not heard for {silent_us / 1e6:g} s, although "
                f"{who} could lead"
            )
        return ""

    def _heard_us(self, broker: int) -> int:
        """Returns when the controller heard the broker last; 0 for never."""
        pulse = self._pulses.get(broker)
        return max(self._taken_us.get(broker, 0), 0 if pulse is None else pulse.last_us)

    def _idle(self, name: str, partition: PartitionGhost, since_us: int, elected_at: int, now_us: int) -> str:
        """Returns which broker has read that it leads, and does not lead, if any."""
        leader, epoch = partition.leader, partition.epoch
        since_us = max(since_us, self._short_us.get(leader, 0))
        is_late = now_us - since_us > BOUND_US and partition.begun_epoch < epoch
        if is_late and leader >= 0 and self._can_lead(leader, name, BOUND_US, now_us):
            if self._pulses[leader].metadata_offset > elected_at:
                return f"broker {leader} has read that it leads in epoch {epoch}, and does not lead"
        return ""

    def _can_lead(self, broker: int, name: str, wait_us: int, now_us: int) -> bool:
        """Whether the controller has heard the broker during the last `wait_us` without a gap."""
        pulse = self._pulses.get(broker)
        return (
            pulse is not None
            and now_us - pulse.since_us > wait_us
            and now_us - pulse.last_us <= self._gap_us
            and (broker, name) not in self._offline
        )


def _kept(
    partition: PartitionGhost, unreadable: Mapping[int, int], decides_since_us: int, now_us: int
) -> str:
    """Returns which broker leads the partition, or is in sync, that cannot read it for so long, if any."""
    for broker, since_us in unreadable.items():
        if now_us - max(since_us, decides_since_us) <= BOUND_US:
            continue
        since = f"has told the controller since {since_us / 1e6:g} s that it cannot read it"
        if broker == partition.leader:
            return f"broker {broker} leads in epoch {partition.epoch} and {since}"
        if broker in partition.isr and len(partition.isr) > 1:
            return f"broker {broker} is in the ISR {list(partition.isr)} and {since}"
    return ""
