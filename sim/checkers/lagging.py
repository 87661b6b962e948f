"""Judges how long a leader keeps a follower in sync that does not keep up (ISR-2)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol, final

from cluster.core.messages import FetchRequest, TopicPartition
from sim.checkers.base import Jury
from sim.checkers.ghost import PartitionGhost

# What the leader's check may come late, because of the events that its broker handles before it.
SLACK_MS = 1_000


class Led(NamedTuple):
    """A leader of an epoch: the next topic of the name may be led in the same epoch by the same broker."""

    broker: int
    partition: str
    topic_id: str
    epoch: int


class LogView(Protocol):
    """The part of a log that is read."""

    @property
    def log_end_offset(self) -> int: ...


class LeaderView(Protocol):
    """The part of a replica that is read; `leader` is None unless it leads."""

    @property
    def topic_id(self) -> str: ...

    @property
    def leader(self) -> object | None: ...

    @property
    def leader_epoch(self) -> int: ...

    @property
    def log(self) -> LogView: ...


@final
class Follower:
    """What one leader has heard of one follower."""

    __slots__ = ("caught_up_ms", "leader_end", "offset")

    def __init__(self, now_ms: int) -> None:
        self.caught_up_ms = now_ms
        # The offset of its last fetch, and the leader's log end then.
        self.offset, self.leader_end = -1, 0


@final
class LaggingMembers:
    """Judges that a leader proposes to remove a member of the ISR that has lagged for replica.lag.time.max.ms.

    A follower keeps up while its fetches reach the end that the leader's log had at the fetch before. The leader checks
    twice within the lag time, and again after each change of the ISR. All times are those of the world. A
    leader whose last proposal has no outcome waits for it, and one that stood still until just now is judged later.
    """

    name = "lagging-members"

    def __init__(self, jury: Jury, lag_time_max_ms: int) -> None:
        self._jury, self._lag_ms = jury, lag_time_max_ms
        self._followers: dict[tuple[Led, int], Follower] = {}
        # The leaders whose last proposal has no outcome that was seen.
        self._pending: dict[Led, None] = {}
        self._told: dict[tuple[Led, int], None] = {}

    def on_fetch(
        self, broker: int, replicas: Mapping[TopicPartition, LeaderView], request: FetchRequest, now_ms: int
    ) -> None:
        """Receives a follower's fetch as it comes. One that the leader refuses counts too, in the leader's favour."""
        for asked in request.partitions:
            replica = replicas.get(asked.topic_partition)
            if replica is None or replica.leader is None:
                continue
            led = Led(broker, str(asked.topic_partition), replica.topic_id, replica.leader_epoch)
            follower = self._follower(led, request.replica_id, now_ms)
            if asked.fetch_offset >= follower.leader_end:
                follower.caught_up_ms = now_ms
            follower.offset, follower.leader_end = asked.fetch_offset, replica.log.log_end_offset

    def _follower(self, led: Led, number: int, now_ms: int) -> Follower:
        key = (led, number)
        found = self._followers.get(key)
        if found is None:
            found = self._followers[key] = Follower(now_ms)
        return found

    def on_proposed(self, led: Led) -> None:
        """Receives that the leader has proposed another ISR."""
        self._pending[led] = None

    def on_committed(self, led: Led, now_ms: int) -> None:
        """Receives that the leader has adopted an ISR: it may propose again, and who has just joined has full time."""
        self._pending.pop(led, None)
        for key, follower in self._followers.items():
            if key[0] == led:
                follower.caught_up_ms = now_ms

    def on_started(self, broker: int) -> None:
        """Forget what earlier processes of the broker knew."""
        self._followers = {key: each for key, each in self._followers.items() if key[0].broker != broker}
        self._pending = {led: None for led in self._pending if led.broker != broker}

    def look(
        self,
        broker: int,
        name: str,
        partition: PartitionGhost,
        replica: LeaderView,
        now_ms: int,
        *,
        was_still: bool,
    ) -> None:
        """Judge the followers of the partition called `name`, which the broker leads in its present epoch.

        `was_still` says whether the broker stood still lately.
        """
        led = Led(broker, name, replica.topic_id, replica.leader_epoch)
        end, may_be_late = replica.log.log_end_offset, was_still or led in self._pending
        for number in partition.isr:
            if number == broker:
                continue
            follower = self._follower(led, number, now_ms)
            if follower.offset >= end or may_be_late:
                follower.caught_up_ms = now_ms
            self._judge(led, number, follower, now_ms)

    def _judge(self, led: Led, number: int, follower: Follower, now_ms: int) -> None:
        behind_ms = now_ms - follower.caught_up_ms
        if behind_ms <= self._lag_ms * 3 // 2 + SLACK_MS or (led, number) in self._told:
            return
        self._told[led, number] = None
        what = f"broker {led.broker} keeps broker {number} in sync, which has not kept up for {behind_ms} ms"
        limit = f"replica.lag.time.max.ms is {self._lag_ms}"
        self._jury.report(self.name, f"{led.partition}: {what}; {limit}")
