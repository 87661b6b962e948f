"""Converts produce requests and responses, dataclass to protobuf and back."""

from __future__ import annotations

from cluster.core.messages import ProducePartition, ProducePartitionResponse, ProduceRequest, ProduceResponse
from cluster.rpc import data_pb2
from cluster.shell.wire import common
from cluster.shell.wire.framing import LARGE_BYTES, NONE_LARGE_BYTES
from storage.values import maker

_produce_request, _produce_partition = maker(ProduceRequest), maker(ProducePartition)
_produce_response, _partition_response = maker(ProduceResponse), maker(ProducePartitionResponse)


def produce_request_to_wire(value: ProduceRequest) -> data_pb2.ProduceRequest:
    message = data_pb2.ProduceRequest()
    fill_produce_request(message, value, NONE_LARGE_BYTES)
    return message


def fill_produce_request(
    message: data_pb2.ProduceRequest, value: ProduceRequest, large_bytes: int = LARGE_BYTES
) -> bool:
    """Fills `message` in place: passing a message to another's constructor would serialise and parse it again.

    Returns whether it has left out records, those of `large_bytes` and more.
    """
    is_light, partitions = False, message.partitions
    assert not partitions, len(partitions)
    message.acks = value.acks
    message.timeout_ms = value.timeout_ms
    for partition in value.partitions:
        item = partitions.add()
        place = item.topic_partition
        place.topic, place.partition = partition.topic_partition.topic, partition.topic_partition.partition
        item.topic_id = partition.topic_id
        if len(partition.records) < large_bytes:
            item.records = partition.records
        else:
            is_light = True
    return is_light


def produce_request_from_wire(message: data_pb2.ProduceRequest) -> ProduceRequest:
    """Returns the request that `message` carries."""
    partitions = [
        _produce_partition(
            topic_partition=common.topic_partition_from_wire(partition.topic_partition),
            topic_id=partition.topic_id,
            records=partition.records,
        )
        for partition in message.partitions
    ]
    return _produce_request(acks=message.acks, timeout_ms=message.timeout_ms, partitions=tuple(partitions))


def produce_response_to_wire(value: ProduceResponse) -> data_pb2.ProduceResponse:
    message = data_pb2.ProduceResponse()
    fill_produce_response(message, value)
    return message


def fill_produce_response(message: data_pb2.ProduceResponse, value: ProduceResponse) -> None:
    """Fills `message` in place, as `fill_produce_request` does."""
    if value.error:
        message.error = common.error_to_wire(value.error)
    for partition in value.partitions:
        _fill_partition_response(message.partitions.add(), partition)


def produce_response_from_wire(message: data_pb2.ProduceResponse) -> ProduceResponse:
    partitions = [_partition_response_from_wire(partition) for partition in message.partitions]
    return _produce_response(error=common.error_from_wire(message.error), partitions=tuple(partitions))


def _fill_partition_response(
    message: data_pb2.ProducePartitionResponse, value: ProducePartitionResponse
) -> None:
    place = message.topic_partition
    place.topic, place.partition = value.topic_partition.topic, value.topic_partition.partition
    # No error and an empty text are what an absent field says.
    if value.error:
        message.error = common.error_to_wire(value.error)
    if value.message:
        message.message = value.message
    message.base_offset = value.base_offset
    message.last_offset = value.last_offset
    message.log_append_time_ms = value.log_append_time_ms
    message.log_start_offset = value.log_start_offset
    message.leader_id = value.leader_id
    message.leader_epoch = value.leader_epoch


def _partition_response_from_wire(message: data_pb2.ProducePartitionResponse) -> ProducePartitionResponse:
    return _partition_response(
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
