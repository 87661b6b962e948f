"""Serves the calls of clients on gRPC: the tasks and events around the incoming side of `cluster/core/connection/`.

A stream has a reader (gRPC's handler) and a writer task. While calls wait for room, the reader reads nothing, and the
client is slowed down by HTTP/2. Unary calls are served as streams of one request and one answer, which is the same on
the wire: gRPC would read each request of a unary handler at once, and hold as many as a connection may have calls.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from functools import partial
from typing import final

import grpc
import grpc.aio

from cluster.core.connection.codec import Malformed
from cluster.core.connection.incoming import IncomingCall, IncomingStream
from cluster.core.connection.rooms import UNARY, Rooms
from cluster.rpc.methods import BY_PATH, NODE_SERVICES
from cluster.shell.refused import RefusalLog, TooManyConnections, Watched
from cluster.shell.runtime import Runtime
from cluster.shell.streams import CODEC
from cluster.shell.transport import read_or_end

logger = logging.getLogger(__name__)

Context = grpc.aio.ServicerContext[bytes, bytes]

# The connections of clients with calls that a node serves at a time: of each stream, and of each unary call that is
# read, up to PIECE_BYTES and what gRPC takes ahead may be in memory that no room counts yet: 8 MiB a connection.
MOST_CONNECTIONS = 1_000
# The connections with calls that only nodes make, which have places of their own: a follower that many consumers keep
# from its leader leaves the in-sync set. It is more than twice the brokers of a cluster, for those that connect again.
MOST_NODE_CONNECTIONS = 250
# The streams of a connection. Our clients have one or two, and begin the next while the one before ends.
MOST_STREAMS = 4
# The unary calls of a connection whose requests are read at a time.
MOST_READ = 2
# How long the next piece of a frame may take, whose place others may wait for.
PIECE_TIMEOUT_S = 30.0


@final
class Connections:
    """The connections that have calls, each with how many: streams and unary calls, those of nodes apart."""

    def __init__(self) -> None:
        self._calls: Counter[str] = Counter()
        self._calls_of_nodes: Counter[str] = Counter()
        self._streams: Counter[str] = Counter()

    @contextlib.contextmanager
    def serve(self, peer: str, path: str) -> Iterator[None]:
        """Counts a call of this path by this client until the block ends. Raises TooManyConnections."""
        calls, most = self._calls, MOST_CONNECTIONS
        if BY_PATH[path].service in NODE_SERVICES:
            calls, most = self._calls_of_nodes, MOST_NODE_CONNECTIONS
        if peer not in calls and len(calls) >= most:
            raise TooManyConnections(most)
        with _counted(calls, peer):
            yield

    @contextlib.contextmanager
    def serve_stream(self, peer: str, path: str) -> Iterator[None]:
        """Counts a stream of this client until the block ends. Raises Malformed for one too many."""
        if self._streams[peer] >= MOST_STREAMS:
            raise Malformed(f"{path}: more than {MOST_STREAMS} streams on a connection")
        with _counted(self._streams, peer):
            yield


@contextlib.contextmanager
def _counted(counter: Counter[str], key: str) -> Iterator[None]:
    """Counts one more until the block ends; what is at zero is not kept."""
    counter[key] += 1
    try:
        yield
    finally:
        counter[key] -= 1
        if not counter[key]:
            del counter[key]


async def _read_piece(context: Context) -> bytes | None:
    """Reads the next piece of a frame; None at the end. Raises Malformed if it does not come."""
    try:
        async with asyncio.timeout(PIECE_TIMEOUT_S):
            return await read_or_end(context)
    except TimeoutError as error:
        raise Malformed(f"the next piece of a frame did not come in {PIECE_TIMEOUT_S:g} s") from error


@final
class ServedStream:
    """One client's stream, from its begin until the client has left."""

    def __init__(
        self, context: Context, runtime: Runtime, rooms: Rooms, refusals: RefusalLog, path: str
    ) -> None:
        self._context, self._rooms, self._path = context, rooms, path
        self._refusals = refusals
        self._peer = context.peer()
        self._written = asyncio.Event()
        self._passed_on = asyncio.Event()
        # Whether no answer is written any more, and why none can be; then the reader, a task of gRPC's, is cancelled.
        self._is_ending = False
        self._broken = ""
        self._reader: asyncio.Task[object] | None = None
        self._room = rooms.enter(self._peer, path)
        self._stream = IncomingStream(
            CODEC,
            path,
            self._room,
            Watched(runtime, refusals, self._peer),
            wake=self._wake,
            on_refused=partial(refusals.on_wrong, self._peer),
        )

    def _wake(self) -> None:
        self._written.set()
        self._passed_on.set()

    async def serve(self) -> None:
        """Reads and answers until the client has all its answers or has left, or sends what is no frame."""
        stream = self._stream
        self._reader = asyncio.current_task()
        writer = asyncio.get_running_loop().create_task(self._write())
        try:
            # A call less for each frame, of which few are inside another.
            while (
                frame := await (
                    _read_piece(self._context) if stream.is_inside_frame else read_or_end(self._context)
                )
            ) is not None:
                stream.on_frame(frame)
                while not stream.is_ready:
                    self._passed_on.clear()
                    await self._passed_on.wait()
            stream.half_close()
            while not stream.is_drained:
                self._passed_on.clear()
                await self._passed_on.wait()
        except Malformed as error:
            self._refusals.on_wrong(self._peer, error)
            # The present write comes to its end first: gRPC takes no status beside it, and the call would never end. A
            # client that does not read keeps its room and its place so long.
            self._is_ending = True
            self._written.set()
            await writer
            await self._context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        except asyncio.CancelledError:
            if not self._broken:
                raise
            await self._context.abort(grpc.StatusCode.INTERNAL, self._broken)
        finally:
            writer.cancel()
            stream.end()
            self._rooms.leave(self._peer, self._path)

    async def _write(self) -> None:
        """Writes answers as they come, until the client has left or the task is cancelled."""
        stream = self._stream
        try:
            while not self._is_ending:
                await self._written.wait()
                self._written.clear()
                while not self._is_ending and (frame := stream.next_frame()) is not None:
                    await self._context.write(frame)
                    stream.on_written()
        except (grpc.aio.BaseError, asyncio.InvalidStateError) as error:
            # The client has left; the reader learns it too.
            logger.debug("write failed error=%r", error)
        except Exception as error:
            # Nobody else would learn of it: no call of the stream would be answered any more.
            logger.exception("an answer that cannot be written ends the stream")
            self._broken = f"an answer cannot be written: {type(error).__name__}"
            assert self._reader is not None, self._path
            self._reader.cancel()


@final
class ReadTurns:
    """Lets a few unary calls of each connection be read at a time, until the core has them: then their room counts."""

    def __init__(self) -> None:
        # By the address of the client: its turns, and how many have one or wait for one.
        self._turns: dict[str, tuple[asyncio.Semaphore, int]] = {}

    @contextlib.asynccontextmanager
    async def take(self, peer: str) -> AsyncIterator[None]:
        """Waits for a turn of this client, and ends it with the block."""
        turns, users = self._turns.get(peer) or (asyncio.Semaphore(MOST_READ), 0)
        self._turns[peer] = (turns, users + 1)
        try:
            async with turns:
                yield
        finally:
            _, users = self._turns[peer]
            if users > 1:
                self._turns[peer] = (turns, users - 1)
            else:
                del self._turns[peer]


async def serve_unary(
    context: Context, runtime: Runtime, rooms: Rooms, turns: ReadTurns, refusals: RefusalLog, path: str
) -> None:
    """Reads the request and writes the answer; if the client leaves before, the core drops the call."""
    peer = context.peer()
    answered: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
    passed = asyncio.Event()
    call = IncomingCall(
        CODEC,
        rooms.enter(peer, UNARY),
        Watched(runtime, refusals, peer),
        write=lambda _, frame: None if answered.done() else answered.set_result(frame),
        on_refused=partial(refusals.on_wrong, peer),
        on_passed=passed.set,
    )
    try:
        async with turns.take(peer):
            await _read_request(context, call, path, passed)
        await context.write(await answered)
    except Malformed as error:
        refusals.on_wrong(peer, error)
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
    finally:
        call.end()
        rooms.leave(peer, UNARY)


async def _read_request(context: Context, call: IncomingCall, path: str, passed: asyncio.Event) -> None:
    """Reads a unary request, until the core has it. Raises Malformed."""
    while True:
        message = await (_read_piece(context) if call.is_inside_frame else read_or_end(context))
        if message is None:
            raise Malformed(f"{path}: a call without a whole request")
        passed.clear()
        call.on_frame(path, message)
        if call.is_waiting:
            await passed.wait()
        if not call.is_inside_frame:
            return
