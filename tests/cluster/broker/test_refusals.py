"""Answers to a request that a node refuses as a whole."""

from __future__ import annotations

import typing

import pytest

from cluster.core import messages
from cluster.core.errors import ClusterError, ErrorCode
from cluster.core.messages import (
    AlterPartitionRequest,
    CreateTopicRequest,
    CreateTopicResponse,
    DeleteTopicRequest,
    DescribeReplicasRequest,
    FetchRequest,
    ListOffsetsRequest,
    MetadataRequest,
    ProduceRequest,
    RequestBody,
    ResponseBody,
    TopicPartition,
)
from cluster.core.refusals import refusal

PARTITION = TopicPartition("t", 0)
REFUSED = ClusterError(ErrorCode.NOT_CONTROLLER, "ask another node")
BODIES: dict[type, RequestBody] = {
    type(body): body
    for body in (
        FetchRequest(replica_id=-1, partitions=()),
        ProduceRequest(acks=1, partitions=()),
        ListOffsetsRequest(topic_partition=PARTITION, timestamp=-1),
        MetadataRequest(),
        DescribeReplicasRequest(),
        messages.InitProducerIdRequest(),
        messages.AllocateProducerIdsRequest(broker_id=1, broker_epoch=1),
        CreateTopicRequest(name="t"),
        DeleteTopicRequest(name="t"),
        messages.AlterTopicConfigsRequest(name="t", configs=()),
        messages.CreatePartitionsRequest(name="t", count=2),
        messages.RegisterBrokerRequest(broker_id=1, incarnation="0" * 32, host="h", port=1),
        messages.BrokerHeartbeatRequest(broker_id=1, broker_epoch=1, metadata_offset=0),
        AlterPartitionRequest(
            broker_id=1,
            broker_epoch=1,
            topic_partition=PARTITION,
            topic_id="1f" * 16,
            leader_epoch=0,
            partition_epoch=0,
            new_isr=(),
        ),
        messages.FetchMetadataRequest(broker_id=1, offset=0),
    )
}


@pytest.mark.parametrize("request_class", typing.get_args(RequestBody), ids=lambda cls: cls.__name__)
def test_a_refusal_is_of_the_requests_own_type_and_carries_the_error(request_class: type) -> None:
    answer: ResponseBody = refusal(BODIES[request_class], REFUSED)
    assert type(answer).__name__ == request_class.__name__.replace("Request", "Response")
    if isinstance(answer, messages.DescribeReplicasResponse):
        assert answer.replicas == ()
    else:
        assert answer.error is ErrorCode.NOT_CONTROLLER


def test_a_refusal_names_the_partition_that_was_asked_about_and_says_why() -> None:
    answer = refusal(BODIES[AlterPartitionRequest], REFUSED)
    assert isinstance(answer, messages.AlterPartitionResponse) and answer.topic_partition == PARTITION
    created = refusal(BODIES[CreateTopicRequest], REFUSED)
    assert created == CreateTopicResponse(error=ErrorCode.NOT_CONTROLLER, message="ask another node")
