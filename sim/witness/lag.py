"""Shows the checker of lagging members what leaders hear of their followers, and what they propose."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import final

from cluster.core.broker.broker import Broker
from cluster.core.effects import Observe
from cluster.core.messages import FetchRequest, TopicPartition
from sim.checkers.base import Jury
from sim.checkers.lagging import LaggingMembers, Led
from sim.hosts.node import Node
from sim.hosts.shell import Shell
from sim.witness.topic_lives import TopicLives
from sim.world.packets import Exchange

# So long after a pause, a start or a long step a broker may still handle what came meanwhile.
_CALM_US = 1_000_000


@final
class LagWitness:
    """Watches the brokers that lead."""

    def __init__(self, jury: Jury, lives: TopicLives, lag_time_max_ms: int) -> None:
        self._jury, self._lives = jury, lives
        self._members = LaggingMembers(jury, lag_time_max_ms)
        self._looked_us: int | None = None

    def on_observes(self, shell: Shell, observes: list[Observe]) -> None:
        """Receives all observations of one step of a node."""
        for observe in observes:
            if observe.kind in ("isr.proposed", "isr.committed"):
                led = _led(shell, dict(observe.fields))
                if led is None:
                    continue
                if observe.kind == "isr.proposed":
                    self._members.on_proposed(led)
                else:
                    self._members.on_committed(led, self._now_ms())
            elif observe.kind == "broker.started":
                self._members.on_started(shell.node_id)

    def on_accepted(self, shell: Shell, exchange: Exchange) -> None:
        """Receives a request that has reached a node."""
        request = exchange.body
        if isinstance(request, FetchRequest) and request.replica_id >= 0 and isinstance(shell.core, Broker):
            self._members.on_fetch(shell.node_id, shell.core.replicas(), request, self._now_ms())

    def _now_ms(self) -> int:
        # No clock of a broker: one that is set ahead takes nobody's time away.
        return self._jury.now_us() // 1000

    def look(self, brokers: Mapping[int, Node], partitions: Iterable[TopicPartition], now_us: int) -> None:
        """Judge all partitions whose elected leader leads and runs; to be called at intervals.

        How long a log had ended where a follower's fetch reached is not known after a time without looks, as a warm-up.
        """
        is_late = self._looked_us is None or now_us - self._looked_us > _CALM_US
        self._looked_us = now_us
        for topic_partition in partitions:
            name = str(topic_partition)
            ghost = self._jury.ghost.partition(name)
            node = brokers.get(ghost.leader)
            if node is None or ghost.unjudged or not self._lives.is_present(ghost.leader, name):
                continue
            since_us, core = node.runs_since_us, node.core
            if since_us is None or not isinstance(core, Broker):
                continue
            replica = core.replicas().get(topic_partition)
            if replica is None or replica.leader is None or replica.leader_epoch != ghost.epoch:
                continue
            # What is committed may be known from the metadata, and the answer be lost: the call ends with its time-out.
            is_waiting = replica.leader.proposal_call is not None
            was_still = is_late or is_waiting or now_us - max(since_us, node.still_until_us) < _CALM_US
            self._members.look(ghost.leader, name, ghost, replica, self._now_ms(), was_still=was_still)


def _led(shell: Shell, values: dict[str, int | str]) -> Led | None:
    """Returns the leader that an observation is of; None where its replica is gone at the end of the step."""
    topic, _, number = str(values["topic_partition"]).rpartition("-")
    replicas = shell.core.replicas() if isinstance(shell.core, Broker) else {}
    replica = replicas.get(TopicPartition(topic, int(number)))
    if replica is None:
        return None
    return Led(shell.node_id, replica.name, replica.topic_id, int(values["leader_epoch"]))
