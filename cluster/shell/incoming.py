"""Serves the calls of clients on gRPC: the tasks and events around the incoming side of `cluster/core/connection/`.

A stream has a reader (gRPC's handler) and a writer task. While calls wait for room, the reader reads nothing, and the
client is slowed down by HTTP/2.
"""

from __future__ import annotations

import asyncio
import logging
from typing import final

import grpc
import grpc.aio

from cluster.core.connection.codec import Malformed, OutOfBounds
from cluster.core.connection.incoming import IncomingCall, IncomingStream
from cluster.core.connection.rooms import UNARY, Rooms
from cluster.shell.runtime import Runtime
from cluster.shell.streams import CODEC
from cluster.shell.transport import read_or_end

logger = logging.getLogger(__name__)

Context = grpc.aio.ServicerContext[bytes, bytes]


def log_refused(sender: str, refused: OutOfBounds | Malformed) -> None:
    """Logs a request that is out of bounds, or bytes that are no request, with the sender's address."""
    logger.warning("request refused: sender=%s %s", sender, refused)


@final
class ServedStream:
    """One client's stream, from its begin until the client has left."""

    def __init__(self, context: Context, runtime: Runtime, rooms: Rooms, path: str) -> None:
        self._context, self._rooms, self._path = context, rooms, path
        self._peer = context.peer()
        self._written = asyncio.Event()
        self._passed_on = asyncio.Event()
        self._stream = IncomingStream(
            CODEC,
            path,
            rooms.enter(self._peer, path),
            runtime,
            wake=self._wake,
            on_refused=lambda refused: log_refused(self._peer, refused),
        )

    def _wake(self) -> None:
        self._written.set()
        self._passed_on.set()

    async def serve(self) -> None:
        """Reads and answers until the client has all its answers or has left, or sends what is no frame."""
        stream = self._stream
        writer = asyncio.get_running_loop().create_task(self._write())
        try:
            while (frame := await read_or_end(self._context)) is not None:
                stream.on_frame(frame)
                while not stream.is_ready:
                    self._passed_on.clear()
                    await self._passed_on.wait()
            stream.half_close()
            while not stream.is_drained:
                self._passed_on.clear()
                await self._passed_on.wait()
        except Malformed as error:
            log_refused(self._peer, error)
            await self._context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        finally:
            writer.cancel()
            stream.end()
            self._rooms.leave(self._peer, self._path)

    async def _write(self) -> None:
        """Writes answers as they come, until the client has left or the task is cancelled."""
        stream = self._stream
        try:
            while True:
                await self._written.wait()
                self._written.clear()
                while (frame := stream.next_frame()) is not None:
                    await self._context.write(frame)
                    stream.on_written()
        except (grpc.aio.BaseError, asyncio.InvalidStateError) as error:
            # The client has left; the reader learns it too.
            logger.debug("write failed error=%r", error)


async def serve_unary(context: Context, runtime: Runtime, rooms: Rooms, path: str, request: bytes) -> bytes:
    """Returns the frame of the answer; if the client leaves before, the core drops the call."""
    peer = context.peer()
    answered: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
    call = IncomingCall(
        CODEC,
        rooms.enter(peer, UNARY),
        runtime,
        write=lambda _, frame: None if answered.done() else answered.set_result(frame),
        on_refused=lambda refused: log_refused(peer, refused),
    )

    def end(_: Context) -> None:
        call.end()
        rooms.leave(peer, UNARY)

    # gRPC writes the answer after this has returned it, and says then that the call is done; also if the client left.
    # Its types ask for a class of their own where any function will do.
    context.add_done_callback(end)  # type: ignore[arg-type]
    try:
        call.on_frame(path, request)
        return await answered
    except Malformed as error:
        log_refused(peer, error)
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        raise
