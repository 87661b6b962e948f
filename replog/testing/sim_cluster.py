"""A simulated cluster that a test drives step by step: the run of `replog sim run`, with a test in the place of the
scenario's steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Literal, final, get_args

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
from sim.scenario.settings import property_text
from sim.scenario.steps import BROKER_JOBS, CONTROLLER_JOBS
from sim.scenario.topic_checks import contradiction, lasting_properties
from sim.seed_range import check_seed
from sim.world.time import without_garbage_collection
from storage.config import LogConfig
from storage.log import PartitionLog
from storage.segment.lookups import read_next_offset

Acks = Literal["all", 1, 0]
Who = Literal["leader", "controller"] | int
AnyBroker = Literal["leader"] | int
Side = Literal["before", "after"]

ACKS: tuple[Acks, ...] = ("all", 1, 0)
SIDES: tuple[Side, ...] = get_args(Side)
KEEPS: tuple[PowerLoss, ...] = get_args(PowerLoss)
# The topic of a cluster that is not told which it has.
DEFAULT_TOPICS: Mapping[str, Mapping[str, object]] = {
    "t": {"partitions": 1, "replicas": 3, "config": {"min.insync.replicas": 2}}
}

# The last lines of the story that a violation shows.
STORY_LINES = 40


def _default_topics(brokers: int) -> Mapping[str, Mapping[str, object]]:
    """Returns the topic of a cluster with so many brokers that is not told which it has."""
    if brokers >= 3:
        return DEFAULT_TOPICS
    return {"t": {"partitions": 1, "replicas": brokers, "config": {"min.insync.replicas": brokers}}}


class RuleViolated(AssertionError):
    """A checker found a rule broken. The message has the rule, the seed, and the end of the story."""


@final
class SimCluster:
    """Brokers from 1 on and a controller, all up and in sync, with topics, producers and a consumer a topic.

    `topics` has a topic's `partitions`, `replicas` and `config` by its name, as in a scenario file; without it there is
    `t` with one partition, and with as many replicas as there are brokers, up to three. `settings` are properties of
    brokers and controller, `transport` is `stream` or `datagram`. Raises ScenarioError for what no scenario may have,
    TypeError or ValueError for what is no seed.

    Virtual time passes only in `advance` and `finish`. A fault that does not apply, such as a kill of a node that is
    down, does nothing. Every method that lets time pass, and all that happens to a process, raises RuleViolated if a
    checker has found something.
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
        check_seed(seed)
        self.seed, self._is_over = seed, False
        # The number of violations of which some method has raised an error.
        self._raised = 0
        self._run = Run(
            _scenario(brokers, topics or _default_topics(brokers), settings or {}, transport), seed
        )
        # By topic: the properties that it has by the changes asked for so far.
        self._configs = {
            name: {key: property_text(value) for key, value in topic.config.items()}
            for name, topic in self._run.scenario.topics.items()
        }
        for producer in self._run.cluster.producers:
            # It sends only what the test asks for.
            producer.finish()
        self._run.begin()
        with without_garbage_collection():
            self._run.world.run_to(self._run.scenario.warm_up)
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
        """Returns the broker that the controller has elected last, -1 where there is no leader.

        Raises ValueError for a partition that the cluster does not have, as `isr` does.
        """
        return self._run.ghost.partition(self._partition(topic, partition)).leader

    def isr(self, topic: str = "t", partition: int = 0) -> tuple[int, ...]:
        """Returns the in-sync replicas as the controller has committed them."""
        return self._run.ghost.partition(self._partition(topic, partition)).isr

    def ends(self, broker: AnyBroker, topic: str = "t", partition: int = 0) -> tuple[int, int]:
        """Returns high watermark and log end offset (both exclusive) of a replica. Raises KeyError if the broker is
        down or has no such replica, ValueError for a broker or a partition that the cluster does not have.
        """
        name = self._partition(topic, partition)
        node = self._node_or_none(broker, name)
        if node is None:
            raise KeyError(f"{name} has no leader")
        core = node.core
        if not isinstance(core, Broker):
            raise KeyError(f"broker {broker} is down")
        replica = core.replicas().get(TopicPartition(topic, partition))
        if replica is None:
            raise KeyError(f"broker {broker} has no replica of {name}")
        log = replica.log
        return log.high_watermark, log.log_end_offset

    def is_up(self, who: Who) -> bool:
        node = self._node_or_none(who)
        return node is not None and node.is_up

    # Time and load

    def advance(self, milliseconds: int) -> None:
        """Let virtual time pass. Raises RuleViolated, and ValueError unless `milliseconds` is a whole number from 0."""
        if not isinstance(milliseconds, int) or milliseconds < 0:
            raise ValueError(f"milliseconds: expected a whole number of 0 or more, got {milliseconds!r}")
        assert not self._is_over, "the cluster has been finished"
        end_us = self._run.world.now_us + milliseconds * 1_000
        self._run.expect_time(end_us)
        with without_garbage_collection():
            while self._run.world.now_us < end_us:
                self._run.step_to(end_us)
        self.check()

    def produce(
        self, records: int | Iterable[str] = 1, *, topic: str = "t", acks: Acks = "all"
    ) -> list[SendOperation]:
        """Send records now, with values of the test or with that many values that the cluster makes up.

        Returns each send. Its `outcome` is OPEN until time has passed, then OK with `partition` and `offset`, FAIL if
        the record is in no log, or INFO if nobody knows. Raises ValueError for a topic that the cluster does not have,
        and for a value that was sent before or is no UTF-8: the checkers recognise a record by its value. Raises
        TypeError for what is neither a number nor a list of texts. Nothing is sent then.
        """
        if isinstance(records, (str, bytes)) or not isinstance(records, (int, Iterable)):
            raise TypeError(f"records: expected a number or a list of texts, got {records!r}")
        if isinstance(records, int) and records < 0:
            raise ValueError(f"records: expected 0 or more, got {records}")
        producer, sends = self._producer(topic, acks), self._run.history.sends
        values = [None] * records if isinstance(records, int) else self._checked_values(records)
        first = len(sends)
        for value in values:
            producer.send_one(value)
        self.check()
        return sends[first:]

    def _checked_values(self, records: Iterable[str]) -> list[str]:
        """Returns the values of a test. Raises TypeError or ValueError for the first that cannot be sent."""
        values, sent = list(records), {each.value for each in self._run.history.sends}
        for number, value in enumerate(values):
            if not isinstance(value, str):
                raise TypeError(f"records[{number}]: expected a text, got {value!r}")
            try:
                value.encode()
            except UnicodeEncodeError as error:
                raise ValueError(f"records[{number}]: {value!r} cannot be written as UTF-8") from error
            if value in sent:
                raise ValueError(
                    f"records[{number}]: {value!r} was sent before; a record is recognised by its value"
                )
            sent.add(value)
        return values

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

    def alter_topic(self, topic: str, config: Mapping[str, str | int | float | bool]) -> None:
        """Ask the controller to change properties of a topic; an empty text means the default again.

        Raises ValueError for a topic that the cluster does not have, for a property that no topic may have, for those
        that contradict each other then, and for one that may not change because checkers rely on it.
        """
        self._check_topic(topic)
        texts = {key: property_text(value) for key, value in config.items()}
        LogConfig.from_properties({key: text for key, text in texts.items() if text != ""})
        for key in lasting_properties(self._run.scenario.topics[topic]):
            if key in texts:
                raise ValueError(f"alter_topic: {key} cannot change in a run: checkers rely on it")
        if (what := contradiction(self._configs[topic], texts)) is not None:
            raise ValueError(f"alter_topic: {what}")
        self._configs[topic] |= texts
        self._run.expect_change(topic, texts)
        self._tell(f"alter {topic}: {', '.join(f'{key}={text}' for key, text in texts.items())}")
        self._run.cluster.admin.ask(AlterTopicConfigsRequest(name=topic, configs=tuple(texts.items())))

    # Processes

    def kill(self, who: Who) -> None:
        """End the process at once; what it has written stays in the page cache of its machine."""
        node = self._node_or_none(who)
        if node is not None and node.is_up:
            self._tell(f"kill {node.name}")
            node.crash()
        self.check()

    def kill_at_job(self, who: Who, side: Side, kind: str) -> None:
        """Kill the node before or after its next job of that kind; the story says so once more when it dies.

        The jobs of the controller are others than those of a broker. Raises ValueError for an unknown side, and for a
        kind that the node does not have.
        """
        _check_word("side", side, SIDES)
        known = CONTROLLER_JOBS if who == "controller" else BROKER_JOBS
        if kind not in known:
            raise ValueError(f"no job {kind!r}: known are {', '.join(known)}")
        node = self._node_or_none(who)
        if node is not None and node.is_up:
            self._tell(f"will kill {node.name} {side} its next {kind}")
            dies = partial(self._strike, f"kill {node.name} {side} {kind}", node.crash)
            node.arm_crash_point(side, kind, dies)

    def power_loss(self, who: Who, keep: PowerLoss = "none") -> None:
        """Cut the power of the machine, also of one whose process has ended; `keep` says which un-synced writes
        survive. Raises ValueError for an unknown `keep`.
        """
        _check_word("keep", keep, KEEPS)
        node = self._node_or_none(who)
        if node is None:
            return
        self._tell(f"power loss (keep {keep}) at {node.name}")
        if node.is_up:
            node.lose_power(keep)
        else:
            node.disk.lose_power(keep)
            if isinstance(who, int) or who == "leader":
                self._run.witness.on_died(node.node_id, lost_power=True)
        self.check()

    def tear_next_append(
        self, who: Who, byte: int, keep: PowerLoss | None = None, *, topic: str = "t", partition: int = 0
    ) -> None:
        """Let a broker write `byte` bytes of its next batch. Then its process dies or, with `keep`, its machine.

        The story says so once more when it strikes. A `leader` is that of the partition. Raises ValueError for an
        unknown `keep` and unless `byte` is 0 or more.
        """
        if keep is not None:
            _check_word("keep", keep, KEEPS)
        if not isinstance(byte, int) or byte < 0:
            raise ValueError(f"byte: expected a whole number of 0 or more, got {byte!r}")
        log = self._partition(topic, partition)
        node = self._node_or_none(who, log)
        if node is None or not node.is_up or not node.has_log(log):
            return
        self._tell(f"{node.name} will write {byte} bytes of its next batch of {log} and die (keep {keep})")

        what = f"{node.name} writes {byte} bytes of its next batch of {log} and dies"
        if keep is not None:
            what += f" of a power loss (keep {keep})"
        ending = node.crash if keep is None else partial(node.lose_power, keep)
        node.arm_partial_write(log, byte, partial(self._strike, what, ending))

    def stop(self, who: Who) -> None:
        """Ask the process to stop in order; time must pass for it."""
        node = self._node_or_none(who)
        if node is not None and node.is_up:
            self._tell(f"stop, in order, {node.name}")
            node.stop()
        self.check()

    def restart(self, who: Who) -> None:
        """Start a node that is down."""
        node = self._node_or_none(who)
        if node is not None and not node.is_up:
            self._tell(f"start {node.name} again")
            node.start()
        self.check()

    def pause(self, who: Who) -> None:
        """Let the process stand still, as SIGSTOP does."""
        node = self._node_or_none(who)
        if node is not None and node.is_up and not node.paused:
            self._tell(f"pause {node.name}")
            node.pause()
        self.check()

    def resume(self, who: Who) -> None:
        """Let a paused process go on, as SIGCONT does."""
        node = self._node_or_none(who)
        if node is not None and node.is_up and node.paused:
            self._tell(f"{node.name} goes on")
            node.resume()
        self.check()

    # Disks

    def truncate(self, broker: AnyBroker, offset: int, *, topic: str = "t", partition: int = 0) -> int:
        """Cut the log of a broker that is down to `offset`, as an operator's `replog log truncate` does.

        Returns the new log end: a batch that holds `offset` goes as a whole. To the checkers it is a loss of the disk:
        what no other in-sync replica holds is excused. Raises ValueError if the broker is up or has no such log.
        """
        log = self._partition(topic, partition)
        node = self._node_or_none(broker, log)
        if node is None:
            raise ValueError(f"{log} has no leader: nothing can be cut")
        if node.is_up or not node.has_log(log):
            raise ValueError(f"{node.name} is up, or has no log of {log}: nothing can be cut")
        self._tell(f"truncate {log} of {node.name} to {offset}")
        end = _truncate(node, node.log_path(log), offset, self._run.world.now_ms)
        # What the operator took away is gone from this disk, although it was synced.
        self._run.witness.on_died(node.node_id, lost_power=True, damage="an operator cut a log")
        self.check()
        return end

    # Links

    def cut(self, start: Who, end: Who, *, both_ways: bool = True) -> None:
        """Cut the link from `start` to `end`, and the one back if `both_ways`, until `heal`."""
        one, other = self._node_or_none(start), self._node_or_none(end)
        if one is None or other is None or one is other:
            return
        self._tell(f"cut {one.name} {'<->' if both_ways else '->'} {other.name}")
        for source, target in ((one, other), (other, one)) if both_ways else ((one, other),):
            self._run.cluster.network.link(source.node_id, target.node_id).cuts = 1

    def isolate(self, who: Who) -> None:
        """Cut the node from all other nodes. Clients still reach it."""
        for other in (*self.brokers, "controller"):
            self.cut(who, other if isinstance(other, int) else "controller")

    def heal(self, who: Who | None = None) -> None:
        """Heal every link of the node, or all links."""
        node = None if who is None else self._node_or_none(who)
        if node is None and who is not None:
            return
        self._tell(f"heal {'all links' if node is None else node.name}")
        for link in self._run.cluster.network.links():
            if node is None or node.node_id in (link.source, link.target):
                link.heal()

    # The end

    def check(self) -> None:
        """Raise RuleViolated if a checker has found anything so far."""
        if self.violations:
            self._raised = len(self.violations)
            raise RuleViolated(self._failure())

    def leave(self) -> None:
        """Finish the cluster, unless it is finished or has failed. Raises RuleViolated for what was not raised yet."""
        if len(self.violations) > self._raised:
            self.check()
        if not self._is_over and not self.violations:
            self.finish()

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

    def _strike(self, what: str, ending: Callable[[], None]) -> None:
        """Let a death that was armed strike, and say so."""
        self._tell(what)
        ending()

    def _tell(self, what: str) -> None:
        self._run.chronicle.tell(what)

    def _node_or_none(self, who: Who, partition: str = "") -> Node | None:
        """Returns the node; a leader is that of `partition`, by default the first one, and None if it has none."""
        if who != "leader":
            return self._node(who)
        leader = self._run.ghost.partition(partition or f"{next(iter(self._run.scenario.topics))}-0").leader
        return self._run.cluster.brokers.get(leader)

    def _node(self, who: Literal["controller"] | int) -> Node:
        """Returns the node. Raises ValueError for one that the cluster does not have."""
        if who == "controller":
            return self._run.cluster.controller
        if who not in self._run.cluster.brokers:
            known = ", ".join(map(str, self.brokers))
            raise ValueError(
                f"no broker {who!r}: the cluster has {known}; `leader` and `controller` are names"
            )
        return self._run.cluster.brokers[who]

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


def _check_word(name: str, word: str, known: Sequence[str]) -> None:
    """Raise ValueError for a word that is not known."""
    if word not in known:
        raise ValueError(f"{name}: expected one of {', '.join(map(repr, known))}, got {word!r}")


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
