"""A node's gRPC server: its services, health and reflection, in front of a runtime.

SO_REUSEPORT is off so that a taken port is an error: otherwise a second node would get half of the connections.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import final

import grpc
import grpc.aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from cluster.core.connection.codec import Malformed
from cluster.core.connection.pieces import PIECE_BYTES
from cluster.core.connection.rooms import Rooms
from cluster.rpc.methods import ADMIN, CONTROLLER, DATA, METHODS, REPLICA, Method
from cluster.shell.incoming import (
    MOST_CONNECTIONS,
    MOST_NODE_CONNECTIONS,
    Connections,
    Context,
    ReadTurns,
    ServedStream,
    serve_unary,
)
from cluster.shell.refused import RefusalLog, TooManyConnections
from cluster.shell.runtime import Runtime
from cluster.shell.streams import MAX_MESSAGE_BYTES

BROKER_SERVICES = (REPLICA, DATA, ADMIN)
CONTROLLER_SERVICES = (CONTROLLER, ADMIN)

# The streams and unary calls of one connection.
MOST_CALLS_OF_A_CONNECTION = 512

SERVER_OPTIONS: tuple[tuple[str, int], ...] = (
    ("grpc.so_reuseport", 0),
    # Larger requests come in pieces.
    ("grpc.max_receive_message_length", PIECE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    # Each connection has a socket and buffers, though it may have no call. More are closed at once, whosever they are.
    ("grpc.max_allowed_incoming_connections", 2 * MOST_CONNECTIONS + MOST_NODE_CONNECTIONS),
    # As Kafka's connections.max.idle.ms. A client that has a channel connects again when it needs one.
    ("grpc.max_connection_idle_ms", 600_000),
    # Peers ping every 10 s; by default that is too often for an idle connection.
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
    # What a client may send before it is read, a stream or call. By default gRPC measures the link and lets it grow
    # until whole messages are in memory that nobody reads.
    ("grpc.http2.bdp_probe", 0),
    ("grpc.http2.lookahead_bytes", 256 << 10),
    # gRPC keeps most others waiting at the client. What it sends all the same, as on a new connection whose limit it
    # does not know yet, is refused before it is begun (REFUSED_STREAM): UNAVAILABLE to the client.
    ("grpc.max_concurrent_streams", MOST_CALLS_OF_A_CONNECTION),
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


@final
class NodeServer:
    """The gRPC server of one node: `start` binds and serves; health is NOT_SERVING until `set_serving(True)`."""

    def __init__(self, runtime: Runtime, services: Sequence[str]) -> None:
        self._runtime = runtime
        self.rooms = Rooms()
        self._turns = ReadTurns()
        self._connections = Connections()
        self._refusals = RefusalLog(asyncio.get_running_loop().time)
        runtime.after_turn = self.rooms.end_turn
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

    def _handler(self, method: Method) -> grpc.RpcMethodHandler[bytes, bytes]:
        # Without serialisers gRPC takes and returns bytes.
        handler = self._stream_handler if method.is_stream else self._unary_handler
        return grpc.stream_stream_rpc_method_handler(handler(method.path))

    @contextlib.asynccontextmanager
    async def _connection(self, context: Context, path: str, *, is_stream: bool) -> AsyncIterator[None]:
        """Counts the connection of a call of this path until the block ends, and its stream, or refuses it.

        The client of a call that is refused for want of connections may send it again.
        """
        await self._runtime.started.wait()
        peer = context.peer()
        with contextlib.ExitStack() as stack:
            try:
                stack.enter_context(self._connections.serve(peer, path))
                if is_stream:
                    stack.enter_context(self._connections.serve_stream(peer, path))
            except TooManyConnections as error:
                self._refusals.on_wrong(peer, error)
                await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, str(error))
            except Malformed as error:
                self._refusals.on_wrong(peer, error)
                await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
            yield

    # grpc.aio inspects a handler: only a coroutine function gets the interface with `read` and `write`.
    def _stream_handler(self, path: str) -> Callable[[object, Context], Awaitable[None]]:
        async def serve(_: object, context: Context) -> None:
            async with self._connection(context, path, is_stream=True):
                await ServedStream(context, self._runtime, self.rooms, self._refusals, path).serve()

        serve.__name__ = path
        return serve

    def _unary_handler(self, path: str) -> Callable[[object, Context], Awaitable[None]]:
        async def answer(_: object, context: Context) -> None:
            async with self._connection(context, path, is_stream=False):
                await serve_unary(context, self._runtime, self.rooms, self._turns, self._refusals, path)

        answer.__name__ = path
        return answer
