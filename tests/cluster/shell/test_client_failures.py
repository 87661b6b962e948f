"""A client whose core fails, or that ends, leaves nobody waiting: every open future and call ends with the reason."""

from __future__ import annotations

import asyncio
import concurrent.futures
import gc
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest

from cluster.core.client.admin import AdminCore
from cluster.core.client.config import ProducerConfig
from cluster.core.client.consumer import ConsumerCore
from cluster.core.client.effects import EndOfPartition, Fetched
from cluster.core.client.producer import ProducerCore
from cluster.core.errors import ClusterError, ErrorCode
from cluster.core.messages import TopicPartition
from cluster.shell.clients import (
    Admin,
    AsyncAdmin,
    AsyncConsumer,
    AsyncProducer,
    Consumer,
    DeliveryError,
    Producer,
    RecordMetadata,
)
from cluster.shell.clients.backlog import PAUSE_AT_RECORDS
from storage.batch.record import Record

NOWHERE = "127.0.0.1:1"
REASON = "UNKNOWN_SERVER_ERROR: ValueError: planted"
LIMIT_S = 20.0


def break_core(monkeypatch: pytest.MonkeyPatch, core: type) -> None:
    """Make the core fail in its next step, which the refused connection brings."""

    def step(*_: object) -> None:
        raise ValueError("planted")

    monkeypatch.setattr(core, "step", step)


def run(main: Callable[[], object]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(LIMIT_S):
            await main()  # type: ignore[misc]

    asyncio.run(limited())


def test_a_core_that_fails_fails_every_open_future_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    break_core(monkeypatch, ProducerCore)

    async def main() -> None:
        producer = AsyncProducer(NOWHERE)
        await producer.start()
        futures = [await producer.send("orders", b"v") for _ in range(3)]
        flush = asyncio.create_task(producer.flush())
        for future in futures:
            with pytest.raises(DeliveryError, match=REASON) as raised:
                await future
            assert raised.value.is_unknown
        with pytest.raises(ClusterError, match=REASON):
            await flush
        # What comes later fails at the call.
        with pytest.raises(ClusterError, match=REASON):
            await producer.send("orders", b"v")
        with pytest.raises(ClusterError, match=REASON):
            await producer.flush()
        await producer.abort()

    run(main)


def test_a_sender_that_waits_for_room_learns_that_the_core_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    config = ProducerConfig(buffer_memory=300)

    async def main() -> None:
        async with AsyncProducer(NOWHERE, config) as producer:
            await producer.send("orders", bytes(100))
            waiting = asyncio.create_task(producer.send("orders", bytes(100)))
            await asyncio.sleep(0)
            break_core(monkeypatch, ProducerCore)
            with pytest.raises(ClusterError, match=REASON):
                await waiting
            await producer.abort()

    run(main)


def test_a_failed_core_ends_what_waits_for_an_event_or_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    break_core(monkeypatch, ConsumerCore)
    break_core(monkeypatch, AdminCore)

    async def main() -> None:
        async with AsyncConsumer(NOWHERE) as consumer, AsyncAdmin(NOWHERE) as admin:
            consumer.subscribe(["orders"])
            with pytest.raises(ClusterError, match=REASON):
                await consumer.poll(LIMIT_S)
            with pytest.raises(ClusterError, match=REASON):
                consumer.subscribe(["orders"])
            with pytest.raises(ClusterError, match=REASON):
                await admin.describe()
            with pytest.raises(ClusterError, match=REASON):
                await admin.list_topics()

    run(main)


def test_the_blocking_clients_fail_the_same_way(monkeypatch: pytest.MonkeyPatch) -> None:
    for core in (ProducerCore, ConsumerCore, AdminCore):
        break_core(monkeypatch, core)
    with pytest.raises(ClusterError, match=REASON), Producer(NOWHERE) as producer:  # noqa: PT012
        with pytest.raises(DeliveryError, match=REASON):
            producer.send("orders", b"v").result(LIMIT_S)
        with pytest.raises(DeliveryError, match=REASON):
            producer.send("orders", b"v").result(LIMIT_S)
    with Consumer(NOWHERE) as consumer:
        consumer.subscribe(["orders"])
        with pytest.raises(ClusterError, match=REASON):
            consumer.poll(LIMIT_S)
    with Admin(NOWHERE) as admin, pytest.raises(ClusterError, match=REASON):
        admin.list_topics()


def test_leaving_after_an_error_fails_the_open_futures_at_once() -> None:
    async def main() -> None:
        future: asyncio.Future[RecordMetadata] | None = None
        with pytest.raises(KeyError):  # noqa: PT012
            async with AsyncProducer(NOWHERE) as producer:
                future = await producer.send("orders", b"v")
                raise KeyError
        assert future is not None
        with pytest.raises(DeliveryError, match="the producer was closed"):
            await future

    run(main)


def test_leaving_after_an_error_reports_no_error_that_nobody_fetches() -> None:
    reported: list[str] = []

    def report(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        # gRPC reports to a loop the late events of another test's loop, which has ended (grpc/grpc#25364).
        if "PollerCompletionQueue" not in context["message"]:
            reported.append(context["message"])

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(report)
        with pytest.raises(KeyError):  # noqa: PT012
            async with AsyncProducer(NOWHERE) as producer:
                for _ in range(3):
                    await producer.send("orders", b"v")
                raise KeyError
        gc.collect()

    run(main)
    assert reported == []


def test_a_close_that_is_interrupted_leaves_no_future_open(monkeypatch: pytest.MonkeyPatch) -> None:
    producer = Producer(NOWHERE)
    future = producer.send("orders", b"v")
    monkeypatch.setattr(concurrent.futures.Future, "result", interrupted)
    with pytest.raises(KeyboardInterrupt):
        producer.close()
    monkeypatch.undo()
    with pytest.raises(DeliveryError, match="the client was closed"):
        future.result(LIMIT_S)
    producer.close()
    with pytest.raises(RuntimeError, match="the Producer is closed"):
        producer.send("orders", b"v")


_result = concurrent.futures.Future.result


def interrupted(future: Future[object], timeout: float | None = None) -> object:
    """Ctrl-C interrupts the main thread; the loop's own thread asks futures for their results too."""
    if threading.current_thread() is threading.main_thread():
        raise KeyboardInterrupt
    return _result(future, timeout)


def test_a_sender_that_waits_for_room_learns_that_the_producer_is_closed() -> None:
    config = ProducerConfig(buffer_memory=300)
    producer = Producer(NOWHERE, config)
    producer.send("orders", bytes(100))
    errors: list[str] = []

    def send() -> None:
        try:
            producer.send("orders", bytes(100))
        except RuntimeError as error:
            errors.append(str(error))

    thread = threading.Thread(target=send)
    thread.start()
    while not is_waiting(producer):
        assert thread.is_alive()
    producer.__exit__(KeyError, None, None)
    thread.join(LIMIT_S)
    assert errors == ["the Producer is closed"]


def is_waiting(producer: Producer) -> bool:
    """Whether a thread waits for room."""
    with producer._lock:
        return not producer._line.is_empty


def test_the_blocking_producer_aborts_after_an_error() -> None:
    futures: list[Future[RecordMetadata]] = []
    with pytest.raises(KeyError), Producer(NOWHERE) as producer:  # noqa: PT012
        futures.append(producer.send("orders", b"v"))
        raise KeyError
    with pytest.raises(DeliveryError, match="the producer was closed"):
        futures[0].result(LIMIT_S)


def test_a_closed_client_says_so() -> None:
    producer, consumer, admin = Producer(NOWHERE), Consumer(NOWHERE), Admin(NOWHERE)
    for client in (producer, consumer, admin):
        client.close()
        client.close()
    with pytest.raises(RuntimeError, match="the Producer is closed"):
        producer.send("orders", b"v")
    with pytest.raises(RuntimeError, match="the Producer is closed"):
        producer.flush()
    with pytest.raises(RuntimeError, match="the Consumer is closed"):
        consumer.poll(0)
    with pytest.raises(RuntimeError, match="the Admin is closed"):
        admin.list_topics()


@pytest.mark.parametrize("forget", [lambda c: None, lambda c: c.subscribe([]), lambda c: c.assign({})])
@pytest.mark.parametrize("read", [lambda c: c.poll(0), lambda c: next(iter(c))])
def test_a_consumer_that_reads_nothing_says_so_instead_of_waiting(
    forget: Callable[[Consumer], None], read: Callable[[Consumer], object]
) -> None:
    with Consumer(NOWHERE) as consumer:
        forget(consumer)
        with pytest.raises(RuntimeError, match="no topic and no partition: call subscribe or assign first"):
            read(consumer)


def test_an_asyncio_client_that_has_not_started_says_so() -> None:
    async def main() -> None:
        producer = AsyncProducer(NOWHERE)
        with pytest.raises(RuntimeError, match="the AsyncProducer has not started: write `async with Asy"):
            await producer.send("orders", b"v")
        async with producer:
            with pytest.raises(RuntimeError, match="the AsyncProducer was started before"):
                await producer.start()
        with pytest.raises(RuntimeError, match="the AsyncProducer is closed"):
            await producer.send("orders", b"v")

    run(main)


def test_a_call_from_a_callback_that_would_wait_for_itself_is_refused() -> None:
    errors: list[BaseException] = []
    done = threading.Event()
    config = ProducerConfig(max_block_ms=0, delivery_timeout_ms=40_000)

    def on_end(producer: Producer) -> None:
        try:
            producer.flush()
        except RuntimeError as error:
            errors.append(error)
        finally:
            done.set()

    with Producer(NOWHERE, config) as producer:
        producer.send("orders", b"v").add_done_callback(lambda _: on_end(producer))
        assert done.wait(LIMIT_S)
    assert "called from a callback of this Producer" in str(errors[0])


def test_a_full_buffer_makes_the_sender_wait_for_max_block_ms_at_most() -> None:
    config = ProducerConfig(buffer_memory=300, max_block_ms=1)
    future: Future[RecordMetadata] | None = None
    with pytest.raises(ClusterError) as raised, Producer(NOWHERE, config) as producer:  # noqa: PT012
        # Records that wait for metadata would leave the buffer at the same moment.
        producer._producer.core.waiting._max_block_ms = 60_000
        for _ in range(3):
            future = producer.send("orders", bytes(100))
    assert raised.value.code is ErrorCode.REQUEST_TIMED_OUT
    assert future is not None


def test_each_sender_that_waits_for_room_gives_up_after_its_own_max_block_ms() -> None:
    config = ProducerConfig(buffer_memory=300, max_block_ms=10)

    async def main() -> None:
        async with AsyncProducer(NOWHERE, config) as producer:
            # Records that wait for metadata would leave the buffer at the same moment.
            producer.core.waiting._max_block_ms = 60_000
            await producer.send("orders", bytes(100))
            # The second pair waits under an alarm of its own, after the first one has rung.
            for _ in range(2):
                waiting = [producer.send("orders", bytes(150)) for _ in range(2)]
                ends = await asyncio.gather(*waiting, return_exceptions=True)
                assert [str(end) for end in ends] == [
                    "REQUEST_TIMED_OUT: the buffer stayed full for max.block.ms"
                ] * 2
            await producer.abort()

    run(main)


def test_the_threads_of_closed_clients_have_ended() -> None:
    before = threading.active_count()
    for make in (Producer, Consumer, Admin):
        with make(NOWHERE):
            assert threading.active_count() > before
    assert threading.active_count() == before


def test_a_consumer_that_is_assigned_again_forgets_what_it_fetched() -> None:
    async def main() -> None:
        async with AsyncConsumer(NOWHERE) as consumer:
            consumer._on_notice(EndOfPartition(topic_partition=TopicPartition("old", 0), offset=3))
            consumer.assign([(TopicPartition("new", 0), 0)])
            assert not consumer._events

    run(main)


@pytest.mark.parametrize(("value_bytes", "count"), [(1, PAUSE_AT_RECORDS + 1), (1 << 20, 65)])
@pytest.mark.parametrize("start_again", ["seek", "resume"])
def test_a_full_consumer_fetches_no_more_after_seek_or_resume(
    start_again: str, value_bytes: int, count: int
) -> None:
    sought, other = TopicPartition("orders", 0), TopicPartition("orders", 1)

    async def main() -> None:
        async with AsyncConsumer(NOWHERE) as consumer:
            consumer.assign([(sought, 0), (other, 0)])
            consumer._on_notice(fetched(other, count, value_bytes))
            if start_again == "seek":
                consumer.seek(sought, 5)
            else:
                consumer.resume(sought)
            # The answer of a fetch that was sent since then.
            consumer._on_notice(fetched(sought, 1, value_bytes))
            assert all(position.is_paused for position in consumer.core._positions.values())

    run(main)


def test_a_consumer_that_was_full_of_large_records_fetches_again_once_they_are_read() -> None:
    place = TopicPartition("orders", 0)

    async def main() -> None:
        async with AsyncConsumer(NOWHERE) as consumer:
            consumer.assign([(place, 0)])
            for _ in range(65):
                consumer._on_notice(fetched(place, 1, 1 << 20))
            paused = []
            for _ in range(65):
                await consumer.next_event()
                paused.append(consumer.core._positions[place].is_paused)
            # Below 16 MiB, so with the 50th.
            assert paused.index(False) == 49 and not any(paused[49:])

    run(main)


def fetched(place: TopicPartition, count: int, value_bytes: int) -> Fetched:
    """Records as a fetch brings them."""
    records = (Record(offset=0, timestamp=0, key=None, value=b"v" * value_bytes),) * count
    return Fetched(topic_partition=place, records=records, high_watermark=0, next_offset=0, leader_epoch=0)
