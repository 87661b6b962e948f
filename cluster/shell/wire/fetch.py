"""Converts fetches of followers and consumers, dataclass to protobuf and back."""

from __future__ import annotations

from cluster.core.messages import FetchPartition, FetchPartitionResponse, FetchRequest, FetchResponse
from cluster.rpc import replica_pb2
from cluster.shell.wire import common
from cluster.shell.wire.framing import LARGE_BYTES, NONE_LARGE_BYTES
from storage.values import maker

_fetch_request, _fetch_partition = maker(FetchRequest), maker(FetchPartition)
_fetch_response, _partition_response = maker(FetchResponse), maker(FetchPartitionResponse)


def fetch_request_to_wire(value: FetchRequest) -> replica_pb2.FetchRequest:
    message = replica_pb2.FetchRequest()
    fill_fetch_request(message, value)
    return message


def fill_fetch_request(message: replica_pb2.FetchRequest, value: FetchRequest) -> None:
    """Fills `message` in place: passing a message to another's constructor would serialise and parse it again."""
    partitions = message.partitions
    assert not partitions, len(partitions)
    message.replica_id = value.replica_id
    message.broker_epoch = value.broker_epoch
    message.max_wait_ms = value.max_wait_ms
    message.min_bytes = value.min_bytes
    message.max_bytes = value.max_bytes
    if value.header is not None:
        common.fill_header(message.header, value.header)
    for partition in value.partitions:
        _fill_partition(partitions.add(), partition)


def fetch_request_from_wire(message: replica_pb2.FetchRequest) -> FetchRequest:
    """Returns the request that `message` carries."""
    return _fetch_request(
        replica_id=message.replica_id,
        broker_epoch=message.broker_epoch,
        header=common.header_from_wire(message),
        max_wait_ms=message.max_wait_ms,
        min_bytes=message.min_bytes,
        max_bytes=message.max_bytes,
        partitions=tuple([_partition_from_wire(partition) for partition in message.partitions]),
    )


def _fill_partition(message: replica_pb2.FetchPartition, value: FetchPartition) -> None:
    place = message.topic_partition
    place.topic, place.partition = value.topic_partition.topic, value.topic_partition.partition
    message.topic_id = value.topic_id
    message.fetch_offset = value.fetch_offset
    message.current_leader_epoch = value.current_leader_epoch
    message.last_fetched_epoch = value.last_fetched_epoch
    message.log_start_offset = value.log_start_offset
    message.max_bytes = value.max_bytes


def _partition_from_wire(message: replica_pb2.FetchPartition) -> FetchPartition:
    return _fetch_partition(
        topic_partition=common.topic_partition_from_wire(message.topic_partition),
        topic_id=message.topic_id,
        fetch_offset=message.fetch_offset,
        current_leader_epoch=message.current_leader_epoch,
        last_fetched_epoch=message.last_fetched_epoch,
        log_start_offset=message.log_start_offset,
        max_bytes=message.max_bytes,
    )


def fetch_response_to_wire(value: FetchResponse) -> replica_pb2.FetchResponse:
    message = replica_pb2.FetchResponse()
    fill_fetch_response(message, value, NONE_LARGE_BYTES)
    return message


def fill_fetch_response(
    message: replica_pb2.FetchResponse, value: FetchResponse, large_bytes: int = LARGE_BYTES
) -> bool:
    """Fills `message` in place. Returns whether it has left out records, those of `large_bytes` and more."""
    is_light = False
    if value.error:
        message.error = common.error_to_wire(value.error)
    for partition in value.partitions:
        item = message.partitions.add()
        _fill_partition_response(item, partition)
        if len(partition.records) < large_bytes:
            item.records = partition.records
        else:
            is_light = True
    return is_light


def fetch_response_from_wire(message: replica_pb2.FetchResponse) -> FetchResponse:
    partitions = [_partition_response_from_wire(partition) for partition in message.partitions]
    return _fetch_response(error=common.error_from_wire(message.error), partitions=tuple(partitions))


def _fill_partition_response(
    message: replica_pb2.FetchPartitionResponse, value: FetchPartitionResponse
) -> None:
    """Fills in all but the records."""
    place = message.topic_partition
    place.topic, place.partition = value.topic_partition.topic, value.topic_partition.partition
    # No error is what an absent field says.
    if value.error:
        message.error = common.error_to_wire(value.error)
    message.high_watermark = value.high_watermark
    message.log_start_offset = value.log_start_offset
    message.log_end_offset = value.log_end_offset
    if value.diverging is not None:
        message.diverging.CopyFrom(common.epoch_end_to_wire(value.diverging))
    message.leader_id = value.leader_id
    message.leader_epoch = value.leader_epoch


def _partition_response_from_wire(message: replica_pb2.FetchPartitionResponse) -> FetchPartitionResponse:
    diverges = message.HasField("diverging")
    return _partition_response(
        topic_partition=common.topic_partition_from_wire(message.topic_partition),
        error=common.error_from_wire(message.error),
        high_watermark=message.high_watermark,
        log_start_offset=message.log_start_offset,
        log_end_offset=message.log_end_offset,
        diverging=common.epoch_end_from_wire(message.diverging) if diverges else None,
        leader_id=message.leader_id,
        leader_epoch=message.leader_epoch,
        # The field is read once only, because each access of a bytes field copies it.
        records=message.records,
    )
