"""Produce, dataclass to protobuf and back."""

from __future__ import annotations

from cluster import wire_common as common
from cluster.messages import ProducePartition, ProducePartitionResponse, ProduceRequest, ProduceResponse
from cluster.rpc import data_pb2


def produce_request_to_wire(value: ProduceRequest) -> data_pb2.ProduceRequest:
    return data_pb2.ProduceRequest(
        acks=value.acks,
        timeout_ms=value.timeout_ms,
        partitions=[
            data_pb2.ProducePartition(
                topic_partition=common.topic_partition_to_wire(partition.topic_partition),
                records=partition.records,
            )
            for partition in value.partitions
        ],
    )


def produce_request_from_wire(message: data_pb2.ProduceRequest) -> ProduceRequest:
    return ProduceRequest(
        acks=message.acks,
        timeout_ms=message.timeout_ms,
        partitions=tuple(
            ProducePartition(
                topic_partition=common.topic_partition_from_wire(partition.topic_partition),
                records=partition.records,
            )
            for partition in message.partitions
        ),
    )


def produce_response_to_wire(value: ProduceResponse) -> data_pb2.ProduceResponse:
    return data_pb2.ProduceResponse(
        error=common.error_to_wire(value.error),
        partitions=[_partition_response_to_wire(partition) for partition in value.partitions],
    )


def produce_response_from_wire(message: data_pb2.ProduceResponse) -> ProduceResponse:
    return ProduceResponse(
        error=common.error_from_wire(message.error),
        partitions=tuple(_partition_response_from_wire(partition) for partition in message.partitions),
    )


def _partition_response_to_wire(value: ProducePartitionResponse) -> data_pb2.ProducePartitionResponse:
    return data_pb2.ProducePartitionResponse(
        topic_partition=common.topic_partition_to_wire(value.topic_partition),
        error=common.error_to_wire(value.error),
        message=value.message,
        base_offset=value.base_offset,
        last_offset=value.last_offset,
        log_append_time_ms=value.log_append_time_ms,
        log_start_offset=value.log_start_offset,
        leader_id=value.leader_id,
        leader_epoch=value.leader_epoch,
    )


def _partition_response_from_wire(message: data_pb2.ProducePartitionResponse) -> ProducePartitionResponse:
    return ProducePartitionResponse(
        topic_partition=common.topic_partition_from_wire(message.topic_partition),
        error=common.error_from_wire(message.error),
        message=message.message,
        base_offset=message.base_offset,
        last_offset=message.last_offset,
        log_append_time_ms=message.log_append_time_ms,
        log_start_offset=message.log_start_offset,
        leader_id=message.leader_id,
        leader_epoch=message.leader_epoch,
    )
