"""Standard output: what the reader could get is counted, and nothing waits in a buffer."""

from __future__ import annotations

import asyncio
import io
import os
import select
import threading
from collections.abc import Iterable
from typing import IO

import pytest

from cluster.commands.output import Output


def write(output: Output, records: Iterable[bytes]) -> None:
    asyncio.run(output.write(records))


def test_records_are_written_at_once_and_counted() -> None:
    out, into = os.pipe()
    with os.fdopen(out, "rb") as reader, os.fdopen(into, "wb") as stream:
        output = Output(stream)
        write(output, [b"a\n", b"", b"b\n"])
        assert os.read(reader.fileno(), 100) == b"a\nb\n"
        assert (output.count, output.is_closed) == (3, False)


def test_a_reader_that_left_is_an_answer_and_leaves_nothing_to_flush() -> None:
    out, into = os.pipe()
    os.close(out)
    with os.fdopen(into, "wb") as stream:
        output = Output(stream)
        write(output, [b"a\n", b"b\n"])
        assert (output.count, output.is_closed) == (0, True)
        write(output, [b"c\n"])
        assert output.count == 0


def test_records_that_a_reader_got_before_it_left_count() -> None:
    """A pipe holds 64 KiB, so the writer waits in the middle of the records when the reader leaves."""
    out, into = os.pipe()
    with os.fdopen(into, "wb") as stream:
        output = Output(stream)
        writing = threading.Thread(target=write, args=(output, [b"x" * 1000] * 200))
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
        write(output, [b"x" * 1000] * 500)
    reading.join()
    os.close(out)
    assert (len(got), output.count) == (500_000, 500)


def test_the_wait_for_a_reader_can_be_cancelled_and_what_was_written_counts() -> None:
    """Ctrl-C does so, and is heard only while the loop is not held up."""

    async def main(output: Output) -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await output.write([b"x" * 1000] * 200)

    out, into = os.pipe()
    with os.fdopen(into, "wb") as stream, os.fdopen(out, "rb") as reader:
        output = Output(stream)
        asyncio.run(main(output))
        os.set_blocking(out, False)
        got = reader.read()
        assert output.count == len(got) // 1000 > 0
        # Whole pages were written, and nothing that would have had to wait.
        assert len(got) % select.PIPE_BUF == 0
        assert not output.is_closed


@pytest.mark.parametrize("is_watched", [False, True])
def test_a_reader_that_leaves_ends_the_wait_for_it(is_watched: bool) -> None:
    async def main(output: Output, reader: int) -> None:
        if is_watched:
            output.watch(lambda: None)
        writing = asyncio.ensure_future(output.write([b"x" * 1000] * 200))
        # It writes what the pipe holds in its first turn, and waits.
        await asyncio.sleep(0)
        os.close(reader)
        await asyncio.wait_for(writing, 10)

    out, into = os.pipe()
    with os.fdopen(into, "wb") as stream:
        output = Output(stream)
        asyncio.run(main(output, out))
    assert output.is_closed
    assert 0 < output.count < 200


def test_a_reader_that_leaves_is_noticed_while_nothing_is_written() -> None:
    async def main(stream: IO[bytes], reader: int) -> None:
        output = Output(stream)
        closed = asyncio.Event()
        output.watch(closed.set)
        await output.write([b"a\n"])
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
            write(output, [b"a\n"])
        assert output.count == 0


def test_a_stream_in_memory_will_do() -> None:
    stream = io.BytesIO()
    write(Output(stream), [b"a", b"b"])
    assert stream.getvalue() == b"ab"
