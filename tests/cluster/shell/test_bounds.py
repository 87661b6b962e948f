"""Every field has bounds, and what is outside of them never becomes a message."""

from __future__ import annotations

import typing

import pytest
from hypothesis import HealthCheck, assume, given, settings

from cluster.core.errors import ErrorCode
from cluster.core.messages import (
    MOST_BROKERS,
    AlterTopicConfigsRequest,
    BrokerEndpoint,
    EpochEnd,
    FetchMetadataRequest,
    FetchPartition,
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
    Header,
    MetadataResponse,
    ProduceRequest,
    RegisterBrokerRequest,
    RequestBody,
    ResponseBody,
    TopicPartition,
)
from cluster.rpc import controller_pb2
from cluster.shell import streams, wire
from cluster.shell.wire.bounds import Bound, Fields, Many, Optional, Pair, Text, Whole, compile_check
from cluster.shell.wire.limits import BOUNDS, PARTS, REQUEST_BOUNDS, RESPONSE_BOUNDS
from tests.cluster.shell.bounded import beyond, names_of

REQUESTS = typing.get_args(RequestBody)
RESPONSES = typing.get_args(ResponseBody)
SETTINGS = settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much]
)


def test_every_field_of_every_message_and_part_has_an_entry() -> None:
    assert set(REQUEST_BOUNDS) == set(REQUESTS) and set(RESPONSE_BOUNDS) == set(RESPONSES)
    entries = {**BOUNDS, **{part: fields.bounds for part, fields in PARTS.items()}}
    for cls, bounds in entries.items():
        assert list(bounds) == names_of(cls), cls.__name__


def test_a_part_of_a_message_has_the_bounds_of_its_class() -> None:
    def check(hint: object, bound: Bound, path: str) -> None:
        arguments = typing.get_args(hint)
        if isinstance(bound, Fields):
            assert PARTS[typing.cast("type", hint)] is bound, path
            for name, inner in typing.get_type_hints(hint).items():
                check(inner, bound.bounds[name], f"{path}.{name}")
        elif isinstance(bound, (Many, Optional)):
            check(arguments[0], bound.of, path)
        elif hint is int:
            assert isinstance(bound, Whole), path
        elif hint in (str, bytes):
            assert isinstance(bound, Text), path
        elif arguments:
            assert isinstance(bound, Pair), path

    for cls, bounds in BOUNDS.items():
        for name, hint in typing.get_type_hints(cls).items():
            check(hint, bounds[name], f"{cls.__name__}.{name}")


@pytest.mark.parametrize("cls", [*REQUESTS, *RESPONSES], ids=lambda cls: cls.__name__)
def test_a_field_beyond_its_bounds_is_named(cls: type) -> None:
    if beyond(cls).is_empty:
        pytest.skip("no field of it can be out of bounds, or only by a megabyte of text")

    @SETTINGS
    @given(beyond(cls))
    def is_refused(body: typing.Any) -> None:
        is_request = cls in REQUESTS
        to_wire = wire.request_to_wire if is_request else wire.response_to_wire
        try:
            message = to_wire(body)
        except ValueError:
            # The wire itself cannot carry it.
            assume(False)
        from_wire = wire.request_from_wire if is_request else wire.response_from_wire
        with pytest.raises(wire.OutOfBounds) as caught:
            from_wire(type(message).FromString(message.SerializeToString()))
        assert caught.value.code is not ErrorCode.NONE
        assert caught.value.detail.split("=")[0].split("[")[0].split(".")[0] in BOUNDS[cls]
        assert len(caught.value.detail) < 200

    is_refused()


@pytest.mark.parametrize(
    ("body", "code", "detail"),
    [
        (
            FetchMetadataRequest(broker_id=1, offset=0, max_bytes=-1),
            ErrorCode.INVALID_REQUEST,
            "max_bytes=-1: must be 0 to 2147483647",
        ),
        (
            AlterTopicConfigsRequest(name="t", configs=(("a", "1"), ("b", "x" * (17 << 20)))),
            ErrorCode.INVALID_CONFIG,
            f"configs[1].value='{'x' * 63}…: 17825792 long, at most 32767",
        ),
        (
            RegisterBrokerRequest(broker_id=1, incarnation="0" * 32, host="h" * (17 << 20), port=1),
            ErrorCode.INVALID_REQUEST,
            f"host='{'h' * 63}…: 17825792 long, at most 255",
        ),
        (
            RegisterBrokerRequest(broker_id=1, incarnation="", host="h", port=1),
            ErrorCode.INVALID_REQUEST,
            "incarnation='': 0 long, at least 32",
        ),
        (
            FetchMetadataRequest(
                broker_id=1, offset=0, max_bytes=1, header=Header(broker_id=1, incarnation="0" * 31)
            ),
            ErrorCode.INVALID_REQUEST,
            f"header.incarnation='{'0' * 31}': 31 long, at least 32",
        ),
        (
            ProduceRequest(acks=2, partitions=()),
            ErrorCode.INVALID_REQUIRED_ACKS,
            "acks=2: must be -1 to 1",
        ),
        (
            FetchRequest(
                replica_id=-1,
                partitions=(FetchPartition(topic_partition=TopicPartition("t", -5), fetch_offset=0),),
            ),
            ErrorCode.INVALID_REQUEST,
            "partitions[0].topic_partition.partition=-5: must be 0 to 2147483647",
        ),
    ],
    ids=lambda value: type(value).__name__,
)
def test_c5_the_refusal_names_field_value_and_bound(body: RequestBody, code: ErrorCode, detail: str) -> None:
    with pytest.raises(wire.OutOfBounds) as caught:
        wire.request_from_wire(wire.request_to_wire(body))
    assert (caught.value.code, caught.value.detail) == (code, detail)
    assert caught.value.body == body


def test_c10_a_negative_diverging_end_is_refused_at_the_bounds_and_others_of_the_stream_go_on() -> None:
    partition = TopicPartition("t", 0)
    wrong = FetchResponse(
        partitions=(
            FetchPartitionResponse(topic_partition=partition, diverging=EpochEnd(epoch=0, end_offset=-1)),
        )
    )
    right = FetchResponse(partitions=(FetchPartitionResponse(topic_partition=partition, high_watermark=3),))
    codec = streams.REPLICA_FETCH
    (_, refused), (_, taken) = codec.answers_from_bytes(codec.answers_to_bytes([(1, wrong), (2, right)]))
    assert isinstance(refused, wire.OutOfBounds)
    assert refused.detail.startswith("partitions[0].diverging.end_offset=-1")
    assert taken == right


def test_nested_lists_are_each_checked_with_their_own_elements() -> None:
    bounds: dict[str, Bound] = {"rows": Many(Many(Whole(0, 9), 2), 2), "name": Optional(Text(1))}
    check = compile_check(bounds)

    class Message:
        def __init__(self, rows: object, name: object) -> None:
            self.rows, self.name = rows, name

    assert check(Message(((1, 2), (3,)), None)) and check(Message((), "a"))
    for rows, name in ((((1, 10),), None), (((1, 2, 3),), None), (((),) * 3, None), ((), "ab")):
        assert not check(Message(rows, name)), (rows, name)


def test_an_answer_may_name_as_many_brokers_as_a_cluster_has() -> None:
    endpoints = tuple(BrokerEndpoint(broker_id=each, host="h", port=1) for each in range(MOST_BROKERS))
    answer = MetadataResponse(brokers=endpoints)
    assert wire.response_from_wire(wire.response_to_wire(answer)) == answer


def test_a_request_from_the_bytes_of_a_default_message_is_within_bounds() -> None:
    body = wire.request_from_wire(controller_pb2.FetchMetadataRequest.FromString(b""))
    assert isinstance(body, FetchMetadataRequest)
