"""The port through which a connection turns messages into bytes, and what it may receive instead of a message.

A connection has three streams (produce, consumer fetch, replica fetch), each with frames of several calls or answers,
and unary calls, each with one frame for its request and one for its answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, final

from cluster.core.errors import ErrorCode
from cluster.core.messages import (
    FetchRequest,
    FetchResponse,
    ProduceRequest,
    ProduceResponse,
    RequestBody,
    ResponseBody,
)

StreamRequest = FetchRequest | ProduceRequest
StreamResponse = FetchResponse | ProduceResponse
# Each with the number that its sender gave to the call.
Calls = Sequence[tuple[int, StreamRequest]]
Answers = Sequence[tuple[int, StreamResponse]]

# The bodies that travel on streams; a constant, because a union written in a check would be built for each message.
STREAM_REQUESTS = (FetchRequest, ProduceRequest)
STREAM_RESPONSES = (FetchResponse, ProduceResponse)


@final
class OutOfBounds(Exception):
    """A received message with a field outside its bounds. `code` is the error for its sender, `detail` says in words
    which field it is.
    """

    def __init__(self, body: RequestBody | ResponseBody, code: ErrorCode, detail: str) -> None:
        super().__init__(f"{type(body).__name__}: {detail}")
        self.body, self.code, self.detail = body, code, detail


@final
class Malformed(Exception):
    """Received bytes that are no frame; the stream or call that brought them ends."""


# As they are received: what is out of bounds stands in the place of its body.
ReceivedCalls = Sequence[tuple[int, StreamRequest | OutOfBounds]]
ReceivedAnswers = Sequence[tuple[int, StreamResponse | OutOfBounds]]


class StreamCodec(Protocol):
    """The frames of one kind of stream. Whatever reads bytes raises Malformed for what is no frame."""

    @property
    def path(self) -> str:
        """The name of the stream on the wire."""

    def calls_to_bytes(self, calls: Calls) -> bytes: ...

    def calls_from_bytes(self, data: bytes) -> ReceivedCalls: ...

    def answers_to_bytes(self, answers: Answers) -> bytes: ...

    def answers_from_bytes(self, data: bytes) -> ReceivedAnswers: ...


class UnaryCodec(Protocol):
    """The frames of unary calls. Whatever reads bytes raises Malformed for what is no frame."""

    def path_of(self, body: RequestBody) -> str:
        """Returns the name of the method that takes this request."""

    def request_to_bytes(self, body: RequestBody) -> bytes: ...

    def request_from_bytes(self, path: str, data: bytes) -> RequestBody | OutOfBounds: ...

    def response_to_bytes(self, body: ResponseBody) -> bytes: ...

    def response_from_bytes(self, path: str, data: bytes) -> ResponseBody | OutOfBounds: ...


class Codec(Protocol):
    """Everything that a connection needs to know of bytes."""

    @property
    def unary(self) -> UnaryCodec: ...

    def stream_of(self, body: StreamRequest) -> StreamCodec:
        """Returns the stream on which a request travels."""

    def stream_at(self, path: str) -> StreamCodec:
        """Returns the stream with this name."""

    def is_within_bounds(self, body: ResponseBody) -> bool:
        """Whether the receiver of this answer would accept it."""
