"""What a program passes wrong to a client is refused at that call, in words that name the argument; nothing is sent."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from cluster.core.client.config import AdminConfig, ConsumerConfig, OffsetReset, ProducerConfig
from cluster.core.client.consumer import Start
from cluster.core.errors import ClusterError
from cluster.core.messages import CreateTopicRequest, TopicPartition
from cluster.shell.clients import Admin, AsyncAdmin, AsyncConsumer, AsyncProducer, Consumer, Producer
from cluster.shell.clients.async_producer import OutgoingRecord
from storage.errors import ConfigError

# Nothing listens there.
NOWHERE = "127.0.0.1:1"
PLACE = TopicPartition("orders", 0)

SENDS: list[tuple[Callable[[Any], object], type[Exception], str]] = [
    (lambda p: p.send("orders", "text"), TypeError, "value: expected bytes or None, got str: encode it"),
    (lambda p: p.send("orders", 5), TypeError, "value: expected bytes or None, got int"),
    (lambda p: p.send("orders", b"v", key="k"), TypeError, "key: expected bytes or None, got str"),
    (lambda p: p.send(b"orders", b"v"), TypeError, "topic: expected a str, got bytes"),
    (lambda p: p.send("", b"v"), ValueError, "topic name is empty"),
    (lambda p: p.send("a/b", b"v"), ValueError, "'a/b' has a character other than"),
    (lambda p: p.send("orders", b"v", partition="0"), TypeError, "partition: expected an int, got str"),
    (lambda p: p.send("orders", b"v", partition=True), TypeError, "partition: expected an int, got bool"),
    (
        lambda p: p.send("orders", b"v", partition=-1),
        ValueError,
        "partition: expected 0 to 2147483647, got -1",
    ),
    (lambda p: p.send("orders", b"v", partition=1 << 31), ValueError, "partition: expected 0 to"),
    (
        lambda p: p.send("orders", b"v", timestamp_ms=1.5),
        TypeError,
        "timestamp_ms: expected an int, got float",
    ),
    (lambda p: p.send("orders", b"v", timestamp_ms=1 << 63), ValueError, "timestamp_ms: expected 0 to"),
    (lambda p: p.send("orders", b"v", headers="h"), TypeError, "headers: expected pairs of a str and bytes"),
    (lambda p: p.send("orders", b"v", headers=["h"]), TypeError, r"headers\[0\]: expected a pair"),
    (
        lambda p: p.send("orders", b"v", headers=[(b"h", b"")]),
        TypeError,
        r"headers\[0\]: expected a str as the",
    ),
    (lambda p: p.send("orders", b"v", headers=[("\ud800", b"")]), ValueError, "cannot be written as UTF-8"),
    (lambda p: p.send("orders", b"v", headers={"h": "x"}), TypeError, r"headers\[0\] value: expected bytes"),
]
READS: list[tuple[Callable[[Any], object], type[Exception], str]] = [
    (lambda c: c.subscribe("orders"), TypeError, r"expected a list of names, got str: write \['orders'\]"),
    (lambda c: c.subscribe(5), TypeError, "topics: expected a list of names, got int"),
    (lambda c: c.subscribe([b"orders"]), TypeError, "topic: expected a str, got bytes"),
    (lambda c: c.subscribe(["orders"], "earliest"), TypeError, "start: expected an OffsetReset such as"),
    (lambda c: c.subscribe(["orders"], OffsetReset.NONE), ValueError, "NONE names no place"),
    (lambda c: c.assign([(PLACE, OffsetReset.NONE)]), ValueError, r"positions\[0\]: .*NONE names no place"),
    (lambda c: c.assign("orders"), TypeError, "positions: expected pairs of a TopicPartition and an offset"),
    (lambda c: c.assign([PLACE]), TypeError, r"positions\[0\]: expected pairs of a TopicPartition"),
    (lambda c: c.assign([("orders", 0)]), TypeError, r"positions\[0\]: expected a TopicPartition, got str"),
    (
        lambda c: c.assign([(PLACE, "end")]),
        TypeError,
        r"positions\[0\]: expected an offset, OffsetReset",
    ),
    (lambda c: c.assign([(PLACE, -2)]), ValueError, r"positions\[0\]: offset: expected 0 to"),
    (lambda c: c.assign([(PLACE, 0), (PLACE, True)]), TypeError, r"positions\[1\]: expected an offset"),
    (lambda c: c.assign(PLACE), TypeError, r"positions\[0\]: expected pairs"),
    (lambda c: c.seek(PLACE, 0), ValueError, "orders-0 is not among the partitions that are read"),
    (lambda c: c.pause(PLACE), ValueError, "orders-0 is not among the partitions that are read"),
    (lambda c: c.resume("orders"), TypeError, "expected a TopicPartition, got str"),
]
POLLS: list[tuple[Callable[[Any], object], type[Exception], str]] = [
    (lambda c: c.poll("1"), TypeError, "timeout_s: expected seconds, got str"),
    (lambda c: c.poll(-1), ValueError, "timeout_s: expected seconds, zero or more, got -1"),
    (lambda c: c.poll(10**400), ValueError, r"timeout_s: expected at most 1\.\d+e\+308 seconds"),
    (lambda c: c.poll(0, max_records=0), ValueError, "max_records: expected 1 to"),
]
ADMIN: list[tuple[Callable[[Any], object], type[Exception], str]] = [
    (lambda a: a.create_topic(5), TypeError, "topic: expected a str, got int"),
    (lambda a: a.create_topic("t", partitions=0), ValueError, "partitions: expected 1 to"),
    (lambda a: a.create_topic("t", replication_factor="3"), TypeError, "replication_factor: expected an int"),
    (lambda a: a.create_topic("t", configs=[("a", "b")]), TypeError, "configs: expected a dict"),
    (lambda a: a.create_topic("t", configs={"segment.bytes": 5}), TypeError, "'segment.bytes' and its value"),
    (lambda a: a.create_topic("t", configs={"a": "\udcff"}), ValueError, "cannot be written as UTF-8"),
    (lambda a: a.alter_topic_configs("t", {"a": "\udcff"}), ValueError, "cannot be written as UTF-8"),
    (lambda a: a.create_topic("t", assignment=[1, 2]), TypeError, r"assignment\[0\]: expected a list"),
    (
        lambda a: a.create_topic("t", partitions=2, assignment=[[1]]),
        ValueError,
        "assignment decides the number of partitions and of replicas: leave out partitions$",
    ),
    (
        lambda a: a.create_topic("t", partitions=2, replication_factor=1, assignment=[[1]]),
        ValueError,
        "leave out partitions and replication_factor$",
    ),
    (lambda a: a.delete_topic(".."), ValueError, "topic name cannot be '..'"),
    (lambda a: a.until_led("t", partitions="x"), TypeError, "partitions: expected an int, got str"),
    (lambda a: a.describe("orders"), TypeError, "topics: expected a list of names, got str"),
]
CONFIGS: list[tuple[Callable[[], object], type[Exception], str]] = [
    (lambda: ProducerConfig(linger_ms="5"), TypeError, "linger_ms: expected an int, got '5'"),  # type: ignore[arg-type]
    (lambda: ProducerConfig(acks="all"), TypeError, "acks: expected an int, got 'all': -1 is all"),  # type: ignore[arg-type]
    (lambda: ProducerConfig(acks=2), ConfigError, r"acks=2: must be -1 \(all\), 1 or 0"),
    (lambda: ProducerConfig(batch_size=-1), ConfigError, "batch_size: expected zero or more, got -1"),
    (lambda: ProducerConfig(request_timeout_ms=1 << 31), ConfigError, "request_timeout_ms: expected at most"),
    (lambda: ProducerConfig(linger_ms=1 << 63), ConfigError, "linger_ms: expected at most"),
    (lambda: ConsumerConfig(fetch_min_bytes=3_000_000_000), ConfigError, "fetch_min_bytes: expected at most"),
    (lambda: ConsumerConfig(fetch_max_wait_ms=1 << 31), ConfigError, "fetch_max_wait_ms: expected at most"),
    (lambda: ProducerConfig(compression_type="zstd"), TypeError, "such as Compression.NONE, got 'zstd'"),  # type: ignore[arg-type]
    (lambda: ConsumerConfig(auto_offset_reset="earliest"), TypeError, "such as OffsetReset.EARLIEST"),  # type: ignore[arg-type]
    (lambda: AdminConfig(request_timeout_ms=None), TypeError, "request_timeout_ms: expected an int"),  # type: ignore[arg-type]
    (lambda: ProducerConfig(enable_idempotence="no"), TypeError, "idempotence: expected True or False"),  # type: ignore[arg-type]
    (lambda: ConsumerConfig(check_crcs=0), TypeError, "check_crcs: expected True or False, got 0"),  # type: ignore[arg-type]
    (lambda: Producer("localhost"), ValueError, "bootstrap server: expected HOST:PORT, got 'localhost'"),
    (lambda: Consumer(["a:1"]), TypeError, "bootstrap servers: expected a str HOST:PORT"),  # type: ignore[arg-type]
    (
        lambda: Admin(NOWHERE, ProducerConfig()),  # type: ignore[arg-type]
        TypeError,
        "config: expected a AdminConfig, got ProducerConfig",
    ),
]


@pytest.fixture(scope="module")
def producer() -> Iterator[Producer]:
    # Wrong calls leave nothing that leaving in order would have to deliver.
    with Producer(NOWHERE) as client:
        yield client


@pytest.fixture(scope="module")
def consumer() -> Iterator[Consumer]:
    with Consumer(NOWHERE) as client:
        yield client


@pytest.fixture(scope="module")
def admin() -> Iterator[Admin]:
    with Admin(NOWHERE) as client:
        yield client


@pytest.mark.parametrize(("call", "kind", "text"), SENDS)
def test_a_wrong_argument_of_send_is_refused_at_the_call(
    producer: Producer, call: Callable[[Producer], object], kind: type[Exception], text: str
) -> None:
    with pytest.raises(kind, match=text):
        call(producer)


@pytest.mark.parametrize(("call", "kind", "text"), [*READS, *POLLS])
def test_a_wrong_argument_of_a_consumer_is_refused_at_the_call(
    consumer: Consumer, call: Callable[[Consumer], object], kind: type[Exception], text: str
) -> None:
    with pytest.raises(kind, match=text):
        call(consumer)


@pytest.mark.parametrize(("call", "kind", "text"), ADMIN)
def test_a_wrong_argument_of_an_admin_is_refused_at_the_call(
    admin: Admin, call: Callable[[Admin], object], kind: type[Exception], text: str
) -> None:
    with pytest.raises(kind, match=text):
        call(admin)


@pytest.mark.parametrize(("make", "kind", "text"), CONFIGS)
def test_a_wrong_configuration_is_refused_where_it_is_made(
    make: Callable[[], object], kind: type[Exception], text: str
) -> None:
    with pytest.raises(kind, match=text):
        make()


def test_the_asyncio_clients_refuse_the_same_at_the_same_call() -> None:
    async def main() -> None:
        async with AsyncProducer(NOWHERE) as producer, AsyncConsumer(NOWHERE) as consumer:
            for call, kind, text in SENDS:
                with pytest.raises(kind, match=text):
                    await call(producer)  # type: ignore[misc]
            for call, kind, text in READS:
                with pytest.raises(kind, match=text):
                    call(consumer)

    asyncio.run(main())


@pytest.mark.parametrize(
    ("request_", "text"),
    [
        (CreateTopicRequest(name="t", partitions=1 << 31), "partitions: expected"),
        (CreateTopicRequest(name="t", replication_factor=1 << 31), "replication_factor: expected"),
        (CreateTopicRequest(name="t", assignment=((1, 99_999_999_999),)), r"assignment\[0\]: expected"),
        (CreateTopicRequest(name="t", configs=(("a", "\udcff"),)), "cannot be written as UTF-8"),
    ],
)
def test_a_topic_that_no_request_can_hold_is_refused_and_the_client_goes_on(
    request_: CreateTopicRequest, text: str
) -> None:
    async def main() -> None:
        async with AsyncAdmin(NOWHERE, AdminConfig(default_api_timeout_ms=50)) as admin:
            with pytest.raises(ValueError, match=text):
                await admin.create(request_)
            with pytest.raises(ClusterError):
                await admin.list_topics()

    asyncio.run(main())


def test_until_led_says_false_when_its_own_time_is_up() -> None:
    async def main() -> bool:
        async with AsyncAdmin(NOWHERE) as admin, asyncio.timeout(10):
            return await admin.until_led("t", timeout_s=0.1)

    assert asyncio.run(main()) is False


def test_headers_may_be_pairs_or_a_mapping_and_bytes_may_be_any_buffer(producer: Producer) -> None:
    pairs = OutgoingRecord("t", bytearray(b"v"), memoryview(b"k"), 0, [("h", None)], 5)  # type: ignore[arg-type]
    mapped = OutgoingRecord("t", b"v", b"k", 0, {"h": None}, 5)
    assert (pairs.value, pairs.key, pairs.headers) == (mapped.value, mapped.key, mapped.headers)
    assert mapped.headers == (("h", None),) and mapped.size_bytes == pairs.size_bytes


def test_an_offset_reset_is_a_start() -> None:
    async def main() -> None:
        async with AsyncConsumer(NOWHERE) as consumer:
            starts: dict[TopicPartition, Start] = {
                PLACE: OffsetReset.EARLIEST,
                TopicPartition("orders", 1): 7,
            }
            consumer.assign(starts)
            assert consumer.positions() == {PLACE: None, TopicPartition("orders", 1): 7}
            consumer.seek(PLACE, 3)
            consumer.seek(TopicPartition("orders", 1), OffsetReset.LATEST)
            assert consumer.positions() == {PLACE: 3, TopicPartition("orders", 1): None}

    asyncio.run(main())
