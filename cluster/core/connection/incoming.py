"""The side of a connection that answers: calls wait for room, go to the core, and their answers are merged.

Whoever reads messages stops reading while calls of an earlier frame, or the rest of one, wait for room.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Protocol, final

from cluster.core.connection.codec import (
    STREAM_RESPONSES,
    Codec,
    OutOfBounds,
    StreamCodec,
    StreamRequest,
    StreamResponse,
)
from cluster.core.connection.merging import bytes_held_by, bytes_of, bytes_of_partitions, take_merged
from cluster.core.connection.pieces import Assembly, is_piece
from cluster.core.connection.rooms import UNARY_BYTES, Room, Slot
from cluster.core.errors import ClusterError
from cluster.core.messages import (
    AlterPartitionResponse,
    ListOffsetsResponse,
    ProduceRequest,
    RequestBody,
    ResponseBody,
    TopicPartition,
)
from cluster.core.refusals import refusal


class Receiver(Protocol):
    """The node behind a connection. It answers a request in a later turn, never inside `ask`."""

    def ask(self, body: RequestBody, answer: Callable[[ResponseBody], None]) -> int:
        """Passes a request to the core and returns its number. `answer` is called at most once."""

    def ask_without_reply(self, body: RequestBody) -> None:
        """Passes a request to the core that sends no reply to it."""

    def forget(self, call: int) -> None:
        """Drops the reply to a request, because its sender has left."""


# Is shown what was refused, to log or report it.
OnRefused = Callable[[OutOfBounds], None]


def refused_answer(refused: OutOfBounds, codec: Codec) -> ResponseBody:
    """Returns the answer to a request that is out of bounds."""
    request = refused.body
    assert isinstance(request, RequestBody), type(request)
    answer = refusal(request, ClusterError(refused.code, refused.detail))
    if isinstance(answer, (AlterPartitionResponse, ListOffsetsResponse)) and not codec.is_within_bounds(
        answer
    ):
        # It would repeat the very name that is too long, and be refused by the sender.
        return replace(answer, topic_partition=TopicPartition("", 0))
    return answer


def _do_nothing() -> None:
    """Waits for no request that is passed on."""


@final
class IncomingStream:
    """One client's stream. `wake` is called when there is something to write, or when all that waited was passed on.

    The shell passes messages to it while `is_ready`, writes `next_frame`, says `on_written`, and ends it with `end`.
    """

    def __init__(
        self,
        codec: Codec,
        path: str,
        room: Room,
        receiver: Receiver,
        *,
        wake: Callable[[], None],
        on_refused: OnRefused,
    ) -> None:
        self._whole_codec = codec
        self._codec: StreamCodec = codec.stream_at(path)
        self._room, self._receiver = room, receiver
        self._wake, self._on_refused = wake, on_refused
        self._assembly = Assembly(room)
        # The calls that came and that the core does not have yet.
        self._received: deque[tuple[int, StreamRequest | OutOfBounds]] = deque()
        # The calls that the core has, by its number.
        self._unanswered: dict[int, Slot] = {}
        self._answers: deque[tuple[int, StreamResponse]] = deque()
        # The places of the answers in `_answers`, in the same order, and of those in the frame being written.
        self._answered: deque[Slot] = deque()
        self._writing: list[Slot] = []
        self.is_open = True
        # Whether the client sends nothing any more; it still reads.
        self.is_half_closed = False

    @property
    def is_drained(self) -> bool:
        """Whether the client has sent all, and has all its answers: the stream may end without a loss."""
        return self.is_half_closed and self.is_idle

    @property
    def is_ready(self) -> bool:
        """Whether the next message may be read: the calls of all earlier ones had room."""
        return not self._received and not self._assembly.is_waiting

    @property
    def is_inside_frame(self) -> bool:
        """Whether a frame has its place, and pieces of it are missing: they must not be waited for without end."""
        return self._assembly.is_begun

    @property
    def is_idle(self) -> bool:
        """Whether no call is in flight, and nothing is left to write."""
        is_read = self.is_ready and not self.is_inside_frame
        return is_read and not (self._unanswered or self._answers or self._writing)

    @property
    def has_frame(self) -> bool:
        return bool(self._answers)

    def on_frame(self, data: bytes) -> bool:
        """Passes the calls of a frame, or of its last piece, to the core, as far as there is room.

        Returns whether there was for all. Raises Malformed.
        """
        assert self.is_open and not self.is_half_closed, self._codec.path
        assert self.is_ready, len(self._received)
        if self._assembly.is_begun or is_piece(data):
            return self._on_piece(data)
        return self._pass_all(data)

    def _on_piece(self, data: bytes) -> bool:
        frame = self._assembly.add(data)
        if frame is not None:
            has_room = self._pass_all(frame)
            # The frame has freed its own place, and perhaps no call of it frees one later.
            self._room.wake()
            return has_room
        if self._assembly.is_waiting:
            self._room.wait(self)
            return False
        return True

    def _pass_all(self, frame: bytes) -> bool:
        self._received.extend(self._codec.calls_from_bytes(frame))
        if self._admit():
            return True
        self._room.wait(self)
        return False

    def proceed(self) -> bool:
        """Takes what waited, as far as there is room now; returns whether there was for all."""
        if self._assembly.is_waiting and not self._assembly.proceed():
            return False
        if not self._admit():
            return False
        self._wake()
        return True

    def _admit(self) -> bool:
        received = self._received
        while received:
            call, body = received[0]
            if isinstance(body, OutOfBounds):
                if not self._refuse(call, body):
                    return False
            elif isinstance(body, ProduceRequest) and body.acks == 0:
                self._receiver.ask_without_reply(body)
            elif not self._pass_on(call, body):
                return False
            received.popleft()
        return True

    def _pass_on(self, call: int, body: StreamRequest) -> bool:
        size_bytes = bytes_held_by(body)
        if not self._room.has_room_for(size_bytes):
            return False
        slot = self._room.take(call, size_bytes, bytes_of_partitions(body))
        slot.ours = self._receiver.ask(body, lambda answer: self._on_answer(slot, answer))
        assert slot.ours not in self._unanswered, slot.ours
        self._unanswered[slot.ours] = slot
        return True

    def _refuse(self, call: int, refused: OutOfBounds) -> bool:
        """Answers a call that is out of bounds, but for acks=0, where nobody waits for an answer."""
        is_silent = isinstance(refused.body, ProduceRequest) and refused.body.acks == 0
        if not is_silent and not self._room.has_room_for(0):
            return False
        self._on_refused(refused)
        if not is_silent:
            slot = self._room.take(call, 0)
            self._answer(slot, refused_answer(refused, self._whole_codec))
        return True

    def _on_answer(self, slot: Slot, body: ResponseBody) -> None:
        del self._unanswered[slot.ours]
        self._answer(slot, body)

    def _answer(self, slot: Slot, body: ResponseBody) -> None:
        assert isinstance(body, STREAM_RESPONSES), body
        self._answers.append((slot.call, body))
        self._answered.append(slot)
        self._room.answered(slot, bytes_of(body))
        self._wake()

    def next_frame(self) -> bytes | None:
        """Returns the bytes of the oldest answers, as many as belong into one frame; None if there are none."""
        if not self._answers:
            return None
        assert not self._writing, len(self._writing)
        assert len(self._answers) == len(self._answered), (len(self._answers), len(self._answered))
        merged = take_merged(self._answers)
        self._writing = [self._answered.popleft() for _ in merged]
        return self._codec.answers_to_bytes(merged)

    def on_written(self) -> None:
        """Frees the places of the answers in the last frame."""
        for slot in self._writing:
            self._room.release(slot)
        self._writing = []
        self._room.wake()
        if self.is_drained:
            self._wake()

    def half_close(self) -> None:
        """Notes that the client sends nothing any more. `wake` is called once it has all its answers."""
        assert not self.is_half_closed, self._codec.path
        self.is_half_closed = True
        # The rest of a frame does not come any more.
        self._assembly.end()

    def end(self) -> None:
        """Frees all places and lets the core drop what waits there, because the client has left."""
        self.is_open = False
        self._room.leave(self)
        self._received.clear()
        self._assembly.end()
        for ours in list(self._unanswered):
            self._receiver.forget(ours)
        for slot in (*self._unanswered.values(), *self._answered, *self._writing):
            self._room.release(slot)
        self._unanswered.clear()
        self._answered.clear()
        self._answers.clear()
        self._writing = []
        self._room.wake()


@final
class IncomingCall:
    """One unary call. `write` is called with it and its answer's frame; the shell says `end` once that is written.

    `on_passed` is called when there is room for what had none: the core has the request, or the rest of it may be read.
    """

    def __init__(
        self,
        codec: Codec,
        room: Room,
        receiver: Receiver,
        *,
        write: Callable[[IncomingCall, bytes], None],
        on_refused: OnRefused,
        on_passed: Callable[[], None] = _do_nothing,
    ) -> None:
        self._codec = codec
        self._room, self._receiver = room, receiver
        self._write, self._on_refused, self._on_passed = write, on_refused, on_passed
        self._assembly = Assembly(room)
        # The request while it waits for room, and its size.
        self._body: RequestBody | None = None
        self._request_bytes = 0
        self._slot: Slot | None = None
        self._is_answered = False

    def on_frame(self, path: str, data: bytes) -> None:
        """Passes the request, or that of its last piece, to the core once there is room, or answers that it is out of
        bounds. Raises Malformed.
        """
        assert not self.is_waiting, path
        if not self._assembly.is_begun and not is_piece(data):
            self._pass_on(path, data)
            return
        frame = self._assembly.add(data)
        if frame is not None:
            try:
                self._pass_on(path, frame)
            finally:
                self._room.wake()
        elif self._assembly.is_waiting:
            self._room.wait(self)

    def _pass_on(self, path: str, data: bytes) -> None:
        assert self._body is None, path
        body = self._codec.unary.request_from_bytes(path, data)
        if isinstance(body, OutOfBounds):
            self._on_refused(body)
            self._is_answered = True
            self._write(self, self._codec.unary.response_to_bytes(refused_answer(body, self._codec)))
            return
        self._body, self._request_bytes = body, len(data)
        if not self.proceed():
            self._room.wait(self)

    @property
    def is_waiting(self) -> bool:
        """Whether the request waits for room, or the rest of it, which may not be read before."""
        return self._body is not None or self._assembly.is_waiting

    @property
    def is_inside_frame(self) -> bool:
        """Whether the request has its place, and pieces of it are missing."""
        return self._assembly.is_begun

    def proceed(self) -> bool:
        """Takes what waits if there is room now; returns whether there was."""
        if self._assembly.is_waiting:
            if not self._assembly.proceed():
                return False
            self._on_passed()
            return True
        body = self._body
        assert body is not None, "a call without a request waits"
        size_bytes = max(UNARY_BYTES, self._request_bytes)
        if not self._room.has_room_for(size_bytes):
            return False
        self._slot = self._room.take(0, size_bytes, self._request_bytes)
        self._body = None
        self._slot.ours = self._receiver.ask(body, self._on_answer)
        self._on_passed()
        return True

    def _on_answer(self, body: ResponseBody) -> None:
        assert not self._is_answered, type(body)
        assert self._slot is not None, type(body)
        self._is_answered = True
        frame = self._codec.unary.response_to_bytes(body)
        self._room.answered(self._slot, len(frame))
        self._write(self, frame)

    def end(self) -> None:
        """Frees the place of the call. If it is not answered, its client has left, and the core drops it."""
        if self.is_waiting:
            self._room.leave(self)
            self._body = None
        was_inside_frame = self.is_inside_frame
        self._assembly.end()
        if was_inside_frame:
            self._room.wake()
        slot, self._slot = self._slot, None
        if slot is None:
            return
        if not self._is_answered:
            self._receiver.forget(slot.ours)
        self._room.release(slot)
        self._room.wake()
