"""Carries out `Send` effects on gRPC: a channel for each peer, with a stream for each kind of records and unary calls.

Each `Send` gets exactly one answer, a body or a TransportError, at the latest after its timeout. A call to a
dead peer fails at once instead of waiting for the peer to return: the core decides when to try again.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol, cast, final

import grpc
import grpc.aio
from google.protobuf.message import Message

from cluster.core.effects import BOOTSTRAP, Send
from cluster.core.errors import ErrorCode
from cluster.core.events import TransportError
from cluster.core.messages import FetchRequest, MetadataResponse, ProduceRequest, ResponseBody
from cluster.rpc.methods import UNARY_BY_REQUEST
from cluster.shell import streams, wire
from cluster.shell.streams import StreamCodec, StreamRequest
from cluster.shell.wire import OutOfBounds

logger = logging.getLogger(__name__)

FINISH_TIMEOUT_S = 2.0
Deliver = Callable[[int, ResponseBody | TransportError], None]
Address = tuple[str, int]

CHANNEL_OPTIONS: tuple[tuple[str, int], ...] = (
    ("grpc.max_receive_message_length", streams.MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", streams.MAX_MESSAGE_BYTES),
    # With the defaults a restarted server is found after 1.7 s; a fail-over should not wait so long.
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 1000),
    # A killed peer is noticed at once on the loopback; a stopped one or a cut link only by silence.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
    # A proxy of the environment (http_proxy) is for web pages: it does not know the nodes.
    ("grpc.enable_http_proxy", 0),
    # Channels with equal options would share a connection; with this, each channel has its own.
    ("grpc.use_local_subchannel_pool", 1),
)


class Reader(Protocol):
    """The reading half of either side of a stream."""

    async def read(self) -> object: ...


async def read_or_end(reader: Reader) -> object | None:
    """Reads the next message of the peer; None at the end of the stream."""
    received = await reader.read()
    return None if received is grpc.aio.EOF else received  # type: ignore[attr-defined]


@final
class OutgoingStream:
    """One bidirectional stream to a peer: a reader task, a writer task, and the calls in flight by number.

    Any failure, also the timeout of one call, ends the stream and fails all its calls, as Kafka's client closes the
    connection: it is unknown which of the other calls were lost too.
    """

    def __init__(self, channel: grpc.aio.Channel, codec: StreamCodec, deliver: Deliver) -> None:
        method = channel.stream_stream(
            codec.path,
            request_serializer=codec.calls_to_bytes,
            response_deserializer=codec.answers_from_bytes,
        )
        self._call = method(None)
        self._deliver = deliver
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[tuple[int, StreamRequest]] = deque()
        # The calls in flight, each with its deadline on the loop's clock in seconds, and its timeout_ms.
        self._unanswered: dict[int, tuple[float, int]] = {}
        # One timer serves all calls.
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = math.inf
        # The waiting calls that expect no reply: they are done once they are written.
        self._silent: set[int] = set()
        self._wake = asyncio.Event()
        self._has_sent_silent = self._is_finishing = False
        self.is_open = True
        self._tasks = [self._loop.create_task(self._write()), self._loop.create_task(self._read())]

    def send(self, call: int, body: StreamRequest, *, timeout_ms: int, expects_reply: bool) -> None:
        """Queues a call for the writer task; without a reply expected, it ends once it is written."""
        assert self.is_open, call
        assert call not in self._unanswered, call
        deadline = self._loop.time() + timeout_ms / 1000
        self._unanswered[call] = (deadline, timeout_ms)
        if deadline < self._timer_at:
            self._arm(deadline)
        if not expects_reply:
            self._silent.add(call)
            self._has_sent_silent = True
        self._waiting.append((call, body))
        self._wake.set()

    def fail(self, reason: str) -> None:
        """Ends the stream and fails every call in flight; they are delivered by the loop, not inside this call."""
        if not self.is_open:
            return
        self.is_open = False
        self._call.cancel()
        for task in self._tasks:
            task.cancel()
        if self._timer is not None:
            self._timer.cancel()
        for call in self._unanswered:
            self._loop.call_soon(self._deliver, call, TransportError(reason=reason))
        self._unanswered.clear()
        self._waiting.clear()

    def _arm(self, deadline: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._timer_at = self._loop.call_at(deadline, self._on_time), deadline

    def _on_time(self) -> None:
        """Ends the stream if a call is overdue. Else arms the timer for the earliest call without an answer.

        The call that the timer was armed for is mostly answered by then.
        """
        assert self.is_open, "a timer outlived its stream"
        self._timer, self._timer_at = None, math.inf
        if not self._unanswered:
            return
        deadline, timeout_ms = min(self._unanswered.values())
        if deadline <= self._loop.time():
            self.fail(f"no answer in {timeout_ms} ms")
        else:
            self._arm(deadline)
        assert self._timer is not None or not self.is_open, len(self._unanswered)

    async def finish(self) -> None:
        """Waits until the peer has read the calls that expect no reply (acks=0), at most FINISH_TIMEOUT_S."""
        if not self.is_open or not self._has_sent_silent:
            return
        assert not self._is_finishing, "finished twice"
        self._is_finishing = True
        self._wake.set()
        await asyncio.wait(self._tasks, timeout=FINISH_TIMEOUT_S)

    async def _write(self) -> None:
        try:
            while not self._is_finishing:
                await self._wake.wait()
                self._wake.clear()
                while self._waiting:
                    merged = streams.take_merged(self._waiting)
                    await self._call.write(merged)
                    if self._silent:
                        self._forget_calls_without_reply(merged)
            await self._call.done_writing()
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError, grpc.aio.UsageError) as error:
            # The reader gets the status of an ended stream, which says more than the failed write.
            logger.debug("write failed error=%r", error)

    def _forget_calls_without_reply(self, written: streams.Calls) -> None:
        for call, _ in written:
            if call in self._silent:
                self._silent.discard(call)
                self._unanswered.pop(call, None)

    async def _read(self) -> None:
        reason = "the peer ended the stream"
        try:
            while (answers := await read_or_end(self._call)) is not None:
                for call, body in cast("streams.ReceivedAnswers", answers):
                    if self._unanswered.pop(call, None) is not None:
                        self._deliver(call, _refused(body) if isinstance(body, OutOfBounds) else body)
        except grpc.aio.AioRpcError as error:
            reason = _reason(error)
        except asyncio.CancelledError:
            # grpc.aio raises this also when a closed channel cancelled the call.
            reason = "cancelled"
        finally:
            self.fail(reason)


@final
class Peer:
    """One peer's address with its channel, streams and unary calls."""

    def __init__(self, address: Address, deliver: Deliver) -> None:
        self.address = address
        self._deliver = deliver
        self._channel = grpc.aio.insecure_channel("{}:{}".format(*address), options=CHANNEL_OPTIONS)
        self._streams: dict[str, OutgoingStream] = {}
        self._unary: set[asyncio.Task[None]] = set()

    def send(self, effect: Send) -> None:
        """Sends a fetch or a produce request on its stream, any other request as a unary call."""
        match effect.body:
            case FetchRequest() | ProduceRequest():
                stream = self._stream(streams.codec_of(effect.body))
                timeout_ms, expects_reply = effect.timeout_ms, effect.expects_reply
                stream.send(effect.call, effect.body, timeout_ms=timeout_ms, expects_reply=expects_reply)
            case _:
                task = asyncio.get_running_loop().create_task(self._ask(effect))
                self._unary.add(task)
                task.add_done_callback(self._unary.discard)

    def _stream(self, codec: StreamCodec) -> OutgoingStream:
        stream = self._streams.get(codec.path)
        if stream is None or not stream.is_open:
            stream = self._streams[codec.path] = OutgoingStream(self._channel, codec, self._deliver)
        return stream

    async def _ask(self, effect: Send) -> None:
        request = wire.request_to_wire(effect.body)
        method = UNARY_BY_REQUEST[type(request)]
        call = self._channel.unary_unary(
            method.path, request_serializer=_to_bytes, response_deserializer=method.response.FromString
        )
        body: ResponseBody | TransportError = TransportError(reason="closed")
        try:
            body = wire.response_from_wire(await call(request, timeout=effect.timeout_ms / 1000))
        except grpc.aio.AioRpcError as error:
            body = TransportError(reason=_reason(error))
        except (grpc.aio.UsageError, asyncio.InvalidStateError) as error:
            body = TransportError(reason=str(error))
        except OutOfBounds as error:
            body = _refused(error)
        finally:
            self._deliver(effect.call, body)

    async def close(self, reason: str) -> None:
        """Closes the channel; calls still in flight fail with a TransportError."""
        for stream in self._streams.values():
            await stream.finish()
            stream.fail(reason)
        waiting = tuple(self._unary)
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        await self._channel.close(None)


@final
class Peers:
    """All peers of this process, by node id; `BOOTSTRAP` means the given addresses in turn."""

    def __init__(self, deliver: Deliver, *, bootstrap: Sequence[Address] = ()) -> None:
        self._deliver = deliver
        self._peers: dict[int, Peer] = {}
        self._bootstrap = deque(bootstrap)
        self._bootstrap_peers: dict[Address, Peer] = {}
        self._bootstrap_calls: dict[int, Address] = {}
        self._closing: set[asyncio.Task[None]] = set()

    def learn(self, node_id: int, host: str, port: int) -> None:
        """Sets the address of a node; a connection to another address of it is closed."""
        known = self._peers.get(node_id)
        if known is not None and known.address == (host, port):
            return
        if known is not None:
            self._close_later(known)
        self._peers[node_id] = Peer((host, port), self._deliver)

    def send(self, effect: Send) -> None:
        """Sends to the node, or fails the call from the loop where no address of the node is known."""
        if effect.to == BOOTSTRAP:
            peer = self._bootstrap_peer(effect.call)
        else:
            peer = self._peers.get(effect.to)
        if peer is None:
            error = TransportError(reason=f"no address of node {effect.to} is known")
            asyncio.get_running_loop().call_soon(self._deliver, effect.call, error)
            return
        peer.send(effect)

    def _bootstrap_peer(self, call: int) -> Peer | None:
        if not self._bootstrap:
            return None
        address = self._bootstrap[0]
        assert call not in self._bootstrap_calls, (call, address)
        self._bootstrap_calls[call] = address
        peer = self._bootstrap_peers.get(address)
        if peer is None:
            peer = self._bootstrap_peers[address] = Peer(address, self._on_bootstrap_answer)
        assert peer.address == address, (peer.address, address)
        return peer

    def _on_bootstrap_answer(self, call: int, body: ResponseBody | TransportError) -> None:
        """Delivers the answer. After a failure the next address is tried first: a broker may be starting for long."""
        address = self._bootstrap_calls.pop(call)
        if _has_failed(body) and self._bootstrap[0] == address:
            self._bootstrap.rotate(-1)
        self._deliver(call, body)

    def _close_later(self, peer: Peer) -> None:
        task = asyncio.get_running_loop().create_task(peer.close("the node moved"))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        for peer in (*self._peers.values(), *self._bootstrap_peers.values()):
            await peer.close("closed")
        await asyncio.gather(*self._closing)


def _has_failed(body: ResponseBody | TransportError) -> bool:
    if isinstance(body, MetadataResponse):
        return body.error is not ErrorCode.NONE
    return isinstance(body, TransportError)


def _to_bytes(message: Message) -> bytes:
    return message.SerializeToString()


def _refused(refused: OutOfBounds) -> TransportError:
    """Returns the end of an exchange whose answer cannot be used; others on the stream go on."""
    logger.warning("answer out of bounds: %s", refused)
    return TransportError(reason=f"the answer is out of bounds: {refused}")


def _reason(error: grpc.aio.AioRpcError) -> str:
    return f"{error.code().name}: {error.details()}"
