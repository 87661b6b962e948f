"""Ends the judgement of a run in which nodes have believed what no checksum covers: only that no node fails counts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from cluster.core.client.config import OffsetReset
from cluster.core.client.consumer import Start
from cluster.core.client.effects import ConsumerEffect
from cluster.core.connection.codec import OutOfBounds
from cluster.core.connection.outgoing import Answer
from cluster.core.connection.rooms import Room
from cluster.core.effects import Observe, Send
from cluster.core.events import Event
from cluster.core.messages import ResponseBody, TopicPartition
from sim.cluster import ClusterWatcher
from sim.hosts.node import Node
from sim.hosts.shell import Shell
from sim.world.network import PacketCounts
from sim.world.packets import Exchange


@final
class Blindfold:
    """Passes all that a run shows on to `watcher`, until the network has flipped a bit that nobody can notice.

    From then on a node may say and do anything that its peers have told it, and the watcher learns only of what a core
    raises.
    """

    def __init__(self, watcher: ClusterWatcher) -> None:
        self._watcher = watcher
        self._packets = PacketCounts()

    def follow(self, packets: PacketCounts) -> None:
        """Take the counts of the run's network, which is made after its watcher."""
        assert not packets.unchecked, packets.unchecked
        self._packets = packets

    @property
    def is_on(self) -> bool:
        """Whether nothing but failures is judged any more."""
        return self._packets.unchecked > 0

    def on_observes(self, shell: Shell, observes: list[Observe]) -> None:
        if not self._packets.unchecked:
            self._watcher.on_observes(shell, observes)

    def on_step(self, shell: Shell, events: Sequence[Event], effects: Sequence[object]) -> None:
        if not self._packets.unchecked:
            self._watcher.on_step(shell, events, effects)

    def on_sent(self, shell: Shell, effect: Send, target: int) -> None:
        if not self._packets.unchecked:
            self._watcher.on_sent(shell, effect, target)

    def on_accepted(self, shell: Shell, exchange: Exchange) -> None:
        if not self._packets.unchecked:
            self._watcher.on_accepted(shell, exchange)

    def on_answered(self, shell: Shell, call: int, body: Answer) -> None:
        if not self._packets.unchecked:
            self._watcher.on_answered(shell, call, body)

    def on_accepted_silently(self, shell: Shell, exchange: Exchange) -> None:
        if not self._packets.unchecked:
            self._watcher.on_accepted_silently(shell, exchange)

    def on_places(self, shell: Shell, room: Room, in_core: int, unwritten: int, held_up: int) -> None:
        if not self._packets.unchecked:
            self._watcher.on_places(shell, room, in_core, unwritten, held_up)

    def on_waiting_call(self, shell: Shell, target: int, path: str, taken: int, most: int) -> None:
        if not self._packets.unchecked:
            self._watcher.on_waiting_call(shell, target, path, taken, most)

    def on_late_alarm(self, shell: Shell, call: int, late_ms: int) -> None:
        if not self._packets.unchecked:
            self._watcher.on_late_alarm(shell, call, late_ms)

    def on_begun(self, shell: Shell, policy: OffsetReset) -> None:
        if not self._packets.unchecked:
            self._watcher.on_begun(shell, policy)

    def on_sought(self, shell: Shell, topic_partition: TopicPartition, start: Start) -> None:
        if not self._packets.unchecked:
            self._watcher.on_sought(shell, topic_partition, start)

    def on_told(self, shell: Shell, effect: ConsumerEffect) -> None:
        if not self._packets.unchecked:
            self._watcher.on_told(shell, effect)

    def on_reply(self, shell: Shell, exchange: Exchange, body: ResponseBody) -> None:
        if not self._packets.unchecked:
            self._watcher.on_reply(shell, exchange, body)

    def on_idle_reply(self, shell: Shell, body: ResponseBody) -> None:
        if not self._packets.unchecked:
            self._watcher.on_idle_reply(shell, body)

    def on_left(self, shell: Shell, exchange: Exchange) -> None:
        if not self._packets.unchecked:
            self._watcher.on_left(shell, exchange)

    def on_metadata(self, node: Node) -> None:
        if not self._packets.unchecked:
            self._watcher.on_metadata(node)

    def on_acknowledged(self, partition: str) -> None:
        if not self._packets.unchecked:
            self._watcher.on_acknowledged(partition)

    def on_failure(self, shell: Shell, error: Exception) -> None:
        """Pass on what a core raised; a request that is refused because of a flipped bit is none of that."""
        if not (self.is_on and isinstance(error, OutOfBounds)):
            self._watcher.on_failure(shell, error)

    def on_stop(self, shell: Shell, reason: str) -> None:
        if not self._packets.unchecked:
            self._watcher.on_stop(shell, reason)

    def on_power_loss(self, shell: Shell) -> None:
        if not self._packets.unchecked:
            self._watcher.on_power_loss(shell)

    def on_unwound(self, node: Node) -> None:
        if not self._packets.unchecked:
            self._watcher.on_unwound(node)

    def on_end(self, shell: Shell, *, lost_power: bool, in_order: bool) -> None:
        if not self._packets.unchecked:
            self._watcher.on_end(shell, lost_power=lost_power, in_order=in_order)
