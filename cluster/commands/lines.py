"""Reads lines of a file or of standard input without blocking the loop: sends must not wait for a slow typist."""

from __future__ import annotations

import asyncio
import os
import stat
import threading
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from typing import IO, TypeVar

from cluster.commands.record_lines import BadLine

CHUNK_BYTES = 1 << 16
# The size limit of a message, so no record can be longer.
MAX_LINE_BYTES = 64 << 20

PROMPT = ">"
T = TypeVar("T")


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

    def open_file() -> int:
        return os.open(path, os.O_RDONLY)

    is_regular = stat.S_ISREG(os.stat(path).st_mode)
    # A named pipe opens once it has a writer. Who stops waiting for that loses a descriptor until the process ends.
    descriptor = open_file() if is_regular else await _in_thread(open_file)
    with os.fdopen(descriptor, "rb") as file:
        try:
            if not is_regular:
                async for chunk in stream_chunks(file):
                    yield chunk
                return
            while chunk := file.read(CHUNK_BYTES):
                yield chunk
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(path)) from error


async def stream_chunks(stream: IO[bytes]) -> AsyncIterator[bytes]:
    """Yields bytes as soon as they can be read."""
    read = _reader(stream)
    while True:
        try:
            chunk = await _in_thread(read)
        except OSError as error:
            raise OSError(error.errno, error.strerror, "standard input") from error
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


async def _in_thread(work: Callable[[], T]) -> T:
    """Returns what `work` returns, or raises its error. It runs in a thread that does not keep the process alive."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()
    threading.Thread(target=_run_into, args=(work, future, loop), daemon=True).start()
    return await future


def _run_into(work: Callable[[], T], future: asyncio.Future[T], loop: asyncio.AbstractEventLoop) -> None:
    try:
        set_end = partial(future.set_result, work())
    except OSError as error:
        set_end = partial(future.set_exception, error)

    def finish() -> None:
        if not future.done():
            set_end()

    try:
        loop.call_soon_threadsafe(finish)
    except RuntimeError:
        # The loop is closed, so the future is not awaited any more.
        pass
