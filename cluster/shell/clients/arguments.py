"""Checks of what a program passes to a client: what is wrong is refused at that call, before anything is sent.

Each check returns the argument in the form that the cores take, or raises TypeError or ValueError with the
argument's name, what was expected and what came.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from cluster.core.client.config import OffsetReset
from cluster.core.client.consumer import Start
from cluster.core.client.starts import AtTime, BeforeEnd
from cluster.core.messages import CreateTopicRequest, TopicPartition
from storage.batch.record import MAX_INT64, Header
from storage.codec.utf8 import is_encodable
from storage.errors import InvalidTopic
from storage.topics import check_topic_name

_MAX_INT32 = (1 << 31) - 1
T = TypeVar("T")
Positions = Mapping[TopicPartition, Start] | Iterable[tuple[TopicPartition, Start]]


def topic_name(topic: object) -> str:
    """Returns a legal topic name."""
    if not isinstance(topic, str):
        raise TypeError(f"topic: expected a str, got {_kind(topic)}")
    try:
        check_topic_name(topic)
    except InvalidTopic as error:
        raise ValueError(str(error)) from error
    return topic


def topic_names(topics: object) -> tuple[str, ...]:
    """Returns the names of a collection of topics."""
    if isinstance(topics, str | bytes):
        raise TypeError(f"topics: expected a list of names, got {_kind(topics)}: write [{topics!r}]")
    if not isinstance(topics, Iterable):
        raise TypeError(f"topics: expected a list of names, got {_kind(topics)}")
    return tuple(topic_name(topic) for topic in topics)


def content(name: str, data: object) -> bytes | None:
    """Returns the bytes of a key or value; None stays None."""
    if data is None or type(data) is bytes:
        return data
    if isinstance(data, bytes | bytearray | memoryview):
        return bytes(data)
    hint = f": encode it, {name}.encode()" if isinstance(data, str) else ""
    raise TypeError(f"{name}: expected bytes or None, got {_kind(data)}{hint}")


def header_pairs(headers: object) -> tuple[Header, ...]:
    """Returns the headers as pairs of a name and a value in bytes or None."""
    # First what most records have: the check against an abstract class takes as long as all others of a record.
    if headers == () or (not headers and isinstance(headers, Sequence)):
        return ()
    if isinstance(headers, Mapping):
        headers = tuple(headers.items())
    if isinstance(headers, str | bytes) or not isinstance(headers, Iterable):
        raise TypeError(f"headers: expected pairs of a str and bytes, got {_kind(headers)}")
    return tuple(_header(index, header) for index, header in enumerate(headers))


def _header(index: int, header: object) -> Header:
    where = f"headers[{index}]"
    if not isinstance(header, tuple | list) or len(header) != 2:
        raise TypeError(f"{where}: expected a pair of a str and bytes, got {_kind(header)}")
    name, value = header
    if not isinstance(name, str):
        raise TypeError(f"{where}: expected a str as the name, got {_kind(name)}")
    if not is_encodable(name):
        raise ValueError(f"{where}: the name {name!r} cannot be written as UTF-8")
    return name, content(f"{where} value", value)


def integer(name: str, number: object, *, at_least: int = 0, at_most: int = _MAX_INT32) -> int:
    """Returns a whole number between two bounds, both inclusive."""
    if not isinstance(number, int) or isinstance(number, bool):
        raise TypeError(f"{name}: expected an int, got {_kind(number)}")
    if not at_least <= number <= at_most:
        raise ValueError(f"{name}: expected {at_least} to {at_most}, got {number}")
    return number


def count(name: str, number: object) -> int:
    """Returns a positive number; None becomes -1, which leaves the choice to the cluster."""
    return -1 if number is None else integer(name, number, at_least=1)


def seconds(name: str, duration: object) -> float:
    """Returns a duration in seconds, zero or more."""
    if not isinstance(duration, int | float) or isinstance(duration, bool):
        raise TypeError(f"{name}: expected seconds, got {_kind(duration)}")
    if not duration >= 0:
        raise ValueError(f"{name}: expected seconds, zero or more, got {duration}")
    try:
        return float(duration)
    except OverflowError as error:
        raise ValueError(f"{name}: expected at most {sys.float_info.max} seconds") from error


def partition_of(topic_partition: object) -> TopicPartition:
    """Returns a partition; a plain pair of a topic and a number is one too."""
    if isinstance(topic_partition, str | bytes) or not isinstance(topic_partition, tuple):
        raise TypeError(f"expected a TopicPartition, got {_kind(topic_partition)}")
    if len(topic_partition) != 2:
        raise TypeError(f"expected a TopicPartition, got a tuple of {len(topic_partition)}")
    topic, partition = topic_partition
    return TopicPartition(topic_name(topic), integer("partition", partition))


def reset(start: object) -> OffsetReset:
    """Returns the end of a log at which reading starts."""
    if not isinstance(start, OffsetReset):
        raise TypeError(f"start: expected an OffsetReset such as OffsetReset.EARLIEST, got {_kind(start)}")
    if start is OffsetReset.NONE:
        raise ValueError("start: OffsetReset.NONE names no place: expected EARLIEST or LATEST")
    return start


def start_of(start: object) -> Start:
    """Returns an offset, an end of the log, a time, or a distance from the end."""
    if isinstance(start, OffsetReset):
        return reset(start)
    if isinstance(start, AtTime | BeforeEnd):
        return start
    if not isinstance(start, int) or isinstance(start, bool):
        raise TypeError(f"expected an offset, OffsetReset, AtTime or BeforeEnd, got {_kind(start)}")
    return integer("offset", start, at_most=MAX_INT64)


def positions(wanted: object) -> tuple[tuple[TopicPartition, Start], ...]:
    """Returns partitions with the place from which each is read."""
    pairs = tuple(wanted.items()) if isinstance(wanted, Mapping) else wanted
    shape = "expected pairs of a TopicPartition and an offset, OffsetReset, AtTime or BeforeEnd"
    if isinstance(pairs, str | bytes) or not isinstance(pairs, Iterable):
        raise TypeError(f"positions: {shape}, got {_kind(wanted)}")
    checked = []
    for index, pair in enumerate(pairs):
        if isinstance(pair, TopicPartition) or not isinstance(pair, tuple | list) or len(pair) != 2:
            raise TypeError(f"positions[{index}]: {shape}, got {pair!r}")
        try:
            checked.append((partition_of(pair[0]), start_of(pair[1])))
        except (TypeError, ValueError) as error:
            raise type(error)(f"positions[{index}]: {error}") from error
    return tuple(checked)


def properties(configs: object) -> tuple[tuple[str, str], ...]:
    """Returns the properties of a topic as pairs of Kafka's name and the value as text."""
    if configs is None:
        return ()
    if not isinstance(configs, Mapping):
        raise TypeError(f"configs: expected a dict of names and values, got {_kind(configs)}")
    for name, value in configs.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise TypeError(f"configs: expected {name!r} and its value to be str, got {value!r}")
        if not (is_encodable(name) and is_encodable(value)):
            raise ValueError(f"configs: {name!r} with the value {value!r} cannot be written as UTF-8")
    return tuple(configs.items())


def assignment(brokers: object) -> tuple[tuple[int, ...], ...]:
    """Returns the brokers of each partition's replicas."""
    if not isinstance(brokers, Sequence) or isinstance(brokers, str | bytes):
        raise TypeError(f"assignment: expected a list of broker ids for each partition, got {_kind(brokers)}")
    checked = []
    for index, replicas in enumerate(brokers):
        if not isinstance(replicas, Sequence) or isinstance(replicas, str | bytes):
            raise TypeError(f"assignment[{index}]: expected a list of broker ids, got {_kind(replicas)}")
        checked.append(tuple(integer(f"assignment[{index}]", broker) for broker in replicas))
    return tuple(checked)


def one_shape(
    partitions: object, replication_factor: object, assignment: tuple[tuple[int, ...], ...]
) -> None:
    """Raises ValueError where both counts and an assignment say how many partitions and replicas a topic has."""
    given = {"partitions": partitions, "replication_factor": replication_factor}
    counted = [name for name, number in given.items() if number is not None]
    if assignment and counted:
        what = "assignment decides the number of partitions and of replicas"
        raise ValueError(f"{what}: leave out {' and '.join(counted)}")


def topic_request(request: CreateTopicRequest) -> CreateTopicRequest:
    """Returns a request that can be sent: the controller judges what its numbers and properties mean."""
    for name, number in (
        ("partitions", request.partitions),
        ("replication_factor", request.replication_factor),
        *((f"assignment[{index}]", each) for index, row in enumerate(request.assignment) for each in row),
    ):
        integer(name, number, at_least=-_MAX_INT32 - 1)
    properties(dict(request.configs))
    return request


def config_of(config: object, kind: type[T]) -> T:
    """Returns a client's configuration; None means the defaults."""
    if config is None:
        return kind()
    if not isinstance(config, kind):
        raise TypeError(f"config: expected a {kind.__name__}, got {_kind(config)}")
    return config


def _kind(value: object) -> str:
    return type(value).__name__
