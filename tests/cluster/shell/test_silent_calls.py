"""A producer with acks=0 on a real connection: a record has its outcome, and its room, once it is written."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, final

import grpc
import grpc.aio
import pytest

from cluster.core.client.config import ProducerConfig
from cluster.core.events import Response
from cluster.core.messages import (
    BrokerEndpoint,
    MetadataResponse,
    PartitionMetadata,
    ProduceRequest,
    TopicMetadata,
)
from cluster.shell.clients import AsyncProducer
from cluster.shell.streams import CODEC

RECORD_BYTES = 100_000
COUNT = 300
# Room for ten records. A connection takes less than all of them without a reader.
CONFIG = ProducerConfig(acks=0, linger_ms=0, buffer_memory=1 << 20, max_block_ms=20_000)
LIMIT_S = 20.0


@final
class Reader(grpc.GenericRpcHandler):  # type: ignore[type-arg]
    """A node that reads no stream until it may."""

    def __init__(self) -> None:
        self.may_read, self.has_all = asyncio.Event(), asyncio.Event()
        self.read_bytes = 0

    def service(self, details: Any) -> Any:
        """Returns what handles the streams; any other call gets no answer."""
        path = details.method
        if not path.endswith("Produce"):

            async def wait(_: bytes, __: object) -> bytes:
                await asyncio.Event().wait()
                return b""

            return grpc.unary_unary_rpc_method_handler(wait)

        async def read(frames: AsyncIterator[bytes], _: object) -> AsyncIterator[bytes]:
            await self.may_read.wait()
            async for frame in frames:
                for _, body in CODEC.stream_at(path).calls_from_bytes(frame):
                    assert isinstance(body, ProduceRequest)
                    self.read_bytes += sum(len(each.records) for each in body.partitions)
                if self.read_bytes >= COUNT * RECORD_BYTES:
                    self.has_all.set()
            return
            yield b""

        return grpc.stream_stream_rpc_method_handler(read)


def metadata(*ports: int) -> MetadataResponse:
    partitions = [
        PartitionMetadata(
            partition=number, leader=number + 1, leader_epoch=0, replicas=(number + 1,), isr=(number + 1,)
        )
        for number in range(len(ports))
    ]
    brokers = [
        BrokerEndpoint(broker_id=number, host="127.0.0.1", port=port)
        for number, port in enumerate(ports, start=1)
    ]
    return MetadataResponse(
        brokers=tuple(brokers),
        topics=(TopicMetadata(name="t", topic_id="1f" * 16, partitions=tuple(partitions)),),
        metadata_offset=1,
    )


async def send_all(producer: AsyncProducer) -> list[asyncio.Future[Any]]:
    return [await producer.send("t", bytes(RECORD_BYTES), partition=0) for _ in range(COUNT)]


async def node(*, reads: bool) -> tuple[Reader, grpc.aio.Server, int]:
    """Returns a node that was started, and its port."""
    reader, server = Reader(), grpc.aio.server()
    if reads:
        reader.may_read.set()
    server.add_generic_rpc_handlers((reader,))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    return reader, server, port


async def producer_of(*ports: int) -> AsyncProducer:
    """Returns a producer that knows a partition at each of these nodes."""
    producer = AsyncProducer(f"127.0.0.1:{ports[0]}", CONFIG)
    await producer.start()
    asked = producer.core.metadata._call
    assert asked is not None
    answer = Response(call=asked, body=metadata(*ports))
    producer.runtime.run(lambda now_ms: producer.core.step(now_ms, answer))
    return producer


async def slow_reader() -> int:
    """Returns the bytes that a node has read which did not read for a while."""
    reader, server, port = await node(reads=False)
    producer = await producer_of(port)
    sending = asyncio.create_task(send_all(producer))
    done, _ = await asyncio.wait([sending], timeout=0.5)
    # What waits to be written takes its room: the sender waits.
    assert not done
    assert 0 < producer._taken_bytes <= CONFIG.buffer_memory
    flushing = asyncio.create_task(producer.flush())
    assert not (await asyncio.wait([flushing], timeout=0.2))[0]
    reader.may_read.set()
    futures = await asyncio.wait_for(sending, LIMIT_S)
    await producer.close()
    assert all(future.done() and future.exception() is None for future in futures)
    await flushing
    # The node may not have taken the last frame from gRPC yet.
    await reader.has_all.wait()
    await server.stop(None)
    return reader.read_bytes


def test_a_peer_that_does_not_read_holds_up_senders_and_an_orderly_close_waits_for_it() -> None:
    assert asyncio.run(asyncio.wait_for(slow_reader(), 2 * LIMIT_S)) >= COUNT * RECORD_BYTES


async def beside_a_slow_reader(*, fails: bool) -> int:
    """Returns the partition of the record that had its outcome beside others that wait."""
    slow, slow_server, slow_port = await node(reads=False)
    _, server, port = await node(reads=True)
    producer = await producer_of(slow_port, port)
    sending = asyncio.create_task(send_all(producer))
    await asyncio.wait([sending], timeout=0.3)
    assert producer._held
    # Behind one that waits for room each other record would wait, too.
    sending.cancel()
    await asyncio.wait([sending])
    small = await producer.send("t", b"x", partition=1)
    told = await asyncio.wait_for(small, 1.0)
    if fails:
        producer.runtime.run(failing)
        # The client learns of it by the loop.
        await asyncio.sleep(0)
        assert (producer._held, producer._open, producer._taken_bytes > 0) == ({}, {}, False)
        slow.may_read.set()
    await producer.abort()
    await slow_server.stop(None)
    await server.stop(None)
    return told.partition


def failing(_: int) -> list[object]:
    raise AssertionError("a mistake of the core")


@pytest.mark.parametrize("fails", [False, True])
def test_a_record_for_another_node_does_not_wait_for_it(fails: bool) -> None:
    assert asyncio.run(asyncio.wait_for(beside_a_slow_reader(fails=fails), 2 * LIMIT_S)) == 1
