"""The three streams (produce, consumer fetch, replica fetch) as lists of (call, body) pairs.

One protobuf message carries all calls or answers that were waiting when it was written: under load this merges
acknowledgements, at rest a message holds one pair. A pair names its call, so answers may come in any order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar, final

from cluster.core.messages import FetchRequest, FetchResponse, ProduceRequest, ProduceResponse
from cluster.rpc import data_pb2, methods, replica_pb2
from cluster.shell.wire.fetch import (
    fetch_request_from_wire,
    fetch_response_from_wire,
    fill_fetch_request,
    fill_fetch_response,
)
from cluster.shell.wire.limits import OutOfBounds, out_of_bounds
from cluster.shell.wire.produce import (
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
# As they are received: what is out of bounds stands in the place of its body.
ReceivedCalls = list[tuple[int, StreamRequest | OutOfBounds]]
ReceivedAnswers = list[tuple[int, StreamResponse | OutOfBounds]]

# gRPC's default is 4 MiB, overhead included: too little for one large batch.
MAX_MESSAGE_BYTES = 64 << 20
# A message takes no further pair that would bring its records above this size; one pair alone may be larger.
MERGE_BYTES = 4 << 20
MERGE_PAIRS = 64


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class StreamCodec:
    """Converts one stream's lists to bytes and back: its message classes, and the functions that fill and read them.

    Its four methods are the serialisers and deserialisers that gRPC calls.
    """

    path: str
    request: type[StreamRequest]
    response: type[StreamResponse]
    call_list: type[replica_pb2.FetchCalls] | type[data_pb2.ProduceCalls]
    answer_list: type[replica_pb2.FetchAnswers] | type[data_pb2.ProduceAnswers]
    fill_request: Callable[..., None]
    fill_response: Callable[..., None]
    request_from_wire: Callable[..., StreamRequest]
    response_from_wire: Callable[..., StreamResponse]

    def calls_to_bytes(self, calls: Calls) -> bytes:
        """Returns the calls as one serialised message."""
        message = self.call_list()
        for call, body in calls:
            assert isinstance(body, self.request), body
            item = message.calls.add()
            item.call = call
            self.fill_request(item.request, body)
        return message.SerializeToString()

    def calls_from_bytes(self, data: bytes) -> ReceivedCalls:
        """Returns the calls of a serialised message, each with its body or with what is out of bounds in it."""
        received: ReceivedCalls = []
        for item in self.call_list.FromString(data).calls:
            body = self.request_from_wire(item.request)
            received.append((item.call, out_of_bounds(body) or body))
        return received

    def answers_to_bytes(self, answers: Answers) -> bytes:
        """Returns the answers as one serialised message."""
        message = self.answer_list()
        for call, body in answers:
            assert isinstance(body, self.response), body
            item = message.answers.add()
            item.call = call
            self.fill_response(item.response, body)
        return message.SerializeToString()

    def answers_from_bytes(self, data: bytes) -> ReceivedAnswers:
        """Returns the answers of a serialised message, each with its body or with what is out of bounds in it."""
        received: ReceivedAnswers = []
        for item in self.answer_list.FromString(data).answers:
            body = self.response_from_wire(item.response)
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
)
CODECS: dict[str, StreamCodec] = {codec.path: codec for codec in (PRODUCE, CONSUMER_FETCH, REPLICA_FETCH)}


def codec_of(body: StreamRequest) -> StreamCodec:
    """Returns the stream of a request. Followers and consumers have one each: neither waits for the other."""
    if isinstance(body, ProduceRequest):
        return PRODUCE
    return REPLICA_FETCH if body.replica_id >= 0 else CONSUMER_FETCH


def record_bytes(body: StreamRequest | StreamResponse) -> int:
    """Returns the size of the records in a body: 0 for a fetch request and a produce response."""
    match body:
        case ProduceRequest() | FetchResponse():
            return sum(len(partition.records) for partition in body.partitions)
        case _:
            return 0


def take_merged(waiting: deque[tuple[int, Body]]) -> list[tuple[int, Body]]:
    """Removes from `waiting` and returns the oldest pairs that fit into one message, at least one."""
    assert waiting, "nothing to send"
    merged = [waiting.popleft()]
    size_bytes = record_bytes(merged[0][1])
    while waiting and len(merged) < MERGE_PAIRS:
        size_bytes += record_bytes(waiting[0][1])
        if size_bytes > MERGE_BYTES:
            break
        merged.append(waiting.popleft())
    return merged
