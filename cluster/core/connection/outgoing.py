"""The side of a connection that sends requests: its calls in flight by number, and their deadlines.

A stream ends by any failure, also by the time-out of one call, and fails all its calls then, as Kafka's client closes
the connection: it is unknown which of the other calls were lost too. A unary call fails alone.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import final

from cluster.core.connection.codec import Codec, OutOfBounds, StreamCodec, StreamRequest, UnaryCodec
from cluster.core.connection.merging import MERGE_CALLS_BYTES, take_merged
from cluster.core.connection.pieces import PIECE_BYTES, cut
from cluster.core.effects import Send
from cluster.core.events import TransportError
from cluster.core.messages import RequestBody, ResponseBody

Answer = ResponseBody | TransportError
# What ended, each with the number of its call.
Ended = list[tuple[int, Answer]]
# Later than any time.
NEVER_MS = 1 << 62
# The unary calls of one method that a peer has at a time. A gRPC server refuses calls above its limit of a connection
# (REFUSED_STREAM) where the client does not know the limit yet; ours takes 512, which all methods of a node stay below.
MOST_OF_A_METHOD = 32


@final
class Deadlines:
    """The calls without an answer, in order of sending, each with its deadline.

    `alarm_ms` is when `overdue` should be asked next, NEVER_MS for not at all. It may be too early, because the call
    that set it is mostly answered by then.
    """

    __slots__ = ("_calls", "alarm_ms")

    def __init__(self) -> None:
        self._calls: dict[int, tuple[int, int]] = {}
        self.alarm_ms = NEVER_MS

    def __len__(self) -> int:
        return len(self._calls)

    def add(self, now_ms: int, call: int, timeout_ms: int) -> None:
        """Adds a call that is sent now."""
        assert call not in self._calls, call
        deadline_ms = now_ms + timeout_ms
        self._calls[call] = (deadline_ms, timeout_ms)
        if deadline_ms < self.alarm_ms:
            self.alarm_ms = deadline_ms

    def remove(self, call: int) -> bool:
        """Removes a call that has ended. Returns whether it was there."""
        return self._calls.pop(call, None) is not None

    def take_all(self) -> list[int]:
        """Removes and returns all calls."""
        calls, self._calls, self.alarm_ms = list(self._calls), {}, NEVER_MS
        return calls

    def overdue(self, now_ms: int) -> list[tuple[int, int]]:
        """Returns the calls whose time is over, each with its timeout in ms, and sets the alarm for the others."""
        late = [
            (call, timeout_ms)
            for call, (deadline_ms, timeout_ms) in self._calls.items()
            if deadline_ms <= now_ms
        ]
        left = [deadline_ms for deadline_ms, _ in self._calls.values() if deadline_ms > now_ms]
        self.alarm_ms = min(left, default=NEVER_MS)
        assert self.alarm_ms > now_ms, (self.alarm_ms, now_ms)
        return late


def _no_answer(timeout_ms: int) -> str:
    return f"no answer in {timeout_ms} ms"


def _usable(body: ResponseBody | OutOfBounds) -> Answer:
    """Returns an answer as the core gets it. One out of bounds ends its own call, and others go on."""
    if isinstance(body, OutOfBounds):
        return TransportError(reason=f"the answer is out of bounds: {body}")
    return body


@final
class OutgoingStream:
    """One stream to a peer, until it ends. Each call gets exactly one answer, from one of the methods that return them.

    The shell writes a frame (`next_frame`), then says `on_written`, and asks again. `codec` has the stream's name.
    """

    def __init__(self, codec: StreamCodec) -> None:
        self.codec = codec
        # The most bytes of a message to the peer: a frame that is larger is sent in pieces.
        self.piece_bytes = PIECE_BYTES
        # What a frame takes of the waiting calls, but for the first.
        self.frame_bytes = MERGE_CALLS_BYTES
        self.is_open = True
        # Whether nothing is sent any more; the peer is told so once all is written.
        self.is_finishing = False
        self.has_sent_silent = False
        self._waiting: deque[tuple[int, StreamRequest]] = deque()
        self._unanswered = Deadlines()
        # The waiting calls that expect no reply, and those in the frame being written: they end when it is written.
        self._silent: set[int] = set()
        self._writing: list[int] = []
        # The pieces of that frame that are not written yet.
        self._pieces: deque[bytes] = deque()

    @property
    def alarm_ms(self) -> int:
        """When `on_time` should be called next."""
        return self._unanswered.alarm_ms

    @property
    def in_flight(self) -> int:
        """How many calls have not ended."""
        return len(self._unanswered)

    @property
    def has_frame(self) -> bool:
        return bool(self._waiting or self._pieces)

    def send(
        self, now_ms: int, call: int, body: StreamRequest, *, timeout_ms: int, expects_reply: bool
    ) -> None:
        """Queues a call for the next frame. Without a reply expected, it ends once it is written."""
        assert self.is_open, call
        assert not self.is_finishing, call
        self._unanswered.add(now_ms, call, timeout_ms)
        if not expects_reply:
            self._silent.add(call)
            self.has_sent_silent = True
        self._waiting.append((call, body))

    def next_frame(self) -> bytes | None:
        """Returns the bytes of the oldest waiting calls, as many as belong into one frame; None if none waits.

        Of a large frame it returns one piece after the other.
        """
        if self._pieces:
            return self._pieces.popleft()
        if not self._waiting:
            return None
        assert not self._writing, self._writing
        merged = take_merged(self._waiting, self.frame_bytes)
        if self._silent:
            self._writing = [call for call, _ in merged if call in self._silent]
        frame = self.codec.calls_to_bytes(merged)
        if len(frame) > self.piece_bytes:
            self._pieces.extend(cut(frame, self.piece_bytes))
            return self._pieces.popleft()
        return frame

    def on_written(self) -> list[int]:
        """Ends the calls of the last frame that expect no reply, once it is written whole. Returns them."""
        if self._pieces:
            return []
        written, self._writing = self._writing, []
        for call in written:
            self._silent.discard(call)
            self._unanswered.remove(call)
        return written

    def on_frame(self, data: bytes) -> Ended:
        """Returns the answers in a frame of the peer; an answer to a call that has ended is dropped."""
        answers = self.codec.answers_from_bytes(data)
        return [(call, _usable(body)) for call, body in answers if self._unanswered.remove(call)]

    def on_time(self, now_ms: int) -> Ended:
        """Ends the stream if a call is overdue; else sets the alarm for the earliest call without an answer."""
        late = self._unanswered.overdue(now_ms) if self.is_open else []
        return self.end(_no_answer(late[0][1])) if late else []

    def end(self, reason: str) -> Ended:
        """Ends the stream and fails every call in flight. An ended stream stays as it is."""
        if not self.is_open:
            return []
        self.is_open = False
        self._waiting.clear()
        self._silent.clear()
        self._writing = []
        self._pieces.clear()
        failed: Ended = [(call, TransportError(reason=reason)) for call in self._unanswered.take_all()]
        assert self.in_flight == 0, self.in_flight
        return failed

    def finish(self) -> None:
        """Sends nothing any more: once `has_frame` is false, the peer is told so."""
        assert self.is_open, "finished after its end"
        assert not self.is_finishing, "finished twice"
        self.is_finishing = True


@final
class UnaryCalls:
    """The unary calls to a peer: no order among them, and each fails alone.

    At most `most_of_a_method` calls of one method are with the peer; the others of that method wait here for a place,
    while their deadlines run. So a heartbeat does not wait for proposals. The shell takes `next_call` after each call
    that it sends, and after each that ends.
    """

    def __init__(self, codec: UnaryCodec, most_of_a_method: int = MOST_OF_A_METHOD) -> None:
        assert most_of_a_method > 0, most_of_a_method
        self._codec, self._most_of_a_method = codec, most_of_a_method
        self._unanswered = Deadlines()
        # The method of each call that has not ended.
        self._paths: dict[int, str] = {}
        # By method: how many calls have a place, and the calls without one, in order.
        self._places: dict[str, int] = {}
        self._waiting: dict[str, OrderedDict[int, RequestBody]] = {}
        # The calls that have a place and that the shell has not taken yet, in order.
        self._ready: OrderedDict[int, RequestBody] = OrderedDict()

    @property
    def alarm_ms(self) -> int:
        """When `on_time` should be called next."""
        return self._unanswered.alarm_ms

    @property
    def in_flight(self) -> int:
        """How many calls have not ended."""
        return len(self._unanswered)

    @property
    def has_next(self) -> bool:
        """Whether `next_call` has a call."""
        return bool(self._ready)

    def send(self, now_ms: int, call: int, body: RequestBody, timeout_ms: int) -> None:
        """Queues a call for `next_call`. Its time begins now, however long it waits for a place."""
        path = self._codec.path_of(body)
        self._unanswered.add(now_ms, call, timeout_ms)
        self._paths[call] = path
        self._waiting.setdefault(path, OrderedDict())[call] = body
        self._give_places(path)

    def next_call(self) -> tuple[int, str, bytes] | None:
        """Returns the next call that the peer may have, with its method's name and the frame of its request."""
        if not self._ready:
            return None
        call, body = self._ready.popitem(last=False)
        return call, self._paths[call], self._codec.request_to_bytes(body)

    def on_frame(self, call: int, data: bytes) -> Answer | None:
        """Returns the answer in a frame of the peer; None where the call has ended."""
        path = self._paths.get(call)
        if path is None:
            return None
        answer = _usable(self._codec.response_from_bytes(path, data))
        self._remove(call)
        return answer

    def fail(self, call: int, reason: str) -> TransportError | None:
        """Ends a call without an answer; returns None where it has ended."""
        return TransportError(reason=reason) if self._remove(call) else None

    def on_time(self, now_ms: int) -> Ended:
        """Ends the calls that are overdue."""
        failed: Ended = []
        for call, timeout_ms in self._unanswered.overdue(now_ms):
            self._remove(call)
            failed.append((call, TransportError(reason=_no_answer(timeout_ms))))
        return failed

    def end(self, reason: str) -> Ended:
        """Fails every call in flight."""
        self._paths.clear()
        self._places.clear()
        self._waiting.clear()
        self._ready.clear()
        return [(call, TransportError(reason=reason)) for call in self._unanswered.take_all()]

    def _give_places(self, path: str) -> None:
        """Passes the free places of a method to the calls that wait for one, the oldest first."""
        waiting, taken = self._waiting[path], self._places.get(path, 0)
        while waiting and taken < self._most_of_a_method:
            call, body = waiting.popitem(last=False)
            self._ready[call] = body
            taken += 1
        assert taken <= self._most_of_a_method, (path, taken)
        self._places[path] = taken

    def _remove(self, call: int) -> bool:
        """Removes a call that has ended, and passes its place on. Returns whether it was there."""
        was_there = self._unanswered.remove(call)
        path = self._paths.pop(call, None)
        assert was_there == (path is not None), call
        if path is None:
            return False
        if self._waiting[path].pop(call, None) is None:
            self._ready.pop(call, None)
            self._places[path] -= 1
            assert self._places[path] >= 0, (path, call)
            self._give_places(path)
        return True


@final
class Outgoing:
    """All calls of this process to one peer: a stream of each kind, begun again after its end, and the unary calls."""

    def __init__(self, codec: Codec, most_of_a_method: int = MOST_OF_A_METHOD) -> None:
        self._codec = codec
        self.unary = UnaryCalls(codec.unary, most_of_a_method)
        self._streams: dict[str, OutgoingStream] = {}

    @property
    def streams(self) -> list[OutgoingStream]:
        """The streams that are open."""
        return [stream for stream in self._streams.values() if stream.is_open]

    def send_on_stream(self, now_ms: int, effect: Send, body: StreamRequest) -> OutgoingStream:
        """Queues a call on its stream, and begins the stream if it is not open. Returns the stream."""
        codec = self._codec.stream_of(body)
        stream = self._streams.get(codec.path)
        if stream is None or not stream.is_open:
            stream = self._streams[codec.path] = OutgoingStream(codec)
        stream.send(
            now_ms, effect.call, body, timeout_ms=effect.timeout_ms, expects_reply=effect.expects_reply
        )
        return stream

    def end(self, reason: str) -> Ended:
        """Ends all streams and calls."""
        failed = [each for stream in self._streams.values() for each in stream.end(reason)]
        self._streams.clear()
        return [*failed, *self.unary.end(reason)]
