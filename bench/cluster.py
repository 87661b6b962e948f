"""Measures three real nodes and a controller: batches a second with acks=all, time to ready, memory; and bare gRPC.

The client, the nodes and the controller share this machine's cores, as in the measurement of real Kafka.
"""

from __future__ import annotations

import asyncio
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import cast

import grpc.aio

from bench.table import Line
from cluster.core.client.config import ProducerConfig
from cluster.local.tuning import keep_freed_memory, loop_factory
from cluster.shell.clients import AsyncAdmin, AsyncProducer
from cluster.shell.transport import read_or_end

BATCH_BYTES = 16 << 10
ROUNDS = 3
ROUND_S = 4.0
WARM_UP_S = 1.0
ECHO_WINDOW = 5
PORT = 23_092
KAFKA_BATCHES_PER_S = 1_270
KAFKA_READY_S = 8.0
KAFKA_GIB = 2.9
CLIENT = ProducerConfig(linger_ms=0, batch_size=BATCH_BYTES, buffer_memory=64 * BATCH_BYTES)


def run() -> list[Line]:
    """Measure the cluster and the bare gRPC stream, some 20 seconds."""
    keep_freed_memory()
    return [*_cluster_lines(), _floor_line()]


def _cluster_lines() -> list[Line]:
    with tempfile.TemporaryDirectory(prefix="replog-bench-") as directory:
        data = Path(directory, "data")
        started = time.perf_counter()
        up = subprocess.Popen(
            [sys.executable, "-m", "replog", "up", "--nodes", "3", "--port", str(PORT), "--data", str(data)],
            stdout=subprocess.PIPE,
        )
        try:
            assert up.stdout is not None
            line = up.stdout.readline()
            assert line.startswith(b"ready "), (line, up.wait())
            ready_s = time.perf_counter() - started
            with asyncio.Runner(loop_factory=loop_factory()) as runner:
                rates = runner.run(_batches_per_s(f"127.0.0.1:{PORT}"))
            memory_gib = _memory_bytes(data, up.pid) / (1 << 30)
        finally:
            up.send_signal(signal.SIGTERM)
            up.wait(60)
    return [
        Line(
            what="three nodes, acks=all, 16 KiB batches",
            value=statistics.median(rates),
            unit="batches/s",
            peer=f"Kafka {KAFKA_BATCHES_PER_S:,}",
            detail="rounds: " + ", ".join(f"{rate:,.0f}" for rate in rates),
        ),
        Line(
            what="`up --nodes 3` to ready",
            value=ready_s,
            unit="s",
            target=KAFKA_READY_S,
            lower_is_better=True,
            peer=f"Kafka {KAFKA_READY_S:g}",
        ),
        Line(
            what="memory of all five processes after it",
            value=memory_gib,
            unit="GiB",
            target=KAFKA_GIB,
            lower_is_better=True,
            peer=f"Kafka {KAFKA_GIB:g}",
        ),
    ]


async def _batches_per_s(bootstrap: str) -> list[float]:
    """Produce single records that fill a batch, as many in flight as the producer allows; a rate for each round."""
    async with AsyncAdmin(bootstrap) as admin:
        configs = {"min.insync.replicas": "2"}
        await admin.create_topic("bench", replication_factor=3, configs=configs)
        assert await admin.until_led("bench")
    value = os.urandom(BATCH_BYTES - 100)
    rates = []
    async with AsyncProducer(bootstrap, CLIENT) as producer:
        await _produce_for(producer, value, WARM_UP_S)
        for _ in range(ROUNDS):
            rates.append(await _produce_for(producer, value, ROUND_S))
    return rates


async def _produce_for(producer: AsyncProducer, value: bytes, seconds: float) -> float:
    """Produce for `seconds`; returns the acknowledged batches a second."""
    started = time.perf_counter()
    sent = []
    while time.perf_counter() < started + seconds:
        sent.append(await producer.send("bench", value))
        await asyncio.sleep(0)
    await producer.flush()
    elapsed_s = time.perf_counter() - started
    failed = [future.exception() for future in sent if future.exception() is not None]
    assert not failed, failed[0]
    return len(sent) / elapsed_s


def _memory_bytes(data: Path, supervisor: int) -> int:
    """Returns the resident memory of all processes of the cluster; a shared page counts once for each process."""
    pids = [supervisor, *(int(path.read_text()) for path in data.glob("*/pid"))]
    fields = [Path(f"/proc/{pid}/statm").read_text().split() for pid in pids]
    return sum(int(resident) for _, resident, *_ in fields) * os.sysconf("SC_PAGE_SIZE")


async def _echo(_: object, context: grpc.aio.ServicerContext[bytes, bytes]) -> None:
    """Answer each message of a stream with its size, as bare gRPC."""
    while (request := await read_or_end(context)) is not None:
        await context.write(len(cast("bytes", request)).to_bytes(4, "big"))


async def _serve_echo() -> None:
    server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
    handlers = {"Echo": grpc.stream_stream_rpc_method_handler(_echo)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("bench.Floor", handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(port, flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    await server.stop(0)


async def _echoes_per_s(port: int) -> float:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        call = channel.stream_stream("/bench.Floor/Echo", None, None)(None)
        window = asyncio.Semaphore(ECHO_WINDOW)
        writer = asyncio.ensure_future(_keep_writing(call, window))
        started, count = time.perf_counter(), 0
        while time.perf_counter() < started + ROUND_S:
            await read_or_end(call)
            window.release()
            count += 1
        writer.cancel()
        return count / (time.perf_counter() - started)


async def _keep_writing(call: grpc.aio.StreamStreamCall[bytes, bytes], window: asyncio.Semaphore) -> None:
    message = os.urandom(BATCH_BYTES)
    while True:
        await window.acquire()
        await call.write(message)


def _floor_line() -> Line:
    command = [sys.executable, "-m", "bench.cluster", "--serve-echo"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        assert server.stdin is not None and server.stdout is not None
        port = int(server.stdout.readline())
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            rate = runner.run(_echoes_per_s(port))
        server.stdin.close()
    detail = f"one hop, {ECHO_WINDOW} in flight; a batch needs three and two answers"
    return Line(what="bare gRPC stream, 16 KiB messages", value=rate, unit="messages/s", detail=detail)


if __name__ == "__main__":
    keep_freed_memory()
    with asyncio.Runner(loop_factory=loop_factory()) as serving:
        serving.run(_serve_echo())
