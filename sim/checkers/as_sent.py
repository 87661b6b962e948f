"""What a message says: its receiver reads of the bytes what its sender has put into them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from cluster.core.connection.codec import (
    Answers,
    Calls,
    Codec,
    OutOfBounds,
    ReceivedAnswers,
    ReceivedCalls,
    StreamCodec,
    StreamRequest,
    UnaryCodec,
)
from cluster.core.messages import RequestBody, ResponseBody
from sim.checkers.base import Jury

# So many frames are known that nobody has read yet; far fewer ever are on their way.
MOST_UNREAD = 1_000
# The kind of a message, or of all in a frame, and the bytes.
Frame = tuple[object, bytes]


@final
class AsSent:
    """Judges whether messages are read as they were written: no field is lost, or taken for another, on the wire.

    A frame is known by its bytes, and by what kind of message they are. One that comes in pieces, whose bits a link has
    flipped, or that comes twice is not known, and not judged, but for this: each frame that comes as it was sent can be
    read.
    """

    name = "as-sent"

    def __init__(self, jury: Jury) -> None:
        self._jury = jury
        self._unread: dict[Frame, object] = {}

    def on_written(self, kind: object, frame: bytes, what: object) -> None:
        """Receives what a frame was made of."""
        self._unread[kind, frame] = what
        if len(self._unread) > MOST_UNREAD:
            del self._unread[next(iter(self._unread))]

    def on_unreadable(self, reader: str, reason: str) -> None:
        """Receives who could not read a frame that came as it was sent, and why."""
        self._jury.report(self.name, f"{reader} cannot read a frame that came as it was sent: {reason}")

    def on_read_all(self, kind: object, frame: bytes, received: Sequence[tuple[int, object]]) -> None:
        """Receives the numbered messages that were read from a frame of a stream."""
        sent = self._unread.pop((kind, frame), None)
        if not isinstance(sent, list) or sent == received:
            return
        if [call for call, _ in sent] != [call for call, _ in received]:
            numbers = [[call for call, _ in each] for each in (sent, received)]
            self._jury.report(self.name, f"messages {numbers[1]} were read; written were {numbers[0]}")
            return
        for (_, written), (_, read) in zip(sent, received, strict=True):
            self._judge(written, read)

    def on_read(self, frame: bytes, received: object) -> None:
        """Receives the message that was read from the frame of a call."""
        sent = self._unread.pop((type(received), frame), None)
        if sent is not None:
            self._judge(sent, received)

    def _judge(self, written: object, read: object) -> None:
        # What its receiver refuses is told there.
        if not isinstance(read, OutOfBounds) and written != read:
            self._jury.report(self.name, f"{type(written).__name__}: {_difference(written, read)}")


def _difference(written: object, read: object) -> str:
    """Returns the first field in which two messages differ, with its values, as deep as it lies."""
    if type(written) is not type(read):
        return f"{read!r} was read; written was {written!r}"
    if isinstance(written, tuple) and isinstance(read, tuple) and len(written) == len(read):
        for each, other in zip(written, read, strict=True):
            if each != other:
                return _difference(each, other)
    for name in getattr(type(written), "__match_args__", ()) or getattr(type(written), "__slots__", ()):
        each, other = getattr(written, name), getattr(read, name)
        if each != other:
            return f"{name}: {_difference(each, other)}"
    return f"{read!r} was read; written was {written!r}"


@final
class JudgedStream:
    """A stream's codec that shows what it writes and reads."""

    def __init__(self, codec: StreamCodec, frames: AsSent) -> None:
        self._codec, self._frames, self._path = codec, frames, codec.path

    @property
    def path(self) -> str:
        return self._path

    def calls_to_bytes(self, calls: Calls) -> bytes:
        frame = self._codec.calls_to_bytes(calls)
        self._frames.on_written((self._path, "calls"), frame, list(calls))
        return frame

    def calls_from_bytes(self, data: bytes) -> ReceivedCalls:
        calls = self._codec.calls_from_bytes(data)
        self._frames.on_read_all((self._path, "calls"), data, calls)
        return calls

    def answers_to_bytes(self, answers: Answers) -> bytes:
        frame = self._codec.answers_to_bytes(answers)
        self._frames.on_written((self._path, "answers"), frame, list(answers))
        return frame

    def answers_from_bytes(self, data: bytes) -> ReceivedAnswers:
        answers = self._codec.answers_from_bytes(data)
        self._frames.on_read_all((self._path, "answers"), data, answers)
        return answers


@final
class JudgedCalls:
    """The codec of unary calls that shows what it writes and reads."""

    def __init__(self, codec: UnaryCodec, frames: AsSent) -> None:
        self._codec, self._frames = codec, frames

    def path_of(self, body: RequestBody) -> str:
        return self._codec.path_of(body)

    def request_to_bytes(self, body: RequestBody) -> bytes:
        frame = self._codec.request_to_bytes(body)
        self._frames.on_written(type(body), frame, body)
        return frame

    def request_from_bytes(self, path: str, data: bytes) -> RequestBody | OutOfBounds:
        body = self._codec.request_from_bytes(path, data)
        self._frames.on_read(data, body)
        return body

    def response_to_bytes(self, body: ResponseBody) -> bytes:
        frame = self._codec.response_to_bytes(body)
        self._frames.on_written(type(body), frame, body)
        return frame

    def response_from_bytes(self, path: str, data: bytes) -> ResponseBody | OutOfBounds:
        body = self._codec.response_from_bytes(path, data)
        self._frames.on_read(data, body)
        return body


@final
class JudgedCodec:
    """The codec of all connections of a run."""

    def __init__(self, codec: Codec, frames: AsSent) -> None:
        self._codec, self._frames = codec, frames
        self.unary = JudgedCalls(codec.unary, frames)
        self._streams: dict[str, JudgedStream] = {}

    def stream_of(self, body: StreamRequest) -> JudgedStream:
        return self.stream_at(self._codec.stream_of(body).path)

    def stream_at(self, path: str) -> JudgedStream:
        stream = self._streams.get(path)
        if stream is None:
            stream = self._streams[path] = JudgedStream(self._codec.stream_at(path), self._frames)
        return stream

    def is_within_bounds(self, body: ResponseBody) -> bool:
        return self._codec.is_within_bounds(body)
