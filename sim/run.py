"""One run: a scenario and a seed in, a verdict, a trace hash and a story out."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import BinaryIO, final

from cluster.broker import Broker
from cluster.controller.controller import Controller
from cluster.effects import Observe
from cluster.messages import CONTROLLER_ID, CreateTopicRequest, ResponseBody, TopicPartition
from sim.bugs import install
from sim.checkers.base import Jury, Violation
from sim.checkers.ghost import Excuse, Ghost
from sim.checkers.history import HistoryCheck
from sim.checkers.registry import all_checkers
from sim.faults import Faults
from sim.history import History, Outcome
from sim.host import Shell
from sim.network import Exchange, Network, Transport
from sim.node import Node, NodeCore, log_directories
from sim.scenario import Scenario, broker_config, controller_config, load_scenario, property_text
from sim.story import Story
from sim.trace import Trace
from sim.witness import Witness
from sim.workload import ConsumerShell, ProducerShell, TopicMakerShell
from sim.world import World, without_garbage_collection
from storage.batch import RecordBatch
from storage.config import LogConfig
from storage.draws import Draws
from storage.filesystem import FileSystem

FIRST_CLIENT_ID = 2001
LOOK_US = 50_000  # how often the end of convergence is looked for
STARVED_BELOW_PERCENT = 20


class Verdict(Enum):
    HELD = "held"
    VIOLATED = "violated"
    STARVED = "starved"  # too little succeeded, or a step never struck: the run proved nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    scenario: str
    seed: int
    verdict: Verdict
    trace_hash: str
    events: int
    simulated_ms: int
    violations: tuple[Violation, ...]
    replay: str
    story: tuple[str, ...]
    operations: dict[str, int]  # sends by outcome
    excused: dict[str, int]  # acknowledged records that may be gone and are, by reason
    excuses: tuple[Excuse, ...]
    starved_because: str

    def as_json(self) -> dict[str, object]:
        return {
            "scenario": self.scenario,
            "seed": self.seed,
            "verdict": self.verdict.value,
            "trace_hash": self.trace_hash,
            "events": self.events,
            "simulated_ms": self.simulated_ms,
            "violations": [
                {"checker": found.checker, "at_ms": found.at_us / 1000, "what": found.what}
                for found in self.violations
            ],
            "replay": self.replay,
            "operations": self.operations,
            "excused": self.excused,
        }


def run_scenario(
    scenario: Path | str | Scenario, seed: int, *, trace_file: BinaryIO | None = None, bug: str | None = None
) -> RunResult:
    """Runs to the verdict. Raises ScenarioError for a file that cannot be run, BugError for an unknown bug."""
    source = "FILE" if isinstance(scenario, Scenario) else str(scenario)
    loaded = scenario if isinstance(scenario, Scenario) else load_scenario(Path(scenario))
    replay = f"replog sim run {shlex.quote(source)} --seed {seed}" + (
        f" --bug {bug}" if bug is not None else ""
    )
    planted: AbstractContextManager[None] = install(bug) if bug is not None else nullcontext()
    with planted, without_garbage_collection():
        return Run(loaded, seed, trace_file).go(replay)


@final
class Run:
    """The whole of a simulated cluster; also what faults strike and who looks on."""

    def __init__(self, scenario: Scenario, seed: int, trace_file: BinaryIO | None = None) -> None:
        self.scenario, self.seed = scenario, seed
        self.trace, self.story, self.history = Trace(trace_file), Story(), History()
        self.trace.begin(scenario.scenario, seed)
        self.world = World(Draws(seed))
        network = scenario.network
        self.network = Network(
            self.world, self.trace, transport=Transport(network.transport), base_us=network.latency,
            mean_us=network.spread, loss_percent=network.loss, duplicate_percent=network.duplicates,
        )  # fmt: skip
        self.ghost = Ghost()
        self.jury = Jury(self.ghost, all_checkers(self.ghost), lambda: self.world.now_us)
        self.jury.on_violation = lambda found: self.tell(f"VIOLATED {found.checker}: {found.what}")
        self._truncations: dict[str, int] = {}
        self._told_excuses = 0
        self.brokers: Mapping[int, Node] = {
            number: self._node(f"broker-{number}", number)
            for number in range(1, scenario.cluster.brokers + 1)
        }
        self.controller = self._node("controller", CONTROLLER_ID)
        self.witness = Witness(self.jury, self.brokers, self.controller)
        self._topic_maker = TopicMakerShell(
            self.world, self.network, self.trace, self, name="admin", node_id=FIRST_CLIENT_ID - 1
        )
        self.producers: list[ProducerShell] = []
        self.consumers: list[ConsumerShell] = []
        self._make_clients()
        self.partitions = [
            TopicPartition(name, partition)
            for name, topic in scenario.topics.items()
            for partition in range(topic.partitions)
        ]
        self.faults = Faults(self, scenario.steps)

    @property
    def clients(self) -> Sequence[ProducerShell | ConsumerShell]:
        return [*self.producers, *self.consumers]

    # making

    def _node(self, name: str, node_id: int) -> Node:
        directories = log_directories(1 if node_id == CONTROLLER_ID else self.scenario.cluster.directories)

        def make_core(file_system: FileSystem, draws: Draws) -> NodeCore:
            if node_id == CONTROLLER_ID:
                return Controller(controller_config(self.scenario), file_system, "controller", draws)
            return Broker(broker_config(self.scenario, node_id), file_system, directories, draws)

        return Node(
            self.world, self.network, self.trace, self, name=name, node_id=node_id, make_core=make_core,
            directories=directories,
        )  # fmt: skip

    def _make_clients(self) -> None:
        node_id = FIRST_CLIENT_ID
        for producer in self.scenario.producers:
            for _ in range(producer.clients):
                self.producers.append(
                    ProducerShell(
                        self.world, self.network, self.trace, self, name=f"producer-{len(self.producers) + 1}",
                        node_id=node_id, model=producer, history=self.history,
                    )
                )  # fmt: skip
                node_id += 1
        for consumer in self.scenario.consumers:
            for _ in range(consumer.clients):
                self.consumers.append(
                    ConsumerShell(
                        self.world, self.network, self.trace, self, name=f"consumer-{len(self.consumers) + 1}",
                        node_id=node_id, model=consumer, history=self.history,
                        partitions=self.scenario.topics[consumer.topic].partitions,
                    )
                )  # fmt: skip
                node_id += 1
        for client in self.clients:
            client.bootstrap = tuple(self.brokers)

    def _create_topics(self) -> None:
        requests = []
        for name, topic in self.scenario.topics.items():
            properties = {key: property_text(value) for key, value in topic.config.items()}
            config = LogConfig.from_properties(properties)
            for partition in range(topic.partitions):
                self.witness.expect(
                    TopicPartition(name, partition),
                    min_isr=min(config.min_insync_replicas, topic.replicas),
                    flush_promised=config.flush_messages == 1,
                    is_compacted=config.is_compacted,
                )
            requests.append(
                CreateTopicRequest(
                    name=name, partitions=topic.partitions, replication_factor=topic.replicas,
                    configs=tuple(sorted(properties.items())),
                )
            )  # fmt: skip
        self._topic_maker.begin(requests, self._begin_clients)

    def _begin_clients(self) -> None:
        for client in self.clients:
            client.begin()

    # phases

    def go(self, replay: str) -> RunResult:
        self.begin()
        self.world.run_to(self.scenario.warm_up)
        self.faults.begin()
        self.world.run_to(self.scenario.duration)
        return self.end(replay)

    def begin(self) -> None:
        """Start every node and ask for the topics; clients begin once these are there."""
        self.controller.start()
        for node in self.brokers.values():
            node.start()
        self._create_topics()

    def end(self, replay: str) -> RunResult:
        """Heal everything, see whether the cluster agrees within `converge`, judge the history."""
        self.tell("heal everything; the cluster has to agree now")
        unfired = self.faults.unfired
        self.faults.heal_all()
        for producer in self.producers:
            producer.finish()
        self._converge()
        excused = self._check_history()
        return self._result(replay, unfired, excused)

    def _converge(self) -> None:
        end_us = self.world.now_us + self.scenario.converge
        while (lacking := self._lacking()) and self.world.now_us < end_us:
            self.world.run_to(min(self.world.now_us + LOOK_US, end_us))
        if lacking:
            self.jury.report(
                "convergence", f"{self.scenario.converge / 1e6:g} s after everything was healed {lacking}"
            )
        else:
            self.tell("every replica agrees")

    def _lacking(self) -> str:
        """What is not at rest yet, or nothing."""
        for producer in self.producers:
            if not producer.is_done:
                return f"{producer.name} still waits for answers"
        for topic_partition in self.partitions:
            if lacking := self._partition_lacks(topic_partition):
                return f"{topic_partition}: {lacking}"
        for consumer in self.consumers:
            for partition, position in consumer.positions.items():
                if position < self.ghost.partition(partition).truth.end:
                    return f"{consumer.name} has read {partition} up to {position} only"
        return ""

    def _partition_lacks(self, topic_partition: TopicPartition) -> str:
        ghost = self.ghost.partition(str(topic_partition))
        topic = self.scenario.topics[topic_partition.topic]
        if ghost.leader < 0:
            return "has no leader"
        if len(ghost.isr) < topic.replicas:
            return f"only {list(ghost.isr)} are in sync"
        ends: dict[int, tuple[int, int]] = {}
        for broker in ghost.isr:
            core = self.brokers[broker].core
            replica = core.replicas().get(topic_partition) if isinstance(core, Broker) else None
            if replica is None:
                return f"broker {broker} has no replica"
            ends[broker] = (replica.log.log_end_offset, replica.log.high_watermark)
        if len({value for end in ends.values() for value in end}) > 1:
            return f"log end and high watermark differ: {ends}"
        return ""

    def _check_history(self) -> dict[str, int]:
        final_logs = {str(each): self._final_log(each) for each in self.partitions}
        check = HistoryCheck(self.history, self.ghost, final_logs)
        for what in check.findings():
            self.jury.report(check.name, what)
        self._compare_replicas()
        return check.excused

    def _final_log(self, topic_partition: TopicPartition) -> dict[int, str]:
        """The leader's records, or those of whom the disk of the longest log holds."""
        name = str(topic_partition)
        ghost = self.ghost.partition(name)
        leader = (
            ghost.leader if ghost.leader >= 0 else max(ghost.images, key=lambda b: ghost.images[b].chain.end)
        )
        reader = self.witness.reader(leader, name)
        marks = self.witness.whole(leader, name, reader.read_all())
        taken = self.witness.content(name, marks)
        content = {offset: (record.value or b"").decode() for offset, record in taken.items()}
        for place, data in reader.batches():
            for record in RecordBatch(data, 0, place.size_bytes).records():
                content[record.offset] = (record.value or b"").decode()
        return content

    def _compare_replicas(self) -> None:
        """What lies on the disks is what the checkers believed, and alike on all replicas (R1)."""
        for topic_partition in self.partitions:
            name = str(topic_partition)
            ghost = self.ghost.partition(name)
            for broker, image in sorted(ghost.images.items()):
                reader = self.witness.reader(broker, name)
                marks = list(self.witness.whole(broker, name, reader.read_all()))
                self.witness.judge_compaction(broker, name)
                if reader.unsound:
                    self.jury.report("replicas-agree", f"{name}: broker {broker}: {reader.unsound}")
                elif marks != image.chain.marks:
                    self.jury.report(
                        "replicas-agree", f"{name}: the log of broker {broker} is not what it told"
                    )
                elif image.chain.agreed_end(ghost.truth) < ghost.truth.end:
                    self.jury.report(
                        "replicas-agree",
                        f"{name}: broker {broker} agrees with the committed log up to "
                        f"{image.chain.agreed_end(ghost.truth)} of {ghost.truth.end}",
                    )

    def _result(self, replay: str, unfired: list[int], excused: dict[str, int]) -> RunResult:
        counts = self.history.counts()
        starved = ""
        if unfired:
            starved = f"step {unfired[0]} of {len(self.scenario.steps)} never struck"
        elif self.history.sends and counts[Outcome.OK.value] * 100 < STARVED_BELOW_PERCENT * len(
            self.history.sends
        ):
            starved = f"{counts[Outcome.OK.value]} of {len(self.history.sends)} sends succeeded"
        verdict = Verdict.STARVED if starved else Verdict.HELD
        if self.jury.violations:
            verdict = Verdict.VIOLATED
        return RunResult(
            scenario=self.scenario.scenario,
            seed=self.seed,
            verdict=verdict,
            trace_hash=self.trace.finish(),
            events=self.world.events,
            simulated_ms=self.world.now_us // 1000,
            violations=tuple(self.jury.violations),
            replay=replay,
            story=tuple(self.story.lines),
            operations=counts,
            excused=excused,
            excuses=tuple(self.ghost.excuses),
            starved_because=starved,
        )

    # who looks on

    def tell(self, what: str) -> None:
        self.story.tell(self.world.now_us, "", what)
        self.trace.fields(self.world.now_us, "world", "tell", (("what", what),))

    def truncations(self, partition: str) -> int:
        return self._truncations.get(partition, 0)

    def on_observes(self, shell: Shell, observes: list[Observe]) -> None:
        now_us = self.world.now_us
        for observe in observes:
            self.trace.fields(now_us, shell.name, observe.kind, observe.fields)
            self.story.observe(now_us, shell.name, observe.kind, observe.fields)
            if observe.kind == "broker.started" and self.brokers[shell.node_id].starts > 1:
                how = "a clean" if dict(observe.fields)["clean"] else "an unclean"
                self.story.tell(now_us, shell.name, f"is back after {how} stop")
            if observe.kind == "replica.truncated":
                name = str(dict(observe.fields)["topic_partition"])
                self._truncations[name] = self.truncations(name) + 1
        self.witness.on_observes(shell.node_id, observes)
        self._tell_excuses()
        self.faults.look()

    def _tell_excuses(self) -> None:
        for excuse in self.ghost.excuses[self._told_excuses :]:
            offsets = f"offsets {excuse.start} to {excuse.end} (excl.)"
            self.tell(f"EXCUSED {excuse.partition}: {offsets} may be lost: {excuse.reason}")
        self._told_excuses = len(self.ghost.excuses)

    def on_reply(self, shell: Shell, exchange: Exchange, body: ResponseBody) -> None:
        self.witness.on_reply(shell.node_id, exchange, body)

    def on_acknowledged(self, partition: str) -> None:
        self.faults.look()

    def on_failure(self, shell: Shell, error: Exception) -> None:
        self.jury.report("no-failure", f"{shell.name} failed: {type(error).__name__}: {error}")

    def on_stop(self, shell: Shell, reason: str) -> None:
        self.story.tell(self.world.now_us, shell.name, f"has stopped: {reason}")
        if reason != "shutdown":
            self.jury.report("no-failure", f"{shell.name} stopped by itself: {reason}")

    def on_end(self, shell: Shell, *, lost_power: bool, in_order: bool) -> None:
        if shell.node_id in self.brokers and not in_order:
            self.witness.on_died(shell.node_id, lost_power=lost_power)
            self._tell_excuses()
