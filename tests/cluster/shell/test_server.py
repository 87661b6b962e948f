"""The shell around a core: server, streams, transport, timers and jobs, tried with a core that echoes."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2

from cluster.core.effects import BOOTSTRAP, Send
from cluster.core.errors import ErrorCode
from cluster.core.events import TransportError
from cluster.core.messages import (
    CreateTopicRequest,
    CreateTopicResponse,
    DeleteTopicRequest,
    DeleteTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    MetadataRequest,
    MetadataResponse,
    ProducePartition,
    ProduceRequest,
    ProduceResponse,
    RequestBody,
    ResponseBody,
    TopicPartition,
)
from cluster.rpc import methods
from cluster.shell import server
from cluster.shell.incoming import MOST_CONNECTIONS, MOST_NODE_CONNECTIONS
from cluster.shell.runtime import Runtime
from cluster.shell.server import (
    BROKER_SERVICES,
    MOST_CALLS_OF_A_CONNECTION,
    NodeServer,
    PortInUse,
)
from cluster.shell.streams import CODEC
from cluster.shell.transport import Answers, Peers
from tests.cluster.shell.echo_core import EchoCore

HOST = "127.0.0.1"
T0 = TopicPartition("t", 0)


@dataclass
class Node:
    """An echo core behind a real server, with the port on which it listens."""

    core: EchoCore
    runtime: Runtime
    server: NodeServer
    port: int


@contextlib.asynccontextmanager
async def node(port: int = 0) -> AsyncIterator[Node]:
    core = EchoCore()
    runtime = Runtime(core)
    server = NodeServer(runtime, BROKER_SERVICES)
    bound = await server.start(HOST, port)
    runtime.start(core.start)
    try:
        yield Node(core, runtime, server, bound)
    finally:
        await server.stop(0)
        await runtime.close()


class Client:
    """Sends bodies through `Peers` and waits for their answers."""

    def __init__(self, *ports: int) -> None:
        self.peers = Peers(self._on_answers, bootstrap=[(HOST, port) for port in ports])
        self.futures: dict[int, asyncio.Future[ResponseBody | TransportError]] = {}
        self.order: list[int] = []

    def _on_answers(self, answers: Answers) -> None:
        for call, body in answers:
            self.order.append(call)
            self.futures[call].set_result(body)

    def send(
        self, body: RequestBody, *, to: int = BOOTSTRAP, timeout_ms: int = 5000, expects_reply: bool = True
    ) -> asyncio.Future[ResponseBody | TransportError]:
        call = len(self.futures) + 1
        future = self.futures[call] = asyncio.get_running_loop().create_future()
        self.peers.send(Send(to=to, call=call, body=body, timeout_ms=timeout_ms, expects_reply=expects_reply))
        return future


@contextlib.asynccontextmanager
async def client(*ports: int) -> AsyncIterator[Client]:
    asking = Client(*ports)
    try:
        yield asking
    finally:
        await asking.peers.close()


def run(test: Callable[[Node, Client], Awaitable[None]]) -> None:
    async def main() -> None:
        async with node() as serving, client(serving.port) as asking:
            await test(serving, asking)

    asyncio.run(main())


def produce(size_bytes: int, *, acks: int = -1) -> ProduceRequest:
    item = ProducePartition(topic_partition=T0, records=bytes(size_bytes))
    return ProduceRequest(acks=acks, partitions=(item,))


def fetch(size_bytes: int, *, replica_id: int = -1) -> FetchRequest:
    item = FetchPartition(topic_partition=T0, fetch_offset=size_bytes)
    return FetchRequest(replica_id=replica_id, partitions=(item,))


def refused_port() -> int:
    """Return a port on which no process listens."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def test_unary_call_gets_its_answer_and_errors_travel_inside() -> None:
    async def check(_: Node, asking: Client) -> None:
        assert await asking.send(CreateTopicRequest(name="a")) == CreateTopicResponse(topic_id="a")
        refused = await asking.send(DeleteTopicRequest(name="b"))
        assert isinstance(refused, DeleteTopicResponse)
        assert refused.error.name == "UNKNOWN_TOPIC_OR_PARTITION"

    run(check)


def test_more_unary_calls_than_a_server_takes_at_once_are_all_answered() -> None:
    """On a connection that has just begun, gRPC does not know the limit, and would send all at once."""

    async def check(_: Node, asking: Client) -> None:
        count = 2 * MOST_CALLS_OF_A_CONNECTION
        answers = await asyncio.gather(*[asking.send(MetadataRequest()) for _ in range(count)])
        assert [answer for answer in answers if not isinstance(answer, MetadataResponse)] == []

    run(check)


def test_a_foreign_call_above_the_limit_of_a_connection_is_unavailable_and_was_not_begun() -> None:
    """UNAVAILABLE is the status at which a client of gRPC may send again."""

    async def check(serving: Node, _: Client) -> None:
        path, frame = CODEC.unary.path_of(MetadataRequest()), CODEC.unary.request_to_bytes(MetadataRequest())
        async with grpc.aio.insecure_channel(f"{HOST}:{serving.port}") as channel:
            ask = channel.unary_unary(path, None, None)
            calls = [ask(frame) for _ in range(2 * MOST_CALLS_OF_A_CONNECTION)]
            codes = [await call.code() for call in calls]
            assert set(codes) <= {grpc.StatusCode.OK, grpc.StatusCode.UNAVAILABLE}, set(codes)
            assert len(serving.core.events) == codes.count(grpc.StatusCode.OK)
            # The connection goes on.
            assert await ask(frame)

    run(check)


def test_a_node_with_a_route_is_reached_by_it_whatever_address_it_is_registered_under() -> None:
    async def check(serving: Node, asking: Client) -> None:
        asking.peers.routes[7] = (HOST, serving.port)
        asking.peers.learn(7, HOST, refused_port())
        answer = await asking.send(CreateTopicRequest(name="a"), to=7)
        assert answer == CreateTopicResponse(topic_id="a")

    run(check)


def test_answers_on_a_stream_find_their_calls() -> None:
    async def check(serving: Node, asking: Client) -> None:
        sizes = [10, 300_000, 5, 0, 70]
        answers = await asyncio.gather(*(asking.send(produce(size)) for size in sizes))
        offsets = [
            answer.partitions[0].base_offset for answer in answers if isinstance(answer, ProduceResponse)
        ]
        assert offsets == sizes
        assert len(serving.core.events) == len(sizes)

    run(check)


def test_followers_and_consumers_fetch_on_streams_of_their_own() -> None:
    async def check(_: Node, asking: Client) -> None:
        for replica_id in (-1, 2):
            answer = await asking.send(fetch(5 << 20, replica_id=replica_id))
            assert isinstance(answer, FetchResponse)
            # This is above gRPC's default limit of 4 MiB.
            assert len(answer.partitions[0].records) == 5 << 20

    run(check)


def test_acks_0_sends_no_reply_and_the_core_sees_the_request() -> None:
    async def check(serving: Node, asking: Client) -> None:
        silent = asking.send(produce(3, acks=0), expects_reply=False)
        answered = await asking.send(produce(4))
        assert isinstance(answered, ProduceResponse)
        assert not silent.done()
        assert len(serving.core.events) == 2

    run(check)


def test_timers_and_jobs_come_back_as_events() -> None:
    async def check(serving: Node, asking: Client) -> None:
        assert await asking.send(CreateTopicRequest(name="wait")) == CreateTopicResponse(message="timer")
        assert await asking.send(CreateTopicRequest(name="job")) == CreateTopicResponse(message="job None")
        assert len(serving.core.jobs_run) == 1

    run(check)


def test_a_silent_peer_is_a_transport_error_after_the_timeout() -> None:
    async def check(_: Node, asking: Client) -> None:
        answer = await asking.send(CreateTopicRequest(name="never"), timeout_ms=30)
        assert isinstance(answer, TransportError)
        assert answer.reason == "no answer in 30 ms"

    run(check)


def test_a_late_stream_call_fails_every_call_in_flight() -> None:
    async def check(serving: Node, asking: Client) -> None:
        assert isinstance(await asking.send(produce(1)), ProduceResponse)
        serving.runtime.stopped.set_result(None)  # type: ignore[arg-type]  # the core hears nothing from here on
        late, other = asking.send(produce(2), timeout_ms=30), asking.send(produce(3), timeout_ms=5000)
        for answer in await asyncio.gather(late, other):
            assert answer == TransportError(reason="no answer in 30 ms")
        assert asking.order == [1, 2, 3]

    run(check)


def test_a_call_that_cannot_be_written_ends_the_stream_and_the_next_one_works() -> None:
    async def check(_: Node, asking: Client) -> None:
        endless = replace(fetch(5), min_bytes=1 << 31)
        async with asyncio.timeout(3):
            failed = await asking.send(endless, timeout_ms=60_000)
            assert isinstance(failed, TransportError)
            assert "cannot be written" in failed.reason
            assert isinstance(await asking.send(fetch(5)), FetchResponse)

    run(check)


def test_a_dead_peer_fails_at_once_and_the_next_bootstrap_address_is_tried() -> None:
    async def check() -> None:
        async with node() as serving, client(refused_port(), serving.port) as asking:
            assert isinstance(await asking.send(MetadataRequest()), TransportError)
            assert isinstance(await asking.send(produce(1)), ProduceResponse)

    asyncio.run(check())


def test_after_a_broker_that_is_starting_the_next_bootstrap_address_is_tried() -> None:
    async def check() -> None:
        async with node() as starting, node() as serving, client(starting.port, serving.port) as asking:
            starting.core.refuses_metadata = True
            refused = await asking.send(MetadataRequest())
            assert refused == MetadataResponse(error=ErrorCode.BROKER_NOT_AVAILABLE)
            assert await asking.send(MetadataRequest()) == MetadataResponse(
                cluster_id="echo", metadata_offset=7
            )

    asyncio.run(check())


def test_an_unknown_node_is_a_transport_error() -> None:
    async def check(_: Node, asking: Client) -> None:
        answer = await asking.send(MetadataRequest(), to=9)
        assert answer == TransportError(reason="no address of node 9 is known")

    run(check)


def test_calls_in_flight_fail_when_the_peer_ends_and_work_when_it_is_back() -> None:
    async def check() -> None:
        async with client() as asking:
            async with node() as serving:
                port = serving.port
                asking.peers.learn(1, HOST, port)
                assert isinstance(await asking.send(produce(1), to=1), ProduceResponse)
                serving.runtime.stopped.set_result(None)  # type: ignore[arg-type]
                waiting = asking.send(produce(2), to=1)
            assert isinstance(await waiting, TransportError)
            async with node(port):
                # The channel backs off for at most a second.
                async with asyncio.timeout(5):
                    await asking.peers._peers[1]._channel.channel_ready()
                assert isinstance(await asking.send(fetch(1), to=1), FetchResponse)

    asyncio.run(check())


def test_a_second_node_on_the_port_is_refused() -> None:
    async def check(serving: Node, _: Client) -> None:
        with pytest.raises(PortInUse, match=str(serving.port)):
            async with node(serving.port):
                pass

    run(check)


def test_a_core_that_raises_ends_its_node_and_nothing_else() -> None:
    async def check(serving: Node, asking: Client) -> None:
        answer = await asking.send(CreateTopicRequest(name="bug"), timeout_ms=100)
        assert isinstance(answer, TransportError)
        assert (await serving.runtime.stopped).reason == "RuntimeError: a broken invariant"
        assert len(serving.core.events) == 1

    run(check)


def test_shutdown_ends_with_the_cores_stop() -> None:
    async def check(serving: Node, _: Client) -> None:
        serving.runtime.shut_down()
        assert (await serving.runtime.stopped).reason == "shutdown"

    run(check)


def test_bytes_that_are_no_message_end_their_call_and_nothing_else() -> None:
    async def check(serving: Node, asking: Client) -> None:
        async with grpc.aio.insecure_channel(f"{HOST}:{serving.port}") as channel:
            for path in (methods.PRODUCE, methods.REPLICA_FETCH):
                call = channel.stream_stream(path, None, None)(None)
                await call.write(b"\xff\xff\xff garbage")
                with pytest.raises(grpc.aio.AioRpcError):
                    await call.read()
            unary = channel.unary_unary(f"/{methods.DATA}/Metadata", None, None)
            with pytest.raises(grpc.aio.AioRpcError):
                await unary(b"\xff\xff\xff garbage")
        assert isinstance(await asking.send(produce(1)), ProduceResponse)

    run(check)


def test_health_service_says_whether_the_node_serves() -> None:
    async def check(serving: Node, _: Client) -> None:
        async with grpc.aio.insecure_channel(f"{HOST}:{serving.port}") as channel:
            ask = channel.unary_unary(
                "/grpc.health.v1.Health/Check",
                request_serializer=health_pb2.HealthCheckRequest.SerializeToString,
                response_deserializer=health_pb2.HealthCheckResponse.FromString,
            )
            states = []
            for serves in (False, True):
                await serving.server.set_serving(serves)
                for service in ("", *BROKER_SERVICES):
                    answer = await ask(health_pb2.HealthCheckRequest(service=service))
                    states.append(health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status))
            assert states == ["NOT_SERVING"] * 4 + ["SERVING"] * 4

    run(check)


def test_reflection_lists_the_services() -> None:
    async def check(serving: Node, _: Client) -> None:
        async with grpc.aio.insecure_channel(f"{HOST}:{serving.port}") as channel:
            call = channel.stream_stream(
                "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
                request_serializer=reflection_pb2.ServerReflectionRequest.SerializeToString,
                response_deserializer=reflection_pb2.ServerReflectionResponse.FromString,
            )(None)
            await call.write(reflection_pb2.ServerReflectionRequest(list_services=""))
            answer = await call.read()
            assert isinstance(answer, reflection_pb2.ServerReflectionResponse)
            await call.done_writing()
            names = {service.name for service in answer.list_services_response.service}
            assert names >= {methods.REPLICA, methods.DATA, methods.ADMIN, "grpc.health.v1.Health"}

    run(check)


def test_a_node_accepts_a_bounded_number_of_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each takes a socket and buffers, though it may have no call."""
    options = dict(server.SERVER_OPTIONS)
    assert options["grpc.max_allowed_incoming_connections"] == 2 * MOST_CONNECTIONS + MOST_NODE_CONNECTIONS
    options["grpc.max_allowed_incoming_connections"] = 3
    monkeypatch.setattr(server, "SERVER_OPTIONS", tuple(options.items()))

    async def is_open(reader: asyncio.StreamReader) -> bool:
        # A server of HTTP/2 speaks first.
        with contextlib.suppress(ConnectionError):
            return bool(await reader.read(1))
        return False

    async def main() -> None:
        async with node() as serving:
            connections = [await asyncio.open_connection(HOST, serving.port) for _ in range(8)]
            opened = await asyncio.gather(*(is_open(reader) for reader, _ in connections))
            assert 1 <= opened.count(True) <= 3
            for _, writer in connections:
                writer.close()
            # Those that are closed make room for others.
            async with client(serving.port) as asking:
                for _ in range(50):
                    if isinstance(await asking.send(MetadataRequest()), MetadataResponse):
                        return
                    await asyncio.sleep(0.1)
                raise AssertionError("no connection after the others were closed")

    asyncio.run(main())
