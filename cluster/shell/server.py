"""A node's gRPC server: its services, health and reflection, in front of a runtime.

A unary call waits for its reply. A stream has a reader (the handler) and a writer task, which merges waiting answers.
SO_REUSEPORT is off so that a taken port is an error: otherwise a second node would get half of the connections.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import cast, final

import grpc
import grpc.aio
from google.protobuf.message import Message
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from cluster.core.errors import ClusterError
from cluster.core.messages import FetchResponse, ProduceRequest, ProduceResponse, RequestBody, ResponseBody
from cluster.core.refusals import refusal
from cluster.rpc.methods import ADMIN, CONTROLLER, DATA, METHODS, REPLICA, Method
from cluster.shell import streams, wire
from cluster.shell.runtime import Runtime
from cluster.shell.streams import CODECS, StreamCodec, StreamRequest, StreamResponse
from cluster.shell.transport import read_or_end

logger = logging.getLogger(__name__)

BROKER_SERVICES = (REPLICA, DATA, ADMIN)
CONTROLLER_SERVICES = (CONTROLLER, ADMIN)
# The most calls of one stream that may wait in the core; at this number the stream is not read.
UNANSWERED_LIMIT = 256

SERVER_OPTIONS: tuple[tuple[str, int], ...] = (
    ("grpc.so_reuseport", 0),
    ("grpc.max_receive_message_length", streams.MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", streams.MAX_MESSAGE_BYTES),
    # Peers ping every 10 s; by default that is too often for an idle connection.
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
)


class PortInUse(Exception):
    """Another process listens on the port."""

    def __init__(self, host: str, port: int) -> None:
        super().__init__(f"port {port} of {host} is in use by another process")
        self.host, self.port = host, port


def check_port_free(host: str, port: int) -> None:
    """Checks that the port can be bound. Raises PortInUse, or OSError when the address cannot be bound at all."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
            probe.listen(1)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise PortInUse(host, port) from error
            raise


# A constant, because a union written in the check would be built for each answer.
_STREAMED = (FetchResponse, ProduceResponse)
StreamContext = grpc.aio.ServicerContext[streams.ReceivedCalls, streams.Answers]
UnaryContext = grpc.aio.ServicerContext[Message, Message]


def refuse(refused: wire.OutOfBounds, sender: str) -> ResponseBody:
    """Logs a request that is out of bounds with its sender's address, and returns the answer to it."""
    logger.warning("request refused: sender=%s %s", sender, refused)
    request = cast("RequestBody", refused.body)
    return refusal(request, ClusterError(refused.code, refused.detail))


@final
class IncomingStream:
    """One client's stream: answers wait here until the writer task has sent those before them."""

    def __init__(self, context: StreamContext) -> None:
        self._context = context
        self._waiting: deque[tuple[int, StreamResponse]] = deque()
        self._wake = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        # The runtime's number of each call, by the client's number.
        self.unanswered: dict[int, int] = {}

    def answer(self, call: int, body: ResponseBody) -> None:
        """Queues the answer to the client's `call` for the writer task."""
        assert isinstance(body, _STREAMED), body
        self.unanswered.pop(call, None)
        self._waiting.append((call, body))
        self._wake.set()
        if len(self.unanswered) < UNANSWERED_LIMIT:
            self._room.set()

    def refuse(self, call: int, refused: wire.OutOfBounds) -> None:
        """Answers a call that is out of bounds; with acks=0 it only logs, because nobody waits for an answer."""
        answer = refuse(refused, self._context.peer())
        if not (isinstance(refused.body, ProduceRequest) and refused.body.acks == 0):
            self.answer(call, answer)

    async def room(self) -> None:
        """Returns once fewer than UNANSWERED_LIMIT of this stream's calls are in the core."""
        while len(self.unanswered) >= UNANSWERED_LIMIT:
            self._room.clear()
            await self._room.wait()

    def forget_all(self, runtime: Runtime) -> None:
        for ours in self.unanswered.values():
            runtime.forget(ours)

    async def write(self) -> None:
        """Writes answers as they come, several in one message, until the client has left or the task is cancelled."""
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                while self._waiting:
                    await self._context.write(streams.take_merged(self._waiting))
        except (grpc.aio.BaseError, asyncio.InvalidStateError) as error:
            # The client has left; the reader learns it too.
            logger.debug("write failed error=%r", error)


@final
class NodeServer:
    """The gRPC server of one node: `start` binds and serves; health is NOT_SERVING until `set_serving(True)`."""

    def __init__(self, runtime: Runtime, services: Sequence[str]) -> None:
        self._runtime = runtime
        # `health.aio` is set when the module is imported, depending on the version of gRPC.
        self._health = health.aio.HealthServicer()  # type: ignore[attr-defined]
        self._server = grpc.aio.server(options=SERVER_OPTIONS)
        self._services = tuple(services)
        for service in self._services:
            handlers = {method.name: self._handler(method) for method in METHODS if method.service == service}
            generic = grpc.method_handlers_generic_handler(service, handlers)
            self._server.add_generic_rpc_handlers((generic,))
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        names = (*self._services, health.SERVICE_NAME, reflection.SERVICE_NAME)
        reflection.enable_server_reflection(names, self._server)

    async def start(self, host: str, port: int) -> int:
        """Binds and serves; returns the bound port (`port` 0: any). Raises PortInUse or OSError."""
        if port:
            # gRPC's own error does not say why the port cannot be bound.
            check_port_free(host, port)
        try:
            bound = self._server.add_insecure_port(f"{host}:{port}")
        except RuntimeError as error:
            raise PortInUse(host, port) from error
        await self.set_serving(False)
        await self._server.start()
        return bound

    async def set_serving(self, serving: bool) -> None:
        status = health_pb2.HealthCheckResponse
        value = status.SERVING if serving else status.NOT_SERVING
        for service in ("", *self._services):
            await self._health.set(service, value)

    async def stop(self, grace_s: float = 0.5) -> None:
        await self._server.stop(grace_s)

    def _handler(self, method: Method) -> grpc.RpcMethodHandler[Message, Message]:
        if method.is_stream:
            codec = CODECS[method.path]
            return grpc.stream_stream_rpc_method_handler(
                self._stream_handler(codec),
                request_deserializer=codec.calls_from_bytes,
                response_serializer=codec.answers_to_bytes,
            )
        return grpc.unary_unary_rpc_method_handler(
            self._answer_unary,
            request_deserializer=method.request.FromString,
            response_serializer=method.response.SerializeToString,
        )

    async def _answer_unary(self, message: Message, context: UnaryContext) -> Message:
        await self._runtime.started.wait()
        future: asyncio.Future[ResponseBody] = asyncio.get_running_loop().create_future()
        try:
            request = wire.request_from_wire(message)
        except wire.OutOfBounds as refused:
            return wire.response_to_wire(refuse(refused, context.peer()))
        call = self._runtime.ask(request, lambda body: None if future.done() else future.set_result(body))
        try:
            return wire.response_to_wire(await future)
        finally:
            self._runtime.forget(call)

    def _stream_handler(self, codec: StreamCodec) -> Callable[[object, StreamContext], Awaitable[None]]:
        # grpc.aio inspects the function: only a coroutine function gets the interface with `read` and `write`.
        async def serve(_: object, context: StreamContext) -> None:
            await self._serve_stream(context)

        serve.__name__ = codec.path
        return serve

    async def _serve_stream(self, context: StreamContext) -> None:
        await self._runtime.started.wait()
        stream = IncomingStream(context)
        writer = asyncio.get_running_loop().create_task(stream.write())
        try:
            while (calls := await read_or_end(context)) is not None:
                for call, body in cast("streams.ReceivedCalls", calls):
                    await stream.room()
                    if isinstance(body, wire.OutOfBounds):
                        stream.refuse(call, body)
                    else:
                        self._ask(stream, call, body)
        finally:
            writer.cancel()
            stream.forget_all(self._runtime)

    def _ask(self, stream: IncomingStream, call: int, body: StreamRequest) -> None:
        if isinstance(body, ProduceRequest) and body.acks == 0:
            self._runtime.ask_without_reply(body)
            return
        waiting = len(stream.unanswered)
        assert waiting < UNANSWERED_LIMIT, waiting
        stream.unanswered[call] = 0
        ours = self._runtime.ask(body, lambda answer: stream.answer(call, answer))
        # 0 stands for a number that is not known yet.
        assert ours > 0, ours
        if call in stream.unanswered:
            stream.unanswered[call] = ours
