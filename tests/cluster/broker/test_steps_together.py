"""A broker that gets several requests of one turn in one step treats them as it would one after the other."""

from __future__ import annotations

import errno

import pytest

from cluster.core.broker.broker import Broker
from cluster.core.effects import Reply
from cluster.core.errors import ErrorCode
from cluster.core.events import Request
from cluster.core.messages import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    ListOffsetsRequest,
    MetadataRequest,
    ProducePartition,
    ProduceRequest,
    ProduceResponse,
    RequestBody,
    ResponseBody,
    TopicPartition,
)
from cluster.core.metadata.records import PartitionRecord, TopicRecord
from storage.batch import iterate_batches
from tests.cluster.broker.cluster_by_hand import Cluster, Node, batch
from tests.cluster.broker.setup import BrokerSetup


def produce(
    *values: bytes,
    topic: str = "t",
    partition: int = 0,
    acks: int = -1,
    sequence: int = -1,
    records: bytes | None = None,
) -> ProduceRequest:
    producer_id = 5 if sequence >= 0 else -1
    made = batch(*values, producer_id=producer_id, base_sequence=sequence) if records is None else records
    item = ProducePartition(topic_partition=TopicPartition(topic, partition), records=made)
    return ProduceRequest(acks=acks, partitions=(item,))


def fetch(offset: int, *, min_bytes: int = 1) -> FetchRequest:
    partition = FetchPartition(topic_partition=TopicPartition("t", 0), fetch_offset=offset)
    return FetchRequest(replica_id=-1, min_bytes=min_bytes, max_wait_ms=5_000, partitions=(partition,))


def ask_together(node: Node, bodies: tuple[RequestBody, ...]) -> list[int]:
    """Pass requests to the core in one step. Returns their numbers."""
    first = node._next_inbound + 1
    node._next_inbound += len(bodies)
    calls = list(range(first, first + len(bodies)))
    node._inbound.update({call: (None, 0) for call in calls})
    requests = [Request(call=call, body=body) for call, body in zip(calls, bodies, strict=True)]
    assert isinstance(node.core, Broker)
    node._perform(node.core.steps(node.cluster.now_ms, requests))
    return calls


def cluster_with_topic(brokers: int = 3) -> Cluster:
    cluster = Cluster(brokers)
    cluster.start()
    cluster.create_topic("t", replicas=tuple(range(1, brokers + 1)))
    return cluster


TURN: tuple[RequestBody, ...] = (
    produce(b"first"),
    produce(b"leader only", acks=1),
    produce(b"elsewhere", topic="none"),
    produce(b"idempotent", sequence=0),
    produce(b"idempotent", sequence=0),
    produce(b"out of order", sequence=7),
    produce(records=b"no batch"),
    MetadataRequest(topics=("t",)),
    ListOffsetsRequest(topic_partition=TopicPartition("t", 0), timestamp=-2),
    produce(b"last"),
)


def answers_of(cluster: Cluster, calls: list[int]) -> list[ResponseBody]:
    """The answers to all of these calls, in their order."""
    node = cluster.brokers[1]
    cluster.run_until(lambda: all(call in node.answers for call in calls))
    return [node.answers[call] for call in calls]


def test_requests_of_one_step_are_answered_as_one_after_the_other() -> None:
    together, alone = cluster_with_topic(), cluster_with_topic()
    found = answers_of(together, ask_together(together.brokers[1], TURN))
    assert found == answers_of(alone, [alone.brokers[1].ask(body) for body in TURN])
    topic = TopicPartition("t", 0)
    for cluster in (together, alone):
        cluster.run(1_000)
        assert [cluster.values(number, topic) for number in (1, 2, 3)] == [
            [b"first", b"leader only", b"idempotent", b"last"]
        ] * 3


def test_a_request_without_a_reply_takes_its_place_in_the_step() -> None:
    cluster = cluster_with_topic(1)
    turn = (produce(b"1"), produce(b"2", acks=0), produce(b"3"))
    calls = ask_together(cluster.brokers[1], turn)
    answers_of(cluster, [calls[0], calls[2]])
    assert cluster.values(1, TopicPartition("t", 0)) == [b"1", b"2", b"3"]
    assert calls[1] not in cluster.brokers[1].answers


def fetched_values(answer: ResponseBody) -> list[bytes]:
    assert isinstance(answer, FetchResponse)
    batches = iterate_batches(answer.partitions[0].records)
    return [record.value or b"" for each in batches for record in each.records()]


@pytest.mark.parametrize("is_first", [True, False], ids=["before", "after"])
def test_a_fetch_in_the_step_gets_all_that_its_step_committed(is_first: bool) -> None:
    cluster = cluster_with_topic(1)
    produced = (produce(b"1"), produce(b"2"), produce(b"3"))
    turn = (fetch(0), *produced) if is_first else (*produced, fetch(0))
    calls = ask_together(cluster.brokers[1], turn)
    answers = answers_of(cluster, calls)
    assert fetched_values(answers[0 if is_first else -1]) == [b"1", b"2", b"3"]


def test_ap16_a_directory_that_fails_within_the_step_leaves_the_other_requests_their_answers() -> None:
    setup = BrokerSetup(directories=("one", "two"))
    setup.boot()
    partitions = [
        PartitionRecord(topic="t", partition=n, replicas=(1, 2), isr=(1,), leader=1) for n in range(2)
    ]
    setup.metadata(TopicRecord(name="t", topic_id="1f" * 16, configs=()), *partitions)
    bodies = [produce(b"value", acks=1, partition=number) for number in (0, 1, 0, 1)]
    setup.disk.fail(1, errno.EIO)
    requests = [Request(call=100 + number, body=body) for number, body in enumerate(bodies)]
    effects = setup.broker.steps(setup.now_ms, requests)
    errors = {
        effect.call: effect.body.partitions[0].error
        for effect in effects
        if isinstance(effect, Reply) and isinstance(effect.body, ProduceResponse)
    }
    failed, good = ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NONE
    # The first request meets the failure, the third one finds its directory offline.
    assert errors == {100: failed, 101: good, 102: failed, 103: good}
