"""Simulated clients that ask where a log begins, where it ends and where a time begins in it, again and again.

The witness judges what brokers answer; these clients check that they then read from where they were sent.
"""

from __future__ import annotations

from typing import final

from cluster.core.client.config import ConsumerConfig, OffsetReset
from cluster.core.client.consumer import ConsumerCore, Start
from cluster.core.client.effects import EndOfPartition, Fetched, PositionLost, PositionReset, Truncated
from cluster.core.client.starts import AtTime, BeforeEnd
from cluster.core.errors import ErrorCode
from cluster.core.messages import TopicPartition
from sim.hosts.clients import DAMAGE_ERRORS, ConsumerWatcher
from sim.hosts.lives import ClientShell
from sim.scenario.model import SeekerModel
from sim.scenario.settings import CLIENT_TIMEOUT_MS
from sim.world.clock import Clock
from sim.world.network import Network
from sim.world.streams import Stream
from sim.world.time import World
from sim.world.trace import Trace

# How far back a time is that is looked up, and how many records before the end.
_MOST_BACK_MS, _MOST_BEFORE_END = 6_000, 60
# The offsets that are guessed: the first ones, and such as the log of a run reaches late or never.
_OFFSETS = (0, 0, 5, 300, 1_000_000)
# Which look-ups are drawn, of seven: the end is where a new leader knows least.
_LATEST, _EARLIEST, _BEFORE_END = (0, 1), (2,), (3,)


@final
class SeekerShell(ClientShell):
    """A consumer that looks up a drawn place in one partition after the other, and reads once from there."""

    def __init__(
        self, world: World, network: Network, trace: Trace, watcher: ConsumerWatcher, *, name: str, node_id: int,
        bootstrap: tuple[int, ...], model: SeekerModel, partitions: int, clock: Clock | None = None,
    ) -> None:  # fmt: skip
        super().__init__(
            world, network, trace, watcher, name=name, node_id=node_id, bootstrap=bootstrap, clock=clock
        )
        self._consumer_watcher = watcher
        self._partitions = [TopicPartition(model.topic, partition) for partition in range(partitions)]
        self._every_us, self._turn, self._is_finished = model.every, 0, False
        # Whether it also goes to offsets that may be out of range.
        self._guesses = model.out_of_range is not None
        self._places = Stream(world.draws, "seek", name)
        # Where the last look-up of each partition has sent this client.
        self._found: dict[TopicPartition, int] = {}
        # The latest time of the records that it has read last of each partition.
        self._times: dict[TopicPartition, int] = {}
        self._actions[PositionReset] = self._on_position
        self._actions[Fetched] = self._on_fetched
        self._actions[Truncated] = self._on_truncated
        self._actions[PositionLost] = self._on_lost
        self._actions[EndOfPartition] = self._on_end_of_partition
        self._config = ConsumerConfig(
            auto_offset_reset=OffsetReset(model.out_of_range or "latest"),
            fetch_max_wait_ms=100,
            request_timeout_ms=CLIENT_TIMEOUT_MS,
            retry_backoff_ms=100,
        )

    def finish(self) -> None:
        """Look up nothing more, and read nothing more."""
        self._is_finished = True

    def _live(self) -> None:
        assert self._partitions, f"{self.name} asks about nothing"
        self.consumer = ConsumerCore(self._config)
        self.core = self.consumer
        self._consumer_watcher.on_begun(self, self._config.auto_offset_reset)
        starts = [(each, self._place_in(each)) for each in self._partitions]
        self.perform(self.consumer.assign(self.clock.now_ms(), starts))
        self.world.after(self.actor, self._every_us, self._on_pace, self.life_number)

    def _place_in(self, topic_partition: TopicPartition) -> Start:
        """Draws where to go in the partition: a place that is looked up or, where the model says so, an offset."""
        self._found.pop(topic_partition, None)
        place = (
            self._offset() if self._guesses and self._places.below(3) == 0 else self._place(topic_partition)
        )
        if isinstance(place, int):
            self._found[topic_partition] = place
        self._consumer_watcher.on_sought(self, topic_partition, place)
        return place

    def _offset(self) -> int:
        """Draws an offset at which a log may have nothing: its records may be deleted, or are yet to come."""
        return _OFFSETS[self._places.below(len(_OFFSETS))]

    def _place(self, topic_partition: TopicPartition) -> Start:
        """Draws what is looked up next: of two times one is that of a record, perhaps the latest that there is."""
        kind = self._places.below(7)
        if kind in _LATEST:
            return OffsetReset.LATEST
        if kind in _EARLIEST:
            return OffsetReset.EARLIEST
        if kind in _BEFORE_END:
            return BeforeEnd(self._places.below(_MOST_BEFORE_END))
        known_ms = self._times.get(topic_partition)
        if known_ms is not None and self._places.below(2) == 0:
            return AtTime(known_ms)
        return AtTime(max(0, self.clock.now_ms() - self._places.below(_MOST_BACK_MS)))

    def _on_pace(self, life_number: int) -> None:
        if life_number != self.life_number or self._is_finished:
            return
        if not self.paused:
            asked = self._partitions[self._turn % len(self._partitions)]
            self._turn += 1
            self._wait_us = 0
            place = self._place_in(asked)
            self.perform(self.consumer.seek(self.clock.now_ms(), asked, place))
        self.world.after(self.actor, self._every_us, self._on_pace, self.life_number)

    def _forget_all(self, *, is_orderly: bool) -> None:
        self._found.clear()

    def _on_position(self, effect: PositionReset) -> None:
        self._consumer_watcher.on_told(self, effect)
        self._found[effect.topic_partition] = effect.offset
        if self._is_finished:
            self.consumer.pause(effect.topic_partition)

    def _on_fetched(self, effect: Fetched) -> None:
        found = self._found[effect.topic_partition]
        if any(not found <= record.offset < effect.next_offset for record in effect.records):
            offsets = [record.offset for record in effect.records]
            self._fail(AssertionError(f"sent to {found}, it read {offsets} before {effect.next_offset}"))
        self._consumer_watcher.on_told(self, effect)
        if effect.records:
            self._times[effect.topic_partition] = max(record.timestamp for record in effect.records)
        # One answer is enough; the next look-up goes on.
        self.consumer.pause(effect.topic_partition)

    def _on_truncated(self, effect: Truncated) -> None:
        """Go on where the log that was read and the leader's part."""
        assert effect.to_offset <= effect.from_offset, (self.name, effect)
        self._consumer_watcher.on_told(self, effect)
        self._found[effect.topic_partition] = effect.to_offset

    def _on_end_of_partition(self, effect: EndOfPartition) -> None:
        """Wait: the next look-up comes."""
        self._consumer_watcher.on_told(self, effect)

    def _on_lost(self, effect: PositionLost) -> None:
        if self.network.counts.unchecked or effect.error in DAMAGE_ERRORS:
            return
        has_no_other = self._config.auto_offset_reset is OffsetReset.NONE
        if has_no_other and effect.error is ErrorCode.OFFSET_OUT_OF_RANGE:
            # The next look-up goes on.
            return
        self._fail(AssertionError(f"it lost its position in {effect.topic_partition}: {effect.error.name}"))
