"""What clients have in flight at a node: the room of each connection, and the streams with their answers.

A call holds its place until its answer is written, not only until the core has answered it: answers to a client that
does not read would otherwise grow without bound. While a connection has no room, its streams are not read, and the
client is slowed down by HTTP/2.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from dataclasses import replace
from typing import cast, final

import grpc.aio

from cluster.core.errors import ClusterError
from cluster.core.messages import (
    AlterPartitionResponse,
    FetchRequest,
    FetchResponse,
    ListOffsetsResponse,
    ProduceRequest,
    ProduceResponse,
    RequestBody,
    ResponseBody,
    TopicPartition,
)
from cluster.core.refusals import refusal
from cluster.shell import streams, wire
from cluster.shell.runtime import Runtime
from cluster.shell.streams import StreamRequest, StreamResponse

logger = logging.getLogger(__name__)

# The most calls and bytes of one connection on streams of one kind, or in unary calls. The bytes are those of the
# records that a request brings, and the most that its answer may hold.
MOST_CALLS = 256
MOST_BYTES = 64 << 20
# No broker answers a fetch with more, but for a single batch that is larger.
MOST_FETCHED_BYTES = 55 << 20
# What a unary call counts as: few answers are larger.
UNARY_BYTES = 1 << 20

# A constant, because a union written in the check would be built for each answer.
_STREAMED = (FetchResponse, ProduceResponse)
StreamContext = grpc.aio.ServicerContext[streams.ReceivedCalls, streams.Answers]


def refuse(refused: wire.OutOfBounds, sender: str) -> ResponseBody:
    """Logs a request that is out of bounds with its sender's address, and returns the answer to it."""
    logger.warning("request refused: sender=%s %s", sender, refused)
    request = cast("RequestBody", refused.body)
    answer = refusal(request, ClusterError(refused.code, refused.detail))
    if isinstance(answer, (AlterPartitionResponse, ListOffsetsResponse)) and wire.out_of_bounds(answer):
        # It would repeat the very name that is too long, and be refused by the sender.
        return replace(answer, topic_partition=TopicPartition("", 0))
    return answer


def bytes_held_by(body: StreamRequest) -> int:
    """Returns how many bytes the node may hold for a call until its answer is written."""
    if isinstance(body, FetchRequest):
        wanted = sum([partition.max_bytes for partition in body.partitions])
        return min(wanted, body.max_bytes, MOST_FETCHED_BYTES)
    return streams.record_bytes(body)


@final
class Room:
    """The room of one connection for calls of one kind: `take` before a call, `release` once its answer is written.

    A single call always has room, also one that is larger than all of it.
    """

    def __init__(self) -> None:
        self.calls = 0
        self.held_bytes = 0
        # The streams and calls of the connection that use this room.
        self.users = 0
        self._released = asyncio.Event()

    def has_room_for(self, size_bytes: int) -> bool:
        return self.calls == 0 or (self.calls < MOST_CALLS and self.held_bytes + size_bytes <= MOST_BYTES)

    async def take(self, size_bytes: int) -> None:
        """Waits until there is room for one more call that holds `size_bytes`, and takes it."""
        while not self.has_room_for(size_bytes):
            self._released.clear()
            await self._released.wait()
        self.calls += 1
        self.held_bytes += size_bytes

    def release(self, size_bytes: int) -> None:
        """Frees the place of a call that took `size_bytes`."""
        self.calls -= 1
        self.held_bytes -= size_bytes
        assert self.calls >= 0, self.calls
        assert self.held_bytes >= 0, self.held_bytes
        self._released.set()


@final
class Rooms:
    """The rooms of all connections, by the address of the client and the kind of call."""

    def __init__(self) -> None:
        self._rooms: dict[tuple[str, str], Room] = {}

    def items(self) -> list[tuple[tuple[str, str], Room]]:
        """Returns each room with the client's address and the kind of call."""
        return list(self._rooms.items())

    def enter(self, peer: str, kind: str) -> Room:
        """Returns the room for a stream or call that begins; `leave` ends it."""
        room = self._rooms.setdefault((peer, kind), Room())
        room.users += 1
        return room

    def leave(self, peer: str, kind: str) -> None:
        """Ends the use of a room by one stream or call; the last one removes the room."""
        room = self._rooms[peer, kind]
        room.users -= 1
        assert room.users >= 0, (peer, kind)
        if room.users == 0:
            assert room.calls == 0, (peer, kind, room.calls)
            del self._rooms[peer, kind]


@final
class Slot:
    """The place of one call, from its request to the end of the write of its answer."""

    __slots__ = ("call", "ours", "size_bytes")

    def __init__(self, call: int, size_bytes: int) -> None:
        # The client's number; it may be used twice, which is the client's own loss.
        self.call = call
        self.size_bytes = size_bytes
        # The runtime's number, while the core has the call.
        self.ours = 0


@final
class IncomingStream:
    """One client's stream: answers wait here until the writer task has sent those before them."""

    def __init__(self, context: StreamContext, room: Room) -> None:
        self._context = context
        self._room = room
        self._waiting: deque[tuple[int, StreamResponse]] = deque()
        # The places of the answers in `_waiting` and of those being written, in the same order.
        self._answered: deque[Slot] = deque()
        # The calls that the core has, by the runtime's number.
        self._unanswered: dict[int, Slot] = {}
        self._wake = asyncio.Event()

    async def ask(self, runtime: Runtime, call: int, body: StreamRequest | wire.OutOfBounds) -> None:
        """Passes a call to the core once there is room for its answer; one that is out of bounds is answered here."""
        if isinstance(body, wire.OutOfBounds):
            await self._refuse(call, body)
            return
        if isinstance(body, ProduceRequest) and body.acks == 0:
            runtime.ask_without_reply(body)
            return
        size_bytes = bytes_held_by(body)
        await self._room.take(size_bytes)
        slot = Slot(call, size_bytes)
        slot.ours = runtime.ask(body, lambda answer: self._on_answer(slot, answer))
        # The runtime passes requests on in a later turn of the loop.
        assert slot.ours not in self._unanswered, slot.ours
        self._unanswered[slot.ours] = slot

    async def _refuse(self, call: int, refused: wire.OutOfBounds) -> None:
        """Answers a call that is out of bounds; with acks=0 it only logs, because nobody waits for an answer."""
        body = refuse(refused, self._context.peer())
        if not (isinstance(refused.body, ProduceRequest) and refused.body.acks == 0):
            await self._room.take(0)
            self._answer(Slot(call, 0), body)

    def _on_answer(self, slot: Slot, body: ResponseBody) -> None:
        del self._unanswered[slot.ours]
        self._answer(slot, body)

    def _answer(self, slot: Slot, body: ResponseBody) -> None:
        """Queues the answer to a client's call for the writer task."""
        assert isinstance(body, _STREAMED), body
        self._waiting.append((slot.call, body))
        self._answered.append(slot)
        self._wake.set()

    async def write(self) -> None:
        """Writes answers as they come, several in one message, until the client has left or the task is cancelled."""
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                while self._waiting:
                    merged = streams.take_merged(self._waiting)
                    await self._context.write(merged)
                    for _ in merged:
                        self._room.release(self._answered.popleft().size_bytes)
        except (grpc.aio.BaseError, asyncio.InvalidStateError) as error:
            # The client has left; the reader learns it too.
            logger.debug("write failed error=%r", error)

    def end(self, runtime: Runtime) -> None:
        """Frees all places and lets the core drop what waits there, because the client has left."""
        for ours in list(self._unanswered):
            runtime.forget(ours)
        for slot in (*self._unanswered.values(), *self._answered):
            self._room.release(slot.size_bytes)
        self._unanswered.clear()
        self._answered.clear()
        self._waiting.clear()
