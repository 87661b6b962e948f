"""The bare pull: what three nodes cost on gRPC without a log, the floor for the cluster's batches a second.

A leader takes batches, two followers fetch them from the offset where their file ends, a client has five batches in
flight on one connection, and a batch is acknowledged when both followers asked for what comes after it. Each is a
process of its own on grpc.aio with uvloop, with one bidirectional stream for each pair. Each node checks the CRC of
every batch and writes it into one file, without a sync. There are no indexes, epochs, producers, messages or merging:
what goes over the wire is a number of eight bytes and the batch.

`python -m bench.pull leader|follower|client …` is one of its processes.
"""

from __future__ import annotations

import argparse
import asyncio
import bisect
import json
import os
import struct
import sys
import tempfile
import time
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Self, final

import grpc.aio

from bench.children import Child
from bench.load import LATENCY_WARM_UP_S, OVERHEAD_BYTES
from cluster.local.tuning import keep_freed_memory, loop_factory
from cluster.shell.engine import FORMER_POLLER, VARIABLE
from storage.batch import build_batch
from storage.batch.record import Record
from storage.codec.crc32c import crc32c

IN_FLIGHT = 5
FETCH_BYTES = 1 << 20
PRODUCE, FETCH = "/bench.Pull/Produce", "/bench.Pull/Fetch"
OPTIONS = [("grpc.max_receive_message_length", 64 << 20), ("grpc.max_send_message_length", 64 << 20)]
_NUMBER = struct.Struct(">q")
# Base offset, length, leader epoch, magic, CRC: the first 21 bytes of a magic 2 batch.
_HEADER = struct.Struct(">qiibI")
Context = grpc.aio.ServicerContext[bytes, bytes]


@final
class Pull:
    """The bare pull's three nodes; `with` starts and ends them.

    gRPC is as it comes, or with the setting of the product's nodes (`cluster/shell/engine.py`).
    """

    def __init__(self, *, with_setting: bool = False) -> None:
        self._env = {**os.environ, VARIABLE: FORMER_POLLER if with_setting else ""}
        self._children = ExitStack()

    def __enter__(self) -> Self:
        leader = self._children.enter_context(self._child("leader"))
        self._port = leader.read()
        followers = [
            self._children.enter_context(self._child("follower", "--port", str(self._port))) for _ in range(2)
        ]
        self.pids = [leader.pid, *(each.pid for each in followers)]
        return self

    def _child(self, *arguments: str) -> Child:
        return Child(["-m", "bench.pull", *arguments], env=self._env)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._children.close()

    def client(self, batch_bytes: int) -> Child:
        """Returns a new client's process, which takes the orders that `bench/load.py` takes."""
        return self._child("client", "--port", str(self._port), "--batch-bytes", str(batch_bytes))


def check(data: memoryview) -> None:
    """Checks the CRC of each batch in `data`, which holds whole batches."""
    position, size = 0, len(data)
    while position < size:
        _, length, _, magic, crc = _HEADER.unpack_from(data, position)
        end = position + 12 + length
        assert magic == 2 and crc32c(data[position + 21 : end]) == crc, position
        position = end


@final
class Leader:
    """The file of the leader, and what waits for it to grow or for the followers to have what is in it."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        # Where each batch ends; the first batch begins at 0.
        self._ends = [0]
        self._follower_ends: dict[int, int] = {}
        self._is_longer = asyncio.Event()
        self._unacked: deque[tuple[int, bytes, asyncio.Queue[bytes]]] = deque()

    async def produce(self, _: object, context: Context) -> None:
        """Serves the stream of a client: takes batches, and answers each with its number."""
        answers: asyncio.Queue[bytes] = asyncio.Queue()
        writer = asyncio.create_task(self._write(context, answers))
        try:
            while (message := await read_or_end(context)) is not None:
                batch = memoryview(message)[_NUMBER.size :]
                check(batch)
                os.write(self._fd, batch)
                self._ends.append(self._ends[-1] + len(batch))
                self._unacked.append((self._ends[-1], message[: _NUMBER.size], answers))
                self._is_longer.set()
        finally:
            writer.cancel()

    async def _write(self, context: Context, answers: asyncio.Queue[bytes]) -> None:
        while True:
            await context.write(await answers.get())

    async def fetch(self, _: object, context: Context) -> None:
        """Serves the stream of a follower: answers each offset with what the file has from there on."""
        number = len(self._follower_ends)
        self._follower_ends[number] = 0
        while (message := await read_or_end(context)) is not None:
            (offset,) = _NUMBER.unpack(message)
            self._follower_ends[number] = offset
            self._acknowledge()
            while offset == self._ends[-1]:
                self._is_longer.clear()
                await self._is_longer.wait()
            end = self._ends[bisect.bisect_right(self._ends, offset + FETCH_BYTES) - 1]
            await context.write(os.pread(self._fd, end - offset, offset))

    def _acknowledge(self) -> None:
        high_watermark = min(self._follower_ends.values()) if len(self._follower_ends) > 1 else 0
        while self._unacked and self._unacked[0][0] <= high_watermark:
            _, number, answers = self._unacked.popleft()
            answers.put_nowait(number)


async def read_or_end(stream: Any) -> bytes | None:
    """Reads the next message of either side of a stream; None at its end."""
    received = await stream.read()
    return None if received is grpc.aio.EOF else received  # type: ignore[attr-defined]


async def lead(fd: int) -> None:
    """Serves as the leader until the standard input closes; prints the port."""
    leader = Leader(fd)
    server = grpc.aio.server(options=[("grpc.so_reuseport", 0), *OPTIONS])
    handlers = {
        "Produce": grpc.stream_stream_rpc_method_handler(_coroutine(leader.produce)),
        "Fetch": grpc.stream_stream_rpc_method_handler(_coroutine(leader.fetch)),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("bench.Pull", handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(port, flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    await server.stop(0)


def _coroutine(serve: Callable[[object, Context], Awaitable[None]]) -> Callable[..., Awaitable[None]]:
    # grpc.aio inspects the function: a bound method does not get the interface with `read` and `write`.
    async def handle(request: object, context: Context) -> None:
        await serve(request, context)

    return handle


async def follow(fd: int, port: int) -> None:
    """Fetches from the leader into the file until the standard input closes."""
    fetching = asyncio.create_task(_fetch(fd, port))
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    fetching.cancel()


async def _fetch(fd: int, port: int) -> None:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=OPTIONS) as channel:
        call = channel.stream_stream(FETCH, None, None)(None)
        end = 0
        while True:
            await call.write(_NUMBER.pack(end))
            data = await read_or_end(call)
            assert data, "the leader has ended"
            check(memoryview(data))
            os.write(fd, data)
            end += len(data)


@final
class Client:
    """One connection to the leader: sends the same batch over and over, and measures."""

    def __init__(self, channel: grpc.aio.Channel, batch: bytes) -> None:
        self._call = channel.stream_stream(PRODUCE, None, None)(None)
        self._batch = batch
        self._sent = self._acked = 0
        self._window = asyncio.Semaphore(IN_FLIGHT)
        self._acked_at: list[float] = []
        # A reader for the whole life: to cancel a read of gRPC would end the stream.
        self._reader = asyncio.create_task(self._read())

    async def _read(self) -> None:
        while await read_or_end(self._call) is not None:
            self._acked_at.append(time.perf_counter())
            self._window.release()

    async def _write(self) -> None:
        await self._window.acquire()
        self._sent += 1
        await self._call.write(_NUMBER.pack(self._sent) + self._batch)

    async def _drain(self) -> None:
        """Waits until no batch is in flight."""
        for _ in range(IN_FLIGHT):
            await self._window.acquire()
        for _ in range(IN_FLIGHT):
            self._window.release()

    async def rate(self, seconds: float) -> dict[str, float]:
        """Sends for `seconds` with five batches in flight, and waits for the last answer."""
        before, started = self._sent, time.perf_counter()
        while time.perf_counter() < started + seconds:
            await self._write()
        await self._drain()
        return {"batches": self._sent - before, "seconds": time.perf_counter() - started}

    async def latencies_ms(self, per_s: int, seconds: float) -> list[float]:
        """Sends at a steady rate; returns the time of each batch from its turn in the schedule to its answer."""
        skipped, total = int(per_s * LATENCY_WARM_UP_S), int(per_s * (seconds + LATENCY_WARM_UP_S))
        self._acked_at.clear()
        started = time.perf_counter()
        for number in range(total):
            await asyncio.sleep(max(0.0, started + number / per_s - time.perf_counter()))
            await self._write()
        await self._drain()
        assert len(self._acked_at) == total, (len(self._acked_at), total)
        return [1000 * (self._acked_at[n] - started - n / per_s) for n in range(skipped, total)]


async def serve_client(port: int, batch_bytes: int) -> None:
    """Obeys orders on the standard input until it closes."""
    loop = asyncio.get_running_loop()
    batch = build_batch([Record(0, 0, None, os.urandom(batch_bytes - OVERHEAD_BYTES))])
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=OPTIONS) as channel:
        client = Client(channel, batch)
        await client.rate(0.1)
        print(json.dumps({"ready": True}), flush=True)
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            order = json.loads(line)
            if order["do"] == "rate":
                found: object = await client.rate(order["seconds"])
            else:
                found = await client.latencies_ms(order["per_s"], order["seconds"])
            print(json.dumps(found), flush=True)


def main() -> None:
    """Runs one process of the pull."""
    parser = argparse.ArgumentParser()
    parser.add_argument("role", choices=("leader", "follower", "client"))
    parser.add_argument("--port", type=int)
    parser.add_argument("--batch-bytes", type=int)
    given = parser.parse_args()
    keep_freed_memory()
    with tempfile.TemporaryFile() as file, asyncio.Runner(loop_factory=loop_factory()) as runner:
        match given.role:
            case "leader":
                runner.run(lead(file.fileno()))
            case "follower":
                runner.run(follow(file.fileno(), given.port))
            case _:
                runner.run(serve_client(given.port, given.batch_bytes))


if __name__ == "__main__":
    main()
