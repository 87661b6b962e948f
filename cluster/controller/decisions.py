"""What a control manager answers with: the records of one atomic change, and the reply for when it is
committed.
"""

from __future__ import annotations

from dataclasses import dataclass

from cluster.errors import ClusterError, ErrorCode
from cluster.messages import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
    AlterPartitionRequest,
    AlterPartitionResponse,
    AlterTopicConfigsRequest,
    AlterTopicConfigsResponse,
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
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
from cluster.metadata_records import MetadataRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """`records` go into the log as one batch, or nothing does; `reply` waits until they are committed
    (CTL-3).
    """

    reply: ResponseBody
    records: tuple[MetadataRecord, ...] = ()


def refusal(body: RequestBody, refused: ClusterError) -> ResponseBody:
    """The answer of the request's own type that carries the error."""
    code, detail = refused.code, refused.detail
    match body:
        case CreateTopicRequest():
            return CreateTopicResponse(error=code, message=detail)
        case DeleteTopicRequest():
            return DeleteTopicResponse(error=code, message=detail)
        case AlterTopicConfigsRequest():
            return AlterTopicConfigsResponse(error=code, message=detail)
        case AlterPartitionRequest(topic_partition=topic_partition):
            return AlterPartitionResponse(topic_partition=topic_partition, error=code)
        case RegisterBrokerRequest():
            return RegisterBrokerResponse(error=code)
        case BrokerHeartbeatRequest():
            return BrokerHeartbeatResponse(error=code)
        case AllocateProducerIdsRequest():
            return AllocateProducerIdsResponse(error=code)
        case FetchMetadataRequest():
            return FetchMetadataResponse(error=code)
        case _:
            return _refuse_data(body, code)


def _refuse_data(body: RequestBody, code: ErrorCode) -> ResponseBody:
    """Requests that belong to a broker, or that cannot fail but by what the node is."""
    match body:
        case MetadataRequest():
            return MetadataResponse(error=code)
        case FetchRequest():
            return FetchResponse(error=code)
        case ProduceRequest():
            return ProduceResponse(error=code)
        case ListOffsetsRequest(topic_partition=topic_partition):
            return ListOffsetsResponse(topic_partition=topic_partition, error=code)
        case InitProducerIdRequest():
            return InitProducerIdResponse(error=code)
        case DescribeReplicasRequest():
            return DescribeReplicasResponse(broker_id=-1, state="unknown")
        case _:
            raise AssertionError(body)
