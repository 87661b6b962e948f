"""Converts the parts that every service's messages are made of, dataclass to protobuf and back.

Each message has a pair of functions, `x_to_wire(dataclass) -> protobuf` and `x_from_wire(protobuf) -> dataclass`, in
one file per service; `bodies.py` finds the pair of a message. Only these files and the transport know protobuf classes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, cast

from cluster.core.errors import ErrorCode
from cluster.core.messages import BrokerEndpoint, EpochEnd, Header, TopicPartition
from cluster.rpc import common_pb2
from storage.values import maker

_header = maker(Header)
# A constant, because a member of an enum takes as long to look up as a field of a message.
_UNKNOWN = ErrorCode.UNKNOWN_SERVER_ERROR
_ERRORS: dict[int, ErrorCode] = {int(code): code for code in ErrorCode}


def error_to_wire(error: ErrorCode) -> common_pb2.ErrorCode:
    return cast("common_pb2.ErrorCode", int(error))


def error_from_wire(number: int) -> ErrorCode:
    """Returns the error of a number; one that only a newer peer knows is UNKNOWN_SERVER_ERROR, never NONE.

    Kafka: Errors.forCode.
    """
    return _ERRORS.get(number, _UNKNOWN)


class HasHeader(Protocol):
    """A message that may carry the header of its sender."""

    @property
    def header(self) -> common_pb2.Header: ...

    def HasField(self, field_name: str) -> bool: ...


def header_to_wire(value: Header | None) -> common_pb2.Header | None:
    """Returns the header as a message; None (a client) stays None, which leaves the field absent."""
    if value is None:
        return None
    message = common_pb2.Header()
    fill_header(message, value)
    return message


def fill_header(message: common_pb2.Header, value: Header) -> None:
    """Fills `message` in place: passing a message to another's constructor would serialise and parse it again."""
    message.cluster_id = value.cluster_id
    message.broker_id = value.broker_id
    message.broker_epoch = value.broker_epoch
    message.incarnation = value.incarnation


def header_from_wire(message: HasHeader) -> Header | None:
    """Returns the header that `message` carries, None if it carries none."""
    if not message.HasField("header"):
        return None
    header = message.header
    return _header(
        cluster_id=header.cluster_id,
        broker_id=header.broker_id,
        broker_epoch=header.broker_epoch,
        incarnation=header.incarnation,
    )


def topic_partition_to_wire(value: TopicPartition) -> common_pb2.TopicPartition:
    return common_pb2.TopicPartition(topic=value.topic, partition=value.partition)


def topic_partition_from_wire(message: common_pb2.TopicPartition) -> TopicPartition:
    return TopicPartition(message.topic, message.partition)


def epoch_end_to_wire(value: EpochEnd) -> common_pb2.EpochEnd:
    return common_pb2.EpochEnd(epoch=value.epoch, end_offset=value.end_offset)


def epoch_end_from_wire(message: common_pb2.EpochEnd) -> EpochEnd:
    return EpochEnd(epoch=message.epoch, end_offset=message.end_offset)


def endpoint_to_wire(value: BrokerEndpoint) -> common_pb2.BrokerEndpoint:
    return common_pb2.BrokerEndpoint(broker_id=value.broker_id, host=value.host, port=value.port)


def endpoint_from_wire(message: common_pb2.BrokerEndpoint) -> BrokerEndpoint:
    return BrokerEndpoint(broker_id=message.broker_id, host=message.host, port=message.port)


def configs_to_wire(configs: tuple[tuple[str, str], ...]) -> list[common_pb2.ConfigEntry]:
    return [common_pb2.ConfigEntry(name=name, value=value) for name, value in configs]


def configs_from_wire(entries: Iterable[common_pb2.ConfigEntry]) -> tuple[tuple[str, str], ...]:
    return tuple((entry.name, entry.value) for entry in entries)


def topics_to_wire(topics: tuple[str, ...] | None) -> common_pb2.TopicNames | None:
    """Returns the names as a message; None (all topics) stays None, which leaves the field absent."""
    return None if topics is None else common_pb2.TopicNames(names=topics)
