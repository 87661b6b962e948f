"""What a client may have in flight: its calls and bytes are bounded, whether it reads or not."""

from __future__ import annotations

import asyncio
import contextlib
import gc
from collections.abc import AsyncIterator
from typing import cast

import grpc.aio
import pytest

from cluster.core.connection import pieces, rooms
from cluster.core.connection.codec import Answers
from cluster.core.connection.rooms import MOST_CALLS
from cluster.core.effects import Effect
from cluster.core.errors import ErrorCode
from cluster.core.events import Event, Request
from cluster.core.messages import (
    AlterTopicConfigsRequest,
    AlterTopicConfigsResponse,
    CreateTopicRequest,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    MetadataRequest,
    MetadataResponse,
    ProducePartition,
    ProduceRequest,
    ProduceResponse,
    RequestBody,
    TopicPartition,
)
from cluster.rpc import methods
from cluster.shell import incoming, streams, transport
from tests.cluster.shell import echo_core, test_server
from tests.cluster.shell.test_server import HOST, Client, Node, client, node, produce, run

MIB = 1 << 20
RawStream = grpc.aio.StreamStreamCall[object, object]


def fetch_of(topic: str, size_bytes: int, *, max_bytes: int = MIB) -> FetchRequest:
    item = FetchPartition(
        topic_partition=TopicPartition(topic, 0), fetch_offset=size_bytes, max_bytes=max_bytes
    )
    return FetchRequest(replica_id=-1, partitions=(item,))


@contextlib.asynccontextmanager
async def raw_stream(port: int, codec: streams.StreamCodec) -> AsyncIterator[RawStream]:
    """A stream of a client that writes lists of calls, and reads only what the test reads."""
    async with grpc.aio.insecure_channel(
        f"{HOST}:{port}", options=[("grpc.max_receive_message_length", 64 * MIB)]
    ) as channel:
        method = channel.stream_stream(
            codec.path,
            request_serializer=codec.calls_to_bytes,
            response_deserializer=codec.answers_from_bytes,
        )
        yield method(None)


async def answers_of(call: RawStream) -> Answers:
    """The answers in the next message of the stream."""
    return cast("Answers", await call.read())


async def turns(asking: Client, count: int = 20) -> None:
    """Lets the server work: each round trip of another connection takes several turns of its loop."""
    for _ in range(count):
        assert isinstance(await asking.send(MetadataRequest()), MetadataResponse)


def fetches_seen(serving: Node) -> int:
    return sum(1 for event in serving.core.events if isinstance(getattr(event, "body", None), FetchRequest))


def test_c6_a_client_that_does_not_read_holds_a_bounded_number_of_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rooms, "MOST_BYTES", 2 * MIB)

    async def check(serving: Node, asking: Client) -> None:
        count = 40
        async with raw_stream(serving.port, streams.CONSUMER_FETCH) as call:
            await call.write([(number, fetch_of("t", MIB)) for number in range(count)])
            await turns(asking)
            # HTTP/2 may have taken some answers, which hold no place any more.
            assert fetches_seen(serving) < count // 2
            (room,) = [each for key, each in serving.server.rooms.items() if key[1] == methods.CONSUMER_FETCH]
            assert 0 < room.own.held_bytes <= 2 * MIB
            # Another client is served meanwhile, and once this one reads, it gets all.
            assert isinstance(await asking.send(fetch_of("t", 7)), FetchResponse)
            numbers: list[int] = []
            while len(numbers) < count:
                numbers += [number for number, _ in await answers_of(call)]
            assert numbers == list(range(count))
        # The last answers have reached the client; when gRPC says that they are written is its own affair.
        for _ in range(100):
            await turns(asking)
            if all(each.own.calls == 0 for _, each in serving.server.rooms.items()):
                break
        assert all(each.own.calls == 0 for _, each in serving.server.rooms.items())

    run(check)


@contextlib.asynccontextmanager
async def slow_way(port: int, is_open: asyncio.Event) -> AsyncIterator[int]:
    """A port that passes everything on to `port`, and what comes back only while `is_open`."""
    tasks: list[asyncio.Task[None]] = []
    writers: list[asyncio.StreamWriter] = []

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, gate: asyncio.Event) -> None:
        with contextlib.closing(writer), contextlib.suppress(ConnectionError):
            while data := await reader.read(1 << 16):
                await gate.wait()
                writer.write(data)
                await writer.drain()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        back, there = await asyncio.open_connection(HOST, port)
        writers.append(there)
        always = asyncio.Event()
        always.set()
        loop = asyncio.get_running_loop()
        tasks.append(loop.create_task(pump(reader, there, always)))
        tasks.append(loop.create_task(pump(back, writer, is_open)))

    listener = await asyncio.start_server(accept, HOST, 0)
    try:
        yield listener.sockets[0].getsockname()[1]
    finally:
        listener.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        # A transport that is closed waits for a peer that reads nothing any more.
        for writer in writers:
            writer.transport.abort()
        await asyncio.sleep(0)


def test_c6_a_unary_answer_holds_its_place_until_it_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    large = MetadataResponse(cluster_id="c" * MIB)
    monkeypatch.setattr(echo_core, "answer_to", lambda _: large)
    monkeypatch.setattr(rooms, "MOST_BYTES", 4 * MIB)
    path = f"/{methods.DATA}/Metadata"
    frame = streams.CODEC.unary.request_to_bytes(MetadataRequest())

    async def check() -> None:
        is_open = asyncio.Event()
        is_open.set()
        async with node() as serving, slow_way(serving.port, is_open) as port:
            async with grpc.aio.insecure_channel(f"{HOST}:{port}") as channel:
                ask = channel.unary_unary(path, None, None)
                await ask(frame)
                is_open.clear()
                calls = [ask(frame) for _ in range(60)]
                for _ in range(40):
                    await asyncio.sleep(0.01)
                # HTTP/2 and the sockets may have taken some, which hold no place any more.
                assert 4 <= len(serving.core.events) < 30
                (room,) = [each for _, each in serving.server.rooms.items()]
                assert 3 * MIB <= room.own.held_bytes <= 4 * (MIB + 100)
                is_open.set()
                assert all([await call for call in calls])
                assert len(serving.core.events) == 61
            for _ in range(40):
                await asyncio.sleep(0.01)
            assert not serving.server.rooms.items()

    asyncio.run(check())


def test_c8_what_a_client_left_is_dropped_in_the_core() -> None:
    async def check(serving: Node, asking: Client) -> None:
        async with raw_stream(serving.port, streams.CONSUMER_FETCH) as call:
            await call.write([(number, fetch_of("never", 0)) for number in range(1, 6)])
            await turns(asking)
            assert serving.core.forgotten == [] and fetches_seen(serving) == 5
        await turns(asking)
        assert len(serving.core.forgotten) == 5

    run(check)


def test_c8_a_unary_call_whose_client_left_is_dropped_in_the_core() -> None:
    async def check(serving: Node, asking: Client) -> None:
        asking.send(CreateTopicRequest(name="never"), timeout_ms=200)
        await asking.futures[1]
        await turns(asking)
        assert len(serving.core.forgotten) == 1

    run(check)


def test_c8_a_connection_has_a_bounded_number_of_calls_in_the_core() -> None:
    async def check(serving: Node, asking: Client) -> None:
        async with raw_stream(serving.port, streams.CONSUMER_FETCH) as call:
            await call.write([(number, fetch_of("never", 0, max_bytes=1)) for number in range(300)])
            await turns(asking)
            assert fetches_seen(serving) == MOST_CALLS

    run(check)


def test_a_client_that_sends_nothing_any_more_still_gets_its_answers() -> None:
    async def check(serving: Node, asking: Client) -> None:
        async with raw_stream(serving.port, streams.CONSUMER_FETCH) as call:
            await call.write([(number, fetch_of("t", MIB)) for number in range(9)])
            await call.done_writing()
            numbers: list[int] = []
            while len(numbers) < 9:
                numbers += [number for number, _ in await answers_of(call)]
            assert await call.read() is grpc.aio.EOF  # type: ignore[attr-defined]

    run(check)


def test_c6_requests_of_unary_calls_for_which_there_is_no_room_are_not_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each may have the size of a message: all that one connection may have would be gigabytes."""
    monkeypatch.setattr(rooms, "MOST_BYTES", 3 * MIB)
    read: list[bytes | None] = []

    async def counted(reader: transport.Reader) -> bytes | None:
        read.append(await transport.read_or_end(reader))
        return read[-1]

    monkeypatch.setattr(incoming, "read_or_end", counted)
    body = CreateTopicRequest(name="never")
    path, frame = streams.CODEC.unary.path_of(body), streams.CODEC.unary.request_to_bytes(body)

    async def check(serving: Node, asking: Client) -> None:
        async with grpc.aio.insecure_channel(f"{HOST}:{serving.port}") as channel:
            calls = [channel.unary_unary(path, None, None)(frame) for _ in range(30)]
            await turns(asking)
            assert read.count(frame) == 3 + incoming.MOST_READ
            for call in calls:
                call.cancel()
            await asyncio.gather(*calls, return_exceptions=True)
        await turns(asking)
        assert len(serving.core.forgotten) >= 3
        assert all(each.own.calls == 0 for _, each in serving.server.rooms.items())

    run(check)


def test_c6_grpc_takes_no_frame_that_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would, if it made the windows of HTTP/2 as large as the link lets it."""
    monkeypatch.setattr(rooms, "MOST_CALLS", 1)
    wide = FetchRequest(replica_id=-1, partitions=fetch_of("t" * 249, 1).partitions * 8_000)

    async def check(serving: Node, asking: Client) -> None:
        async with raw_stream(serving.port, streams.CONSUMER_FETCH) as call:
            await call.write([(number, fetch_of("never", 0)) for number in range(2)])
            await turns(asking)
            writing = asyncio.create_task(call.write([(3, wide)]))
            await turns(asking, 100)
            assert not writing.done()
            writing.cancel()

    run(check)


def test_c6_a_connection_has_few_streams(caplog: pytest.LogCaptureFixture) -> None:
    """A piece of a frame of each is read before its room counts it."""

    async def check(serving: Node, asking: Client) -> None:
        paths = (methods.CONSUMER_FETCH, methods.REPLICA_FETCH)
        async with grpc.aio.insecure_channel(f"{HOST}:{serving.port}") as channel:
            begun = [
                channel.stream_stream(paths[number % 2], None, None)(None)
                for number in range(incoming.MOST_STREAMS + 1)
            ]
            for call in begun:
                await call.write(streams.CONSUMER_FETCH.calls_to_bytes([(1, fetch_of("t", 3))]))
            ends = await asyncio.gather(*(call.read() for call in begun), return_exceptions=True)
            failed = [end for end in ends if isinstance(end, grpc.aio.AioRpcError)]
            assert [end.code() for end in failed] == [grpc.StatusCode.INVALID_ARGUMENT]

    run(check)
    assert [record for record in caplog.records if "streams on a connection" in record.getMessage()]


def test_c6_a_node_serves_a_bounded_number_of_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some requests of each are in memory before a room counts them."""
    monkeypatch.setattr(incoming, "MOST_CONNECTIONS", 2)
    path, frame = f"/{methods.DATA}/Metadata", streams.CODEC.unary.request_to_bytes(MetadataRequest())

    async def check(serving: Node, asking: Client) -> None:
        # Channels of equal options would share a connection.
        options = [("grpc.use_local_subchannel_pool", 1)]
        channels = [grpc.aio.insecure_channel(f"{HOST}:{serving.port}", options) for _ in range(3)]
        fetching = [
            channel.stream_stream(methods.CONSUMER_FETCH, None, None)(None) for channel in channels[:2]
        ]
        for number, call in enumerate(fetching):
            await call.write(streams.CONSUMER_FETCH.calls_to_bytes([(number, fetch_of("t", 3))]))
            assert await call.read()
        ask = channels[2].unary_unary(path, None, None)
        with pytest.raises(grpc.aio.AioRpcError, match="of 2 connections already") as refused:
            await ask(frame)
        assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        with pytest.raises(grpc.aio.AioRpcError, match="of 2 connections already"):
            await channels[2].stream_stream(methods.CONSUMER_FETCH, None, None)(None).read()
        # Those that are served may have more calls; once one of them has left, the third has room.
        assert await channels[0].unary_unary(path, None, None)(frame)
        await fetching[0].done_writing()
        assert await fetching[0].read() is grpc.aio.EOF  # type: ignore[attr-defined]
        assert await ask(frame)
        for channel in channels:
            await channel.close(None)

    run(check)


async def in_pieces(call: RawStream, frame: bytes, most: int = 1000) -> None:
    """Writes the first pieces of a frame, at most so many."""
    for piece in pieces.cut(frame, 1_000)[:most]:
        await call.write(piece)


def test_a_request_that_is_larger_than_a_message_arrives_in_pieces() -> None:
    async def check(serving: Node, asking: Client) -> None:
        large = produce(5 * MIB)
        assert isinstance(await asking.send(large), ProduceResponse)
        names = MetadataRequest(topics=tuple([f"{number:0200}" for number in range(20_000)]))
        assert isinstance(await asking.send(names), MetadataResponse)
        assert [event.body for event in serving.core.events if isinstance(event, Request)] == [large, names]

    run(check)


def test_c6_the_records_of_a_request_that_waits_for_its_answer_are_not_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The node's limit counts none for it: the core has appended them."""

    class Silent(echo_core.EchoCore):
        def step(self, now_ms: int, event: Event) -> list[Effect]:
            if isinstance(event, Request) and isinstance(event.body, ProduceRequest):
                came.append(len(event.body.partitions[0].records))
                return []
            return super().step(now_ms, event)

    came: list[int] = []
    monkeypatch.setattr(test_server, "EchoCore", Silent)

    async def check(serving: Node, asking: Client) -> None:
        asking.send(produce(54_321))
        await turns(asking)
        kept = [each for each in gc.get_objects() if type(each) is ProducePartition]
        assert came == [54_321] and came[0] not in [len(each.records) for each in kept]

    run(check)


def test_a_message_above_the_limit_is_refused_and_the_node_serves_on() -> None:
    async def check(serving: Node, asking: Client) -> None:
        body = CreateTopicRequest(name="t" * pieces.PIECE_BYTES)
        path, frame = streams.CODEC.unary.path_of(body), streams.CODEC.unary.request_to_bytes(body)
        async with grpc.aio.insecure_channel(f"{HOST}:{serving.port}") as channel:
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await channel.unary_unary(path, None, None)(frame)
            assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert isinstance(await asking.send(MetadataRequest()), MetadataResponse)

    run(check)


def test_a_piece_that_does_not_come_ends_its_stream_and_frees_the_place(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Others may wait for the place of its frame."""
    monkeypatch.setattr(incoming, "PIECE_TIMEOUT_S", 0.1)
    frame = streams.PRODUCE.calls_to_bytes([(1, produce(10_000))])

    async def check(serving: Node, asking: Client) -> None:
        async with grpc.aio.insecure_channel(f"{HOST}:{serving.port}") as channel:
            call = channel.stream_stream(methods.PRODUCE, None, None)(None)
            await in_pieces(call, frame, 3)
            with pytest.raises(
                grpc.aio.AioRpcError, match="the next piece of a frame did not come in"
            ) as ended:
                await call.read()
            assert ended.value.code() is grpc.StatusCode.INVALID_ARGUMENT
            assert all(each.own.calls == 0 for _, each in serving.server.rooms.items())
            again = channel.stream_stream(methods.PRODUCE, None, None)(None)
            await in_pieces(again, frame)
            assert await again.read()

    run(check)
    assert [record for record in caplog.records if "the next piece of a frame" in record.getMessage()]


def test_a_unary_request_whose_next_piece_does_not_come_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(incoming, "PIECE_TIMEOUT_S", 0.1)
    frame = streams.CODEC.unary.request_to_bytes(MetadataRequest(topics=("t" * 240,) * 20))

    async def check(serving: Node, asking: Client) -> None:
        async with grpc.aio.insecure_channel(f"{HOST}:{serving.port}") as channel:
            call = channel.stream_stream(f"/{methods.DATA}/Metadata", None, None)(None)
            await in_pieces(call, frame, 2)
            with pytest.raises(grpc.aio.AioRpcError, match="the next piece of a frame did not come in"):
                await call.read()
        await turns(asking)
        assert not [key for key, _ in serving.server.rooms.items() if "unary" in key and _.own.calls]

    run(check)


def test_c8_a_client_that_sends_nothing_any_more_and_leaves_is_forgotten() -> None:
    async def check(serving: Node, asking: Client) -> None:
        async with raw_stream(serving.port, streams.CONSUMER_FETCH) as call:
            await call.write([(1, fetch_of("never", 0))])
            await call.done_writing()
            await turns(asking)
            assert serving.core.forgotten == [] and fetches_seen(serving) == 1
        await turns(asking)
        assert len(serving.core.forgotten) == 1

    run(check)


def test_a_number_that_a_client_uses_twice_is_answered_twice() -> None:
    async def check(serving: Node, asking: Client) -> None:
        async with raw_stream(serving.port, streams.CONSUMER_FETCH) as call:
            await call.write([(1, fetch_of("t", 3)), (1, fetch_of("t", 4))])
            assert [number for number, _ in await answers_of(call)] == [1, 1]

    run(check)


@pytest.mark.parametrize(
    "body", [FetchRequest(replica_id=-7, partitions=()), ProduceRequest(acks=9, partitions=())]
)
def test_c5_a_call_out_of_bounds_is_answered_and_the_stream_goes_on(
    body: RequestBody, caplog: pytest.LogCaptureFixture
) -> None:
    async def check(serving: Node, asking: Client) -> None:
        refused = await asking.send(body)
        code = (
            ErrorCode.INVALID_REQUEST if isinstance(body, FetchRequest) else ErrorCode.INVALID_REQUIRED_ACKS
        )
        assert isinstance(refused, (FetchResponse, ProduceResponse)) and refused.error is code
        assert isinstance(await asking.send(produce(1)), ProduceResponse)
        assert len(serving.core.events) == 1

    run(check)
    (line,) = [record.getMessage() for record in caplog.records if "refused" in record.getMessage()]
    assert "sender=ipv4:127.0.0.1:" in line and type(body).__name__ in line


def test_c5_a_unary_request_out_of_bounds_is_answered_with_the_field() -> None:
    async def check(serving: Node, asking: Client) -> None:
        refused = await asking.send(AlterTopicConfigsRequest(name="t", configs=(("a", "x" * (17 << 20)),)))
        assert isinstance(refused, AlterTopicConfigsResponse)
        assert refused.error is ErrorCode.INVALID_CONFIG and refused.message.startswith("configs[0].value=")
        assert serving.core.events == []

    run(check)


def test_a_client_without_a_stream_leaves_no_room_behind() -> None:
    async def check() -> None:
        async with node() as serving:
            async with client(serving.port) as asking:
                await asking.send(produce(1))
                await asking.send(MetadataRequest())
            async with client(serving.port) as other:
                await turns(other)
                assert all(kind == "unary" for (_, kind), _ in serving.server.rooms.items())

    asyncio.run(check())


async def read_all(call: grpc.aio.StreamStreamCall[bytes, bytes]) -> None:
    """Reads up to the end of the stream; raises its status."""
    while await transport.read_or_end(call) is not None:
        pass


def test_a_frame_that_is_no_message_beside_an_answer_that_is_being_written_ends_the_stream() -> None:
    """gRPC takes no status while a write is under way: the client would wait for ever, and its place be free."""

    async def check(serving: Node, asking: Client) -> None:
        async with grpc.aio.insecure_channel(
            f"{HOST}:{serving.port}", options=[("grpc.max_receive_message_length", 64 * MIB)]
        ) as channel:
            call = channel.stream_stream(streams.CONSUMER_FETCH.path, None, None)(None)
            asked = [(number, fetch_of("t", 8 * MIB, max_bytes=16 * MIB)) for number in range(2)]
            await call.write(streams.CONSUMER_FETCH.calls_to_bytes(asked))
            # More than the connection takes without a reader, so the write of it does not end.
            await turns(asking)
            await call.write(b"\xff\xff\xff")
            await turns(asking)
            # It does not read, so it keeps its room.
            assert [key for key, _ in serving.server.rooms.items() if key[1] == methods.CONSUMER_FETCH]
            with pytest.raises(grpc.aio.AioRpcError) as raised:
                await read_all(call)
            assert raised.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        await turns(asking)
        assert not [key for key, _ in serving.server.rooms.items() if key[1] == methods.CONSUMER_FETCH]

    run(check)


def test_an_answer_that_cannot_be_written_ends_its_stream_and_no_other(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def check(serving: Node, asking: Client) -> None:
        def broken(self: object) -> bytes:
            raise UnicodeEncodeError("utf-8", "\udcff", 0, 1, "surrogates not allowed")

        async with raw_stream(serving.port, streams.CONSUMER_FETCH) as call:
            with monkeypatch.context() as patched:
                patched.setattr("cluster.core.connection.incoming.IncomingStream.next_frame", broken)
                await call.write([(1, fetch_of("t", 7))])
                with pytest.raises(grpc.aio.AioRpcError) as raised:
                    await call.read()
        assert raised.value.code() is grpc.StatusCode.INTERNAL
        assert "cannot be written: UnicodeEncodeError" in str(raised.value.details())
        assert isinstance(await asking.send(fetch_of("t", 7)), FetchResponse)

    run(check)
    assert "ends the stream" in caplog.text


def test_c6_clients_that_fill_the_connections_of_a_node_do_not_stop_its_followers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A thousand consumers kept a follower from its leader, and so out of the in-sync set, until they left."""
    monkeypatch.setattr(incoming, "MOST_CONNECTIONS", 1)
    monkeypatch.setattr(incoming, "MOST_NODE_CONNECTIONS", 1)

    async def check(serving: Node, asking: Client) -> None:
        # Channels of equal options would share a connection.
        options = [("grpc.use_local_subchannel_pool", 1)]
        channels = [grpc.aio.insecure_channel(f"{HOST}:{serving.port}", options) for _ in range(4)]

        def begin(number: int, of: streams.StreamCodec) -> RawStream:
            call: RawStream = channels[number].stream_stream(of.path, None, None)(None)
            return call

        consumer, follower = begin(0, streams.CONSUMER_FETCH), begin(1, streams.REPLICA_FETCH)
        await consumer.write(streams.CONSUMER_FETCH.calls_to_bytes([(1, fetch_of("t", 3))]))
        assert await consumer.read()
        await follower.write(streams.REPLICA_FETCH.calls_to_bytes([(1, fetch_of("t", 3))]))
        assert await follower.read()
        # Each kind is bounded.
        for number, codec in ((2, streams.CONSUMER_FETCH), (3, streams.REPLICA_FETCH)):
            with pytest.raises(grpc.aio.AioRpcError, match="of 1 connections already"):
                await begin(number, codec).read()
        for channel in channels:
            await channel.close(None)

    run(check)
