"""Notes the points that nodes and clients show a watcher: observations, answers, and the ends of processes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import final

from cluster.core.client.config import OffsetReset
from cluster.core.client.consumer import Start
from cluster.core.client.effects import ConsumerEffect
from cluster.core.connection.outgoing import Answer
from cluster.core.connection.rooms import Room
from cluster.core.effects import Observe, Send
from cluster.core.events import Event
from cluster.core.messages import CONTROLLER_ID, ResponseBody, TopicPartition
from sim.checkers.ghost import Ghost
from sim.cluster import ClusterWatcher
from sim.disk.life import Life
from sim.hosts.history import History, Outcome
from sim.hosts.node import Node
from sim.hosts.shell import Shell
from sim.sometimes.answers import points_of_answer
from sim.sometimes.points import Reached
from sim.world.network import PacketCounts
from sim.world.packets import Exchange

_OBSERVED: Mapping[str, str] = {
    "log.compacted": "compaction",
    "log.recovered_cut": "torn-tail",
    "replica.set_aside": "set-aside",
    "replica.removed": "removed",
    "replica.failed": "replica-failed",
    "replica.offline": "replica-offline",
    "log_directory.offline": "directory-failed",
    "controller.broker_fenced": "broker-fenced",
    "controller.topic_deleted": "topic-deleted",
    "controller.topic_configured": "topic-configured",
}
# The suffixes of files that work on a log leaves behind when it is interrupted.
_UNFINISHED = ((".cleaned", "died-cleaning"), (".swap", "died-cleaning"), (".deleted", "died-deleting"))


@final
class WatchedPoints:
    """Passes all that a run shows its watcher on to `watcher`, and notes the points that it shows."""

    def __init__(self, watcher: ClusterWatcher, reached: Reached) -> None:
        self._watcher, self._reached = watcher, reached

    def on_observes(self, shell: Shell, observes: list[Observe]) -> None:
        """Note the points of one step's observations."""
        for observe in observes:
            name = _OBSERVED.get(observe.kind)
            if name is not None:
                self._reached.note(name)
            elif observe.kind == "broker.started" and isinstance(shell, Node) and shell.starts > 1:
                is_clean = dict(observe.fields)["clean"]
                self._reached.note("clean-start" if is_clean else "unclean-start")
        self._watcher.on_observes(shell, observes)

    def on_step(self, shell: Shell, events: Sequence[Event], effects: Sequence[object]) -> None:
        self._watcher.on_step(shell, events, effects)

    def on_sent(self, shell: Shell, effect: Send, target: int) -> None:
        self._watcher.on_sent(shell, effect, target)

    def on_accepted(self, shell: Shell, exchange: Exchange) -> None:
        self._watcher.on_accepted(shell, exchange)

    def on_answered(self, shell: Shell, call: int, body: Answer) -> None:
        self._watcher.on_answered(shell, call, body)

    def on_reply(self, shell: Shell, exchange: Exchange, body: ResponseBody) -> None:
        """Note the points of an answer."""
        for name in points_of_answer(exchange.body, body) if exchange.stray is None else ():
            self._reached.note(name)
        self._watcher.on_reply(shell, exchange, body)

    def on_idle_reply(self, shell: Shell, body: ResponseBody) -> None:
        self._reached.note("answer-to-nobody")
        self._watcher.on_idle_reply(shell, body)

    def on_left(self, shell: Shell, exchange: Exchange) -> None:
        self._watcher.on_left(shell, exchange)

    def on_accepted_silently(self, shell: Shell, exchange: Exchange) -> None:
        self._watcher.on_accepted_silently(shell, exchange)

    def on_places(self, shell: Shell, room: Room, in_core: int, unwritten: int, held_up: int) -> None:
        self._watcher.on_places(shell, room, in_core, unwritten, held_up)

    def on_waiting_call(self, shell: Shell, target: int, path: str, taken: int, most: int) -> None:
        self._watcher.on_waiting_call(shell, target, path, taken, most)

    def on_late_alarm(self, shell: Shell, call: int, late_ms: int) -> None:
        self._watcher.on_late_alarm(shell, call, late_ms)

    def on_begun(self, shell: Shell, policy: OffsetReset) -> None:
        self._watcher.on_begun(shell, policy)

    def on_sought(self, shell: Shell, topic_partition: TopicPartition, start: Start) -> None:
        self._watcher.on_sought(shell, topic_partition, start)

    def on_told(self, shell: Shell, effect: ConsumerEffect) -> None:
        self._watcher.on_told(shell, effect)

    def on_metadata(self, node: Node) -> None:
        self._watcher.on_metadata(node)

    def on_acknowledged(self, partition: str) -> None:
        self._watcher.on_acknowledged(partition)

    def on_failure(self, shell: Shell, error: Exception) -> None:
        self._watcher.on_failure(shell, error)

    def on_stop(self, shell: Shell, reason: str) -> None:
        if reason != "shutdown":
            self._reached.note("broker-gave-up")
        self._watcher.on_stop(shell, reason)

    def on_power_loss(self, shell: Shell) -> None:
        self._watcher.on_power_loss(shell)

    def on_unwound(self, node: Node) -> None:
        self._watcher.on_unwound(node)

    def on_end(self, shell: Shell, *, lost_power: bool, in_order: bool) -> None:
        """Note the points of the end of a life, as it leaves the disk."""
        if not in_order and shell.node_id == CONTROLLER_ID:
            self._reached.note("controller-lost-power" if lost_power else "controller-died")
        elif not in_order and isinstance(shell, Node):
            for suffix, name in _UNFINISHED:
                if _has_file(shell, suffix):
                    self._reached.note(name)
        self._watcher.on_end(shell, lost_power=lost_power, in_order=in_order)


def _has_file(node: Node, suffix: str) -> bool:
    """Whether a log of the node has a file of that suffix."""
    file_system = node.disk.file_system(Life("eye", sees_through=True))
    return any(
        name.endswith(suffix)
        for directory in node.directories
        if file_system.exists(directory)
        for log in file_system.list(directory)
        if file_system.stat(f"{directory}/{log}").is_directory
        for name in file_system.list(f"{directory}/{log}")
    )


def note_end(reached: Reached, history: History, ghost: Ghost, packets: PacketCounts) -> None:
    """Note the points that only the whole of a run shows."""
    outcomes = {send.outcome for send in history.sends}
    facts: dict[str, Callable[[], bool]] = {
        "send-refused": lambda: Outcome.FAIL in outcomes,
        "send-unknown": lambda: Outcome.INFO in outcomes,
        "read-again": lambda: _reads_again(history),
        "written-twice": lambda: _is_written_twice(history),
        "packet-lost": lambda: packets.lost > 0,
        "frame-unreadable": lambda: packets.unreadable > 0,
        "frame-unchecked": lambda: packets.unchecked > 0,
        "packet-selected": lambda: packets.selected > 0,
        "excused-disks": lambda: any("lost it" in excuse.reason for excuse in ghost.excuses),
        "excused-unclean": lambda: any("unclean" in excuse.reason for excuse in ghost.excuses),
    }
    for name, holds in facts.items():
        if holds():
            reached.note(name)


def _reads_again(history: History) -> bool:
    last: dict[tuple[str, str], int] = {}
    for read in history.reads:
        key = (read.consumer, read.partition)
        if read.offset <= last.get(key, -1):
            return True
        last[key] = read.offset
    return False


def _is_written_twice(history: History) -> bool:
    places: dict[tuple[str, str], int] = {}
    return any(
        places.setdefault((read.partition, read.value), read.offset) != read.offset for read in history.reads
    )
