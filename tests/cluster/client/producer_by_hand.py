"""A producer core whose answers a test writes by hand."""

from __future__ import annotations

from cluster.core.client.config import ProducerConfig
from cluster.core.client.effects import Delivered, ProducerEffect
from cluster.core.client.producer import ProducerCore
from cluster.core.effects import BOOTSTRAP, Send
from cluster.core.errors import ErrorCode
from cluster.core.events import Response
from cluster.core.messages import ProducePartitionResponse, ProduceRequest, ProduceResponse, TopicPartition
from storage.batch import RecordBatch, iterate_batches
from storage.draws import Draws
from tests.cluster.client.fake_cluster import FakeCluster

T0 = TopicPartition("t", 0)


def ready_producer(
    *, config: ProducerConfig | None = None, partitions: int = 1
) -> tuple[ProducerCore, FakeCluster]:
    """Return a producer that knows the topic `t` and has an id."""
    producer = ProducerCore(config or ProducerConfig(linger_ms=0), Draws(1))
    cluster = FakeCluster({"t": partitions}, broker_count=2)
    producer.metadata.watch(("t",))
    answer_all(producer, cluster, producer.start(0))
    return producer, cluster


def answer_all(producer: ProducerCore, cluster: FakeCluster, effects: list[ProducerEffect]) -> None:
    for send in sends(effects):
        body = cluster.answer(1 if send.to == BOOTSTRAP else send.to, send.body)
        producer.step(0, Response(call=send.call, body=body))


def sends(effects: list[ProducerEffect]) -> list[Send]:
    return [effect for effect in effects if isinstance(effect, Send)]


def produced(effects: list[ProducerEffect]) -> list[Send]:
    return [send for send in sends(effects) if isinstance(send.body, ProduceRequest)]


def batch_of(send: Send) -> RecordBatch:
    assert isinstance(send.body, ProduceRequest)
    (batch,) = iterate_batches(send.body.partitions[0].records)
    return batch


def delivered(effects: list[ProducerEffect]) -> list[Delivered]:
    return [effect for effect in effects if isinstance(effect, Delivered)]


def failed(
    send: Send, error: ErrorCode, *, base_offset: int = -1, leader_id: int = -1, leader_epoch: int = -1
) -> Response:
    answer = ProducePartitionResponse(
        topic_partition=T0,
        error=error,
        base_offset=base_offset,
        leader_id=leader_id,
        leader_epoch=leader_epoch,
    )
    return Response(call=send.call, body=ProduceResponse(partitions=(answer,)))


def accepted(send: Send, base_offset: int) -> Response:
    return failed(send, ErrorCode.NONE, base_offset=base_offset)


def proven(producer: ProducerCore, ticket: int = 1000) -> None:
    """Return a producer whose first batch is acknowledged, so that more than one may be in flight."""
    (first,) = produced(producer.send(0, "t", None, b"first", ticket=ticket))
    producer.step(0, accepted(first, 0))
