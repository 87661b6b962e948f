"""Standard output: what the reader could get is counted, and nothing waits in a buffer."""

from __future__ import annotations

import asyncio
import io
import os
import threading
from typing import IO

import pytest

from cluster.commands.output import Output


def test_records_are_written_at_once_and_counted() -> None:
    out, into = os.pipe()
    with os.fdopen(out, "rb") as reader, os.fdopen(into, "wb") as stream:
        output = Output(stream)
        output.write([b"a\n", b"", b"b\n"])
        assert os.read(reader.fileno(), 100) == b"a\nb\n"
        assert (output.count, output.is_closed) == (3, False)


def test_a_reader_that_left_is_an_answer_and_leaves_nothing_to_flush() -> None:
    out, into = os.pipe()
    os.close(out)
    with os.fdopen(into, "wb") as stream:
        output = Output(stream)
        output.write([b"a\n", b"b\n"])
        assert (output.count, output.is_closed) == (0, True)
        output.write([b"c\n"])
        assert output.count == 0


def test_records_that_a_reader_got_before_it_left_count() -> None:
    """A pipe holds 64 KiB, so the writer waits in the middle of the records when the reader leaves."""
    out, into = os.pipe()
    with os.fdopen(into, "wb") as stream:
        output = Output(stream)
        writing = threading.Thread(target=output.write, args=([b"x" * 1000] * 200,))
        writing.start()
        assert os.read(out, 1000) == b"x" * 1000
        os.close(out)
        writing.join()
    assert output.is_closed
    assert 0 < output.count < 200


def test_a_pipe_that_does_not_block_is_waited_for() -> None:
    out, into = os.pipe()
    os.set_blocking(into, False)
    got = bytearray()

    def read() -> None:
        while data := os.read(out, 65_536):
            got.extend(data)

    reading = threading.Thread(target=read)
    with os.fdopen(into, "wb") as stream:
        reading.start()
        output = Output(stream)
        output.write([b"x" * 1000] * 500)
    reading.join()
    os.close(out)
    assert (len(got), output.count) == (500_000, 500)


def test_a_reader_that_leaves_is_noticed_while_nothing_is_written() -> None:
    async def main(stream: IO[bytes], reader: int) -> None:
        output = Output(stream)
        closed = asyncio.Event()
        output.watch(closed.set)
        output.write([b"a\n"])
        await asyncio.sleep(0)
        assert not output.is_closed
        os.close(reader)
        await closed.wait()
        assert output.is_closed

    out, into = os.pipe()
    with os.fdopen(into, "wb") as stream:
        asyncio.run(main(stream, out))


def test_what_is_no_pipe_is_not_watched() -> None:
    called: list[str] = []

    async def main(stream: IO[bytes]) -> bool:
        output = Output(stream)
        output.watch(lambda: called.append("left"))
        await asyncio.sleep(0)
        return output.is_closed

    assert not asyncio.run(main(io.BytesIO()))
    with open(os.devnull, "wb", buffering=0) as stream:
        assert not asyncio.run(main(stream))
    assert called == []


def test_a_full_disk_is_raised_and_what_was_written_counts() -> None:
    with open("/dev/full", "wb", buffering=0) as stream:
        output = Output(stream)
        with pytest.raises(OSError, match="No space left"):
            output.write([b"a\n"])
        assert output.count == 0


def test_a_stream_in_memory_will_do() -> None:
    stream = io.BytesIO()
    Output(stream).write([b"a", b"b"])
    assert stream.getvalue() == b"ab"
