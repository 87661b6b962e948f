"""A simulated cluster that a test drives step by step: the run of `replog sim run`, with a test in the place of the
scenario's steps.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal, final

from cluster.core.broker.broker import Broker
from cluster.core.messages import AlterTopicConfigsRequest, TopicPartition
from sim.disk import PowerLoss
from sim.disk.life import Life
from sim.hosts.clients import ProducerShell
from sim.hosts.history import ReadOperation, SendOperation
from sim.hosts.node import Node
from sim.run import Run, RunResult
from sim.scenario.loading import scenario_of
from sim.scenario.model import Scenario
from sim.scenario.steps import BROKER_JOBS
from sim.world.time import without_garbage_collection
from storage.config import LogConfig
from storage.log import PartitionLog
from storage.segment.lookups import read_next_offset

Acks = Literal["all", 1, 0]
Who = Literal["leader", "controller"] | int
Side = Literal["before", "after"]

ACKS: tuple[Acks, ...] = ("all", 1, 0)
# The topic of a cluster that is not told which it has.
DEFAULT_TOPICS: Mapping[str, Mapping[str, object]] = {
    "t": {"partitions": 1, "replicas": 3, "config": {"min.insync.replicas": 2}}
}
# The last lines of the story that a violation shows.
STORY_LINES = 40


class RuleViolated(AssertionError):
    """A checker found a rule broken. The message has the rule, the seed, and the end of the story."""


@final
class SimCluster:
    """Brokers from 1 on and a controller, all up and in sync, with topics, producers and a consumer a topic.

    `topics` has a topic's `partitions`, `replicas` and `config` by its name, as in a scenario file; without it there is
    `t` with one partition. `settings` are properties of brokers and controller, `transport` is `stream` or `datagram`.
    Raises ScenarioError for what no scenario may have.

    Virtual time passes only in `advance` and `finish`. A fault that does not apply, such as a kill of a node that is
    down, does nothing. Every method that lets time pass raises RuleViolated as soon as a checker has found something.
    """

    def __init__(
        self,
        *,
        seed: int = 0,
        brokers: int = 3,
        topics: Mapping[str, Mapping[str, object]] | None = None,
        settings: Mapping[str, int] | None = None,
        transport: Literal["stream", "datagram"] = "stream",
    ) -> None:
        self.seed, self._is_over = seed, False
        self._run = Run(_scenario(brokers, topics or DEFAULT_TOPICS, settings or {}, transport), seed)
        for producer in self._run.cluster.producers:
            # It sends only what the test asks for.
            producer.finish()
        self._run.begin()
        self._pass_us(self._run.scenario.warm_up)
        for producer in self._run.cluster.producers:
            assert producer.core is not None, f"the topic {producer.model.topic} was not made"

    # What is

    @property
    def now_ms(self) -> int:
        """The virtual time since the cluster's start."""
        return self._run.world.now_us // 1000

    @property
    def brokers(self) -> tuple[int, ...]:
        """The numbers of all brokers, from 1 on."""
        return tuple(self._run.cluster.brokers)

    @property
    def story(self) -> tuple[str, ...]:
        """What has happened so far, a line for each event that a reader should know."""
        return tuple(self._run.story.lines)

    @property
    def violations(self) -> tuple[str, ...]:
        """What checkers have found so far."""
        return tuple(
            f"{found.at_us / 1e6:.3f} s: {found.checker}: {found.what}" for found in self._run.jury.violations
        )

    def leader(self, topic: str = "t", partition: int = 0) -> int:
        """Returns the broker that the controller has elected last, -1 before the first election.

        Raises ValueError for a partition that the cluster does not have, as `isr` does.
        """
        return self._run.ghost.partition(self._partition(topic, partition)).leader

    def isr(self, topic: str = "t", partition: int = 0) -> tuple[int, ...]:
        """Returns the in-sync replicas as the controller has committed them."""
        return self._run.ghost.partition(self._partition(topic, partition)).isr

    def ends(self, broker: int, topic: str = "t", partition: int = 0) -> tuple[int, int]:
        """Returns high watermark and log end offset (both exclusive) of a replica. Raises KeyError if the broker is
        down or has no such replica, ValueError for a broker or a partition that the cluster does not have.
        """
        name, core = self._partition(topic, partition), self._node(broker).core
        if not isinstance(core, Broker):
            raise KeyError(f"broker {broker} is down")
        replica = core.replicas().get(TopicPartition(topic, partition))
        if replica is None:
            raise KeyError(f"broker {broker} has no replica of {name}")
        log = replica.log
        return log.high_watermark, log.log_end_offset

    def is_up(self, who: Who) -> bool:
        return self._node(who).is_up

    # Time and load

    def advance(self, milliseconds: int) -> None:
        """Let virtual time pass. Raises RuleViolated, and ValueError unless `milliseconds` is a whole number from 0."""
        if not isinstance(milliseconds, int) or milliseconds < 0:
            raise ValueError(f"milliseconds: expected a whole number of 0 or more, got {milliseconds!r}")
        self._pass_us(milliseconds * 1_000)
        self.check()

    def _pass_us(self, duration_us: int) -> None:
        assert not self._is_over, "the cluster has been finished"
        with without_garbage_collection():
            self._run.world.run_to(self._run.world.now_us + duration_us)

    def produce(
        self, records: int | Iterable[str] = 1, *, topic: str = "t", acks: Acks = "all"
    ) -> list[SendOperation]:
        """Send records now, with values of the test or with that many values that the cluster makes up.

        Returns each send. Its `outcome` is OPEN until time has passed, then OK with `partition` and `offset`, FAIL if
        the record is in no log, or INFO if nobody knows. Raises ValueError for a value that was sent before: the
        checkers recognise a record by its value; and for a topic that the cluster does not have. Raises TypeError for a
        text in place of a list of them.
        """
        if isinstance(records, str):
            raise TypeError(f"records: expected a number or a list of texts, got the text {records!r}")
        if isinstance(records, int) and records < 0:
            raise ValueError(f"records: expected 0 or more, got {records}")
        producer = self._producer(topic, acks)
        values: Iterable[str | None] = [None] * records if isinstance(records, int) else records
        first = len(self._run.history.sends)
        for value in values:
            producer.send_one(value)
        self.check()
        return self._run.history.sends[first:]

    def _producer(self, topic: str, acks: Acks) -> ProducerShell:
        self._check_topic(topic)
        for producer in self._run.cluster.producers:
            if producer.model.topic == topic and producer.model.acks == acks:
                return producer
        raise ValueError(f"acks: expected one of {', '.join(map(repr, ACKS))}, got {acks!r}")

    def consumed(self, topic: str = "t") -> list[ReadOperation]:
        """Returns the records that the topic's consumer has read so far. Raises ValueError for an unknown topic."""
        self._check_topic(topic)
        reads = self._run.history.reads
        return [read for read in reads if read.partition.rpartition("-")[0] == topic]

    def alter_topic(self, topic: str, config: Mapping[str, str]) -> None:
        """Ask the controller to change properties of a topic; an empty value means the default again.

        Raises ValueError for a topic that the cluster does not have, and for a property that no topic may have.
        """
        self._check_topic(topic)
        LogConfig.from_properties({key: value for key, value in config.items() if value != ""})
        self._tell(f"alter {topic}: {', '.join(f'{key}={value}' for key, value in config.items())}")
        self._run.cluster.admin.ask(AlterTopicConfigsRequest(name=topic, configs=tuple(config.items())))

    # Processes

    def kill(self, who: Who) -> None:
        """End the process at once; what it has written stays in the page cache of its machine."""
        node = self._node(who)
        if node.is_up:
            self._tell(f"kill {node.name}")
            node.crash()

    def kill_at_job(self, who: Who, side: Side, kind: str) -> None:
        """Kill the node before or after its next job of that kind. Raises ValueError for an unknown kind."""
        if kind not in BROKER_JOBS:
            raise ValueError(f"no job {kind!r}: known are {', '.join(BROKER_JOBS)}")
        node = self._node(who)
        if node.is_up:
            self._tell(f"will kill {node.name} {side} its next {kind}")
            node.arm_crash_point(side, kind, node.crash)

    def power_loss(self, who: Who, keep: PowerLoss = "none") -> None:
        """Cut the power of the machine, also of one whose process has ended; `keep` says which un-synced writes
        survive.
        """
        node = self._node(who)
        self._tell(f"power loss (keep {keep}) at {node.name}")
        if node.is_up:
            node.lose_power(keep)
            return
        node.disk.lose_power(keep)
        if isinstance(who, int) or who == "leader":
            self._run.witness.on_died(node.node_id, lost_power=True)

    def tear_next_append(
        self, who: Who, byte: int, keep: PowerLoss | None = None, *, topic: str = "t", partition: int = 0
    ) -> None:
        """Let a broker write `byte` bytes of its next batch. Then its process dies or, with `keep`, its machine."""
        node, log = self._node(who), self._partition(topic, partition)
        if not node.is_up or not node.has_log(log):
            return
        self._tell(f"{node.name} will write {byte} bytes of its next batch of {log} and die (keep {keep})")

        def end() -> None:
            node.crash() if keep is None else node.lose_power(keep)

        node.arm_partial_write(log, byte, end)

    def stop(self, who: Who) -> None:
        """Ask the process to stop in order; time must pass for it."""
        node = self._node(who)
        if node.is_up:
            self._tell(f"stop, in order, {node.name}")
            node.stop()

    def restart(self, who: Who) -> None:
        """Start a node that is down."""
        node = self._node(who)
        if not node.is_up:
            self._tell(f"start {node.name} again")
            node.start()

    def pause(self, who: Who) -> None:
        """Let the process stand still, as SIGSTOP does."""
        node = self._node(who)
        if node.is_up and not node.paused:
            self._tell(f"pause {node.name}")
            node.pause()

    def resume(self, who: Who) -> None:
        node = self._node(who)
        if node.is_up and node.paused:
            self._tell(f"{node.name} goes on")
            node.resume()

    # Disks

    def truncate(self, broker: int, offset: int, *, topic: str = "t", partition: int = 0) -> int:
        """Cut the log of a broker that is down to `offset`, as an operator's `replog log truncate` does.

        Returns the new log end: a batch that holds `offset` goes as a whole. To the checkers it is a loss of the disk:
        what no other in-sync replica holds is excused. Raises ValueError if the broker is up or has no such log.
        """
        node = self._node(broker)
        if node.is_up or not node.has_log(f"{topic}-{partition}"):
            raise ValueError(f"{node.name} is up, or has no log of {topic}-{partition}: nothing can be cut")
        self._tell(f"truncate {topic}-{partition} of {node.name} to {offset}")
        end = _truncate(node, node.log_path(f"{topic}-{partition}"), offset, self._run.world.now_ms)
        # What the operator took away is gone from this disk, although it was synced.
        self._run.witness.on_died(broker, lost_power=True, damage="an operator cut a log")
        return end

    # Links

    def cut(self, start: Who, end: Who, *, both_ways: bool = True) -> None:
        """Cut the link from `start` to `end`, and the one back if `both_ways`, until `heal`."""
        ends = (self._node(start), self._node(end))
        if ends[0] is not ends[1]:
            self._tell(f"cut {ends[0].name} {'<->' if both_ways else '->'} {ends[1].name}")
            for pair in (ends, ends[::-1]) if both_ways else (ends,):
                self._run.cluster.network.link(pair[0].node_id, pair[1].node_id).cuts = 1

    def isolate(self, who: Who) -> None:
        """Cut the node from all other nodes. Clients still reach it."""
        for other in (*self.brokers, "controller"):
            self.cut(who, other if isinstance(other, int) else "controller")

    def heal(self, who: Who | None = None) -> None:
        """Heal every link of the node, or all links."""
        node = None if who is None else self._node(who)
        self._tell(f"heal {'all links' if node is None else node.name}")
        for link in self._run.cluster.network.links():
            if node is None or node.node_id in (link.source, link.target):
                link.heal()

    # The end

    def check(self) -> None:
        """Raise RuleViolated if a checker has found anything so far."""
        if self.violations:
            raise RuleViolated(self._failure())

    def finish(self) -> RunResult:
        """Heal everything, wait until the cluster agrees, and judge the history. Raises RuleViolated.

        A cluster is finished once: later calls of any method that lets time pass fail.
        """
        assert not self._is_over, "the cluster has been finished"
        with without_garbage_collection():
            result = self._run.end("see the steps of the test")
        self._is_over = True
        self.check()
        return result

    @property
    def is_finished(self) -> bool:
        return self._is_over

    def _failure(self) -> str:
        lines = self.story[-STORY_LINES:]
        return "\n".join([self.violations[0], f"seed {self.seed}; what happened before:", *lines])

    def _tell(self, what: str) -> None:
        self._run.chronicle.tell(what)

    def _node(self, who: Who) -> Node:
        if who == "controller":
            return self._run.cluster.controller
        number = self.leader(next(iter(self._run.scenario.topics))) if who == "leader" else who
        if number not in self._run.cluster.brokers:
            known = ", ".join(map(str, self.brokers))
            raise ValueError(
                f"no broker {number!r}: the cluster has {known}; `leader` and `controller` are names"
            )
        return self._run.cluster.brokers[number]

    def _check_topic(self, topic: str) -> None:
        if topic not in self._run.scenario.topics:
            raise ValueError(f"no topic {topic!r}: the cluster has {', '.join(self._run.scenario.topics)}")

    def _partition(self, topic: str, partition: int) -> str:
        """Returns the name of a partition. Raises ValueError for one that the cluster does not have."""
        self._check_topic(topic)
        count = self._run.scenario.topics[topic].partitions
        if not 0 <= partition < count:
            raise ValueError(f"no partition {topic}-{partition}: {topic} has {count}, numbered from 0")
        return f"{topic}-{partition}"


def _truncate(node: Node, path: str, offset: int, now_ms: int) -> int:
    """Open the log in a life of its own, cut it, and return its end."""
    file_system = node.disk.file_system(Life("operator"))
    log = PartitionLog.open(file_system, path, LogConfig(), log_start_offset=0, clean=False, now_ms=now_ms)
    log.truncate_to(offset, now_ms=now_ms)
    end = read_next_offset(log.local.segments.active)
    log.close()
    assert end <= max(offset, 0), (path, end, offset)
    return end


def _scenario(
    brokers: int, topics: Mapping[str, Mapping[str, object]], settings: Mapping[str, int], transport: str
) -> Scenario:
    """Returns a scenario without steps: for each topic a producer for each acks, and a consumer."""
    return scenario_of(
        {
            "scenario": "test",
            "converge": "40s",
            "cluster": {"brokers": brokers, "settings": dict(settings)},
            "network": {"transport": transport},
            "topics": {name: dict(topic) for name, topic in topics.items()},
            "producers": [{"topic": name, "rate": "1/s", "acks": acks} for name in topics for acks in ACKS],
            "consumers": [{"topic": name} for name in topics],
        }
    )
