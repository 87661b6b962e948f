"""A node's gRPC server: its services, health and reflection, in front of a runtime.

A unary call waits for its reply. A stream has a reader (the handler) and a writer task, which merges waiting answers.
SO_REUSEPORT is off so that a taken port is an error: otherwise a second node would get half of the connections.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections.abc import Awaitable, Callable, Sequence
from typing import cast, final

import grpc
import grpc.aio
from google.protobuf.message import Message
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from cluster.core.messages import RequestBody, ResponseBody
from cluster.rpc.methods import ADMIN, CONTROLLER, DATA, METHODS, REPLICA, Method
from cluster.shell import streams, wire
from cluster.shell.incoming import UNARY_BYTES, IncomingStream, Rooms, StreamContext, refuse
from cluster.shell.runtime import Runtime
from cluster.shell.streams import CODECS, StreamCodec
from cluster.shell.transport import read_or_end

logger = logging.getLogger(__name__)

BROKER_SERVICES = (REPLICA, DATA, ADMIN)
CONTROLLER_SERVICES = (CONTROLLER, ADMIN)
UNARY = "unary"

SERVER_OPTIONS: tuple[tuple[str, int], ...] = (
    ("grpc.so_reuseport", 0),
    ("grpc.max_receive_message_length", streams.MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", streams.MAX_MESSAGE_BYTES),
    # Peers ping every 10 s; by default that is too often for an idle connection.
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
    # The streams and unary calls of one connection; gRPC keeps others waiting at the client.
    ("grpc.max_concurrent_streams", 512),
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


UnaryContext = grpc.aio.ServicerContext[Message, Message]


@final
class NodeServer:
    """The gRPC server of one node: `start` binds and serves; health is NOT_SERVING until `set_serving(True)`."""

    def __init__(self, runtime: Runtime, services: Sequence[str]) -> None:
        self._runtime = runtime
        self.rooms = Rooms()
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
        peer = context.peer()
        try:
            request = wire.request_from_wire(message)
        except wire.OutOfBounds as refused:
            return wire.response_to_wire(refuse(refused, peer))
        room = self.rooms.enter(peer, UNARY)
        try:
            await room.take(UNARY_BYTES)
            try:
                return wire.response_to_wire(await self._ask(request))
            finally:
                room.release(UNARY_BYTES)
        finally:
            self.rooms.leave(peer, UNARY)

    async def _ask(self, request: RequestBody) -> ResponseBody:
        """Asks the core; if the client leaves before the answer, the core drops the call."""
        future: asyncio.Future[ResponseBody] = asyncio.get_running_loop().create_future()
        call = self._runtime.ask(request, lambda body: None if future.done() else future.set_result(body))
        try:
            return await future
        finally:
            self._runtime.forget(call)

    def _stream_handler(self, codec: StreamCodec) -> Callable[[object, StreamContext], Awaitable[None]]:
        # grpc.aio inspects the function: only a coroutine function gets the interface with `read` and `write`.
        async def serve(_: object, context: StreamContext) -> None:
            await self._serve_stream(context, codec.path)

        serve.__name__ = codec.path
        return serve

    async def _serve_stream(self, context: StreamContext, path: str) -> None:
        await self._runtime.started.wait()
        peer = context.peer()
        stream = IncomingStream(context, self.rooms.enter(peer, path))
        writer = asyncio.get_running_loop().create_task(stream.write())
        try:
            while (calls := await read_or_end(context)) is not None:
                for call, body in cast("streams.ReceivedCalls", calls):
                    await stream.ask(self._runtime, call, body)
        finally:
            writer.cancel()
            stream.end(self._runtime)
            self.rooms.leave(peer, path)
