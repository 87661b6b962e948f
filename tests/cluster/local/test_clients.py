"""The clients of `replog` against real nodes: blocking and asyncio ones do the same."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest

from replog import (
    Admin,
    AsyncAdmin,
    AsyncConsumer,
    AsyncProducer,
    ClusterError,
    Consumer,
    DeliveryError,
    EndOfPartition,
    ErrorCode,
    Fetched,
    OffsetReset,
    PositionReset,
    Producer,
    ProducerConfig,
    RecordMetadata,
    TopicPartition,
)
from tests.cluster.local.real_cluster import running

LIMIT_S = 60.0


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running(tmp_path_factory.mktemp("clients") / "data", 1) as up:
        yield up.bootstrap


def make_topic(bootstrap: str, name: str, partitions: int = 1) -> None:
    with Admin(bootstrap) as admin:
        assert len(admin.create_topic(name, partitions=partitions, replication_factor=1)) > 0
        assert admin.until_led(name)


def read(consumer: Consumer, count: int) -> list[tuple[TopicPartition, int, bytes | None]]:
    return [(place, record.offset, record.value) for place, record in islice(consumer, count)]


def test_a_record_that_was_sent_is_at_the_offset_of_its_future(bootstrap: str) -> None:
    make_topic(bootstrap, "sent")
    with Producer(bootstrap) as producer:
        first = producer.send("sent", b"v", key=b"k", headers={"h": b"x"}, timestamp_ms=1_700_000_000_000)
        second = producer.send("sent", None, key=b"k")
        assert first.result(LIMIT_S) == RecordMetadata(
            topic="sent", partition=0, offset=0, timestamp_ms=1_700_000_000_000
        )
        assert second.result(LIMIT_S).offset == 1
    with Consumer(bootstrap) as consumer:
        consumer.subscribe(["sent"], OffsetReset.EARLIEST)
        (place, record), (_, tombstone) = islice(consumer, 2)
    assert place == TopicPartition("sent", 0)
    assert (record.key, record.value, record.headers) == (b"k", b"v", (("h", b"x"),))
    assert record.timestamp == 1_700_000_000_000
    assert (tombstone.key, tombstone.value) == (b"k", None)


def test_leaving_with_delivers_all_that_was_sent_in_order(bootstrap: str) -> None:
    make_topic(bootstrap, "left")
    with Producer(bootstrap, ProducerConfig(linger_ms=1000, buffer_memory=20_000)) as producer:
        futures = [producer.send("left", b"%d" % number) for number in range(1000)]
    assert [future.result(0).offset for future in futures] == list(range(1000))
    with Consumer(bootstrap) as consumer:
        consumer.assign([(TopicPartition("left", 0), OffsetReset.EARLIEST)])
        assert [value for _, _, value in read(consumer, 1000)] == [b"%d" % number for number in range(1000)]


def test_a_full_buffer_does_not_linger(bootstrap: str) -> None:
    make_topic(bootstrap, "pressed")
    config = ProducerConfig(buffer_memory=20_000, linger_ms=60_000, max_block_ms=20_000, batch_size=65_536)
    with Producer(bootstrap, config) as producer:
        futures = [producer.send("pressed", bytes(1000)) for _ in range(60)]
    assert [future.result(0).offset for future in futures] == list(range(60))


def test_a_client_that_is_closed_leaves_nothing_to_report_to_another(
    bootstrap: str, caplog: pytest.LogCaptureFixture
) -> None:
    make_topic(bootstrap, "closed-often")
    with Admin(bootstrap) as admin:
        admin.list_topics()
        for _ in range(10):
            with Consumer(bootstrap) as consumer, Producer(bootstrap) as producer:
                consumer.subscribe(["closed-often"])
                consumer.poll(0.1)
                producer.send("closed-often", b"v").result(LIMIT_S)
        admin.list_topics()
    # An event loop logs what its callbacks raise, such as of the loop of another client that has ended.
    assert not [record for record in caplog.records if record.name == "asyncio"], caplog.text


def test_several_threads_may_send(bootstrap: str) -> None:
    make_topic(bootstrap, "threads")
    with Producer(bootstrap, ProducerConfig(buffer_memory=5_000)) as producer:

        def work(name: bytes) -> None:
            for number in range(200):
                producer.send("threads", b"%s-%d" % (name, number))

        threads = [threading.Thread(target=work, args=(name,)) for name in (b"a", b"b", b"c")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        producer.flush()
    with Consumer(bootstrap) as consumer:
        consumer.subscribe(["threads"], OffsetReset.EARLIEST)
        values = [value for _, _, value in read(consumer, 600) if value is not None]
    for name in (b"a", b"b", b"c"):
        own = [value for value in values if value.startswith(name)]
        assert own == [b"%s-%d" % (name, number) for number in range(200)]


def test_poll_returns_what_came_and_nothing_when_time_is_up(bootstrap: str) -> None:
    make_topic(bootstrap, "polled")
    with Producer(bootstrap) as producer, Consumer(bootstrap) as consumer:
        consumer.assign({TopicPartition("polled", 0): 0})
        assert consumer.poll(0.01) == []
        for number in range(5):
            producer.send("polled", b"%d" % number)
        producer.flush()
        found = [*consumer.poll(LIMIT_S, max_records=2)]
        assert [record.offset for _, record in found] == [0, 1]
        assert consumer.positions() == {TopicPartition("polled", 0): 2}
        while len(found) < 5:
            found += consumer.poll(LIMIT_S)
        assert [record.offset for _, record in found] == list(range(5))
        assert consumer.positions() == {TopicPartition("polled", 0): 5}


def test_seek_pause_and_resume(bootstrap: str) -> None:
    make_topic(bootstrap, "moved")
    place = TopicPartition("moved", 0)
    with Producer(bootstrap) as producer:
        for number in range(5):
            producer.send("moved", b"%d" % number)
    with Consumer(bootstrap) as consumer:
        consumer.assign([(place, 0)])
        assert [offset for _, offset, _ in read(consumer, 3)] == [0, 1, 2]
        consumer.seek(place, 1)
        assert [offset for _, offset, _ in read(consumer, 1)] == [1]
        consumer.seek(place, OffsetReset.EARLIEST)
        assert [offset for _, offset, _ in read(consumer, 1)] == [0]
        consumer.seek(place, 4)
        consumer.pause(place)
        assert consumer.poll(0.2) == []
        consumer.seek(place, 4)
        assert consumer.poll(0.2) == []
        consumer.resume(place)
        assert [offset for _, offset, _ in read(consumer, 1)] == [4]


def test_events_name_resets_and_ends(bootstrap: str) -> None:
    make_topic(bootstrap, "events")
    with Producer(bootstrap) as producer:
        producer.send("events", b"v")
    with Consumer(bootstrap) as consumer:
        consumer.subscribe(["events"], OffsetReset.EARLIEST)
        events = [consumer.next_event(LIMIT_S) for _ in range(3)]
        assert [type(event) for event in events] == [PositionReset, Fetched, EndOfPartition]
        assert consumer.next_event(0.05) is None


def test_a_refused_record_fails_its_future_alone(bootstrap: str) -> None:
    make_topic(bootstrap, "refused")
    with Producer(bootstrap, ProducerConfig(max_request_size=1000)) as producer:
        large, small = producer.send("refused", bytes(2000)), producer.send("refused", b"v")
        elsewhere = producer.send("refused", b"v", partition=7)
        with pytest.raises(DeliveryError) as raised:
            large.result(LIMIT_S)
        assert raised.value.code is ErrorCode.MESSAGE_TOO_LARGE and not raised.value.is_unknown
        assert small.result(LIMIT_S).offset == 0
        with pytest.raises(DeliveryError, match="topic refused has no partition 7"):
            elsewhere.result(LIMIT_S)


def test_an_admin_creates_alters_describes_and_deletes(bootstrap: str) -> None:
    with Admin(bootstrap) as admin:
        admin.create_topic("managed", partitions=2, configs={"segment.bytes": "1048576"})
        assert admin.until_led("managed") and "managed" in admin.list_topics()
        with pytest.raises(ClusterError) as raised:
            admin.create_topic("managed")
        assert raised.value.code is ErrorCode.TOPIC_ALREADY_EXISTS
        admin.alter_topic_configs("managed", {"retention.ms": "60000"})
        admin.create_partitions("managed", 3)
        assert admin.until_led("managed", partitions=3)
        metadata = admin.describe(["managed"]).metadata
        assert metadata is not None and len(metadata.topics[0].partitions) == 3
        assert dict(metadata.topics[0].configs)["segment.bytes"] == "1048576"
        admin.delete_topic("managed")
        # A broker answers from the metadata that it has, which may be a moment old.
        deadline = time.monotonic() + LIMIT_S
        while "managed" in admin.list_topics():
            assert time.monotonic() < deadline


def test_the_asyncio_clients_do_the_same(bootstrap: str) -> None:
    async def main() -> list[bytes | None]:
        async with AsyncAdmin(bootstrap) as admin:
            await admin.create_topic("asyncio")
            assert await admin.until_led("asyncio")
        async with AsyncProducer(bootstrap) as producer:
            stored = await producer.send_and_wait("asyncio", b"0", headers=[("h", None)])
            assert (stored.topic_partition, stored.offset) == (TopicPartition("asyncio", 0), 0)
            future = await producer.send("asyncio", b"1")
            assert (await future).offset == 1
        values = []
        async with AsyncConsumer(bootstrap) as consumer:
            consumer.subscribe(["asyncio"], OffsetReset.EARLIEST)
            async for _, record in consumer.records():
                values.append(record.value)
                if len(values) == 2:
                    break
        return values

    assert asyncio.run(main()) == [b"0", b"1"]


def test_a_topic_that_is_missing_is_an_error_of_poll(bootstrap: str, tmp_path: Path) -> None:
    with Consumer(bootstrap) as consumer:
        consumer.subscribe(["nothing"])
        with pytest.raises(ClusterError, match="UNKNOWN_TOPIC_OR_PARTITION: topic nothing"):
            consumer.poll(LIMIT_S)
