"""Notes when a topic can take no records because of what broke, and counts the failed sends that this excuses.

A producer that finds no leader fails its sends in the end. That is no fault of anyone: without a running leader, or
without enough running in-sync replicas for acks=all, a partition takes no records.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol, final

from cluster.core.messages import TopicPartition
from sim.checkers.ghost import Ghost
from sim.hosts.history import History, Outcome, SendOperation
from sim.scenario.model import ProducerModel, Scenario
from sim.witness.topic_lives import TopicLives

ACKS_ALL = -1
NO_TOPIC = "the topic did not exist"
NO_LEADER = "a partition had no running leader"
TOO_FEW = "a partition had too few running in-sync replicas"
KILLED = "the producer was killed"


class Host(Protocol):
    """The part of a broker's process that counts here."""

    @property
    def is_up(self) -> bool: ...

    @property
    def paused(self) -> bool: ...


class Sender(Protocol):
    """The part of a producer that counts here."""

    @property
    def name(self) -> str: ...

    @property
    def model(self) -> ProducerModel: ...


class Time(Protocol):
    """The time of a run, simulated or not."""

    @property
    def now_us(self) -> int: ...


class Scene(Protocol):
    """The part of a run's cluster that counts here."""

    @property
    def scenario(self) -> Scenario: ...

    @property
    def world(self) -> Time: ...

    @property
    def partitions(self) -> Sequence[TopicPartition]: ...

    @property
    def brokers(self) -> Mapping[int, Host]: ...

    @property
    def producers(self) -> Sequence[Sender]: ...


class _Outage(NamedTuple):
    """What a topic lacked at a time; with `is_for_all` only acks=all suffers from it."""

    at_us: int
    reason: str
    is_for_all: bool


@final
class Outages:
    """Looks at intervals at what each topic lacks."""

    def __init__(self, cluster: Scene, ghost: Ghost, lives: TopicLives) -> None:
        self._cluster, self._ghost, self._lives = cluster, ghost, lives
        # By topic, in order of time.
        self._outages: dict[str, list[_Outage]] = {topic: [] for topic in cluster.scenario.topics}

    def look(self) -> None:
        """Note what each topic lacks now."""
        now_us = self._cluster.world.now_us
        for topic_partition in self._cluster.partitions:
            outages = self._outages[topic_partition.topic]
            assert not outages or outages[-1].at_us <= now_us, (outages[-1], now_us)
            if reason := self._lacks(topic_partition):
                outages.append(_Outage(now_us, reason, reason == TOO_FEW))

    def _lacks(self, topic_partition: TopicPartition) -> str:
        """Returns what the partition lacks now to take records; empty if nothing."""
        if not self._lives.exists(topic_partition.topic):
            return NO_TOPIC
        ghost = self._ghost.partition(str(topic_partition))
        if not self._runs(ghost.leader):
            return NO_LEADER
        is_enough = len(ghost.isr) >= ghost.min_isr and all(self._runs(broker) for broker in ghost.isr)
        return "" if is_enough else TOO_FEW

    def _runs(self, broker: int) -> bool:
        """Whether there is such a broker and its process runs."""
        node = self._cluster.brokers.get(broker)
        return node is not None and node.is_up and not node.paused

    def excused(self, history: History) -> dict[str, int]:
        """Returns the number of sends that did not succeed and met an outage of their topic, by its reason."""
        topics = {each.name: each.model.topic for each in self._cluster.producers}
        counts: Counter[str] = Counter()
        for operation in history.sends:
            if operation.outcome is not Outcome.OK and (reason := self._met(topics, operation)):
                counts[reason] += 1
        return dict(sorted(counts.items()))

    def _met(self, topics: dict[str, str], operation: SendOperation) -> str:
        """Returns why the send could not succeed; empty if nothing was in its way."""
        outages = self._outages[topics[operation.producer]]
        first = bisect_left(outages, operation.invoked_us, key=lambda outage: outage.at_us)
        for outage in outages[first:]:
            if outage.at_us > operation.completed_us:
                break
            if operation.acks == ACKS_ALL or not outage.is_for_all:
                return outage.reason
        return KILLED if operation.error == "KILLED" else ""
