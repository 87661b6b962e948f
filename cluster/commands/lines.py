"""Reads lines of a file or of standard input without blocking the loop: sends must not wait for a slow typist."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import IO

CHUNK_BYTES = 1 << 16
# The size limit of a message, so no record can be longer.
MAX_LINE_BYTES = 64 << 20


async def lines_of(chunks: AsyncIterator[bytes]) -> AsyncIterator[list[bytes]]:
    """Yields the whole lines of each chunk without their newlines, otherwise byte for byte.

    The last line needs no newline. Raises ValueError at a line that is longer than any record.
    """
    rest = b""
    async for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        if len(rest) > MAX_LINE_BYTES:
            raise ValueError(f"a line is longer than {MAX_LINE_BYTES} bytes")
        if lines:
            yield lines
    if rest:
        yield [rest]


async def file_chunks(path: Path) -> AsyncIterator[bytes]:
    with path.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            yield chunk


async def stream_chunks(stream: IO[bytes]) -> AsyncIterator[bytes]:
    """Yields bytes as soon as they can be read, with a thread that does not keep the process alive."""
    loop = asyncio.get_running_loop()
    read = _reader(stream)
    while True:
        future: asyncio.Future[bytes] = loop.create_future()
        threading.Thread(target=_read_into, args=(read, future, loop), daemon=True).start()
        chunk = await future
        if not chunk:
            return
        yield chunk


def _reader(stream: IO[bytes]) -> Callable[[], bytes]:
    """Returns a function that reads the descriptor without Python's buffer, if the stream has one.

    A thread that waits in the buffer's `read` would hold its lock until the interpreter ends.
    """
    try:
        descriptor = stream.fileno()
    except OSError:
        return lambda: stream.read(CHUNK_BYTES)
    return lambda: os.read(descriptor, CHUNK_BYTES)


def _read_into(
    read: Callable[[], bytes], future: asyncio.Future[bytes], loop: asyncio.AbstractEventLoop
) -> None:
    try:
        chunk, error = read(), None
    except OSError as failure:
        chunk, error = b"", failure

    def finish() -> None:
        if future.done():
            return
        if error is None:
            future.set_result(chunk)
        else:
            future.set_exception(error)

    try:
        loop.call_soon_threadsafe(finish)
    except RuntimeError:
        # The loop is closed, so the future is not awaited any more.
        pass
