"""A broker and a controller in one process, behind one `start` and `step`."""

from __future__ import annotations

from cluster.core.broker.broker import Broker
from cluster.core.config import BrokerConfig
from cluster.core.controller.config import ControllerConfig
from cluster.core.controller.controller import Controller
from cluster.core.effects import Effect, Observe, Reply, RunJob, Send, SetTimer, Stop
from cluster.core.events import JobDone, Request, Response, Shutdown, TransportError
from cluster.core.messages import (
    CreateTopicRequest,
    CreateTopicResponse,
    ProducePartition,
    ProduceRequest,
    ProduceResponse,
    RequestBody,
    ResponseBody,
    TopicPartition,
)
from cluster.core.node import Node
from sim.disk import SimDisk
from sim.disk.life import Life
from storage.draws import Draws
from tests.cluster.broker.cluster_by_hand import batch

NOW_MS = 1_000_000


def make_node() -> Node:
    disk = SimDisk(Draws(1), lambda: NOW_MS)
    file_system = disk.file_system(Life("1"))
    broker = Broker(BrokerConfig(node_id=1), file_system, "data", Draws(2))
    return Node(broker=broker, controller=Controller(ControllerConfig(), file_system, "controller", Draws(3)))


def run_jobs(node: Node, effects: list[Effect]) -> list[Effect]:
    """Carry out all jobs, and those that follow from them."""
    seen = list(effects)
    # The list grows while it is walked.
    for effect in seen:
        if isinstance(effect, RunJob):
            effect.work()
            seen += node.step(NOW_MS, JobDone(job=effect.job))
    return seen


def ask(node: Node, call: int, body: RequestBody) -> ResponseBody:
    effects = run_jobs(node, node.step(NOW_MS, Request(call=call, body=body)))
    answers = [effect.body for effect in effects if isinstance(effect, Reply) and effect.call == call]
    assert len(answers) == 1, effects
    return answers[0]


def test_one_node_is_a_whole_cluster() -> None:
    node = make_node()
    effects = run_jobs(node, node.start(NOW_MS))
    kinds = [effect.kind for effect in effects if isinstance(effect, Observe)]
    assert "broker.unfenced" in kinds
    # Nothing leaves the process.
    assert not any(isinstance(effect, Send) for effect in effects)
    created = ask(node, 1, CreateTopicRequest(name="t"))
    assert isinstance(created, CreateTopicResponse) and created.error == 0
    asked = ProducePartition(topic_partition=TopicPartition("t", 0), records=batch(b"a"))
    answer = ask(node, 2, ProduceRequest(acks=-1, partitions=(asked,)))
    assert isinstance(answer, ProduceResponse)
    assert (answer.partitions[0].error, answer.partitions[0].base_offset) == (0, 0)


def test_timers_of_both_are_kept_apart() -> None:
    node = make_node()
    keys = {effect.key for effect in run_jobs(node, node.start(NOW_MS)) if isinstance(effect, SetTimer)}
    assert "broker.heartbeat" in keys
    assert any(key.startswith("controller/") for key in keys)


def test_an_orderly_stop_ends_the_broker_and_then_the_controller() -> None:
    node = make_node()
    run_jobs(node, node.start(NOW_MS))
    effects = run_jobs(node, node.step(NOW_MS, Shutdown()))
    assert [effect.reason for effect in effects if isinstance(effect, Stop)] == ["shutdown"]


def test_a_node_of_one_core_passes_everything_through() -> None:
    disk = SimDisk(Draws(1), lambda: NOW_MS)
    file_system = disk.file_system(Life("1"))
    node = Node(broker=Broker(BrokerConfig(node_id=1), file_system, "data", Draws(2)))
    sends = [effect for effect in node.start(NOW_MS) if isinstance(effect, Send)]
    assert [send.to for send in sends] == [1000, 1000]
    effects = node.step(NOW_MS, Response(call=sends[0].call, body=TransportError(reason="refused")))
    assert [effect.key for effect in effects if isinstance(effect, SetTimer)] == ["broker.register"]
