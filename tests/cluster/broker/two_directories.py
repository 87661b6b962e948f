"""A broker with two log directories, which leads or follows four partitions."""

from __future__ import annotations

from cluster.core.bounds import StepBounds
from cluster.core.effects import Effect, Reply, Send
from cluster.core.errors import ErrorCode
from cluster.core.messages import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    ProducePartition,
    ProduceRequest,
    ProduceResponse,
    TopicPartition,
)
from cluster.core.metadata.records import (
    MetadataRecord,
    PartitionRecord,
    TopicRecord,
)
from sim.disk import SimDisk
from storage.batch import Record, build_batch
from tests.cluster.broker.setup import BrokerSetup
from tests.cluster.replica.setup import of, only_sent

TWO = ("one", "two")
TOPIC_ID = "1f" * 16
PARTITIONS = tuple(TopicPartition("t", number) for number in range(4))
# Where the broker places the partitions.
IN_ONE, IN_TWO = PARTITIONS[::2], PARTITIONS[1::2]


def topic(name: str = "t", topic_id: str = TOPIC_ID, **configs: str) -> list[MetadataRecord]:
    """Return the records of a topic with four partitions, all led by broker 1, the only one in sync."""
    dotted = tuple((key.replace("_", "."), value) for key, value in configs.items())
    return [
        TopicRecord(name=name, topic_id=topic_id, configs=dotted),
        *(
            PartitionRecord(topic=name, partition=number, replicas=(1, 2), isr=(1,), leader=1)
            for number in range(4)
        ),
    ]


def booted(disk: SimDisk | None = None, *, life: int = 1, **settings: int | StepBounds) -> BrokerSetup:
    setup = BrokerSetup(disk, life=life, directories=TWO, **settings)
    setup.boot()
    return setup


def leading(**configs: str) -> BrokerSetup:
    setup = booted()
    setup.metadata(*topic(**configs))
    return setup


def produce(setup: BrokerSetup, *partitions: TopicPartition, acks: int = 1) -> list[Effect]:
    records = build_batch([Record(0, setup.now_ms, b"k", b"x"), Record(1, setup.now_ms, b"k", b"y")])
    asked = tuple(ProducePartition(topic_partition=each, records=records) for each in partitions)
    return setup.ask(ProduceRequest(acks=acks, timeout_ms=1_000, partitions=asked))


def outcomes(effects: list[Effect]) -> dict[int, ErrorCode]:
    """Return the errors of the answered produce requests, by partition."""
    bodies = [reply.body for reply in of(effects, Reply)]
    return {
        each.topic_partition.partition: each.error
        for body in bodies
        if isinstance(body, ProduceResponse)
        for each in body.partitions
    }


def placed(setup: BrokerSetup) -> dict[str, list[str]]:
    return {manager.directory: list(manager.logs) for manager in setup.broker._logs.directories.online}


def told_offline(effects: list[Effect]) -> tuple[TopicPartition, ...]:
    body = only_sent(effects, BrokerHeartbeatRequest).body
    assert isinstance(body, BrokerHeartbeatRequest)
    return tuple([each.topic_partition for each in body.offline_partitions])


def beaten(setup: BrokerSetup) -> None:
    """Answer the heartbeat that is in flight."""
    for send in of(setup.fire("broker.heartbeat", 2_000), Send):
        if isinstance(send.body, BrokerHeartbeatRequest):
            setup.answer(send.call, BrokerHeartbeatResponse(is_fenced=False, is_caught_up=True))


def fail_two(setup: BrokerSetup) -> list[Effect]:
    """Break the disk of the second directory, and produce to it: the write reports the failure."""
    setup.disk.break_directory("two")
    return produce(setup, PARTITIONS[1])


def restarted(setup: BrokerSetup, *, life: int = 2) -> BrokerSetup:
    setup.disk.crash_process()
    again = BrokerSetup(setup.disk, life=life, directories=TWO)
    return again
