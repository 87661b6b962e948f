"""Standard output as bytes that are written at once: a reader that leaves is an answer, not an error."""

from __future__ import annotations

import asyncio
import io
import os
import select
import stat
from collections.abc import Callable, Iterable
from typing import IO, final

_WRITE_BYTES = 1 << 16


@final
class Output:
    """Writes whole records and counts those that the reader could get whole; ends when the reader closes the pipe.

    Nothing stays in a buffer of Python's, which would be written, and fail, again at the end of the process.
    """

    def __init__(self, stream: IO[bytes]) -> None:
        stream.flush()
        self._raw = stream.raw if isinstance(stream, io.BufferedWriter) else stream
        self._descriptor = _descriptor_of(self._raw)
        self._is_pipe, is_file = _kind_of(self._descriptor)
        # A pipe that has room takes so many bytes at once: no write has to wait, which no signal would end.
        self._most_bytes = _WRITE_BYTES if is_file else select.PIPE_BUF
        self._room = select.poll()
        if self._descriptor is not None:
            self._room.register(self._descriptor, select.POLLOUT)
        self.count = 0
        self.is_closed = False

    async def write(self, records: Iterable[bytes]) -> None:
        """Writes the records in order, until the reader is not there any more. Raises OSError, as on a full disk.

        Who cancels this while it waits for a slow reader may have written a part of a record, which does not count.
        """
        waiting: list[bytes] = []
        size_bytes = 0
        for record in records:
            waiting.append(record)
            size_bytes += len(record)
            if size_bytes >= _WRITE_BYTES:
                await self._write(waiting)
                waiting, size_bytes = [], 0
        await self._write(waiting)

    def watch(self, on_closed: Callable[[], None]) -> None:
        """Calls `on_closed` in the running loop once the reader of a pipe leaves, also while nothing is written.

        Another stream than a pipe is not watched: a write shows that it is closed.
        """
        descriptor = self._descriptor
        if descriptor is None or not self._is_pipe:
            return
        loop = asyncio.get_running_loop()

        def on_event() -> None:
            loop.remove_reader(descriptor)
            if _has_no_reader(descriptor):
                self.is_closed = True
                on_closed()

        # Nothing can be read from this end, but the system reports the error there.
        loop.add_reader(descriptor, on_event)

    async def _write(self, records: list[bytes]) -> None:
        if self.is_closed:
            return
        data = memoryview(b"".join(records))
        written, before = 0, self.count
        try:
            while written < len(data):
                if not self._has_room:
                    await self._wait()
                written += self._raw.write(data[written : written + self._most_bytes]) or 0
        except BrokenPipeError:
            self.is_closed = True
        finally:
            for record in records:
                written -= len(record)
                if written < 0:
                    break
                self.count += 1
        assert self.count <= before + len(records), (self.count, before, len(records))
        assert self.is_closed or self.count == before + len(records), (self.count, before, len(records))

    @property
    def _has_room(self) -> bool:
        """Whether a write need not wait, be it because it fails."""
        return self._descriptor is None or bool(self._room.poll(0))

    async def _wait(self) -> None:
        """Waits for room, or until the reader leaves."""
        descriptor, loop = self._descriptor, asyncio.get_running_loop()
        assert descriptor is not None, "a stream in memory has room"
        has_room = asyncio.Event()
        loop.add_writer(descriptor, has_room.set)
        try:
            await has_room.wait()
        finally:
            loop.remove_writer(descriptor)


def _descriptor_of(stream: IO[bytes] | io.RawIOBase) -> int | None:
    try:
        return stream.fileno()
    except OSError:
        # A stream in memory has no descriptor.
        return None


def _kind_of(descriptor: int | None) -> tuple[bool, bool]:
    """Returns whether it is a pipe, and whether it is a file or no descriptor at all."""
    if descriptor is None:
        return False, True
    mode = os.fstat(descriptor).st_mode
    return stat.S_ISFIFO(mode), stat.S_ISREG(mode)


def _has_no_reader(descriptor: int) -> bool:
    poll = select.poll()
    poll.register(descriptor, 0)
    return any(events & select.POLLERR for _, events in poll.poll(0))
