"""Fetch of followers and consumers, dataclass to protobuf and back."""

from __future__ import annotations

from cluster import wire_common as common
from cluster.messages import FetchPartition, FetchPartitionResponse, FetchRequest, FetchResponse
from cluster.rpc import replica_pb2


def fetch_request_to_wire(value: FetchRequest) -> replica_pb2.FetchRequest:
    return replica_pb2.FetchRequest(
        replica_id=value.replica_id,
        broker_epoch=value.broker_epoch,
        max_wait_ms=value.max_wait_ms,
        min_bytes=value.min_bytes,
        max_bytes=value.max_bytes,
        partitions=[_partition_to_wire(partition) for partition in value.partitions],
    )


def fetch_request_from_wire(message: replica_pb2.FetchRequest) -> FetchRequest:
    return FetchRequest(
        replica_id=message.replica_id,
        broker_epoch=message.broker_epoch,
        max_wait_ms=message.max_wait_ms,
        min_bytes=message.min_bytes,
        max_bytes=message.max_bytes,
        partitions=tuple(_partition_from_wire(partition) for partition in message.partitions),
    )


def _partition_to_wire(value: FetchPartition) -> replica_pb2.FetchPartition:
    return replica_pb2.FetchPartition(
        topic_partition=common.topic_partition_to_wire(value.topic_partition),
        fetch_offset=value.fetch_offset,
        current_leader_epoch=value.current_leader_epoch,
        last_fetched_epoch=value.last_fetched_epoch,
        log_start_offset=value.log_start_offset,
        max_bytes=value.max_bytes,
    )


def _partition_from_wire(message: replica_pb2.FetchPartition) -> FetchPartition:
    return FetchPartition(
        topic_partition=common.topic_partition_from_wire(message.topic_partition),
        fetch_offset=message.fetch_offset,
        current_leader_epoch=message.current_leader_epoch,
        last_fetched_epoch=message.last_fetched_epoch,
        log_start_offset=message.log_start_offset,
        max_bytes=message.max_bytes,
    )


def fetch_response_to_wire(value: FetchResponse) -> replica_pb2.FetchResponse:
    return replica_pb2.FetchResponse(
        error=common.error_to_wire(value.error),
        partitions=[_partition_response_to_wire(partition) for partition in value.partitions],
    )


def fetch_response_from_wire(message: replica_pb2.FetchResponse) -> FetchResponse:
    return FetchResponse(
        error=common.error_from_wire(message.error),
        partitions=tuple(_partition_response_from_wire(partition) for partition in message.partitions),
    )


def _partition_response_to_wire(value: FetchPartitionResponse) -> replica_pb2.FetchPartitionResponse:
    diverging = value.diverging
    return replica_pb2.FetchPartitionResponse(
        topic_partition=common.topic_partition_to_wire(value.topic_partition),
        error=common.error_to_wire(value.error),
        high_watermark=value.high_watermark,
        log_start_offset=value.log_start_offset,
        log_end_offset=value.log_end_offset,
        diverging=None if diverging is None else common.epoch_end_to_wire(diverging),
        leader_id=value.leader_id,
        leader_epoch=value.leader_epoch,
        records=value.records,
    )


def _partition_response_from_wire(message: replica_pb2.FetchPartitionResponse) -> FetchPartitionResponse:
    diverges = message.HasField("diverging")
    return FetchPartitionResponse(
        topic_partition=common.topic_partition_from_wire(message.topic_partition),
        error=common.error_from_wire(message.error),
        high_watermark=message.high_watermark,
        log_start_offset=message.log_start_offset,
        log_end_offset=message.log_end_offset,
        diverging=common.epoch_end_from_wire(message.diverging) if diverges else None,
        leader_id=message.leader_id,
        leader_epoch=message.leader_epoch,
        records=message.records,  # read once: each access of a bytes field copies it
    )
