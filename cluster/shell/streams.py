"""The codec of connections: the three streams (produce, consumer fetch, replica fetch) and the unary calls.

A frame of a stream is a list of (call, body) pairs: one protobuf message carries all calls or answers that were waiting
when it was written. A pair names its call, so answers may come in any order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar, final

from google.protobuf.message import DecodeError, Message

from cluster.core.connection.codec import (
    Answers,
    Calls,
    Malformed,
    OutOfBounds,
    ReceivedAnswers,
    ReceivedCalls,
    StreamRequest,
    StreamResponse,
)
from cluster.core.connection.pieces import MOST_FRAME_BYTES
from cluster.core.messages import (
    FetchRequest,
    FetchResponse,
    ProduceRequest,
    ProduceResponse,
    RequestBody,
    ResponseBody,
)
from cluster.rpc import data_pb2, methods, replica_pb2
from cluster.rpc.methods import UNARY_BY_REQUEST
from cluster.shell import wire
from cluster.shell.wire.elements import MOST_ELEMENTS, UNCOUNTED_FRAME_BYTES, check_elements, too_many
from cluster.shell.wire.fetch import (
    fetch_request_from_wire,
    fetch_response_from_wire,
    fill_fetch_request,
    fill_fetch_response,
)
from cluster.shell.wire.framing import Framing, Lifted, with_records
from cluster.shell.wire.limits import out_of_bounds
from cluster.shell.wire.produce import (
    fill_produce_request,
    fill_produce_response,
    produce_request_from_wire,
    produce_response_from_wire,
)

# The most bytes of an answer, and of a request, which comes in pieces where it is large.
MAX_MESSAGE_BYTES = MOST_FRAME_BYTES


def why_refused(frame: bytes) -> str:
    """Returns why a frame is not sent, as gRPC says it of a unary call; an empty text for a frame that may be."""
    if len(frame) <= MAX_MESSAGE_BYTES:
        return ""
    return f"RESOURCE_EXHAUSTED: a message of {len(frame)} bytes is above the limit of {MAX_MESSAGE_BYTES}"


Wire = TypeVar("Wire", bound=Message)
_NOTHING: Lifted = {}


def _parse(message: type[Wire], data: bytes) -> Wire:
    """Returns the message in `data`. Raises Malformed."""
    try:
        return message.FromString(data)
    except DecodeError as error:
        raise Malformed(f"{len(data)} bytes are no {message.__name__}: {error}") from error


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class StreamCodec:
    """Converts one stream's lists to bytes and back: its message classes, and the functions that fill and read them."""

    path: str
    request: type[StreamRequest]
    response: type[StreamResponse]
    call_list: type[replica_pb2.FetchCalls] | type[data_pb2.ProduceCalls]
    answer_list: type[replica_pb2.FetchAnswers] | type[data_pb2.ProduceAnswers]
    # Each returns whether it has left out large records, for the framing to put in.
    fill_request: Callable[..., bool | None]
    fill_response: Callable[..., bool | None]
    request_from_wire: Callable[..., StreamRequest]
    response_from_wire: Callable[..., StreamResponse]

    # Absent where the bodies have no records.
    request_framing: Framing | None = None
    response_framing: Framing | None = None

    def calls_to_bytes(self, calls: Calls) -> bytes:
        """Returns the calls as one serialised message."""
        message, is_light = self.call_list(), False
        items = message.calls
        for call, body in calls:
            assert isinstance(body, self.request), body
            item = items.add()
            item.call = call
            if self.fill_request(item.request, body):
                is_light = True
        frame = message.SerializeToString()
        if not is_light:
            return frame
        assert self.request_framing is not None, self.path
        return self.request_framing.join(frame, calls)

    def calls_from_bytes(self, data: bytes) -> ReceivedCalls:
        """Returns the calls of a serialised message, each with its body or with what is out of bounds in it."""
        check_elements(self.call_list, data, UNCOUNTED_FRAME_BYTES)
        framing, light, lifted = self.request_framing, data, _NOTHING
        if framing is not None and len(data) >= framing.least_bytes:
            light, lifted = framing.part(data)
        received: list[tuple[int, StreamRequest | OutOfBounds]] = []
        items = _parse(self.call_list, light).calls
        if len(items) + sum([len(item.request.partitions) for item in items]) > MOST_ELEMENTS:
            raise too_many(self.call_list, data)
        for item in items:
            body = self.request_from_wire(item.request)
            if lifted:
                body = with_records(body, lifted.get(len(received)))
            received.append((item.call, out_of_bounds(body) or body))
        return received

    def answers_to_bytes(self, answers: Answers) -> bytes:
        """Returns the answers as one serialised message."""
        message, is_light = self.answer_list(), False
        items = message.answers
        for call, body in answers:
            assert isinstance(body, self.response), body
            item = items.add()
            item.call = call
            if self.fill_response(item.response, body):
                is_light = True
        frame = message.SerializeToString()
        if not is_light:
            return frame
        assert self.response_framing is not None, self.path
        return self.response_framing.join(frame, answers)

    def answers_from_bytes(self, data: bytes) -> ReceivedAnswers:
        """Returns the answers of a serialised message, each with its body or with what is out of bounds in it."""
        framing, light, lifted = self.response_framing, data, _NOTHING
        if framing is not None and len(data) >= framing.least_bytes:
            light, lifted = framing.part(data)
        received: list[tuple[int, StreamResponse | OutOfBounds]] = []
        for item in _parse(self.answer_list, light).answers:
            body = self.response_from_wire(item.response)
            if lifted:
                body = with_records(body, lifted.get(len(received)))
            received.append((item.call, out_of_bounds(body) or body))
        return received


REPLICA_FETCH = StreamCodec(
    path=methods.REPLICA_FETCH,
    request=FetchRequest,
    response=FetchResponse,
    call_list=replica_pb2.FetchCalls,
    answer_list=replica_pb2.FetchAnswers,
    fill_request=fill_fetch_request,
    fill_response=fill_fetch_response,
    request_from_wire=fetch_request_from_wire,
    response_from_wire=fetch_response_from_wire,
    response_framing=Framing(partitions=2, records=9),
)
CONSUMER_FETCH = replace(REPLICA_FETCH, path=methods.CONSUMER_FETCH)
PRODUCE = StreamCodec(
    path=methods.PRODUCE,
    request=ProduceRequest,
    response=ProduceResponse,
    call_list=data_pb2.ProduceCalls,
    answer_list=data_pb2.ProduceAnswers,
    fill_request=fill_produce_request,
    fill_response=fill_produce_response,
    request_from_wire=produce_request_from_wire,
    response_from_wire=produce_response_from_wire,
    request_framing=Framing(partitions=3, records=2),
)
STREAMS: dict[str, StreamCodec] = {codec.path: codec for codec in (PRODUCE, CONSUMER_FETCH, REPLICA_FETCH)}


def parting(codec: StreamCodec, large_bytes: int) -> StreamCodec:
    """Returns the codec with records of `large_bytes` and more as large ones: the same bytes, made in another way."""
    request, response = codec.request_framing, codec.response_framing
    if request is not None:
        fill = partial(codec.fill_request, large_bytes=large_bytes)
        return replace(codec, fill_request=fill, request_framing=replace(request, least_bytes=large_bytes))
    assert response is not None, codec.path
    fill = partial(codec.fill_response, large_bytes=large_bytes)
    return replace(codec, fill_response=fill, response_framing=replace(response, least_bytes=large_bytes))


@final
class UnaryCodec:
    """Converts the messages of unary calls to bytes and back, by the tables of the services and of the bodies."""

    def path_of(self, body: RequestBody) -> str:
        return _PATHS[type(body)]

    def request_to_bytes(self, body: RequestBody) -> bytes:
        return wire.request_to_wire(body).SerializeToString()

    def request_from_bytes(self, path: str, data: bytes) -> RequestBody | OutOfBounds:
        """Returns the request in `data`, or what is out of bounds in it. Raises Malformed."""
        message = methods.BY_PATH[path].request
        check_elements(message, data)
        try:
            return wire.request_from_wire(_parse(message, data))
        except OutOfBounds as refused:
            return refused

    def response_to_bytes(self, body: ResponseBody) -> bytes:
        return wire.response_to_wire(body).SerializeToString()

    def response_from_bytes(self, path: str, data: bytes) -> ResponseBody | OutOfBounds:
        try:
            return wire.response_from_wire(_parse(methods.BY_PATH[path].response, data))
        except OutOfBounds as refused:
            return refused


# The method of each request that travels alone.
_PATHS: dict[type, str] = {
    pair.body: UNARY_BY_REQUEST[pair.message].path
    for pair in wire.REQUESTS
    if pair.message in UNARY_BY_REQUEST
}


@final
class Codec:
    """Everything that a connection needs to know of protobuf."""

    def __init__(self, streams: Mapping[str, StreamCodec] = STREAMS) -> None:
        self.unary = UnaryCodec()
        self._streams = streams

    def stream_of(self, body: StreamRequest) -> StreamCodec:
        """Returns the stream of a request. Followers and consumers have one each: neither waits for the other."""
        if isinstance(body, ProduceRequest):
            return self._streams[methods.PRODUCE]
        return self._streams[methods.REPLICA_FETCH if body.replica_id >= 0 else methods.CONSUMER_FETCH]

    def stream_at(self, path: str) -> StreamCodec:
        return self._streams[path]

    def is_within_bounds(self, body: ResponseBody) -> bool:
        return out_of_bounds(body) is None


CODEC = Codec()
