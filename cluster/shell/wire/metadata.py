"""Converts what clients ask brokers beside records: offsets, metadata, replicas and producer ids.

Each pair of functions converts a dataclass to protobuf and back.
"""

from __future__ import annotations

from cluster.core.messages import (
    DescribeReplicasRequest,
    DescribeReplicasResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    MetadataRequest,
    MetadataResponse,
    PartitionMetadata,
    ReplicaDescription,
    TopicMetadata,
)
from cluster.rpc import data_pb2
from cluster.shell.wire import common


def list_offsets_request_to_wire(value: ListOffsetsRequest) -> data_pb2.ListOffsetsRequest:
    """Returns `value` as a protobuf message."""
    return data_pb2.ListOffsetsRequest(
        topic_partition=common.topic_partition_to_wire(value.topic_partition),
        topic_id=value.topic_id,
        timestamp=value.timestamp,
        current_leader_epoch=value.current_leader_epoch,
    )


def list_offsets_request_from_wire(message: data_pb2.ListOffsetsRequest) -> ListOffsetsRequest:
    """Returns the request that `message` carries."""
    return ListOffsetsRequest(
        topic_partition=common.topic_partition_from_wire(message.topic_partition),
        topic_id=message.topic_id,
        timestamp=message.timestamp,
        current_leader_epoch=message.current_leader_epoch,
    )


def list_offsets_response_to_wire(value: ListOffsetsResponse) -> data_pb2.ListOffsetsResponse:
    """Returns `value` as a protobuf message."""
    return data_pb2.ListOffsetsResponse(
        topic_partition=common.topic_partition_to_wire(value.topic_partition),
        error=common.error_to_wire(value.error),
        offset=value.offset,
        timestamp=value.timestamp,
        leader_epoch=value.leader_epoch,
    )


def list_offsets_response_from_wire(message: data_pb2.ListOffsetsResponse) -> ListOffsetsResponse:
    """Returns the response that `message` carries."""
    return ListOffsetsResponse(
        topic_partition=common.topic_partition_from_wire(message.topic_partition),
        error=common.error_from_wire(message.error),
        offset=message.offset,
        timestamp=message.timestamp,
        leader_epoch=message.leader_epoch,
    )


def metadata_request_to_wire(value: MetadataRequest) -> data_pb2.MetadataRequest:
    return data_pb2.MetadataRequest(topics=common.topics_to_wire(value.topics))


def metadata_request_from_wire(message: data_pb2.MetadataRequest) -> MetadataRequest:
    return MetadataRequest(topics=tuple(message.topics.names) if message.HasField("topics") else None)


def metadata_response_to_wire(value: MetadataResponse) -> data_pb2.MetadataResponse:
    """Returns `value` as a protobuf message."""
    controller = value.controller
    return data_pb2.MetadataResponse(
        error=common.error_to_wire(value.error),
        cluster_id=value.cluster_id,
        controller=None if controller is None else common.endpoint_to_wire(controller),
        brokers=[common.endpoint_to_wire(broker) for broker in value.brokers],
        topics=[_topic_to_wire(topic) for topic in value.topics],
        metadata_offset=value.metadata_offset,
    )


def metadata_response_from_wire(message: data_pb2.MetadataResponse) -> MetadataResponse:
    """Returns the response that `message` carries."""
    known = message.HasField("controller")
    return MetadataResponse(
        error=common.error_from_wire(message.error),
        cluster_id=message.cluster_id,
        controller=common.endpoint_from_wire(message.controller) if known else None,
        brokers=tuple(common.endpoint_from_wire(broker) for broker in message.brokers),
        topics=tuple(_topic_from_wire(topic) for topic in message.topics),
        metadata_offset=message.metadata_offset,
    )


def _topic_to_wire(value: TopicMetadata) -> data_pb2.TopicMetadata:
    return data_pb2.TopicMetadata(
        name=value.name,
        topic_id=value.topic_id,
        error=common.error_to_wire(value.error),
        configs=common.configs_to_wire(value.configs),
        partitions=[_partition_to_wire(partition) for partition in value.partitions],
    )


def _topic_from_wire(message: data_pb2.TopicMetadata) -> TopicMetadata:
    return TopicMetadata(
        name=message.name,
        topic_id=message.topic_id,
        error=common.error_from_wire(message.error),
        configs=common.configs_from_wire(message.configs),
        partitions=tuple(_partition_from_wire(partition) for partition in message.partitions),
    )


def _partition_to_wire(value: PartitionMetadata) -> data_pb2.PartitionMetadata:
    return data_pb2.PartitionMetadata(
        partition=value.partition,
        leader=value.leader,
        leader_epoch=value.leader_epoch,
        replicas=value.replicas,
        isr=value.isr,
    )


def _partition_from_wire(message: data_pb2.PartitionMetadata) -> PartitionMetadata:
    return PartitionMetadata(
        partition=message.partition,
        leader=message.leader,
        leader_epoch=message.leader_epoch,
        replicas=tuple(message.replicas),
        isr=tuple(message.isr),
    )


def describe_replicas_request_to_wire(value: DescribeReplicasRequest) -> data_pb2.DescribeReplicasRequest:
    return data_pb2.DescribeReplicasRequest(topics=common.topics_to_wire(value.topics))


def describe_replicas_request_from_wire(message: data_pb2.DescribeReplicasRequest) -> DescribeReplicasRequest:
    return DescribeReplicasRequest(topics=tuple(message.topics.names) if message.HasField("topics") else None)


def describe_replicas_response_to_wire(value: DescribeReplicasResponse) -> data_pb2.DescribeReplicasResponse:
    """Returns `value` as a protobuf message."""
    return data_pb2.DescribeReplicasResponse(
        broker_id=value.broker_id,
        state=value.state,
        replicas=[_replica_to_wire(replica) for replica in value.replicas],
    )


def describe_replicas_response_from_wire(
    message: data_pb2.DescribeReplicasResponse,
) -> DescribeReplicasResponse:
    """Returns the response that `message` carries."""
    return DescribeReplicasResponse(
        broker_id=message.broker_id,
        state=message.state,
        replicas=tuple(_replica_from_wire(replica) for replica in message.replicas),
    )


def _replica_to_wire(value: ReplicaDescription) -> data_pb2.ReplicaDescription:
    return data_pb2.ReplicaDescription(
        topic_partition=common.topic_partition_to_wire(value.topic_partition),
        role=value.role,
        leader=value.leader,
        leader_epoch=value.leader_epoch,
        isr=value.isr,
        log_start_offset=value.log_start_offset,
        high_watermark=value.high_watermark,
        log_end_offset=value.log_end_offset,
        min_insync_replicas=value.min_insync_replicas,
    )


def _replica_from_wire(message: data_pb2.ReplicaDescription) -> ReplicaDescription:
    return ReplicaDescription(
        topic_partition=common.topic_partition_from_wire(message.topic_partition),
        role=message.role,
        leader=message.leader,
        leader_epoch=message.leader_epoch,
        isr=tuple(message.isr),
        log_start_offset=message.log_start_offset,
        high_watermark=message.high_watermark,
        log_end_offset=message.log_end_offset,
        min_insync_replicas=message.min_insync_replicas,
    )


def init_producer_id_request_to_wire(value: InitProducerIdRequest) -> data_pb2.InitProducerIdRequest:
    return data_pb2.InitProducerIdRequest()


def init_producer_id_request_from_wire(message: data_pb2.InitProducerIdRequest) -> InitProducerIdRequest:
    return InitProducerIdRequest()


def init_producer_id_response_to_wire(value: InitProducerIdResponse) -> data_pb2.InitProducerIdResponse:
    """Returns `value` as a protobuf message."""
    return data_pb2.InitProducerIdResponse(
        error=common.error_to_wire(value.error),
        producer_id=value.producer_id,
        producer_epoch=value.producer_epoch,
    )


def init_producer_id_response_from_wire(message: data_pb2.InitProducerIdResponse) -> InitProducerIdResponse:
    """Returns the response that `message` carries."""
    return InitProducerIdResponse(
        error=common.error_from_wire(message.error),
        producer_id=message.producer_id,
        producer_epoch=message.producer_epoch,
    )
