"""A cluster in one process and in virtual milliseconds: cores driven by hand, over simulated disks.

Every message takes one millisecond, every job two. `cut` drops messages on a link; `kill` and `lose_power` end a
life in the middle. It is a few lines on purpose: a test is to show the cores, not a simulator.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar, final

from cluster.core.broker.broker import Broker
from cluster.core.config import BrokerConfig
from cluster.core.controller.config import ControllerConfig
from cluster.core.controller.controller import Controller
from cluster.core.effects import (
    CancelTimer,
    Effect,
    LearnEndpoint,
    Observe,
    Reply,
    RunJob,
    Send,
    SetTimer,
    Stop,
)
from cluster.core.events import Event, JobDone, Request, Response, Shutdown, TimerFired, TransportError
from cluster.core.messages import (
    CONTROLLER_ID,
    CreateTopicRequest,
    CreateTopicResponse,
    ProducePartition,
    ProducePartitionResponse,
    ProduceRequest,
    ProduceResponse,
    RequestBody,
    ResponseBody,
    TopicPartition,
)
from cluster.core.replica.replica import Replica
from sim.disk import SimDisk
from sim.disk.life import Life
from storage.batch import build_batch, iterate_batches
from storage.batch.record import Record
from storage.draws import Draws

LINK_MS = 1
JOB_MS = 2
START_MS = 1_000_000

Body = TypeVar("Body", bound=ResponseBody)
Core = Broker | Controller


@final
class Node:
    """A machine: its disk outlives the lives of its core."""

    def __init__(self, cluster: Cluster, node_id: int, make_core: Callable[[Node], Core]) -> None:
        self.cluster = cluster
        self.node_id = node_id
        self.disk = SimDisk(Draws(cluster.seed).child("disk", node_id), lambda: cluster.now_ms)
        self.life = Life(str(node_id))
        self.lives = 0
        self.core: Core | None = None
        self.stopped: str | None = None
        self._make_core = make_core
        self._timers: dict[str, int] = {}
        self._jobs: list[RunJob] = []
        self._inbound: dict[int, tuple[Node | None, int]] = {}
        self._next_inbound = 0
        self.answers: dict[int, ResponseBody] = {}

    def start(self) -> None:
        """Start the core in a new life on the same disk."""
        assert self.core is None, self.node_id
        self.lives += 1
        self.stopped = None
        self.life = Life(f"{self.node_id}#{self.lives}")
        self.core = self._make_core(self)
        self._perform(self.core.start(self.cluster.now_ms))

    def end(self) -> None:
        """End the core's life. All memory is lost, and nodes that wait for an answer get a transport error."""
        self.life.kill()
        self.core = None
        self._timers.clear()
        self._jobs.clear()
        for asker, call in self._inbound.values():
            if asker is not None:
                self.cluster.answer(self, asker, call, TransportError(reason="reset"))
        self._inbound.clear()

    def kill(self) -> None:
        self.disk.crash_process()
        self.end()

    def lose_power(self) -> None:
        """End the life. Only what was synced survives on the disk."""
        self.disk.lose_power("none")
        self.end()

    def feed(self, event: Event) -> None:
        if self.core is not None:
            self._perform(self.core.step(self.cluster.now_ms, event))

    def ask(self, body: RequestBody, asker: Node | None = None, call: int = 0) -> int:
        """Give the core a request. Returns its number, under which `answers` holds the reply to a test."""
        self._next_inbound += 1
        self._inbound[self._next_inbound] = (asker, call)
        number = self._next_inbound
        self.feed(Request(call=number, body=body))
        return number

    def _perform(self, effects: list[Effect]) -> None:
        life = self.lives
        for effect in effects:
            if self.core is None or self.lives != life:
                return
            self._carry_out(effect)

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case Send():
                self.cluster.send(self, effect)
            case Reply(call=call, body=body):
                asker, their_call = self._inbound.pop(call)
                if asker is None:
                    self.answers[call] = body
                else:
                    self.cluster.answer(self, asker, their_call, body)
            case SetTimer(key=key, at_ms=at_ms):
                self._timers[key] = at_ms
                self.cluster.at(at_ms, self._live(lambda: self._on_time(key, at_ms)))
            case CancelTimer(key=key):
                self._timers.pop(key, None)
            case RunJob():
                self._jobs.append(effect)
                if len(self._jobs) == 1:
                    self._begin_job()
            case Observe():
                self.cluster.observed.append((self.node_id, effect))
            case LearnEndpoint():
                pass
            case Stop(reason=reason):
                self.stopped = reason
                self.disk.crash_process()
                self.end()

    def _live(self, act: Callable[[], None]) -> Callable[[], None]:
        life = self.lives

        def act_if_alive() -> None:
            if self.core is not None and self.lives == life:
                act()

        return act_if_alive

    def _on_time(self, key: str, at_ms: int) -> None:
        if self._timers.get(key) == at_ms:
            del self._timers[key]
            self.feed(TimerFired(key=key))

    def _begin_job(self) -> None:
        self.cluster.at(self.cluster.now_ms + JOB_MS, self._live(self._run_job))

    def _run_job(self) -> None:
        job = self._jobs[0]
        error: Exception | None = None
        try:
            job.work()
        except Exception as raised:
            error = raised
        self._jobs.pop(0)
        if self._jobs:
            self._begin_job()
        self.feed(JobDone(job=job.job, error=error))


@final
class Cluster:
    """A controller and some brokers: `Cluster(3)` has brokers 1, 2, 3. `start` brings all up, unfenced."""

    def __init__(self, brokers: int = 3, *, seed: int = 1, config: BrokerConfig | None = None) -> None:
        self.seed = seed
        self.now_ms = START_MS
        self.observed: list[tuple[int, Observe]] = []
        # A message is dropped if one of these returns True.
        self.lost: list[Callable[[int, int, RequestBody | ResponseBody], bool]] = []
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._sequence = 0
        self._cuts: dict[tuple[int, int], None] = {}
        self._config = config or BrokerConfig(node_id=0)
        self.controller = Node(self, CONTROLLER_ID, self._make_controller)
        self.brokers = {number: Node(self, number, self._make_broker) for number in range(1, brokers + 1)}

    def _make_controller(self, node: Node) -> Controller:
        config = ControllerConfig(broker_session_timeout_ms=self._config.broker_session_timeout_ms)
        fs = node.disk.file_system(node.life)
        return Controller(config, fs, "data", Draws(self.seed).child("controller", node.lives))

    def _make_broker(self, node: Node) -> Broker:
        config = replace(self._config, node_id=node.node_id, port=9000 + node.node_id)
        fs = node.disk.file_system(node.life)
        return Broker(config, fs, "data", Draws(self.seed).child("broker", node.node_id, node.lives))

    # Time and messages

    def at(self, at_ms: int, act: Callable[[], None]) -> None:
        self._sequence += 1
        heapq.heappush(self._events, (max(at_ms, self.now_ms), self._sequence, act))

    def run(self, for_ms: int) -> None:
        """Carry out all events of the next `for_ms` (inclusive)."""
        end_ms = self.now_ms + for_ms
        while self._events and self._events[0][0] <= end_ms:
            self.now_ms, _, act = heapq.heappop(self._events)
            act()
        self.now_ms = end_ms

    def run_until(self, holds: Callable[[], bool], within_ms: int = 30_000) -> None:
        """Carry out events until the condition holds. Fails after `within_ms`."""
        end_ms = self.now_ms + within_ms
        while not holds():
            assert self._events and self._events[0][0] <= end_ms, f"not within {within_ms} ms"
            self.now_ms, _, act = heapq.heappop(self._events)
            act()

    def node(self, node_id: int) -> Node:
        return self.controller if node_id == CONTROLLER_ID else self.brokers[node_id]

    def send(self, sender: Node, effect: Send) -> None:
        """Deliver a request one link time later; a lost one is answered by its timeout."""
        receiver = self.node(effect.to)
        call = effect.call
        if self._is_lost(sender.node_id, effect.to, effect.body):
            late = TransportError(reason="timed out")
            self.at(self.now_ms + effect.timeout_ms, self._delivery(sender, call, late))
            return

        def deliver() -> None:
            if receiver.core is None:
                self.answer(receiver, sender, call, TransportError(reason="refused"))
            else:
                receiver.ask(effect.body, sender, call)

        life = sender.lives
        self.at(self.now_ms + LINK_MS, lambda: deliver() if sender.lives == life else None)

    def answer(self, sender: Node, asker: Node, call: int, body: ResponseBody | TransportError) -> None:
        if not isinstance(body, TransportError) and self._is_lost(sender.node_id, asker.node_id, body):
            body = TransportError(reason="cut")
        self.at(self.now_ms + LINK_MS, self._delivery(asker, call, body))

    def _delivery(self, asker: Node, call: int, body: ResponseBody | TransportError) -> Callable[[], None]:
        life = asker.lives

        def deliver() -> None:
            if asker.core is not None and asker.lives == life:
                asker.feed(Response(call=call, body=body))

        return deliver

    def _is_lost(self, sender: int, receiver: int, body: RequestBody | ResponseBody) -> bool:
        if (min(sender, receiver), max(sender, receiver)) in self._cuts:
            return True
        return any(drops(sender, receiver, body) for drops in self.lost)

    def cut(self, one: int, other: int) -> None:
        self._cuts[min(one, other), max(one, other)] = None

    def heal(self, one: int, other: int) -> None:
        del self._cuts[min(one, other), max(one, other)]

    # What tests do

    def start(self) -> None:
        self.controller.start()
        for broker in self.brokers.values():
            broker.start()
        self.run_until(lambda: all(self.core(number).lifecycle.is_unfenced for number in self.brokers))
        self.run(20)

    def core(self, number: int) -> Broker:
        core = self.brokers[number].core
        assert isinstance(core, Broker), number
        return core

    def replica(self, number: int, topic_partition: TopicPartition) -> Replica:
        return self.core(number).replicas()[topic_partition]

    def is_up(self, number: int) -> bool:
        return self.brokers[number].core is not None

    def request(self, number: int, body: RequestBody, kind: type[Body], within_ms: int = 60_000) -> Body:
        node = self.node(number)
        call = node.ask(body)
        self.run_until(lambda: call in node.answers, within_ms)
        answer = node.answers[call]
        assert isinstance(answer, kind), answer
        return answer

    def create_topic(self, name: str, *, replicas: tuple[int, ...], **configs: str) -> TopicPartition:
        dotted = tuple((key.replace("_", "."), value) for key, value in sorted(configs.items()))
        body = CreateTopicRequest(name=name, assignment=(replicas,), configs=dotted)
        answer = self.request(replicas[0], body, CreateTopicResponse)
        assert answer.error == 0, answer
        topic_partition = TopicPartition(name, 0)
        self.run_until(lambda: all(topic_partition in self.core(number).replicas() for number in replicas))
        self.run(5)
        return topic_partition

    def leader_of(self, topic_partition: TopicPartition) -> int:
        """Return the leader that the controller has for the partition."""
        core = self.controller.core
        assert isinstance(core, Controller)
        registration = core.image.partition(topic_partition)
        assert registration is not None
        return registration.leader

    def produce(
        self,
        number: int,
        topic_partition: TopicPartition,
        *values: bytes,
        acks: int = -1,
        timeout_ms: int = 30_000,
        producer_id: int = -1,
        base_sequence: int = -1,
    ) -> ProducePartitionResponse:
        records = batch(*values, producer_id=producer_id, base_sequence=base_sequence)
        body = ProduceRequest(
            acks=acks,
            timeout_ms=timeout_ms,
            partitions=(ProducePartition(topic_partition=topic_partition, records=records),),
        )
        return self.request(number, body, ProduceResponse).partitions[0]

    def values(self, number: int, topic_partition: TopicPartition) -> list[bytes]:
        return values_of(self.replica(number, topic_partition))

    def shut_down(self, number: int) -> None:
        self.brokers[number].feed(Shutdown())

    def kinds(self, number: int) -> list[str]:
        return [effect.kind for node_id, effect in self.observed if node_id == number]


def batch(*values: bytes, producer_id: int = -1, base_sequence: int = -1) -> bytes:
    """Make one batch as a producer does."""
    return build_batch(
        [
            Record(offset=index, timestamp=START_MS, key=None, value=value)
            for index, value in enumerate(values)
        ],
        producer_id=producer_id,
        producer_epoch=0 if producer_id >= 0 else -1,
        base_sequence=base_sequence,
    )


def values_of(replica: Replica) -> list[bytes]:
    log = replica.log
    found = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        for each in iterate_batches(log.read(offset, max_size=1 << 20).records):
            found += [record.value or b"" for record in each.records()]
            offset = each.next_offset
    return found
