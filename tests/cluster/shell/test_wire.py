"""Every body survives the wire, and the wire knows every body."""

from __future__ import annotations

import dataclasses
import typing
from collections import Counter

import pytest
from google.protobuf.message import Message
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.core.connection.codec import Answers, Calls
from cluster.core.errors import ErrorCode
from cluster.core.messages import FetchResponse, MetadataRequest, RequestBody, ResponseBody
from cluster.rpc import common_pb2, data_pb2, methods, replica_pb2
from cluster.shell import streams, wire
from cluster.shell.wire.common import error_from_wire
from tests.cluster.shell.bounded import within

REQUESTS = typing.get_args(RequestBody)
RESPONSES = typing.get_args(ResponseBody)
_FILES = (common_pb2.DESCRIPTOR, *methods.FILES)
_DESCRIPTORS = {name: message for file in _FILES for name, message in file.message_types_by_name.items()}


def through_bytes(message: Message) -> Message:
    return type(message).FromString(message.SerializeToString())


def test_the_tables_hold_exactly_the_bodies_that_there_are_and_each_once() -> None:
    assert Counter(pair.body for pair in wire.REQUESTS) == Counter(REQUESTS)
    assert Counter(pair.body for pair in wire.RESPONSES) == Counter(RESPONSES)
    for pair in (*wire.REQUESTS, *wire.RESPONSES):
        assert pair.message.DESCRIPTOR.name == pair.body.__name__


@pytest.mark.parametrize("cls", REQUESTS, ids=lambda cls: cls.__name__)
def test_every_request_survives_the_wire(cls: type) -> None:
    @settings(max_examples=25, deadline=None)
    @given(within(cls))
    def round_trip(body: RequestBody) -> None:
        assert wire.request_from_wire(through_bytes(wire.request_to_wire(body))) == body

    round_trip()


@pytest.mark.parametrize("cls", RESPONSES, ids=lambda cls: cls.__name__)
def test_every_response_survives_the_wire(cls: type) -> None:
    @settings(max_examples=25, deadline=None)
    @given(within(cls))
    def round_trip(body: ResponseBody) -> None:
        assert wire.response_from_wire(through_bytes(wire.response_to_wire(body))) == body

    round_trip()


@pytest.mark.parametrize("codec", streams.STREAMS.values(), ids=lambda codec: codec.path)
def test_a_list_of_a_stream_survives_in_its_order_under_its_calls(codec: streams.StreamCodec) -> None:
    @settings(max_examples=25, deadline=None)
    @given(_listed(codec.request), _listed(codec.response))
    def round_trip(calls: Calls, answers: Answers) -> None:
        assert codec.calls_from_bytes(codec.calls_to_bytes(calls)) == calls
        assert codec.answers_from_bytes(codec.answers_to_bytes(answers)) == answers

    round_trip()


def _listed(cls: type) -> st.SearchStrategy[list[tuple[int, object]]]:
    return st.lists(st.tuples(st.integers(0, (1 << 31) - 1), within(cls)), max_size=3)


def test_every_dataclass_field_has_a_wire_field_of_its_name() -> None:
    for cls in (*REQUESTS, *RESPONSES):
        ours = [field.name for field in dataclasses.fields(cls)]
        theirs = list(_DESCRIPTORS[cls.__name__].fields_by_name)
        assert sorted(ours) == sorted(theirs), cls.__name__


def test_every_error_code_is_on_the_wire_under_kafkas_number() -> None:
    assert {code.name: int(code) for code in ErrorCode} == dict(common_pb2.ErrorCode.items())


def test_an_error_of_a_newer_peer_is_unknown_but_never_none() -> None:
    assert error_from_wire(119) is ErrorCode.UNKNOWN_SERVER_ERROR
    unknown = replica_pb2.FetchResponse.FromString(b"\x08\x77")
    assert wire.response_from_wire(unknown) == FetchResponse(error=ErrorCode.UNKNOWN_SERVER_ERROR)


def test_all_topics_and_no_topic_are_different_questions() -> None:
    everything, nothing = MetadataRequest(topics=None), MetadataRequest(topics=())
    assert wire.request_to_wire(everything) != wire.request_to_wire(nothing)
    assert wire.request_from_wire(through_bytes(wire.request_to_wire(nothing))) == nothing


def test_a_message_that_is_no_body_is_refused() -> None:
    with pytest.raises(wire.UnknownMessage):
        wire.request_from_wire(common_pb2.TopicPartition(topic="t"))
    with pytest.raises(wire.UnknownMessage):
        wire.response_from_wire(data_pb2.ProduceCalls())


def test_each_unary_request_has_one_method_and_streams_are_the_three_known() -> None:
    streamed = {"FetchRequest", "ProduceRequest"}
    unary = {cls.__name__ for cls in REQUESTS} - streamed
    assert {request.__name__ for request in methods.UNARY_BY_REQUEST} == unary
    streamed_paths = {path for path, method in methods.BY_PATH.items() if method.is_stream}
    assert streamed_paths == {methods.PRODUCE, methods.CONSUMER_FETCH, methods.REPLICA_FETCH}
