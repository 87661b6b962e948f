"""A consumer whose topic is created again with fewer partitions reads on those that are left, forgets the others."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from cluster.core.client.config import OffsetReset
from cluster.core.client.effects import Fetched, PartitionDeleted, PositionLost
from cluster.core.errors import ErrorCode
from cluster.core.events import Response, TimerFired
from cluster.core.messages import TopicPartition
from cluster.shell.clients import AsyncConsumer, Consumer
from cluster.shell.clients.backlog import PAUSE_AT_RECORDS
from storage.batch.record import Record
from tests.cluster.client.fake_cluster import FakeCluster

NOWHERE = "127.0.0.1:1"
KEPT, DELETED = TopicPartition("t", 0), TopicPartition("t", 1)
WAKE = TimerFired(key="consumer.wake")
LIMIT_S = 20.0


def run(main: Callable[[], Awaitable[None]]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(LIMIT_S):
            await main()

    asyncio.run(limited())


def hear(consumer: AsyncConsumer, *, life: int, partitions: int) -> None:
    """Let the consumer ask for metadata, and hear that its topic was created `life` times, with so many partitions."""
    core, later_ms = consumer.core, life * 10_000
    cluster = FakeCluster({"t": partitions}, broker_count=1)
    cluster.rebirths["t"] = life
    answer = cluster.metadata(("t",))
    nowhere = tuple(replace(each, host="127.0.0.1", port=1) for each in answer.brokers)
    core.metadata.request()
    consumer.runtime.run(lambda now_ms: core.step(now_ms + later_ms, WAKE))
    (call,) = [each for each in range(100) if core.metadata.owns(each)]
    heard = Response(call=call, body=replace(answer, brokers=nowhere))
    consumer.runtime.run(lambda now_ms: core.step(now_ms + later_ms, heard))
    assert len(core.positions()) == partitions


def fetched(place: TopicPartition, count: int) -> Fetched:
    """Records as a fetch brings them."""
    records = (Record(offset=7, timestamp=0, key=None, value=b"v"),) * count
    return Fetched(topic_partition=place, records=records, high_watermark=9, next_offset=9, leader_epoch=0)


def fill(consumer: AsyncConsumer, place: TopicPartition) -> None:
    """Fetch so much ahead that the consumer pauses what it reads."""
    consumer._on_notice(fetched(place, PAUSE_AT_RECORDS + 1))
    assert set(paused(consumer)) == set(consumer.core.positions())


def paused(consumer: AsyncConsumer) -> list[TopicPartition]:
    return [each.topic_partition for each in consumer.core.places if each.is_paused]


@pytest.mark.parametrize("how", ["read", "seek"])
def test_partitions_that_are_left_are_read_on_once_there_is_room(how: str) -> None:
    async def main() -> None:
        async with AsyncConsumer(NOWHERE) as consumer:
            consumer.subscribe(["t"], OffsetReset.EARLIEST)
            hear(consumer, life=0, partitions=2)
            fill(consumer, KEPT)
            hear(consumer, life=1, partitions=1)
            if how == "seek":
                consumer.seek(KEPT, 3)
            else:
                assert isinstance(await consumer.next_event(), Fetched)
            assert await consumer.next_event() == PartitionDeleted(topic_partition=DELETED)
            assert not paused(consumer) and not consumer.runtime.stopped.done()

    run(main)


@pytest.mark.parametrize("why", ["paused", "lost"])
def test_a_later_partition_of_that_number_is_not_held(why: str) -> None:
    async def main() -> None:
        async with AsyncConsumer(NOWHERE) as consumer:
            consumer.subscribe(["t"], OffsetReset.EARLIEST)
            hear(consumer, life=0, partitions=2)
            if why == "paused":
                consumer.pause(DELETED)
            else:
                lost = PositionLost(topic_partition=DELETED, offset=5, error=ErrorCode.OFFSET_OUT_OF_RANGE)
                consumer._on_notice(lost)
            hear(consumer, life=1, partitions=1)
            hear(consumer, life=2, partitions=2)
            fill(consumer, DELETED)
            while consumer._events:
                await consumer.next_event()
            assert not paused(consumer)
            consumer.seek(DELETED, 3)
            assert not paused(consumer)

    run(main)


def test_a_deleted_partition_has_no_position_though_its_records_are_still_returned() -> None:
    async def main() -> None:
        async with AsyncConsumer(NOWHERE) as consumer:
            consumer.subscribe(["t"], OffsetReset.EARLIEST)
            hear(consumer, life=0, partitions=2)
            for _ in range(2):
                consumer._on_notice(fetched(DELETED, 2))
            assert consumer.positions()[DELETED] == 7
            assert len(await consumer.poll(max_records=1)) == 1
            hear(consumer, life=1, partitions=1)
            assert list(consumer.positions()) == [KEPT]
            assert [place for place, _ in await consumer.poll()] == [DELETED]
            assert [place for place, _ in await consumer.poll()] == [DELETED] * 2

    run(main)


def test_a_deleted_partition_has_no_position_in_the_blocking_consumer() -> None:
    with Consumer(NOWHERE) as consumer:
        consumer.subscribe(["t"], OffsetReset.EARLIEST)
        # An iteration that ended early has left it.
        consumer._taken.append((DELETED, Record(offset=7, timestamp=0, key=None, value=b"v")))
        assert consumer.positions() == {}
