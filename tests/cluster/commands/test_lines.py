"""Lines for `replog produce`: byte for byte, whatever the chunks, and without waiting for more than is there."""

from __future__ import annotations

import asyncio
import io
import os
import socket
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.commands import lines
from cluster.commands.lines import file_chunks, lines_of, prompted, stream_chunks
from cluster.commands.record_lines import BadLine


async def chunked(chunks: list[bytes]) -> AsyncIterator[bytes]:
    for chunk in chunks:
        yield chunk


def read(chunks: list[bytes]) -> list[bytes]:
    async def main() -> list[bytes]:
        return [line async for several in lines_of(chunked(chunks)) for line in several]

    return asyncio.run(main())


@given(st.lists(st.binary(max_size=6).map(lambda data: data.replace(b"a", b"\n")), max_size=8))
def test_lines_do_not_depend_on_the_chunks(chunks: list[bytes]) -> None:
    text = b"".join(chunks)
    wanted = text.split(b"\n")
    if not wanted[-1]:
        # A newline at the end starts no empty line.
        wanted.pop()
    assert read(chunks) == wanted


def test_only_the_newline_ends_a_line() -> None:
    assert read([b"a\r\nb\x0bc\x1cd\xff\n\n e \n"]) == [b"a\r", b"b\x0bc\x1cd\xff", b"", b" e "]


def test_a_long_line_takes_a_time_that_grows_with_it_and_not_with_its_square() -> None:
    chunks = [bytes(4096)] * 8192
    before_s = time.process_time()
    assert [len(line) for line in read(chunks)] == [4096 * 8192]
    # A copy of the line with each chunk would take 128 GiB in all.
    assert time.process_time() - before_s < 5


def test_a_line_longer_than_any_record_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "MAX_LINE_BYTES", 10)
    seen: list[list[bytes]] = []

    async def main() -> None:
        async for several in lines_of(chunked([b"a\nb\n" + b"x" * 11])):
            seen.append(several)

    with pytest.raises(BadLine, match=r"^line 3: longer than 10 bytes$"):
        asyncio.run(main())
    assert seen == [[b"a", b"b"]]


def test_the_lines_of_a_pipe_are_read_before_it_ends() -> None:
    async def main() -> None:
        out, into = os.pipe()
        with os.fdopen(out, "rb") as stream, os.fdopen(into, "wb", buffering=0) as writer:
            reading = lines_of(stream_chunks(stream))
            writer.write(b"one\ntw")
            assert await anext(reading) == [b"one"]
            writer.write(b"o\n")
            assert await anext(reading) == [b"two"]
            writer.close()
            assert [several async for several in reading] == []

    asyncio.run(main())


def test_a_stream_without_a_descriptor_is_read_too() -> None:
    async def main() -> list[list[bytes]]:
        return [several async for several in lines_of(stream_chunks(io.BytesIO(b"a\nb")))]

    assert asyncio.run(main()) == [[b"a"], [b"b"]]


def test_an_input_that_cannot_be_read_is_named() -> None:
    async def whole(chunks: AsyncIterator[bytes]) -> None:
        async for _ in chunks:
            pass

    # Address 0 of a process cannot be read.
    path = Path("/proc/self/mem")
    with pytest.raises(OSError, match="/proc/self/mem"):
        asyncio.run(whole(file_chunks(path)))
    with pytest.raises(OSError, match="standard input"), path.open("rb") as stream:
        asyncio.run(whole(stream_chunks(stream)))


def test_lines_of_a_pipe_come_as_they_are_written(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    # Open for both, so that neither end waits for the other one.
    pipe = os.open(path, os.O_RDWR)

    async def main() -> list[bytes]:
        chunks = file_chunks(path)
        seen = []
        for line in (b"a\n", b"b\n"):
            os.write(pipe, line)
            seen.append(await asyncio.wait_for(anext(chunks), 10))
        return seen

    assert asyncio.run(main()) == [b"a\n", b"b\n"]
    os.close(pipe)


def test_a_pipe_without_a_writer_holds_up_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)

    async def main() -> bytes:
        first = asyncio.ensure_future(anext(file_chunks(path)))
        # If opening it held up the loop, no writer could ever come.
        await asyncio.sleep(0)
        async with asyncio.timeout(10):
            pipe = await asyncio.to_thread(os.open, path, os.O_WRONLY)
            os.write(pipe, b"a\n")
            os.close(pipe)
            return await first

    assert asyncio.run(main()) == b"a\n"


def test_the_wait_for_the_writer_of_a_pipe_can_be_cancelled(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)

    async def main() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(file_chunks(path)), 0.01)
        # Frees the thread that waits, which nothing else does.
        os.close(await asyncio.to_thread(os.open, path, os.O_WRONLY))

    asyncio.run(main())


def test_a_pipe_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        with pytest.raises(OSError, match=f"{path}"):
            asyncio.run(anext(file_chunks(path)))  # type: ignore[arg-type]


def prompts(chunks: list[bytes]) -> list[str]:
    """Return what a terminal shows: the prompts, and between them what was typed."""
    shown: list[str] = []

    async def main() -> None:
        async for chunk in prompted(chunked(chunks), shown.append):
            shown.append(chunk.decode())

    asyncio.run(main())
    return shown


def test_a_typist_sees_a_prompt_before_each_line() -> None:
    assert prompts([b"a\n", b"b\n"]) == [">", "a\n", ">", "b\n", ">", "\n"]


def test_a_line_typed_in_parts_has_one_prompt() -> None:
    assert prompts([b"a", b"b\n"]) == [">", "a", "b\n", ">", "\n"]


def test_an_interrupted_typist_is_left_at_the_start_of_a_line() -> None:
    async def interrupted() -> AsyncIterator[bytes]:
        yield b"a\n"
        raise asyncio.CancelledError

    shown: list[str] = []

    async def main() -> None:
        async for _ in prompted(interrupted(), shown.append):
            pass

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(main())
    assert shown == [">", ">", "\n"]
