"""The three streams (produce, consumer fetch, replica fetch) as lists of (call, body) pairs.

One protobuf message carries every call or answer that was waiting when it was written: under load this merges
acknowledgements, at rest a pair travels alone. A pair names its call, so answers come back in any order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from cluster.messages import FetchRequest, FetchResponse, ProduceRequest, ProduceResponse
from cluster.rpc import data_pb2, methods, replica_pb2
from cluster.wire_fetch import (
    fetch_request_from_wire,
    fetch_response_from_wire,
    fill_fetch_request,
    fill_fetch_response,
)
from cluster.wire_produce import (
    fill_produce_request,
    fill_produce_response,
    produce_request_from_wire,
    produce_response_from_wire,
)

StreamRequest = FetchRequest | ProduceRequest
StreamResponse = FetchResponse | ProduceResponse
Body = TypeVar("Body", StreamRequest, StreamResponse)
Calls = list[tuple[int, StreamRequest]]
Answers = list[tuple[int, StreamResponse]]

MAX_MESSAGE_BYTES = 64 << 20  # gRPC's own default is 4 MiB, overhead included
MERGE_BYTES = 4 << 20  # a message is closed once it holds this much; one pair alone may be larger
MERGE_PAIRS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamCodec:
    """How one stream's lists become bytes; what gRPC calls serialisers."""

    path: str
    calls_to_bytes: Callable[[Calls], bytes]
    calls_from_bytes: Callable[[bytes], Calls]
    answers_to_bytes: Callable[[Answers], bytes]
    answers_from_bytes: Callable[[bytes], Answers]


def _fetch_calls_to_bytes(calls: Calls) -> bytes:
    message = replica_pb2.FetchCalls()
    for call, body in calls:
        assert isinstance(body, FetchRequest), body
        item = message.calls.add()
        item.call = call
        fill_fetch_request(item.request, body)
    return message.SerializeToString()


def _fetch_calls_from_bytes(data: bytes) -> Calls:
    calls = replica_pb2.FetchCalls.FromString(data).calls
    return [(item.call, fetch_request_from_wire(item.request)) for item in calls]


def _fetch_answers_to_bytes(answers: Answers) -> bytes:
    message = replica_pb2.FetchAnswers()
    for call, body in answers:
        assert isinstance(body, FetchResponse), body
        item = message.answers.add()
        item.call = call
        fill_fetch_response(item.response, body)
    return message.SerializeToString()


def _fetch_answers_from_bytes(data: bytes) -> Answers:
    answers = replica_pb2.FetchAnswers.FromString(data).answers
    return [(item.call, fetch_response_from_wire(item.response)) for item in answers]


def _produce_calls_to_bytes(calls: Calls) -> bytes:
    message = data_pb2.ProduceCalls()
    for call, body in calls:
        assert isinstance(body, ProduceRequest), body
        item = message.calls.add()
        item.call = call
        fill_produce_request(item.request, body)
    return message.SerializeToString()


def _produce_calls_from_bytes(data: bytes) -> Calls:
    calls = data_pb2.ProduceCalls.FromString(data).calls
    return [(item.call, produce_request_from_wire(item.request)) for item in calls]


def _produce_answers_to_bytes(answers: Answers) -> bytes:
    message = data_pb2.ProduceAnswers()
    for call, body in answers:
        assert isinstance(body, ProduceResponse), body
        item = message.answers.add()
        item.call = call
        fill_produce_response(item.response, body)
    return message.SerializeToString()


def _produce_answers_from_bytes(data: bytes) -> Answers:
    answers = data_pb2.ProduceAnswers.FromString(data).answers
    return [(item.call, produce_response_from_wire(item.response)) for item in answers]


def _fetch_codec(path: str) -> StreamCodec:
    return StreamCodec(
        path=path,
        calls_to_bytes=_fetch_calls_to_bytes,
        calls_from_bytes=_fetch_calls_from_bytes,
        answers_to_bytes=_fetch_answers_to_bytes,
        answers_from_bytes=_fetch_answers_from_bytes,
    )


REPLICA_FETCH = _fetch_codec(methods.REPLICA_FETCH)
CONSUMER_FETCH = _fetch_codec(methods.CONSUMER_FETCH)
PRODUCE = StreamCodec(
    path=methods.PRODUCE,
    calls_to_bytes=_produce_calls_to_bytes,
    calls_from_bytes=_produce_calls_from_bytes,
    answers_to_bytes=_produce_answers_to_bytes,
    answers_from_bytes=_produce_answers_from_bytes,
)
CODECS: dict[str, StreamCodec] = {codec.path: codec for codec in (PRODUCE, CONSUMER_FETCH, REPLICA_FETCH)}


def codec_of(body: StreamRequest) -> StreamCodec:
    """Followers and consumers have a stream each, so that neither waits behind the other's records."""
    if isinstance(body, ProduceRequest):
        return PRODUCE
    return REPLICA_FETCH if body.replica_id >= 0 else CONSUMER_FETCH


def record_bytes(body: StreamRequest | StreamResponse) -> int:
    match body:
        case ProduceRequest() | FetchResponse():
            return sum(len(partition.records) for partition in body.partitions)
        case _:
            return 0


def take_merged(waiting: deque[tuple[int, Body]]) -> list[tuple[int, Body]]:
    """The oldest waiting pairs that go into one message, at least one; they leave `waiting`."""
    assert waiting
    merged = [waiting.popleft()]
    size_bytes = record_bytes(merged[0][1])
    while waiting and len(merged) < MERGE_PAIRS:
        size_bytes += record_bytes(waiting[0][1])
        if size_bytes > MERGE_BYTES:
            break
        merged.append(waiting.popleft())
    return merged
