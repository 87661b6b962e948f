"""The answers to requests that a node refuses as a whole."""

from __future__ import annotations

from typing import assert_never

from cluster.core.errors import ClusterError
from cluster.core.messages import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
    AlterPartitionRequest,
    AlterPartitionResponse,
    AlterTopicConfigsRequest,
    AlterTopicConfigsResponse,
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreateTopicRequest,
    CreateTopicResponse,
    DeleteTopicRequest,
    DeleteTopicResponse,
    DescribeReplicasRequest,
    DescribeReplicasResponse,
    FetchMetadataRequest,
    FetchMetadataResponse,
    FetchRequest,
    FetchResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    MetadataRequest,
    MetadataResponse,
    ProduceRequest,
    ProduceResponse,
    RegisterBrokerRequest,
    RegisterBrokerResponse,
    RequestBody,
    ResponseBody,
)


def refusal(body: RequestBody, refused: ClusterError) -> ResponseBody:
    """Returns the answer of the request's own type with the error; DescribeReplicasResponse has no field for it."""
    code, detail = refused.code, refused.detail
    match body:
        case FetchRequest():
            return FetchResponse(error=code)
        case ProduceRequest():
            return ProduceResponse(error=code)
        case ListOffsetsRequest(topic_partition=topic_partition):
            return ListOffsetsResponse(topic_partition=topic_partition, error=code)
        case MetadataRequest():
            return MetadataResponse(error=code)
        case DescribeReplicasRequest():
            return DescribeReplicasResponse(broker_id=-1, state="unknown")
        case InitProducerIdRequest():
            return InitProducerIdResponse(error=code)
        case AllocateProducerIdsRequest():
            return AllocateProducerIdsResponse(error=code)
        case CreateTopicRequest():
            return CreateTopicResponse(error=code, message=detail)
        case DeleteTopicRequest():
            return DeleteTopicResponse(error=code, message=detail)
        case AlterTopicConfigsRequest():
            return AlterTopicConfigsResponse(error=code, message=detail)
        case CreatePartitionsRequest():
            return CreatePartitionsResponse(error=code, message=detail)
        case RegisterBrokerRequest():
            return RegisterBrokerResponse(error=code)
        case BrokerHeartbeatRequest():
            return BrokerHeartbeatResponse(error=code)
        case AlterPartitionRequest(topic_partition=topic_partition):
            return AlterPartitionResponse(topic_partition=topic_partition, error=code)
        case FetchMetadataRequest():
            return FetchMetadataResponse(error=code)
        case _:
            assert_never(body)
