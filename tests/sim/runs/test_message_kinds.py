"""The same three-node cluster in both worlds: the same kinds of messages travel on the same streams."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from functools import wraps
from pathlib import Path

import pytest

from cluster.core.client.config import OffsetReset
from cluster.core.connection.codec import OutOfBounds
from cluster.core.messages import CONTROLLER_ID
from cluster.local.node import Arguments, make_core
from cluster.shell.clients import AsyncAdmin, AsyncConsumer, AsyncProducer
from cluster.shell.runtime import Runtime
from cluster.shell.server import BROKER_SERVICES, CONTROLLER_SERVICES, NodeServer
from cluster.shell.streams import StreamCodec, UnaryCodec
from sim.run import run_scenario
from sim.scenario.model import parse_scenario

HOST = "127.0.0.1"
RECORDS = 20
SCENARIO = """
scenario: three-nodes
duration: 4s
topics: {t: {partitions: 1, replicas: 3, config: {min.insync.replicas: 2}}}
producers: [{topic: t, rate: 20/s}]
consumers: [{topic: t}]
"""


class Kinds:
    """What was seen: the streams with the requests on them, and the answers."""

    def __init__(self) -> None:
        self.requests: set[tuple[str, str]] = set()
        self.answers: set[str] = set()

    def request(self, path: str, body: object) -> None:
        self.requests.add((path, type(body).__name__))


def simulated() -> Kinds:
    """The kinds in the trace of a simulated run."""
    trace = io.BytesIO()
    run_scenario(parse_scenario(SCENARIO), 1, trace_file=trace)
    kinds = Kinds()
    for line in trace.getvalue().splitlines():
        event = json.loads(line)
        if event.get("kind") == "request":
            kinds.requests.add((event["on"], event["body"]["is"]))
        elif event.get("kind") == "response":
            kinds.answers.add(event["body"]["is"])
    return kinds


def record(monkeypatch: pytest.MonkeyPatch) -> Kinds:
    """Let the codec of this process note what it reads."""
    kinds = Kinds()

    def noting(owner: type, name: str, note: Callable[..., None]) -> None:
        original = getattr(owner, name)

        @wraps(original)
        def noted(*arguments: object) -> object:
            result = original(*arguments)
            note(result, *arguments)
            return result

        monkeypatch.setattr(owner, name, noted)

    def on_calls(found: Sequence[tuple[int, object]], codec: StreamCodec, data: bytes) -> None:
        for _, body in found:
            kinds.request(codec.path, body)

    def on_answers(found: Sequence[tuple[int, object]], codec: StreamCodec, data: bytes) -> None:
        kinds.answers.update(type(body).__name__ for _, body in found)

    def on_request(body: object, codec: UnaryCodec, path: str, data: bytes) -> None:
        kinds.request(path, body)

    def on_response(body: object, codec: UnaryCodec, path: str, data: bytes) -> None:
        kinds.answers.add(type(body).__name__)

    noting(StreamCodec, "calls_from_bytes", on_calls)
    noting(StreamCodec, "answers_from_bytes", on_answers)
    noting(UnaryCodec, "request_from_bytes", on_request)
    noting(UnaryCodec, "response_from_bytes", on_response)
    return kinds


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


@pytest.mark.slow
def test_a_simulated_and_a_real_cluster_send_the_same_kinds_of_messages_on_the_same_streams(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    expected = simulated()
    real = record(monkeypatch)
    asyncio.run(asyncio.wait_for(use_real_cluster(tmp_path), 60))
    assert real.requests == expected.requests
    assert real.answers == expected.answers
    assert len({path for path, _ in real.requests if path.endswith(("Fetch", "Produce"))}) == 3
    assert OutOfBounds.__name__ not in real.answers
