"""The proxy on the way from one process to another: it carries bytes as the two links between them allow."""

from __future__ import annotations

import asyncio
import contextlib
from typing import final

from cluster.local.layout import HOST
from replog.real.links import Link

CHUNK_BYTES = 64 << 10
# The chunks of one direction that wait at most; then the sender's own socket fills, as with a slow network.
MOST_CHUNKS = 256
# A narrow link carries slices that take this part of a second.
SLICES_A_SECOND = 20


@final
class Pump:
    """One direction of a connection: takes what one end sends, and passes it on when the link lets it."""

    def __init__(self, link: Link, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._link, self._reader, self._writer = link, reader, writer
        # Pairs of the loop's time when the bytes are due, and the bytes; no bytes are the end.
        self._chunks: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(MOST_CHUNKS)

    async def run(self) -> None:
        """Carry bytes until the sender's end has come through. Raises OSError when the receiver takes no more."""
        taking = asyncio.get_running_loop().create_task(self._take())
        try:
            while data := await self._next():
                await self._give(data)
        finally:
            taking.cancel()
            await asyncio.gather(taking, return_exceptions=True)

    async def _take(self) -> None:
        """Read as long as the sender sends; a connection that it broke ends like one that it closed."""
        clock = asyncio.get_running_loop().time
        data = b"-"
        while data:
            try:
                data = await self._reader.read(CHUNK_BYTES)
            except OSError:
                data = b""
            await self._chunks.put((clock() + self._link.delay_us() / 1e6, data))

    async def _next(self) -> bytes:
        """Returns the next bytes once they are due and nothing holds the link."""
        due_s, data = await self._chunks.get()
        await asyncio.sleep(due_s - asyncio.get_running_loop().time())
        await self._link.until_free()
        return data

    async def _give(self, data: bytes) -> None:
        left = memoryview(data)
        while left:
            narrow = self._link.bytes_per_s
            size = min(len(left), max(1, narrow // SLICES_A_SECOND)) if narrow else len(left)
            self._writer.write(left[:size])
            await self._writer.drain()
            left = left[size:]
            if narrow:
                await asyncio.sleep(size / narrow)


@final
class Connection:
    """Two connected pairs of streams: `near` is that of the process that connected, `far` that of the node."""

    def __init__(self, near: asyncio.StreamWriter, far: asyncio.StreamWriter) -> None:
        self.near, self.far = near, far
        self._is_half_open = False

    async def run(self, forth: Pump, back: Pump) -> None:
        """Carry bytes both ways until one side ends; then the other side's connection is broken too."""
        loop = asyncio.get_running_loop()
        tasks = {loop.create_task(forth.run()), loop.create_task(back.run())}
        try:
            _, left = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if self._is_half_open and left:
                # One side has forgotten the connection; the other learns of it when it sends something.
                await asyncio.wait(left)
        finally:
            for task in tasks:
                task.cancel()
            # Before the wait, which the end of the proxy may cancel: nobody else knows of `far`.
            self.abort()
            await asyncio.gather(*tasks, return_exceptions=True)

    def forget(self, *, at_near: bool) -> None:
        """Break the connection at one side only."""
        self._is_half_open = True
        (self.near if at_near else self.far).transport.abort()

    def abort(self) -> None:
        for writer in (self.near, self.far):
            writer.transport.abort()


@final
class Proxy:
    """Listens for the connections of one process, `forth.source`, to the node that listens on `port`."""

    def __init__(self, forth: Link, back: Link, port: int) -> None:
        assert (forth.source, forth.target) == (back.target, back.source), (forth.source, back.source)
        self.forth, self.back, self._node_port = forth, back, port
        self.port = 0
        self._connections: set[Connection] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._is_closed = False

    async def start(self) -> None:
        """Listen on a free port, which is `port` from then on. Raises OSError."""
        assert self._server is None, "started twice"
        self._server = await asyncio.start_server(self._accept, HOST, 0)
        self.port = self._server.sockets[0].getsockname()[1]

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve a connection in a task, and break it when the task ends, also one that ends before it has begun."""
        if self._is_closed:
            writer.transport.abort()
            return
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._tasks.add(task)

        def end(ended: asyncio.Task[None]) -> None:
            writer.transport.abort()
            self._tasks.discard(ended)

        task.add_done_callback(end)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # Nobody listens there, as on the machine of a dead process, or the run is over.
        with contextlib.suppress(OSError, asyncio.CancelledError):
            await self._connect(reader, writer)

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # A connection is made by packets both ways.
        await self.forth.until_free()
        await self.back.until_free()
        far_reader, far_writer = await asyncio.open_connection(HOST, self._node_port)
        connection = Connection(writer, far_writer)
        self._connections.add(connection)
        try:
            await connection.run(Pump(self.forth, reader, far_writer), Pump(self.back, far_reader, writer))
        finally:
            self._connections.discard(connection)

    def hang_up(self, forgetful: str) -> None:
        """Let the process of that name forget the connections that this proxy carries; the other hears nothing."""
        assert forgetful in (self.forth.source, self.forth.target), forgetful
        for connection in self._connections:
            connection.forget(at_near=forgetful == self.forth.source)

    async def close(self) -> None:
        """Break every connection and listen no more."""
        self._is_closed = True
        if self._server is not None:
            self._server.close()
        for task in tuple(self._tasks):
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.gather(*self._tasks, return_exceptions=True)
        assert not self._connections, len(self._connections)
