"""Converts the requests and responses of topic administration, dataclass to protobuf and back."""

from __future__ import annotations

from cluster.core.messages import (
    AlterTopicConfigsRequest,
    AlterTopicConfigsResponse,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreateTopicRequest,
    CreateTopicResponse,
    DeleteTopicRequest,
    DeleteTopicResponse,
)
from cluster.rpc import admin_pb2
from cluster.shell.wire import common


def create_topic_request_to_wire(value: CreateTopicRequest) -> admin_pb2.CreateTopicRequest:
    """Returns `value` as a protobuf message."""
    return admin_pb2.CreateTopicRequest(
        header=common.header_to_wire(value.header),
        name=value.name,
        partitions=value.partitions,
        replication_factor=value.replication_factor,
        configs=common.configs_to_wire(value.configs),
        assignment=[admin_pb2.ReplicaAssignment(replicas=replicas) for replicas in value.assignment],
    )


def create_topic_request_from_wire(message: admin_pb2.CreateTopicRequest) -> CreateTopicRequest:
    """Returns the request that `message` carries."""
    return CreateTopicRequest(
        header=common.header_from_wire(message),
        name=message.name,
        partitions=message.partitions,
        replication_factor=message.replication_factor,
        configs=common.configs_from_wire(message.configs),
        assignment=tuple(tuple(partition.replicas) for partition in message.assignment),
    )


def create_topic_response_to_wire(value: CreateTopicResponse) -> admin_pb2.CreateTopicResponse:
    return admin_pb2.CreateTopicResponse(
        error=common.error_to_wire(value.error), message=value.message, topic_id=value.topic_id
    )


def create_topic_response_from_wire(message: admin_pb2.CreateTopicResponse) -> CreateTopicResponse:
    return CreateTopicResponse(
        error=common.error_from_wire(message.error), message=message.message, topic_id=message.topic_id
    )


def delete_topic_request_to_wire(value: DeleteTopicRequest) -> admin_pb2.DeleteTopicRequest:
    return admin_pb2.DeleteTopicRequest(header=common.header_to_wire(value.header), name=value.name)


def delete_topic_request_from_wire(message: admin_pb2.DeleteTopicRequest) -> DeleteTopicRequest:
    return DeleteTopicRequest(header=common.header_from_wire(message), name=message.name)


def delete_topic_response_to_wire(value: DeleteTopicResponse) -> admin_pb2.DeleteTopicResponse:
    return admin_pb2.DeleteTopicResponse(error=common.error_to_wire(value.error), message=value.message)


def delete_topic_response_from_wire(message: admin_pb2.DeleteTopicResponse) -> DeleteTopicResponse:
    return DeleteTopicResponse(error=common.error_from_wire(message.error), message=message.message)


def alter_topic_configs_request_to_wire(
    value: AlterTopicConfigsRequest,
) -> admin_pb2.AlterTopicConfigsRequest:
    """Returns `value` as a protobuf message."""
    return admin_pb2.AlterTopicConfigsRequest(
        header=common.header_to_wire(value.header),
        name=value.name,
        configs=common.configs_to_wire(value.configs),
    )


def alter_topic_configs_request_from_wire(
    message: admin_pb2.AlterTopicConfigsRequest,
) -> AlterTopicConfigsRequest:
    """Returns the request that `message` carries."""
    return AlterTopicConfigsRequest(
        header=common.header_from_wire(message),
        name=message.name,
        configs=common.configs_from_wire(message.configs),
    )


def alter_topic_configs_response_to_wire(
    value: AlterTopicConfigsResponse,
) -> admin_pb2.AlterTopicConfigsResponse:
    return admin_pb2.AlterTopicConfigsResponse(error=common.error_to_wire(value.error), message=value.message)


def alter_topic_configs_response_from_wire(
    message: admin_pb2.AlterTopicConfigsResponse,
) -> AlterTopicConfigsResponse:
    return AlterTopicConfigsResponse(error=common.error_from_wire(message.error), message=message.message)


def create_partitions_request_to_wire(value: CreatePartitionsRequest) -> admin_pb2.CreatePartitionsRequest:
    return admin_pb2.CreatePartitionsRequest(
        header=common.header_to_wire(value.header), name=value.name, count=value.count
    )


def create_partitions_request_from_wire(
    message: admin_pb2.CreatePartitionsRequest,
) -> CreatePartitionsRequest:
    """Returns the request that `message` carries."""
    return CreatePartitionsRequest(
        header=common.header_from_wire(message), name=message.name, count=message.count
    )


def create_partitions_response_to_wire(
    value: CreatePartitionsResponse,
) -> admin_pb2.CreatePartitionsResponse:
    return admin_pb2.CreatePartitionsResponse(error=common.error_to_wire(value.error), message=value.message)


def create_partitions_response_from_wire(
    message: admin_pb2.CreatePartitionsResponse,
) -> CreatePartitionsResponse:
    return CreatePartitionsResponse(error=common.error_from_wire(message.error), message=message.message)
