"""A request of very many elements is refused before protobuf makes an object of each."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.core.connection.codec import Malformed
from cluster.core.messages import (
    BrokerHeartbeatRequest,
    CreateTopicRequest,
    FetchPartition,
    FetchRequest,
    MetadataRequest,
    OfflinePartition,
    ProducePartition,
    ProduceRequest,
    RequestBody,
    TopicPartition,
)
from cluster.rpc import data_pb2, methods
from cluster.shell.streams import CODEC, CONSUMER_FETCH, PRODUCE
from cluster.shell.wire.elements import MOST_ELEMENTS, UNCOUNTED_BYTES, check_elements
from cluster.shell.wire.limits import MAX_PARTITIONS

MANY = MOST_ELEMENTS + 1
UNARY = CODEC.unary


def field(tag: int, value: bytes) -> bytes:
    """A field of bytes or of a message."""
    size, left = bytearray(), len(value)
    while left > 0x7F:
        size.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes((tag, *size, left)) + value


EMPTY_CALLS = field(0x0A, b"") * MANY
EMPTY_PARTITIONS = field(0x0A, field(0x12, field(0x32, b"") * MANY))
# Too large to be parsed before they are counted.
LONGER_PARTITIONS = field(0x0A, field(0x12, field(0x32, b"\x10\x02\x18\x02") * MANY))


def read(path: str, frame: bytes) -> None:
    if methods.BY_PATH[path].is_stream:
        CODEC.stream_at(path).calls_from_bytes(frame)
    else:
        UNARY.request_from_bytes(path, frame)


@pytest.mark.parametrize(
    ("path", "frame"),
    [
        (methods.PRODUCE, EMPTY_CALLS),
        (methods.CONSUMER_FETCH, EMPTY_CALLS * 3),
        (methods.REPLICA_FETCH, EMPTY_PARTITIONS),
        (methods.REPLICA_FETCH, LONGER_PARTITIONS),
        # The same body again and again is one body with all their elements.
        (methods.REPLICA_FETCH, field(0x0A, field(0x12, field(0x32, b"")) * MANY)),
        # One large batch in front of them.
        (methods.PRODUCE, field(0x0A, field(0x12, field(0x1A, field(0x12, bytes(1 << 20))))) + EMPTY_CALLS),
        (f"/{methods.DATA}/Metadata", field(0x0A, field(0x0A, b"") * MANY)),
        (f"/{methods.CONTROLLER}/BrokerHeartbeat", field(0x32, b"") * MANY),
        (f"/{methods.ADMIN}/CreateTopic", field(0x2A, field(0x0A, bytes(MANY)))),
        (f"/{methods.ADMIN}/CreateTopic", field(0x2A, b"\x08\x02" * MANY)),
        (f"/{methods.ADMIN}/AlterTopicConfigs", field(0x12, b"") * MANY),
    ],
)
def test_c5_a_request_of_too_many_elements_is_refused_before_it_is_parsed(path: str, frame: bytes) -> None:
    with pytest.raises(Malformed, match=f"more than {MOST_ELEMENTS} elements"):
        read(path, frame)


@pytest.mark.parametrize(
    "first",
    [
        pytest.param(b"\x7b\x7c", id="a group"),
        pytest.param(b"\x08" + b"\x80" * 20, id="a long number"),
    ],
)
def test_c5_nothing_in_front_of_the_elements_hides_them(first: bytes) -> None:
    with pytest.raises(Malformed):
        read(methods.CONSUMER_FETCH, first + EMPTY_CALLS * 3)


def test_c5_a_tag_of_two_bytes_hides_nothing() -> None:
    with pytest.raises(Malformed, match="elements"):
        read(methods.CONSUMER_FETCH, b"\x8a\x00" + LONGER_PARTITIONS[1:])


@pytest.mark.parametrize(
    "body",
    [
        FetchRequest(
            replica_id=1,
            partitions=tuple(
                FetchPartition(
                    topic_partition=TopicPartition("t" * 9, number), topic_id="0" * 32, fetch_offset=0
                )
                for number in range(MAX_PARTITIONS)
            ),
        ),
        ProduceRequest(
            acks=-1,
            partitions=tuple(
                ProducePartition(topic_partition=TopicPartition("t", number), records=bytes(9))
                for number in range(MAX_PARTITIONS)
            ),
        ),
        BrokerHeartbeatRequest(
            broker_id=1,
            broker_epoch=1,
            metadata_offset=1,
            offline_partitions=tuple(
                OfflinePartition(topic_partition=TopicPartition("t", number), topic_id="0" * 32)
                for number in range(MAX_PARTITIONS)
            ),
        ),
        MetadataRequest(topics=tuple(f"t{number}" for number in range(MAX_PARTITIONS))),
        CreateTopicRequest(name="t", assignment=((1, 2, 3),) * 10_000),
    ],
    ids=lambda body: type(body).__name__,
)
@pytest.mark.slow
def test_the_largest_lists_within_the_bounds_are_taken(body: RequestBody) -> None:
    if isinstance(body, (FetchRequest, ProduceRequest)):
        codec = CODEC.stream_of(body)
        assert codec.calls_from_bytes(codec.calls_to_bytes([(1, body)])) == [(1, body)]
    else:
        assert UNARY.request_from_bytes(UNARY.path_of(body), UNARY.request_to_bytes(body)) == body


@settings(deadline=None, max_examples=50)
@given(st.lists(st.binary(max_size=9), max_size=9), st.sampled_from([0x00, 0x0A, 0x7F, 0xFF]))
def test_bytes_that_are_no_message_are_malformed_or_left_to_protobuf(pieces: list[bytes], rest: int) -> None:
    with contextlib.suppress(Malformed):
        check_elements(data_pb2.ProduceCalls, b"".join(pieces) + bytes((rest,)) * UNCOUNTED_BYTES)


def test_a_small_frame_is_not_counted() -> None:
    assert len(CONSUMER_FETCH.calls_from_bytes(field(0x0A, b"") * 9)) == 9
    assert PRODUCE.calls_from_bytes(b"") == []
