"""Converts any body to its protobuf message and back, by two tables: one of requests, one of responses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from google.protobuf.message import Message

from cluster.core import messages
from cluster.core.messages import RequestBody, ResponseBody
from cluster.rpc import admin_pb2, controller_pb2, data_pb2, replica_pb2
from cluster.shell.wire import admin, controller, fetch, metadata, produce
from cluster.shell.wire.limits import out_of_bounds

Body = TypeVar("Body")
Wire = TypeVar("Wire", bound=Message)


class UnknownMessage(Exception):
    """A protobuf message whose class carries no body."""


@dataclass(frozen=True, slots=True)
class Pair(Generic[Body, Wire]):
    """A body's class, the protobuf class that carries it, and the functions that convert one to the other."""

    body: type[Body]
    message: type[Wire]
    to_wire: Callable[[Body], Wire]
    from_wire: Callable[[Wire], Body]


# fmt: off
REQUESTS = (
    Pair(messages.FetchRequest, replica_pb2.FetchRequest,
         fetch.fetch_request_to_wire, fetch.fetch_request_from_wire),
    Pair(messages.ProduceRequest, data_pb2.ProduceRequest,
         produce.produce_request_to_wire, produce.produce_request_from_wire),
    Pair(messages.ListOffsetsRequest, data_pb2.ListOffsetsRequest,
         metadata.list_offsets_request_to_wire, metadata.list_offsets_request_from_wire),
    Pair(messages.MetadataRequest, data_pb2.MetadataRequest,
         metadata.metadata_request_to_wire, metadata.metadata_request_from_wire),
    Pair(messages.DescribeReplicasRequest, data_pb2.DescribeReplicasRequest,
         metadata.describe_replicas_request_to_wire, metadata.describe_replicas_request_from_wire),
    Pair(messages.InitProducerIdRequest, data_pb2.InitProducerIdRequest,
         metadata.init_producer_id_request_to_wire, metadata.init_producer_id_request_from_wire),
    Pair(messages.AllocateProducerIdsRequest, controller_pb2.AllocateProducerIdsRequest,
         controller.allocate_producer_ids_request_to_wire,
         controller.allocate_producer_ids_request_from_wire),
    Pair(messages.CreateTopicRequest, admin_pb2.CreateTopicRequest,
         admin.create_topic_request_to_wire, admin.create_topic_request_from_wire),
    Pair(messages.DeleteTopicRequest, admin_pb2.DeleteTopicRequest,
         admin.delete_topic_request_to_wire, admin.delete_topic_request_from_wire),
    Pair(messages.AlterTopicConfigsRequest, admin_pb2.AlterTopicConfigsRequest,
         admin.alter_topic_configs_request_to_wire, admin.alter_topic_configs_request_from_wire),
    Pair(messages.CreatePartitionsRequest, admin_pb2.CreatePartitionsRequest,
         admin.create_partitions_request_to_wire, admin.create_partitions_request_from_wire),
    Pair(messages.RegisterBrokerRequest, controller_pb2.RegisterBrokerRequest,
         controller.register_broker_request_to_wire, controller.register_broker_request_from_wire),
    Pair(messages.BrokerHeartbeatRequest, controller_pb2.BrokerHeartbeatRequest,
         controller.broker_heartbeat_request_to_wire, controller.broker_heartbeat_request_from_wire),
    Pair(messages.AlterPartitionRequest, controller_pb2.AlterPartitionRequest,
         controller.alter_partition_request_to_wire, controller.alter_partition_request_from_wire),
    Pair(messages.FetchMetadataRequest, controller_pb2.FetchMetadataRequest,
         controller.fetch_metadata_request_to_wire, controller.fetch_metadata_request_from_wire),
)
RESPONSES = (
    Pair(messages.FetchResponse, replica_pb2.FetchResponse,
         fetch.fetch_response_to_wire, fetch.fetch_response_from_wire),
    Pair(messages.ProduceResponse, data_pb2.ProduceResponse,
         produce.produce_response_to_wire, produce.produce_response_from_wire),
    Pair(messages.ListOffsetsResponse, data_pb2.ListOffsetsResponse,
         metadata.list_offsets_response_to_wire, metadata.list_offsets_response_from_wire),
    Pair(messages.MetadataResponse, data_pb2.MetadataResponse,
         metadata.metadata_response_to_wire, metadata.metadata_response_from_wire),
    Pair(messages.DescribeReplicasResponse, data_pb2.DescribeReplicasResponse,
         metadata.describe_replicas_response_to_wire, metadata.describe_replicas_response_from_wire),
    Pair(messages.InitProducerIdResponse, data_pb2.InitProducerIdResponse,
         metadata.init_producer_id_response_to_wire, metadata.init_producer_id_response_from_wire),
    Pair(messages.AllocateProducerIdsResponse, controller_pb2.AllocateProducerIdsResponse,
         controller.allocate_producer_ids_response_to_wire,
         controller.allocate_producer_ids_response_from_wire),
    Pair(messages.CreateTopicResponse, admin_pb2.CreateTopicResponse,
         admin.create_topic_response_to_wire, admin.create_topic_response_from_wire),
    Pair(messages.DeleteTopicResponse, admin_pb2.DeleteTopicResponse,
         admin.delete_topic_response_to_wire, admin.delete_topic_response_from_wire),
    Pair(messages.AlterTopicConfigsResponse, admin_pb2.AlterTopicConfigsResponse,
         admin.alter_topic_configs_response_to_wire, admin.alter_topic_configs_response_from_wire),
    Pair(messages.CreatePartitionsResponse, admin_pb2.CreatePartitionsResponse,
         admin.create_partitions_response_to_wire, admin.create_partitions_response_from_wire),
    Pair(messages.RegisterBrokerResponse, controller_pb2.RegisterBrokerResponse,
         controller.register_broker_response_to_wire, controller.register_broker_response_from_wire),
    Pair(messages.BrokerHeartbeatResponse, controller_pb2.BrokerHeartbeatResponse,
         controller.broker_heartbeat_response_to_wire, controller.broker_heartbeat_response_from_wire),
    Pair(messages.AlterPartitionResponse, controller_pb2.AlterPartitionResponse,
         controller.alter_partition_response_to_wire, controller.alter_partition_response_from_wire),
    Pair(messages.FetchMetadataResponse, controller_pb2.FetchMetadataResponse,
         controller.fetch_metadata_response_to_wire, controller.fetch_metadata_response_from_wire),
)
# fmt: on

# Each row above is type-checked. The tables below find a row by the class of a value, which no type can express.
_REQUEST_TO_WIRE: dict[type, Callable[[Any], Message]] = {pair.body: pair.to_wire for pair in REQUESTS}
_REQUEST_FROM_WIRE: dict[type, Callable[[Any], RequestBody]] = {
    pair.message: pair.from_wire for pair in REQUESTS
}
_RESPONSE_TO_WIRE: dict[type, Callable[[Any], Message]] = {pair.body: pair.to_wire for pair in RESPONSES}
_RESPONSE_FROM_WIRE: dict[type, Callable[[Any], ResponseBody]] = {
    pair.message: pair.from_wire for pair in RESPONSES
}


def request_to_wire(body: RequestBody) -> Message:
    return _REQUEST_TO_WIRE[type(body)](body)


def response_to_wire(body: ResponseBody) -> Message:
    return _RESPONSE_TO_WIRE[type(body)](body)


def request_from_wire(message: Message) -> RequestBody:
    """Returns the body that `message` carries. Raises UnknownMessage, OutOfBounds."""
    from_wire = _REQUEST_FROM_WIRE.get(type(message))
    if from_wire is None:
        raise UnknownMessage(message.DESCRIPTOR.full_name)
    body = from_wire(message)
    if refused := out_of_bounds(body):
        raise refused
    return body


def response_from_wire(message: Message) -> ResponseBody:
    """Returns the body that `message` carries. Raises UnknownMessage, OutOfBounds."""
    from_wire = _RESPONSE_FROM_WIRE.get(type(message))
    if from_wire is None:
        raise UnknownMessage(message.DESCRIPTOR.full_name)
    body = from_wire(message)
    if refused := out_of_bounds(body):
        raise refused
    return body
