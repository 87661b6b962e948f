"""Lines for `replog produce`: byte for byte, whatever the chunks, and without waiting for more than is there."""

from __future__ import annotations

import asyncio
import io
import os
from collections.abc import AsyncIterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.commands import lines
from cluster.commands.lines import lines_of, stream_chunks
from cluster.commands.produce import split_key


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


def test_a_line_longer_than_any_record_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "MAX_LINE_BYTES", 10)
    with pytest.raises(ValueError, match="longer than 10 bytes"):
        read([b"x" * 11])


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


def test_a_key_is_what_precedes_the_first_separator() -> None:
    assert split_key(b"k=v=w", b"=") == (b"k", b"v=w")
    assert split_key(b"k=v", None) == (None, b"k=v")
    with pytest.raises(ValueError, match="does not contain the key separator"):
        split_key(b"kv", b"=")
