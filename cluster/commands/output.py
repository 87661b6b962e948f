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
        self.count = 0
        self.is_closed = False

    def write(self, records: Iterable[bytes]) -> None:
        """Writes the records in order, until the reader is not there any more. Raises OSError, as on a full disk."""
        waiting: list[bytes] = []
        size_bytes = 0
        for record in records:
            waiting.append(record)
            size_bytes += len(record)
            if size_bytes >= _WRITE_BYTES:
                self._write(waiting)
                waiting, size_bytes = [], 0
        self._write(waiting)

    def watch(self, on_closed: Callable[[], None]) -> None:
        """Calls `on_closed` in the running loop once the reader of a pipe leaves, also while nothing is written.

        Another stream than a pipe is not watched: a write shows that it is closed.
        """
        try:
            descriptor = self._raw.fileno()
        except OSError:
            # A stream in memory has no descriptor.
            return
        if not stat.S_ISFIFO(os.fstat(descriptor).st_mode):
            return
        loop = asyncio.get_running_loop()

        def on_event() -> None:
            loop.remove_reader(descriptor)
            if _has_no_reader(descriptor):
                self.is_closed = True
                on_closed()

        # Nothing can be read from this end, but the system reports the error there.
        loop.add_reader(descriptor, on_event)

    def _write(self, records: list[bytes]) -> None:
        if self.is_closed:
            return
        data = memoryview(b"".join(records))
        written, before = 0, self.count
        try:
            while written < len(data):
                written += self._raw.write(data[written:]) or self._wait()
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

    def _wait(self) -> int:
        """Waits for room in a pipe that was set not to block."""
        select.select([], [self._raw], [])
        return 0


def _has_no_reader(descriptor: int) -> bool:
    poll = select.poll()
    poll.register(descriptor, 0)
    return any(events & select.POLLERR for _, events in poll.poll(0))
