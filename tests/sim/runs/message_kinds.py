"""The same three-node cluster in both worlds, and the kinds of messages that travel there, by stream."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from typing import BinaryIO

import pytest

from cluster.core.client.config import OffsetReset
from cluster.core.messages import CONTROLLER_ID
from cluster.local.node import Arguments, make_core
from cluster.shell.clients import AsyncAdmin, AsyncConsumer, AsyncProducer
from cluster.shell.runtime import Runtime
from cluster.shell.server import BROKER_SERVICES, CONTROLLER_SERVICES, NodeServer
from cluster.shell.streams import StreamCodec, UnaryCodec
from sim.run import run_scenario
from sim.scenario.loading import parse_scenario

HOST = "127.0.0.1"
RECORDS = 20
# Real nodes have as long for their part, which takes about two seconds.
TIMEOUT_S = 60
SCENARIO = """
scenario: three-nodes
duration: 4s
topics: {t: {partitions: 1, replicas: 3, config: {min.insync.replicas: 2}}}
producers: [{topic: t, rate: 20/s}]
consumers: [{topic: t}]
"""


@dataclass(frozen=True, slots=True)
class Kinds:
    """The kinds of requests and answers that were read, each with the name of its stream or method."""

    requests: set[tuple[str, str]] = field(default_factory=set)
    answers: set[tuple[str, str]] = field(default_factory=set)


def simulated(trace_file: BinaryIO | None = None) -> Kinds:
    """Return the kinds of a simulated run; its trace is written to the file."""
    with recorded() as kinds:
        run_scenario(parse_scenario(SCENARIO), 1, trace_file=trace_file)
    return kinds


def real(root: Path) -> Kinds:
    """Return the kinds of the same scenario on real nodes, whose directories are made in `root`."""
    with recorded() as kinds:
        asyncio.run(asyncio.wait_for(use_real_cluster(root), TIMEOUT_S))
    return kinds


@contextlib.contextmanager
def recorded() -> Iterator[Kinds]:
    """Let the codec of this process note what it reads."""
    kinds = Kinds()

    def on_calls(found: Sequence[tuple[int, object]], codec: StreamCodec, data: bytes) -> None:
        kinds.requests.update((codec.path, type(body).__name__) for _, body in found)

    def on_answers(found: Sequence[tuple[int, object]], codec: StreamCodec, data: bytes) -> None:
        kinds.answers.update((codec.path, type(body).__name__) for _, body in found)

    def on_request(body: object, codec: UnaryCodec, path: str, data: bytes) -> None:
        kinds.requests.add((path, type(body).__name__))

    def on_response(body: object, codec: UnaryCodec, path: str, data: bytes) -> None:
        kinds.answers.add((path, type(body).__name__))

    with pytest.MonkeyPatch.context() as patch:
        for owner, name, note in (
            (StreamCodec, "calls_from_bytes", on_calls),
            (StreamCodec, "answers_from_bytes", on_answers),
            (UnaryCodec, "request_from_bytes", on_request),
            (UnaryCodec, "response_from_bytes", on_response),
        ):
            patch.setattr(owner, name, noting(getattr(owner, name), note))
        yield kinds


def noting(original: Callable[..., object], note: Callable[..., None]) -> Callable[..., object]:
    """Return `original`, which now shows its results and arguments to `note`."""

    @wraps(original)
    def noted(*arguments: object) -> object:
        result = original(*arguments)
        note(result, *arguments)
        return result

    return noted


def free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind((HOST, 0))
        return [int(probe.getsockname()[1]) for probe in probes]


@contextlib.asynccontextmanager
async def real_node(node_id: int, port: int, controller_port: int, root: Path) -> AsyncIterator[None]:
    """A real node on real gRPC and a real disk, within this process."""
    directory = root / f"node-{node_id}"
    directory.mkdir()
    arguments = Arguments(
        node_id=node_id, host=HOST, port=port, directories=(directory,), pid_path=directory / "pid",
        controller=(HOST, controller_port), properties=(), has_lifeline=False,
    )  # fmt: skip
    core = make_core(arguments)
    runtime = Runtime(core)
    runtime.peers.learn(CONTROLLER_ID, HOST, controller_port)
    server = NodeServer(runtime, CONTROLLER_SERVICES if node_id == CONTROLLER_ID else BROKER_SERVICES)
    await server.start(HOST, port)
    try:
        runtime.start(core.start)
        yield
    finally:
        await server.stop(0)
        await runtime.close()


async def use_real_cluster(root: Path) -> None:
    """What the clients of the scenario do, on real nodes."""
    ports = free_ports(4)
    async with contextlib.AsyncExitStack() as stack:
        for node_id, port in zip((CONTROLLER_ID, 1, 2, 3), ports, strict=True):
            await stack.enter_async_context(real_node(node_id, port, ports[0], root))
        bootstrap = ",".join(f"{HOST}:{port}" for port in ports[1:])
        admin = await stack.enter_async_context(AsyncAdmin(bootstrap))
        while len((await admin.metadata()).brokers) < 3:
            # The brokers register meanwhile.
            pass
        await admin.create_topic("t", replication_factor=3, configs={"min.insync.replicas": "2"})
        producer = await stack.enter_async_context(AsyncProducer(bootstrap))
        consumer = await stack.enter_async_context(AsyncConsumer(bootstrap))
        consumer.subscribe(["t"], OffsetReset.EARLIEST)
        for number in range(RECORDS):
            await (await producer.send("t", str(number).encode()))
        read = 0
        async for _ in consumer.records():
            read += 1
            if read == RECORDS:
                break
