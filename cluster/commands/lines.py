"""Reads lines of a file or of standard input without blocking the loop: sends must not wait for a slow typist."""

from __future__ import annotations

import asyncio
import os
import stat
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import IO

from cluster.commands.record_lines import BadLine

CHUNK_BYTES = 1 << 16
# The size limit of a message, so no record can be longer.
MAX_LINE_BYTES = 64 << 20

PROMPT = ">"


async def lines_of(chunks: AsyncIterator[bytes]) -> AsyncIterator[list[bytes]]:
    """Yields the whole lines of each chunk without their newlines, otherwise byte for byte.

    The last line needs no newline. Raises BadLine, after all lines before it, at one longer than any record.
    """
    # The part of the last line that has come; it grows in place, because each copy would take as long as the line.
    rest, count = bytearray(), 0
    async for chunk in chunks:
        end, *lines = chunk.split(b"\n")
        rest += end
        if lines:
            lines.insert(0, bytes(rest))
            rest = bytearray(lines.pop())
            count += len(lines)
            yield lines
        if len(rest) > MAX_LINE_BYTES:
            raise BadLine(count + 1, f"longer than {MAX_LINE_BYTES} bytes")
    if rest:
        yield [bytes(rest)]


async def file_chunks(path: Path) -> AsyncIterator[bytes]:
    """Yields the bytes of a file, or of a pipe as soon as they come. Raises OSError, which names it."""
    with path.open("rb") as file:
        try:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                async for chunk in stream_chunks(file):
                    yield chunk
                return
            while chunk := file.read(CHUNK_BYTES):
                yield chunk
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(path)) from error


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


async def prompted(chunks: AsyncIterator[bytes], show: Callable[[str], None]) -> AsyncIterator[bytes]:
    """Yields the chunks of a typist, with a prompt before each line; ends the last one when typing ends."""
    is_line_open = True
    show(PROMPT)
    try:
        async for chunk in chunks:
            is_line_open = not chunk.endswith(b"\n")
            yield chunk
            if not is_line_open:
                is_line_open = True
                show(PROMPT)
    finally:
        if is_line_open:
            show("\n")


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
        chunk, error = b"", OSError(failure.errno, failure.strerror, "standard input")

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
