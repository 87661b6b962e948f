"""Carries out `Send` effects on gRPC: a channel for each peer, with a stream for each kind of records and unary calls.

The core of the connection (`cluster/core/connection/`) decides; here are the channel, the tasks and the clock. Each
`Send` gets exactly one answer, a body or a TransportError, at the latest after its timeout. A call to a dead peer fails
at once instead of waiting for the peer to return: the core decides when to try again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol, cast, final

import grpc
import grpc.aio

from cluster.core.connection.backoff import FIRST_BACKOFF_MS, MAX_BACKOFF_MS
from cluster.core.connection.bootstrap import Bootstrap
from cluster.core.connection.codec import Malformed
from cluster.core.connection.outgoing import NEVER_MS, Answer, Ended, Outgoing, OutgoingStream
from cluster.core.connection.pieces import cut
from cluster.core.effects import BOOTSTRAP, Send
from cluster.core.events import TransportError
from cluster.core.messages import FetchRequest, ProduceRequest
from cluster.rpc.methods import CONTROLLER
from cluster.shell.failures import FailedCalls
from cluster.shell.forks import note_channel
from cluster.shell.streams import CODEC, MAX_MESSAGE_BYTES, why_refused

logger = logging.getLogger(__name__)

FINISH_TIMEOUT_S = 2.0
# For so long a client that has closed its channels goes on.
LAST_REPORTS_S = 0.02
# What a peer answered in one frame, or what ended together, each with the number of its call.
Answers = Sequence[tuple[int, Answer]]
Deliver = Callable[[Answers], None]
# Receives calls that need no writing any more.
Written = Callable[[Sequence[int]], None]
# Logs why a call has failed.
OnFailed = Callable[[str], None]
Address = tuple[str, int]
UnaryCall = grpc.aio.UnaryUnaryCall[bytes, bytes] | grpc.aio.StreamUnaryCall[bytes, bytes]

CHANNEL_OPTIONS: tuple[tuple[str, int], ...] = (
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    # gRPC connects again by itself, at the times of `Backoff`.
    ("grpc.initial_reconnect_backoff_ms", FIRST_BACKOFF_MS),
    ("grpc.min_reconnect_backoff_ms", FIRST_BACKOFF_MS),
    ("grpc.max_reconnect_backoff_ms", MAX_BACKOFF_MS),
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


async def read_or_end(reader: Reader) -> bytes | None:
    """Reads the next frame of the peer; None at the end of the stream."""
    received = await reader.read()
    return None if received is grpc.aio.EOF else cast("bytes", received)  # type: ignore[attr-defined]


def end_call(call: UnaryCall | grpc.aio.StreamStreamCall[Any, Any]) -> None:
    """Ends a call of gRPC and lets the task that waits for it go on until gRPC has reported the end.

    The method `cancel` of the call would cancel that task at once, whatever gRPC still has to report.
    What it is made of is no public name of gRPC, so a version without it gets `cancel`.
    """
    end = getattr(call, "_cancel", None)
    if end is None:
        call.cancel()
    else:
        end("closed")


def loop_ms() -> int:
    """Returns the time of the running loop's clock, by which deadlines are kept."""
    return int(asyncio.get_running_loop().time() * 1000)


@final
class Alarm:
    """One timer of the loop, which only ever moves to an earlier time, until it rings."""

    def __init__(self, ring: Callable[[], None]) -> None:
        self._ring = ring
        self._loop = asyncio.get_running_loop()
        self._handle: asyncio.TimerHandle | None = None
        self._at_ms = NEVER_MS

    def set(self, at_ms: int) -> None:
        """Lets the alarm ring at `at_ms` or soon after, unless it rings before."""
        if at_ms >= self._at_ms:
            return
        if self._handle is not None:
            self._handle.cancel()
        self._at_ms = at_ms
        self._handle = self._loop.call_at((at_ms + 1) / 1000, self._on_time)

    def cancel(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
        self._handle, self._at_ms = None, NEVER_MS

    def _on_time(self) -> None:
        self._handle, self._at_ms = None, NEVER_MS
        self._ring()


def _deliver_soon(deliver: Deliver, ended: Ended) -> None:
    """Delivers by the loop: whoever ends a stream may be inside a step."""
    if ended:
        asyncio.get_running_loop().call_soon(deliver, ended)


@final
class GrpcStream:
    """One bidirectional stream of gRPC under an `OutgoingStream`: a reader task, a writer task, and a timer."""

    def __init__(
        self,
        channel: grpc.aio.Channel,
        stream: OutgoingStream,
        deliver: Deliver,
        written: Written,
        on_failed: OnFailed,
    ) -> None:
        self.stream = stream
        self._on_failed = on_failed
        self._written = written
        # Without serialisers gRPC takes and returns bytes.
        self._call = channel.stream_stream(stream.codec.path, None, None)(None)
        self._deliver = deliver
        self._alarm = Alarm(self._on_time)
        self._wake = asyncio.Event()
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._write()), loop.create_task(self._read())]

    def wake(self) -> None:
        """Writes what waits, and keeps its deadline."""
        assert self.stream.is_open, self.stream.codec.path
        self._alarm.set(self.stream.alarm_ms)
        self._wake.set()

    def _tell_written(self, calls: Sequence[int]) -> None:
        """Says by the loop that calls need no writing any more: they are written, or have ended."""
        if self.stream.has_sent_silent and calls:
            asyncio.get_running_loop().call_soon(self._written, calls)

    def fail(self, reason: str) -> None:
        """Ends the stream and fails every call in flight."""
        self._close(self.stream.end(reason))

    def _close(self, ended: Ended) -> None:
        assert not self.stream.is_open, self.stream.codec.path
        self._call.cancel()
        for task in self._tasks:
            task.cancel()
        self._alarm.cancel()
        # All of them have failed for one reason.
        _note(ended[:1], self._on_failed)
        self._tell_ended(ended)

    def _tell_ended(self, ended: Ended) -> None:
        _deliver_soon(self._deliver, ended)
        self._tell_written([call for call, _ in ended])

    def _on_time(self) -> None:
        ended = self.stream.on_time(loop_ms())
        if not self.stream.is_open:
            self._close(ended)
        else:
            assert not ended, len(ended)
            self._alarm.set(self.stream.alarm_ms)

    async def finish(self) -> None:
        """Waits until the peer has read the calls that expect no reply (acks=0), at most FINISH_TIMEOUT_S."""
        if not self.stream.is_open or not self.stream.has_sent_silent:
            return
        self.stream.finish()
        self._wake.set()
        await asyncio.wait(self._tasks, timeout=FINISH_TIMEOUT_S)

    async def end(self, reason: str) -> None:
        """Ends the stream and waits until gRPC has ended it too, at most FINISH_TIMEOUT_S.

        What gRPC reports of a call whose tasks were cancelled would reach the loop after its end (grpc/grpc#25364).
        """
        writer, reader = self._tasks
        if self.stream.is_open:
            self._tell_ended(self.stream.end(reason))
            self._alarm.cancel()
            end_call(self._call)
            # The writer, too, ends with the call if it is within a write.
            self._wake.set()
            await asyncio.wait((reader, writer), timeout=FINISH_TIMEOUT_S)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _write(self) -> None:
        stream = self.stream
        try:
            while True:
                while (frame := stream.next_frame()) is not None:
                    # If gRPC refused it, the stream would stand still: the reader would learn of no end.
                    if refused := why_refused(frame):
                        self.fail(refused)
                        return
                    await self._call.write(frame)
                    self._tell_written(stream.on_written())
                if stream.is_finishing or not stream.is_open:
                    break
                await self._wake.wait()
                self._wake.clear()
            await self._call.done_writing()
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError, grpc.aio.UsageError) as error:
            # The reader gets the status of an ended stream, which says more than the failed write.
            logger.debug("write failed error=%r", error)
        except Exception as error:
            # Nobody else would learn of it: all calls of the stream would wait until their time is up.
            logger.exception("what cannot be written ends the stream")
            self.fail(f"cannot be written: {error}")

    async def _read(self) -> None:
        reason = "the peer ended the stream"
        try:
            while (frame := await read_or_end(self._call)) is not None:
                if answers := self.stream.on_frame(frame):
                    _note(answers, self._on_failed)
                    self._deliver(answers)
        except grpc.aio.AioRpcError as error:
            reason = reason_of(error)
        except Malformed as error:
            reason = str(error)
        except asyncio.CancelledError:
            # grpc.aio raises this also when a closed channel cancelled the call.
            reason = "cancelled"
        finally:
            self.fail(reason)


@final
class Peer:
    """One peer's address with its channel, streams and unary calls."""

    def __init__(self, address: Address, deliver: Deliver, written: Written, failed: FailedCalls) -> None:
        self.address = address
        self._on_failed = partial(failed.write, "{}:{}".format(*address))
        self._deliver, self._written = deliver, written
        note_channel()
        self._channel = grpc.aio.insecure_channel("{}:{}".format(*address), options=CHANNEL_OPTIONS)
        self._outgoing = Outgoing(CODEC)
        self._streams: dict[str, GrpcStream] = {}
        self._unary: dict[int, asyncio.Task[None]] = {}
        # The calls of gRPC under them, once they have begun.
        self._asked: dict[int, UnaryCall] = {}
        self._alarm = Alarm(self._on_time)

    def send(self, effect: Send) -> None:
        """Sends a fetch or a produce request on its stream, any other request as a unary call."""
        body = effect.body
        if isinstance(body, (FetchRequest, ProduceRequest)):
            stream = self._outgoing.send_on_stream(loop_ms(), effect, body)
            carrier = self._streams.get(stream.codec.path)
            if carrier is None or carrier.stream is not stream:
                carrier = GrpcStream(self._channel, stream, self._deliver, self._written, self._on_failed)
                self._streams[stream.codec.path] = carrier
            carrier.wake()
            return
        self._outgoing.unary.send(loop_ms(), effect.call, body, effect.timeout_ms)
        self._begin_calls()
        self._alarm.set(self._outgoing.unary.alarm_ms)

    def _begin_calls(self) -> None:
        """Begins the unary calls that the peer may have now."""
        loop = asyncio.get_running_loop()
        while (asked := self._outgoing.unary.next_call()) is not None:
            call, path, frame = asked
            task = self._unary[call] = loop.create_task(self._ask(call, path, frame))
            task.add_done_callback(partial(self._forget, call))

    def _end_task(self, call: int) -> None:
        """Ends the task of a call; one that waits for its place has none."""
        if (asked := self._asked.get(call)) is not None:
            end_call(asked)
        elif (task := self._unary.get(call)) is not None:
            task.cancel()

    def _forget(self, call: int, _: asyncio.Task[None]) -> None:
        del self._unary[call]
        self._asked.pop(call, None)

    async def _ask(self, call: int, path: str, frame: bytes) -> None:
        unary = self._outgoing.unary
        answer: Answer | None
        try:
            asked = self._asked[call] = self._begin(path, frame)
            answer = unary.on_frame(call, await asked)
        except grpc.aio.AioRpcError as error:
            answer = unary.fail(call, reason_of(error))
            if answer is not None and error.code() is grpc.StatusCode.UNIMPLEMENTED:
                answer = TransportError(reason=no_server(self.address, path), is_unserved=True)
        except (grpc.aio.UsageError, asyncio.InvalidStateError, Malformed) as error:
            answer = unary.fail(call, str(error))
        except asyncio.CancelledError:
            # It has ended already, unless a closed channel cancelled it.
            answer = unary.fail(call, "cancelled")
        if answer is not None:
            self._begin_calls()
            _note([(call, answer)], self._on_failed)
            self._deliver([(call, answer)])

    def _begin(self, path: str, frame: bytes) -> UnaryCall:
        """Begins a unary call, with a large request in pieces: for the node, both are a stream of requests."""
        pieces = cut(frame)
        if len(pieces) == 1:
            return self._channel.unary_unary(path, None, None)(frame)
        return self._channel.stream_unary(path, None, None)(iter(pieces))

    def _on_time(self) -> None:
        """Ends the unary calls that are overdue, each alone."""
        unary = self._outgoing.unary
        for call, body in unary.on_time(loop_ms()):
            self._end_task(call)
            self._deliver([(call, body)])
        self._begin_calls()
        self._alarm.set(unary.alarm_ms)

    async def close(self, reason: str) -> None:
        """Closes the channel; calls still in flight fail with a TransportError."""
        for stream in self._streams.values():
            await stream.finish()
            await stream.end(reason)
        self._alarm.cancel()
        _deliver_soon(self._deliver, self._outgoing.end(reason))
        await self._end_unary()
        await self._channel.close(None)

    async def _end_unary(self) -> None:
        """Ends the unary calls and waits until gRPC has ended them too, at most FINISH_TIMEOUT_S.

        What gRPC reports of a call whose task was cancelled would reach the loop after its end, and be printed there
        (grpc/grpc#25364).
        """
        for call in tuple(self._unary):
            self._end_task(call)
        if self._unary:
            await asyncio.wait(tuple(self._unary.values()), timeout=FINISH_TIMEOUT_S)
        waiting = tuple(self._unary.values())
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


@final
class Peers:
    """All peers of this process, by node id; `BOOTSTRAP` means the given addresses in turn."""

    def __init__(self, deliver: Deliver, *, bootstrap: Sequence[Address] = ()) -> None:
        self._deliver = deliver
        self._peers: dict[int, Peer] = {}
        self._bootstrap = Bootstrap(bootstrap)
        self._bootstrap_peers: dict[Address, Peer] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._failed = FailedCalls(lambda: loop_ms() / 1000)
        # Is called with calls without a reply expected that are written, or have ended, and perhaps with others. Only
        # a client has such calls.
        self.after_writing: Written = _do_nothing
        # The last such call.
        self.last_silent = 0
        # By node id: the address to connect to, such as a proxy's, whatever address the node is registered under.
        self.routes: dict[int, Address] = {}

    def learn(self, node_id: int, host: str, port: int) -> None:
        """Sets the address of a node, unless it has a route; a connection to another address of it is closed."""
        address = self.routes.get(node_id, (host, port))
        known = self._peers.get(node_id)
        if known is not None and known.address == address:
            return
        if known is not None:
            self._close_later(known)
        self._peers[node_id] = Peer(address, self._deliver, self._on_written, self._failed)

    def send(self, effect: Send) -> None:
        """Sends to the node, or fails the call from the loop where no address of the node is known."""
        if not effect.expects_reply:
            self.last_silent = effect.call
        if effect.to == BOOTSTRAP:
            peer = self._bootstrap_peer(effect.call)
        else:
            peer = self._peers.get(effect.to)
        if peer is None:
            error = TransportError(reason=f"no address of node {effect.to} is known")
            asyncio.get_running_loop().call_soon(self._deliver, [(effect.call, error)])
            asyncio.get_running_loop().call_soon(self._on_written, [effect.call])
            return
        peer.send(effect)

    def _bootstrap_peer(self, call: int) -> Peer | None:
        address = self._bootstrap.choose(call)
        if address is None:
            return None
        peer = self._bootstrap_peers.get(address)
        if peer is None:
            peer = self._bootstrap_peers[address] = Peer(
                address, self._on_bootstrap_answers, self._on_written, self._failed
            )
        assert peer.address == address, (peer.address, address)
        return peer

    def _on_written(self, calls: Sequence[int]) -> None:
        self.after_writing(calls)

    def _on_bootstrap_answers(self, answers: Answers) -> None:
        self._deliver([(call, self._bootstrap.on_answer(call, body)) for call, body in answers])

    def _close_later(self, peer: Peer) -> None:
        task = asyncio.get_running_loop().create_task(peer.close("the node moved"))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        """Closes the channels of all peers, and waits for what gRPC still reports of their calls."""
        for peer in (*self._peers.values(), *self._bootstrap_peers.values()):
            await peer.close("closed")
        await asyncio.gather(*self._closing)
        # gRPC reports the end of a call more than once, and nothing tells when it has: a later report would reach the
        # loop after its end, and be printed there (grpc/grpc#25364).
        await asyncio.sleep(LAST_REPORTS_S)


def _do_nothing(calls: Sequence[int]) -> None:
    """Waits for no call to be written."""


def _note(answers: Answers, on_failed: OnFailed) -> None:
    """Logs the answers that cannot be used."""
    for _, body in answers:
        if isinstance(body, TransportError):
            on_failed(body.reason)


def reason_of(error: grpc.aio.AioRpcError) -> str:
    """Returns how a call ended: the status of the peer, or that of a lost connection."""
    # grpc.aio says so of a message for a call that had ended a moment before, as a peer that dies ends all of them.
    if error.code() is grpc.StatusCode.INTERNAL and error.details() == "Internal error from Core":
        return "UNAVAILABLE: the connection was lost before the request was written"
    return f"{error.code().name}: {error.details()}"


def no_server(address: Address, path: str) -> str:
    """Returns why a call of the method `path` has no answer from a node that was reached."""
    host, port = address
    if path.startswith(f"/{CONTROLLER}/"):
        return f"no controller serves at {host}:{port} (is it a broker's address?)"
    return f"no broker serves at {host}:{port} (is it the controller's address?)"
