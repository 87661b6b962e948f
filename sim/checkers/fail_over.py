"""Judges how long a partition stays without a leader although one of its in-sync replicas could lead (rule L1)."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from typing import final

from sim.checkers.ghost import PartitionGhost

# What a decision of the controller, and the way to a broker, may take beyond the time-outs.
BOUND_US = 1_000_000


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
    """Three deadlines for each partition; `look` judges them at any interval.

    A leader that the controller has not heard for the session time-out and a second is replaced, if an in-sync replica
    could lead all the while. Without a leader, one is elected within a second from when an in-sync replica could lead.
    A leader that has read its election begins to lead within a second.

    A replica can lead while its broker is active, and the controller hears its heartbeats, and its disk is sound. No
    knowledge of faults plays a part: a cut, a pause or a crash is a missing heartbeat.
    """

    name = "fail-over"

    def __init__(self, *, session_timeout_us: int, heartbeat_us: int) -> None:
        self._overdue_us = session_timeout_us + BOUND_US
        # Two heartbeats may be late or lost on the way.
        self._gap_us = 5 * heartbeat_us // 2
        self._pulses: dict[int, Pulse] = {}
        self._controller_since_us = 0
        # Pairs of a broker and a partition that its disks do not give it.
        self._offline: set[tuple[int, str]] = set()
        # By partition: its leader and epoch, and since when that is so.
        self._led: dict[str, tuple[int, int, int]] = {}
        self._told: set[tuple[str, int]] = set()

    def on_heartbeat(self, broker: int, metadata_offset: int, now_us: int) -> None:
        """Notes a heartbeat that the controller has answered."""
        pulse = self._pulses.get(broker)
        if pulse is None or now_us - pulse.last_us > self._gap_us:
            pulse = self._pulses[broker] = Pulse(now_us)
        pulse.last_us, pulse.metadata_offset = now_us, metadata_offset

    def on_controller_started(self, now_us: int) -> None:
        """Notes that all sessions begin again."""
        self._controller_since_us = now_us

    def on_offline(self, broker: int, partition: str) -> None:
        self._offline.add((broker, partition))

    def on_broker_started(self, broker: int) -> None:
        """Notes a new process: what was heard of the one before says nothing about its disks."""
        pulse = self._pulses.get(broker)
        if pulse is not None:
            pulse.since_us = pulse.last_us
        self._offline = {each for each in self._offline if each[0] != broker}

    def look(
        self,
        partitions: Mapping[str, PartitionGhost],
        elected_at: Mapping[str, int],
        active: Container[int],
        now_us: int,
    ) -> Iterator[str]:
        """Yields what is overdue, once for each leader epoch.

        `partitions` are those that exist, by name; `elected_at` has the offsets of their last elections in the metadata
        log; `active` are the brokers that may lead.
        """
        for name, partition in partitions.items():
            leader, epoch, since_us = self._led.get(name, (-1, -2, now_us))
            if (leader, epoch) != (partition.leader, partition.epoch):
                leader, epoch, since_us = partition.leader, partition.epoch, now_us
                self._led[name] = (leader, epoch, since_us)
            if epoch < 0 or (name, epoch) in self._told:
                continue
            what = self._overdue(name, partition, since_us, elected_at.get(name, -1), active, now_us)
            if what:
                self._told.add((name, epoch))
                yield f"{partition.name}: {what}"

    def _overdue(
        self,
        name: str,
        partition: PartitionGhost,
        since_us: int,
        elected_at: int,
        active: Container[int],
        now_us: int,
    ) -> str:
        leader, epoch = partition.leader, partition.epoch
        wait_us = BOUND_US if leader < 0 else self._overdue_us
        able = [
            member
            for member in partition.isr
            if member != leader and member in active and self._can_lead(member, name, wait_us, now_us)
        ]
        if leader < 0:
            if able and now_us - since_us > wait_us:
                return f"no leader since {since_us / 1e6:g} s, although in-sync broker {able[0]} could lead"
            return ""
        pulse = self._pulses.get(leader)
        silent_us = now_us - max(since_us, pulse.last_us if pulse is not None else 0)
        if able and silent_us > wait_us and now_us - self._controller_since_us > wait_us:
            return (
                f"broker {leader} leads in epoch {epoch} and was not heard for {silent_us / 1e6:g} s, although "
                f"in-sync broker {able[0]} could lead"
            )
        is_late = now_us - since_us > BOUND_US and partition.begun_epoch < epoch
        if is_late and self._can_lead(leader, name, BOUND_US, now_us):
            if pulse is not None and pulse.metadata_offset > elected_at:
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
