"""A blocking client that ends oddly: from its own callback, from several threads, during sends, in a fork."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future

import pytest

from cluster.core.client.config import ProducerConfig
from cluster.shell.clients import Admin, Consumer, DeliveryError, Producer, RecordMetadata

NOWHERE = "127.0.0.1:1"
LIMIT_S = 20.0
# A record fails as soon as the metadata of its topic did not come.
FAILS_AT_ONCE = ProducerConfig(max_block_ms=0, delivery_timeout_ms=40_000)
FAILS_SOON = ProducerConfig(max_block_ms=100, delivery_timeout_ms=40_000)


def in_threads(works: list[Callable[[], object]]) -> list[BaseException]:
    """Run each function in a thread of its own; returns what they raised."""
    raised: list[BaseException] = []

    def run(work: Callable[[], object]) -> None:
        try:
            work()
        except BaseException as error:
            raised.append(error)

    threads = [threading.Thread(target=run, args=(work,), daemon=True) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT_S)
        assert not thread.is_alive()
    return raised


def test_a_callback_that_calls_sys_exit_leaves_the_other_futures_to_end() -> None:
    with Producer(NOWHERE, FAILS_AT_ONCE) as producer:
        first = producer.send("orders", b"v")
        first.add_done_callback(lambda _: sys.exit(1))
        assert isinstance(first.exception(LIMIT_S), DeliveryError)
        assert isinstance(producer.send("orders", b"v").exception(LIMIT_S), DeliveryError)


def test_close_in_a_callback_is_refused_and_the_client_goes_on() -> None:
    errors: list[BaseException] = []
    called = threading.Event()

    def close(producer: Producer) -> None:
        try:
            producer.close()
        except RuntimeError as error:
            errors.append(error)
        finally:
            called.set()

    with Producer(NOWHERE, FAILS_AT_ONCE) as producer:
        producer.send("orders", b"v").add_done_callback(lambda _: close(producer))
        assert called.wait(LIMIT_S)
        assert isinstance(producer.send("orders", b"v").exception(LIMIT_S), DeliveryError)
    assert "called from a callback of this Producer" in str(errors[0])


@pytest.mark.parametrize("make", [Producer, Consumer, Admin])
def test_several_threads_may_close_a_client(make: type[Producer | Consumer | Admin]) -> None:
    for _ in range(3):
        client = make(NOWHERE)
        assert in_threads([client.close] * 4) == []


def test_close_delivers_what_was_sent_while_others_close_too() -> None:
    producer = Producer(NOWHERE, FAILS_SOON)
    future = producer.send("orders", b"v")
    assert in_threads([producer.close] * 4) == []
    # It waited for its metadata until its time was up: no close cut that short.
    assert "REQUEST_TIMED_OUT" in str(future.exception(0))


def test_a_send_during_close_is_refused_and_not_a_record_that_fails() -> None:
    producer = Producer(NOWHERE, FAILS_SOON)
    futures: list[Future[RecordMetadata]] = []
    has_sent = threading.Event()

    def send_on() -> None:
        while True:
            futures.append(producer.send("orders", bytes(100)))
            has_sent.set()

    def close() -> None:
        assert has_sent.wait(LIMIT_S)
        producer.close()

    raised = in_threads([send_on, send_on, close])
    assert [str(error) for error in raised] == ["the Producer is closed"] * 2
    assert {str(future.exception(0)).split(":")[0] for future in futures} == {"REQUEST_TIMED_OUT"}


@pytest.mark.slow
def test_close_wakes_the_senders_that_wait_for_room() -> None:
    config = ProducerConfig(buffer_memory=500, max_block_ms=600, delivery_timeout_ms=40_000)
    with Producer(NOWHERE, config) as producer:
        future = producer.send("orders", bytes(100))
        raised = in_threads([lambda: producer.send("orders", bytes(250)), producer.close])
    assert [str(error) for error in raised] == ["the Producer is closed"]
    assert "REQUEST_TIMED_OUT" in str(future.exception(0))


def test_a_client_in_a_fork_says_so_and_waits_for_nothing() -> None:
    with Producer(NOWHERE, FAILS_AT_ONCE) as producer:
        read_end, write_end = os.pipe()
        child = os.fork()
        if child == 0:
            signal.alarm(int(LIMIT_S))
            try:
                producer.send("orders", b"v")
            except RuntimeError as error:
                os.write(write_end, str(error).encode())
            producer.close()
            os.write(write_end, b"; closed")
            os._exit(0)
        os.close(write_end)
        os.waitpid(child, 0)
        said = os.read(read_end, 1_000).decode()
        os.close(read_end)
    assert said == "the Producer was made before a fork: make a new one in this process; closed"
