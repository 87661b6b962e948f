"""Converts the brokers' requests to the controller and its responses, dataclass to protobuf and back."""

from __future__ import annotations

from cluster.core.messages import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    FetchMetadataRequest,
    FetchMetadataResponse,
    IsrMember,
    OfflinePartition,
    RegisterBrokerRequest,
    RegisterBrokerResponse,
)
from cluster.rpc import controller_pb2
from cluster.shell.wire import common


def register_broker_request_to_wire(value: RegisterBrokerRequest) -> controller_pb2.RegisterBrokerRequest:
    """Returns `value` as a protobuf message."""
    return controller_pb2.RegisterBrokerRequest(
        header=common.header_to_wire(value.header),
        broker_id=value.broker_id,
        incarnation=value.incarnation,
        host=value.host,
        port=value.port,
        previous_broker_epoch=value.previous_broker_epoch,
        cluster_id=value.cluster_id,
    )


def register_broker_request_from_wire(message: controller_pb2.RegisterBrokerRequest) -> RegisterBrokerRequest:
    """Returns the request that `message` carries."""
    return RegisterBrokerRequest(
        header=common.header_from_wire(message),
        broker_id=message.broker_id,
        incarnation=message.incarnation,
        host=message.host,
        port=message.port,
        previous_broker_epoch=message.previous_broker_epoch,
        cluster_id=message.cluster_id,
    )


def register_broker_response_to_wire(value: RegisterBrokerResponse) -> controller_pb2.RegisterBrokerResponse:
    return controller_pb2.RegisterBrokerResponse(
        error=common.error_to_wire(value.error), broker_epoch=value.broker_epoch, cluster_id=value.cluster_id
    )


def register_broker_response_from_wire(
    message: controller_pb2.RegisterBrokerResponse,
) -> RegisterBrokerResponse:
    """Returns the response that `message` carries."""
    return RegisterBrokerResponse(
        error=common.error_from_wire(message.error),
        broker_epoch=message.broker_epoch,
        cluster_id=message.cluster_id,
    )


def broker_heartbeat_request_to_wire(value: BrokerHeartbeatRequest) -> controller_pb2.BrokerHeartbeatRequest:
    """Returns `value` as a protobuf message."""
    return controller_pb2.BrokerHeartbeatRequest(
        header=common.header_to_wire(value.header),
        broker_id=value.broker_id,
        broker_epoch=value.broker_epoch,
        metadata_offset=value.metadata_offset,
        want_fence=value.want_fence,
        want_shutdown=value.want_shutdown,
        offline_partitions=[
            controller_pb2.OfflinePartition(
                topic_partition=common.topic_partition_to_wire(each.topic_partition), topic_id=each.topic_id
            )
            for each in value.offline_partitions
        ],
    )


def broker_heartbeat_request_from_wire(
    message: controller_pb2.BrokerHeartbeatRequest,
) -> BrokerHeartbeatRequest:
    """Returns the request that `message` carries."""
    return BrokerHeartbeatRequest(
        header=common.header_from_wire(message),
        broker_id=message.broker_id,
        broker_epoch=message.broker_epoch,
        metadata_offset=message.metadata_offset,
        want_fence=message.want_fence,
        want_shutdown=message.want_shutdown,
        offline_partitions=tuple(
            [
                OfflinePartition(
                    topic_partition=common.topic_partition_from_wire(each.topic_partition),
                    topic_id=each.topic_id,
                )
                for each in message.offline_partitions
            ]
        ),
    )


def broker_heartbeat_response_to_wire(
    value: BrokerHeartbeatResponse,
) -> controller_pb2.BrokerHeartbeatResponse:
    """Returns `value` as a protobuf message."""
    return controller_pb2.BrokerHeartbeatResponse(
        error=common.error_to_wire(value.error),
        is_fenced=value.is_fenced,
        is_caught_up=value.is_caught_up,
        should_shut_down=value.should_shut_down,
    )


def broker_heartbeat_response_from_wire(
    message: controller_pb2.BrokerHeartbeatResponse,
) -> BrokerHeartbeatResponse:
    """Returns the response that `message` carries."""
    return BrokerHeartbeatResponse(
        error=common.error_from_wire(message.error),
        is_fenced=message.is_fenced,
        is_caught_up=message.is_caught_up,
        should_shut_down=message.should_shut_down,
    )


def alter_partition_request_to_wire(value: AlterPartitionRequest) -> controller_pb2.AlterPartitionRequest:
    """Returns `value` as a protobuf message."""
    return controller_pb2.AlterPartitionRequest(
        header=common.header_to_wire(value.header),
        broker_id=value.broker_id,
        broker_epoch=value.broker_epoch,
        topic_partition=common.topic_partition_to_wire(value.topic_partition),
        topic_id=value.topic_id,
        leader_epoch=value.leader_epoch,
        partition_epoch=value.partition_epoch,
        new_isr=[
            controller_pb2.IsrMember(broker_id=member.broker_id, broker_epoch=member.broker_epoch)
            for member in value.new_isr
        ],
        attempt=value.attempt,
    )


def alter_partition_request_from_wire(message: controller_pb2.AlterPartitionRequest) -> AlterPartitionRequest:
    """Returns the request that `message` carries."""
    return AlterPartitionRequest(
        header=common.header_from_wire(message),
        broker_id=message.broker_id,
        broker_epoch=message.broker_epoch,
        topic_partition=common.topic_partition_from_wire(message.topic_partition),
        topic_id=message.topic_id,
        leader_epoch=message.leader_epoch,
        partition_epoch=message.partition_epoch,
        new_isr=tuple(
            IsrMember(broker_id=member.broker_id, broker_epoch=member.broker_epoch)
            for member in message.new_isr
        ),
        attempt=message.attempt,
    )


def alter_partition_response_to_wire(value: AlterPartitionResponse) -> controller_pb2.AlterPartitionResponse:
    """Returns `value` as a protobuf message."""
    return controller_pb2.AlterPartitionResponse(
        topic_partition=common.topic_partition_to_wire(value.topic_partition),
        error=common.error_to_wire(value.error),
        leader=value.leader,
        leader_epoch=value.leader_epoch,
        partition_epoch=value.partition_epoch,
        isr=value.isr,
    )


def alter_partition_response_from_wire(
    message: controller_pb2.AlterPartitionResponse,
) -> AlterPartitionResponse:
    """Returns the response that `message` carries."""
    return AlterPartitionResponse(
        topic_partition=common.topic_partition_from_wire(message.topic_partition),
        error=common.error_from_wire(message.error),
        leader=message.leader,
        leader_epoch=message.leader_epoch,
        partition_epoch=message.partition_epoch,
        isr=tuple(message.isr),
    )


def allocate_producer_ids_request_to_wire(
    value: AllocateProducerIdsRequest,
) -> controller_pb2.AllocateProducerIdsRequest:
    """Returns `value` as a protobuf message."""
    return controller_pb2.AllocateProducerIdsRequest(
        header=common.header_to_wire(value.header), broker_id=value.broker_id, broker_epoch=value.broker_epoch
    )


def allocate_producer_ids_request_from_wire(
    message: controller_pb2.AllocateProducerIdsRequest,
) -> AllocateProducerIdsRequest:
    """Returns the request that `message` carries."""
    return AllocateProducerIdsRequest(
        header=common.header_from_wire(message),
        broker_id=message.broker_id,
        broker_epoch=message.broker_epoch,
    )


def allocate_producer_ids_response_to_wire(
    value: AllocateProducerIdsResponse,
) -> controller_pb2.AllocateProducerIdsResponse:
    """Returns `value` as a protobuf message."""
    return controller_pb2.AllocateProducerIdsResponse(
        error=common.error_to_wire(value.error), first_producer_id=value.first_producer_id, count=value.count
    )


def allocate_producer_ids_response_from_wire(
    message: controller_pb2.AllocateProducerIdsResponse,
) -> AllocateProducerIdsResponse:
    """Returns the response that `message` carries."""
    return AllocateProducerIdsResponse(
        error=common.error_from_wire(message.error),
        first_producer_id=message.first_producer_id,
        count=message.count,
    )


def fetch_metadata_request_to_wire(value: FetchMetadataRequest) -> controller_pb2.FetchMetadataRequest:
    """Returns `value` as a protobuf message."""
    return controller_pb2.FetchMetadataRequest(
        header=common.header_to_wire(value.header),
        broker_id=value.broker_id,
        offset=value.offset,
        max_wait_ms=value.max_wait_ms,
        max_bytes=value.max_bytes,
    )


def fetch_metadata_request_from_wire(message: controller_pb2.FetchMetadataRequest) -> FetchMetadataRequest:
    """Returns the request that `message` carries."""
    return FetchMetadataRequest(
        header=common.header_from_wire(message),
        broker_id=message.broker_id,
        offset=message.offset,
        max_wait_ms=message.max_wait_ms,
        max_bytes=message.max_bytes,
    )


def fetch_metadata_response_to_wire(value: FetchMetadataResponse) -> controller_pb2.FetchMetadataResponse:
    return controller_pb2.FetchMetadataResponse(
        error=common.error_to_wire(value.error), high_watermark=value.high_watermark, records=value.records
    )


def fetch_metadata_response_from_wire(message: controller_pb2.FetchMetadataResponse) -> FetchMetadataResponse:
    """Returns the response that `message` carries."""
    return FetchMetadataResponse(
        error=common.error_from_wire(message.error),
        high_watermark=message.high_watermark,
        records=message.records,
    )
