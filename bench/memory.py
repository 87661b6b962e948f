"""Measures what a node's memory grows by under 1,000 waiting requests, and under a client that does not read.

A consumer's fetch that waits costs the node a few kilobytes. A client that asks for more than it reads is held to the
room of its connection (`cluster/shell/incoming.py`): 256 calls and 64 MiB of answers, which may be there once as
records and once as bytes on their way.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from pathlib import Path
from typing import cast, final

import grpc.aio

from bench.children import Nodes, resident_bytes
from bench.table import Line
from cluster.local.tuning import loop_factory
from cluster.rpc.methods import CONSUMER_FETCH
from cluster.rpc.replica_pb2 import FetchAnswers, FetchCalls
from replog import Admin, AsyncProducer, Producer

TOPIC = "bench"
PARKED, CONNECTIONS = 1_000, 4
# Far more than the room of a connection.
UNREAD = 2_000
VALUE_BYTES, VALUES = 900 << 10, 64
FETCH_BYTES = 1 << 20
# Both are there before the next look, also where the machine has other work.
SETTLE_S = 5.0
ANSWER_TIMEOUT_S = 10.0
PARKED_MIB = 16.0
# The room of a connection twice.
UNREAD_MIB = 128.0


def run() -> list[Line]:
    """Measure one node: half a minute."""
    with tempfile.TemporaryDirectory(prefix="replog-bench-") as directory:
        data = Path(directory, "data")
        with Nodes(data, nodes=1) as nodes:
            end_offset = _fill(nodes.bootstrap)
        # A new process: the other one keeps memory that it has freed, and would grow by less.
        with Nodes(data, nodes=1) as nodes, asyncio.Runner(loop_factory=loop_factory()) as runner:
            found_mib = runner.run(_measure(nodes, end_offset))
    names = ("at rest", "with the waiting fetches", "with the client that does not read", "after both left")
    steps = ", ".join(f"{name} {mib:,.0f}" for name, mib in zip(names, found_mib, strict=True))
    rest, parked, unread, _ = found_mib
    return [
        _line(f"memory of a node for {PARKED:,} waiting fetches", parked - rest, PARKED_MIB, steps),
        _line(
            f"memory of a node for a client that does not read {UNREAD:,} MiB",
            unread - parked,
            UNREAD_MIB,
            "",
        ),
    ]


def _fill(bootstrap: str) -> int:
    """Writes the records that nobody will read; returns the offset after them."""
    with Admin(bootstrap) as admin:
        admin.create_topic(TOPIC, replication_factor=1)
        assert admin.until_led(TOPIC)
    with Producer(bootstrap) as producer:
        value = os.urandom(VALUE_BYTES)
        sent = [producer.send(TOPIC, value) for _ in range(VALUES)]
        producer.flush()
    return max(future.result().offset for future in sent) + 1


async def _measure(nodes: Nodes, end_offset: int) -> list[float]:
    """Returns the node's memory in MiB at rest, with what waits, with what is not read too, and after both left."""
    pids = [nodes.node_pids["node-1"]]
    # The first fetch loads code, and takes memory that stays.
    first = _Asking(nodes.bootstrap, 1, end_offset - 1)
    await first.answered(1)
    await first.close()
    found = [_mib(pids)]
    waiting = [_Asking(nodes.bootstrap, PARKED // CONNECTIONS, end_offset) for _ in range(CONNECTIONS)]
    await asyncio.sleep(SETTLE_S)
    found.append(_mib(pids))
    unread = _Asking(nodes.bootstrap, UNREAD, 0)
    await asyncio.sleep(SETTLE_S)
    found.append(_mib(pids))
    # One record shows that each of them was there and waited.
    async with AsyncProducer(nodes.bootstrap) as producer:
        await producer.send_and_wait(TOPIC, b"")
    for each in waiting:
        await each.answered(PARKED // CONNECTIONS)
    for each in (*waiting, unread):
        await each.close()
    await asyncio.sleep(1.0)
    return [*found, _mib(pids)]


@final
class _Asking:
    """A connection of its own that asks `fetches` times from `offset` on, and reads no answer by itself."""

    def __init__(self, bootstrap: str, fetches: int, offset: int) -> None:
        options = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_receive_message_length", 64 << 20)]
        self._channel = grpc.aio.insecure_channel(bootstrap, options=options)
        self._call = self._channel.stream_stream(CONSUMER_FETCH, None, None)(None)
        self._writer = asyncio.create_task(self._write(fetches, offset))

    async def answered(self, count: int) -> None:
        """Reads messages until they hold `count` answers, each with records and none with an error."""
        async with asyncio.timeout(ANSWER_TIMEOUT_S):
            while count > 0:
                for answer in FetchAnswers.FromString(cast("bytes", await self._call.read())).answers:
                    (partition,) = answer.response.partitions
                    assert not partition.error and partition.records, partition.error
                    count -= 1
        assert count == 0, count

    async def _write(self, fetches: int, offset: int) -> None:
        for number in range(fetches):
            message = FetchCalls()
            item = message.calls.add()
            item.call = number + 1
            item.request.replica_id = -1
            item.request.max_wait_ms, item.request.min_bytes = 30_000, 1
            item.request.max_bytes = FETCH_BYTES
            partition = item.request.partitions.add()
            partition.topic_partition.topic = TOPIC
            partition.fetch_offset, partition.max_bytes = offset, FETCH_BYTES
            partition.current_leader_epoch = partition.last_fetched_epoch = -1
            await self._call.write(message.SerializeToString())

    async def close(self) -> None:
        self._writer.cancel()
        await self._channel.close(None)


def _mib(pids: list[int]) -> float:
    return resident_bytes(pids) / (1 << 20)


def _line(what: str, value: float, mark: float, detail: str) -> Line:
    return Line(what=what, value=value, unit="MiB", target=mark, lower_is_better=True, detail=detail)
