"""Requests that a broker forwards to the controller, and the producer ids that it hands out itself."""

from __future__ import annotations

from dataclasses import replace

from cluster.core.effects import Effect, Reply
from cluster.core.errors import ErrorCode
from cluster.core.events import TransportError
from cluster.core.messages import (
    CONTROLLER_ID,
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
    AlterPartitionRequest,
    AlterPartitionResponse,
    CreateTopicRequest,
    CreateTopicResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    TopicPartition,
)
from tests.cluster.broker.setup import BrokerSetup
from tests.cluster.replica.setup import of, only, only_sent, sent


def booted() -> BrokerSetup:
    setup = BrokerSetup()
    setup.boot()
    return setup


def ids_of(effects: list[Effect]) -> list[int]:
    bodies = [reply.body for reply in of(effects, Reply)]
    return [body.producer_id for body in bodies if isinstance(body, InitProducerIdResponse)]


def test_topic_requests_are_the_controllers_to_answer() -> None:
    setup = booted()
    body = CreateTopicRequest(name="t")
    send = only_sent(setup.ask(body), CreateTopicRequest)
    assert isinstance(send.body, CreateTopicRequest) and send.body.header is not None
    assert (send.to, replace(send.body, header=None)) == (CONTROLLER_ID, body)
    answer = CreateTopicResponse(topic_id="1f" * 16)
    assert only(setup.answer(send.call, answer), Reply).body == answer


def test_a_silent_controller_leaves_the_outcome_unknown() -> None:
    setup = booted()
    send = only_sent(setup.ask(CreateTopicRequest(name="t")), CreateTopicRequest)
    body = only(setup.answer(send.call, TransportError(reason="cut")), Reply).body
    assert isinstance(body, CreateTopicResponse)
    assert body.error is ErrorCode.REQUEST_TIMED_OUT


def test_a_broker_that_is_refused_itself_tells_a_client_to_ask_another_one() -> None:
    setup = booted()
    send = only_sent(setup.ask(CreateTopicRequest(name="t")), CreateTopicRequest)
    refused = CreateTopicResponse(error=ErrorCode.STALE_BROKER_EPOCH, message="broker 1 has epoch 6, not 1")
    body = only(setup.answer(send.call, refused), Reply).body
    assert isinstance(body, CreateTopicResponse)
    # An admin client sends the same request to another broker then.
    assert body.error is ErrorCode.BROKER_NOT_AVAILABLE


def test_what_only_brokers_ask_a_controller_is_refused_here() -> None:
    setup = booted()
    asked = AlterPartitionRequest(
        broker_id=2,
        broker_epoch=1,
        topic_partition=TopicPartition("t", 0),
        topic_id="1f" * 16,
        leader_epoch=0,
        partition_epoch=0,
        new_isr=(),
    )
    body = only(setup.ask(asked), Reply).body
    assert isinstance(body, AlterPartitionResponse)
    assert body.error is ErrorCode.NOT_CONTROLLER


def test_producer_ids_come_from_a_block_of_the_controller() -> None:
    setup = booted()
    effects = setup.ask(InitProducerIdRequest())
    block = only_sent(effects, AllocateProducerIdsRequest)
    assert ids_of(effects) == []
    # One request for a block is enough.
    assert sent(setup.ask(InitProducerIdRequest()), AllocateProducerIdsRequest) == []
    effects = setup.answer(block.call, AllocateProducerIdsResponse(first_producer_id=7_000, count=3))
    assert ids_of(effects) == [7_000, 7_001]
    assert ids_of(setup.ask(InitProducerIdRequest())) == [7_002]
    assert len(sent(setup.ask(InitProducerIdRequest()), AllocateProducerIdsRequest)) == 1


def test_without_a_block_the_client_gets_a_retriable_error() -> None:
    setup = booted()
    block = only_sent(setup.ask(InitProducerIdRequest()), AllocateProducerIdsRequest)
    body = only(setup.answer(block.call, TransportError(reason="cut")), Reply).body
    assert isinstance(body, InitProducerIdResponse)
    assert body.error.is_retriable
